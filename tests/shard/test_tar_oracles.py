"""Holds the tar reader and writer against others: Python's tarfile, GNU tar and webdataset.

Reads go through the small program `shard_dump` (built beside the tests), writes through `millrace pack`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest
from shards import dump, program, run_dump


def samples_of(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Key and {field: sha256} of each sample, in order."""
    return [(s["key"], {f["name"]: f["sha256"] for f in s["fields"]}) for s in dump(path)]


def grouped(members: list[tuple[str, bytes]]) -> list[tuple[str, dict[str, str]]]:
    """The same from names and contents, by WebDataset's rules."""
    samples: list[tuple[str, dict[str, str]]] = []
    for name, data in members:
        name = name.removeprefix("./")
        folder, slash, base = name.rpartition("/")
        stem, dot, field = base.partition(".")
        if not stem or not dot:
            continue
        key = folder + slash + stem
        if not samples or samples[-1][0] != key:
            samples.append((key, {}))
        samples[-1][1][field.lower()] = hashlib.sha256(data).hexdigest()
    return samples


def members(count: int = 40, long_names: bool = True) -> list[tuple[str, bytes]]:
    rng = random.Random(7)
    folders = ["", "a/b/", "v1.0/", "d" * 90 + "/", "größe/"]
    if long_names:
        folders += ["p" * 140 + "/q" * 20 + "/", "x" * 200 + "/" + "y" * 150 + "/"]
    found = []
    for n in range(count):
        folder = folders[n % len(folders)]
        for field in ("jpg", "cls", "seg.PNG")[: 1 + n % 3]:
            size = rng.choice([0, 1, 511, 512, 513, rng.randrange(20_000)])
            found.append((f"{folder}{n:05d}.{field}", rng.randbytes(size)))
    return found


def write_tarfile(
    path: Path, found: list[tuple[str, bytes]], tar_format: int, mtime: float = 0, **more: object
) -> None:
    with tarfile.open(path, "w", format=tar_format, **more) as tar:
        for name, data in found:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("chunk", [1, 511, 65536])
@pytest.mark.parametrize("mtime", [0, 1700000000.25], ids=["plain", "pax-header-for-each-member"])
@pytest.mark.parametrize(
    "tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["ustar", "gnu", "pax"]
)
def test_reads_tarfile(tmp_path: Path, tar_format: int, mtime: float, chunk: int) -> None:
    found = members(long_names=tar_format != tarfile.USTAR_FORMAT)
    write_tarfile(tmp_path / "t.tar", found, tar_format, mtime)
    assert [
        (s["key"], {f["name"]: f["sha256"] for f in s["fields"]}) for s in dump(tmp_path / "t.tar", chunk)
    ] == grouped(found)


def test_offsets_are_those_of_tarfile(tmp_path: Path) -> None:
    write_tarfile(tmp_path / "t.tar", members(), tarfile.PAX_FORMAT, 0.5)
    ours = [(f["offset"], f["length"]) for s in dump(tmp_path / "t.tar") for f in s["fields"]]
    with tarfile.open(tmp_path / "t.tar") as tar:
        assert ours == [(m.offset_data, m.size) for m in tar]


def test_global_pax_header(tmp_path: Path) -> None:
    found = members(5)
    write_tarfile(
        tmp_path / "t.tar", found, tarfile.PAX_FORMAT, 0.5, pax_headers={"comment": "of all", "uname": "größe"}
    )
    assert samples_of(tmp_path / "t.tar") == grouped(found)


@pytest.mark.parametrize("dialect", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_reads_gnu_tar(tmp_path: Path, dialect: str) -> None:
    long_names = dialect in ("oldgnu", "gnu", "posix")
    found = [m for m in members(long_names=long_names) if long_names or len(m[0].encode()) < 90]
    for name, data in found:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    # Folders, a link and a hard link are no samples.
    (tmp_path / "data" / "link.jpg").symlink_to("00000.jpg")
    os.link(tmp_path / "data" / "00000.jpg", tmp_path / "data" / "hard.jpg")
    names = "\n".join(["link.jpg", "00000.jpg", "hard.jpg", *(name for name, _ in found if name != "00000.jpg")])
    (tmp_path / "names").write_text(names)
    subprocess.run(
        [
            "tar",
            "--create",
            f"--format={dialect}",
            "--file",
            tmp_path / "t.tar",
            "--directory",
            tmp_path / "data",
            "--files-from",
            tmp_path / "names",
        ],
        check=True,
        timeout=60,
    )
    assert samples_of(tmp_path / "t.tar") == grouped(found)


def test_gnu_tar_with_leading_dot_and_folders(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / "data/a.b").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"data/a.b/{n}.txt").write_text(str(n))
    subprocess.run(
        ["tar", "--sort=name", "-C", tmp_path / "data", "-cf", tmp_path / "t.tar", "."], check=True, timeout=60
    )
    assert [s["key"] for s in dump(tmp_path / "t.tar")] == ["a.b/0", "a.b/1", "a.b/2"]


def test_gnu_sparse_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "hole.bin", "wb") as file:
        file.truncate(10_000_000)
        file.write(b"x")
    for dialect in ("gnu", "posix"):
        subprocess.run(
            ["tar", "-S", f"--format={dialect}", "-C", tmp_path, "-cf", tmp_path / "t.tar", "hole.bin"],
            check=True,
            timeout=60,
        )
        done = run_dump(tmp_path / "t.tar")
        assert done.returncode == 1 and b"sparse" in done.stderr


def test_large_member_sizes(tmp_path: Path) -> None:
    """More than 8 GiB, in base 256 (GNU) and PAX: the header alone is enough to see that the data are missing."""
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        info = tarfile.TarInfo("big.bin")
        info.size = (1 << 33) + 5
        (tmp_path / "t.tar").write_bytes(info.tobuf(tar_format))
        done = run_dump(tmp_path / "t.tar")
        assert done.returncode == 1 and b"'big.bin' has 8589934597 bytes" in done.stderr, done.stderr


def test_reads_webdataset_writer(tmp_path: Path) -> None:
    import webdataset

    expected = []
    with webdataset.TarWriter(str(tmp_path / "t.tar")) as writer:
        for n in range(30):
            sample = {
                "__key__": f"dir/{n:05d}",
                "jpg": bytes([n]) * n,
                "cls": str(n % 7).encode(),
                "Seg.PNG": b"x" * 600,
            }
            writer.write(sample)
            expected.append(
                (
                    sample["__key__"],
                    {k.lower(): hashlib.sha256(v).hexdigest() for k, v in sample.items() if k != "__key__"},
                )
            )
    assert samples_of(tmp_path / "t.tar") == expected


def test_agrees_with_webdataset_on_what_is_a_sample(tmp_path: Path) -> None:
    """But for `d/.hidden`, of which webdataset makes the key `d/`: a hidden file is no sample here, in a folder or not."""
    import webdataset

    names = [
        "__meta__",
        "__meta__/x.jpg",
        "a.jpg",
        "README",
        "a.cls",
        ".hidden.jpg",
        "b.tar.gz",
        "d.e/f.g.H",
        "d.e/f.i",
        "a.jpg",
        "x.",
    ]
    write_tarfile(tmp_path / "t.tar", [(n, n.encode()) for n in names], tarfile.PAX_FORMAT)
    theirs = [
        (s["__key__"], {k: hashlib.sha256(v).hexdigest() for k, v in s.items() if not k.startswith("__")})
        for s in webdataset.WebDataset(str(tmp_path / "t.tar"), shardshuffle=False, empty_check=False)
    ]
    assert samples_of(tmp_path / "t.tar") == theirs


def test_random_archives_agree_with_tarfile(tmp_path: Path) -> None:
    """Seeded; formats, names, types and sizes at random. Members that are not regular files must not disturb.

    Without the old type NUL, which tarfile takes for a folder when the cut name in front of a PAX path ends in a slash."""
    rng = random.Random(11)
    for round_number in range(60):
        path = tmp_path / f"{round_number}.tar"
        with tarfile.open(path, "w", format=rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as tar:
            for n in range(rng.randrange(12)):
                name = "".join(rng.choice("ab./é") for _ in range(rng.choice([3, 8, 20, 120, 300]))).strip(
                    "/"
                ) + rng.choice(["", f"{n}.x", f"{n}.Y.z"])
                info = tarfile.TarInfo(name or "z.z")
                info.type = rng.choice(
                    [tarfile.REGTYPE] * 6 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CONTTYPE]
                )
                info.linkname = rng.choice(["", "t" * 150]) if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
                info.mtime = rng.choice([0, 1.5, -1])
                data = rng.randbytes(rng.randrange(2000)) if info.isreg() else b""
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        with tarfile.open(path) as tar:
            expected = []
            for member in tar:
                stem, dot, field = member.name.rpartition("/")[2].partition(".")
                if member.isreg() and stem and dot:
                    expected.append((member.offset_data, member.size))
        done = run_dump(path)
        if b"twice" in done.stderr:  # names are short: it happens
            continue
        assert done.returncode == 0, done.stderr
        ours = [(f["offset"], f["length"]) for line in done.stdout.splitlines() for f in json.loads(line)["fields"]]
        assert ours == expected, path


def test_our_shards_are_plain_ustar_for_everybody(tmp_path: Path) -> None:
    names = [
        "cat/0001.jpg",
        "größe/日本.jpg",
        "d" * 90 + "/" + "e" * 150 + ".jpg",
        "f" * 60 + "/" + "g" * 60 + "/x.JPG",
    ]
    for n, name in enumerate(names):
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes([n]) * (n * 700))
    subprocess.run(
        [program("millrace"), "pack", tmp_path / "raw", tmp_path / "tar"], check=True, capture_output=True, timeout=60
    )
    shard = tmp_path / "tar" / "shard-000000.tar"
    with tarfile.open(shard) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar}
        assert all((m.mode, m.uid, m.gid, m.mtime, m.isreg()) == (0o644, 0, 0, 0, True) for m in tar.getmembers())
    for n, name in enumerate(names):
        assert found[name.replace("JPG", "jpg")] == bytes([n]) * (n * 700)
    listed = subprocess.run(
        ["tar", "--quoting-style=literal", "-tf", shard],
        check=True,
        capture_output=True,
        timeout=60,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert not listed.stderr, listed.stderr
    assert sorted(listed.stdout.decode().split()) == sorted(found)
    import webdataset

    theirs = {s["__key__"]: s for s in webdataset.WebDataset(str(shard), shardshuffle=False, empty_check=False)}
    assert len(theirs) == len(names)
    assert theirs["cat/0001"]["cls"] == b"0"


def adversarial_names(count: int) -> list[bytes]:
    """Paths of any bytes, with lengths around the limits of ustar's fields (100 and 155), whose keys and fields tar can tell apart."""
    rng = random.Random(11)
    odd = [
        b" ",
        b"\n",
        b"\t",
        b"\\",
        b"'",
        b'"',
        b"*",
        b"-",
        b"\x01",
        b"\x1b[2J",
        b"\x7f",
        b"\xff",
        b"\xc3(",
        "\u65e5".encode(),
        b"=",
        b"%00",
    ]

    def word(length: int) -> bytes:
        out = b""
        while len(out) < length:
            out += rng.choice(odd) if rng.random() < 0.2 else rng.choice(b"abcXYZ019_").to_bytes()
        return out[:length]

    lengths = (1, 2, 8, 49, 50, 99, 100, 101, 153, 154, 155, 156, 200)
    names: set[bytes] = set()
    while len(names) < count:
        folders = [word(rng.choice(lengths)) + rng.choice([b"", b".x", b".."]) for _ in range(rng.randrange(4))]
        name = b"/".join([*folders, word(rng.choice(lengths)) + rng.choice([b".bin", b".Seg.DAT", b".txt", b".J g"])])
        if not any(part.startswith(b"__") for part in name.split(b"/")):
            names.add(name)
    # Each with a key of its own, also where case is all that differs.
    return [b"%03d/" % n + name for n, name in enumerate(sorted(names))]


def test_any_names_that_we_write_are_read_by_others(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "raw")
    wanted: dict[bytes, bytes] = {}
    for n, name in enumerate(adversarial_names(150)):
        folder, _, base = name.rpartition(b"/")
        os.makedirs(os.path.join(root, folder), exist_ok=True)
        data = name * (n % 9)
        with open(os.path.join(root, name), "wb") as file:
            file.write(data)
        stem, _, field = base.rpartition(b".")
        wanted[folder + b"/" + stem.replace(b".", b"%2E") + b"." + field.lower()] = data
    assert len(wanted) == 150
    for size in ("1GiB", "16KiB"):
        out = tmp_path / size
        subprocess.run(
            [program("millrace"), "pack", root, out, "--shard-size", size], check=True, capture_output=True, timeout=60
        )
        theirs: dict[bytes, bytes] = {}
        for shard in sorted(out.glob("*.tar")):
            with tarfile.open(shard, encoding="utf-8", errors="surrogateescape") as tar:
                theirs |= {os.fsencode(m.name): tar.extractfile(m).read() for m in tar}
            (tmp_path / f"gnu{size}").mkdir(exist_ok=True)
            done = subprocess.run(
                ["tar", "-xf", shard, "-C", tmp_path / f"gnu{size}"], check=True, capture_output=True, timeout=60
            )
            assert not done.stderr, done.stderr
        assert {name: data for name, data in theirs.items() if not name.endswith(b".cls")} == wanted
        assert len(theirs) == 2 * len(wanted)
        extracted = os.fsencode(tmp_path / f"gnu{size}")
        for name, data in theirs.items():
            with open(os.path.join(extracted, name), "rb") as file:
                assert file.read() == data, name
