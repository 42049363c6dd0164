"""`millrace index`, `inspect` and `pack` as a user meets them: output, exit status, messages. Local folders only; what S3 adds is
tested end to end."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def binary() -> Path:
    if "MILLRACE_BIN" in os.environ:
        return Path(os.environ["MILLRACE_BIN"])
    if "MILLRACE_BINARY_DIR" in os.environ:
        return Path(os.environ["MILLRACE_BINARY_DIR"]) / "bin/millrace"
    built = sorted(REPOSITORY.glob("build/*/bin/millrace"), key=lambda path: path.stat().st_mtime)
    assert built, "build the target millrace"
    return built[-1]


@pytest.fixture
def run(tmp_path: Path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "MILLRACE_", "XDG_"))} | {
        "HOME": str(tmp_path / "home")
    }

    def call(*args: object, code: int = 0, **more: str) -> tuple[str, str]:
        done = subprocess.run(
            [binary(), *map(str, args)], capture_output=True, env=env | more, cwd=tmp_path, timeout=300, check=False
        )
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        assert code == 0 or done.stderr.startswith(b"millrace"), "a failure says which command failed"
        return done.stdout.decode(), done.stderr.decode()

    return call


def raw(root: Path) -> Path:
    for folder, count in (("cat", 4), ("ant", 3), ("dog", 5)):
        (root / folder).mkdir(parents=True)
        for n in range(count):
            (root / folder / f"{n}.jpg").write_bytes(b"x" * 1000 * (n + 1))
    return root


def shard(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_index_prints_what_it_found(run, tmp_path: Path) -> None:
    out, err = run("index", raw(tmp_path / "raw"), "--json")
    found = json.loads(out)
    assert err == "", "progress is for terminals"
    assert found["seconds"] >= 0
    assert {k: found[k] for k in ("samples", "objects", "bytes", "fields")} == {
        "samples": 12,
        "objects": 12,
        "bytes": 31000,
        "fields": ["cls", "jpg"],
    }
    assert Path(found["index"]).stat().st_size == found["index_bytes"]
    assert Path(found["index"]) == tmp_path / "raw/.millrace/index"
    out, _ = run("index", tmp_path / "raw")
    assert "12 samples in 12 objects" in out and "cls, jpg" in out


def test_index_output_leaves_the_data_alone(run, tmp_path: Path) -> None:
    run("index", raw(tmp_path / "raw"), "--output", tmp_path / "i.index")
    assert not (tmp_path / "raw/.millrace").exists()
    assert (tmp_path / "i.index").read_bytes().startswith(b"MRINDEX\0")
    run("index", tmp_path / "raw")
    assert (tmp_path / "raw/.millrace/index").read_bytes() == (tmp_path / "i.index").read_bytes()


def test_relative_paths_and_file_uris(run, tmp_path: Path) -> None:
    raw(tmp_path / "raw")
    for uri in ("raw", "./raw/", f"file://{tmp_path}/raw"):
        assert json.loads(run("inspect", uri, "--json")[0])["samples"] == 12


def test_inspect_raw(run, tmp_path: Path) -> None:
    found = json.loads(run("inspect", raw(tmp_path / "raw"), "--json")[0])
    assert found["kind"] == "raw"
    assert found["classes"] == [
        {"name": "ant", "samples": 3},
        {"name": "cat", "samples": 4},
        {"name": "dog", "samples": 5},
    ]
    assert found["class_sorted"] is True
    assert found["sizes"]["min"] == 1000 and found["sizes"]["max"] == 5000
    assert found["sizes"]["mean"] == pytest.approx(31000 / 12)
    assert found["sizes"]["p50"] == pytest.approx(2000, rel=0.01)
    assert sum(b["samples"] for b in found["histogram"]) == 12
    assert {f["name"]: f["samples"] for f in found["fields"]} == {"cls": 12, "jpg": 12}
    out, _ = run("inspect", tmp_path / "raw")
    assert "12 samples in 12 raw objects" in out and "ant" in out
    assert "3 classes, of 3 ('ant') to 5 ('dog') samples, sorted by class\n" in out
    assert "--shuffle global" not in out, "they fit into one window"


def test_inspect_is_silent_where_windows_mix_the_classes(run, tmp_path: Path) -> None:
    for n in range(80):
        path = tmp_path / "raw" / f"{n // 20}" / f"{n:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(4 << 20)
    out, _ = run("inspect", tmp_path / "raw")  # 64 of the 80, from anywhere in the data
    assert "4 classes, of 20 ('0') to 20 ('3') samples, sorted by class\n" in out and "--shuffle global" not in out


def test_inspect_tar(run, tmp_path: Path) -> None:
    members = {}
    for n in range(200):
        members |= {f"{n:04}.jpg": b"x" * 100, f"{n:04}.cls": str(n * 7 % 10).encode()}
    shard(tmp_path / "tar/a.tar", members)
    found = json.loads(run("inspect", tmp_path / "tar", "--json")[0])
    assert found["kind"] == "tar" and found["samples"] == 200 and found["objects"] == 1
    assert found["classes"] == [{"name": str(n), "samples": 20} for n in range(10)]
    assert found["class_sorted"] is False
    assert "sorted by class" not in run("inspect", tmp_path / "tar")[0]


def test_inspect_says_when_shards_are_sorted_by_class(run, tmp_path: Path) -> None:
    members = {}
    for n in range(200):
        members |= {f"{n:04}.jpg": b"x", f"{n:04}.cls": str(n // 20).encode()}
    shard(tmp_path / "tar/a.tar", members)
    assert json.loads(run("inspect", tmp_path / "tar", "--json")[0])["class_sorted"] is True


def test_pack_and_index_agree(run, tmp_path: Path) -> None:
    raw(tmp_path / "raw")
    report = json.loads(run("pack", tmp_path / "raw", tmp_path / "tar", "--shard-size", "16KiB", "--json")[0])
    assert report["already_packed"] is False
    shards = sorted((tmp_path / "tar").glob("*.tar"))
    assert report["samples"] == 12 and report["shards"] == len(shards) > 1
    assert report["bytes"] == sum(s.stat().st_size for s in shards)
    assert max(s.stat().st_size for s in shards) <= 16384
    packed = (tmp_path / "tar/.millrace/index").read_bytes()
    assert len(packed) == report["index_bytes"]
    run("index", tmp_path / "tar", "--full")
    assert (tmp_path / "tar/.millrace/index").read_bytes() == packed
    found = json.loads(run("inspect", tmp_path / "tar", "--json")[0])
    assert [c["samples"] for c in found["classes"]] == [3, 4, 5]


def test_one_is_not_said_as_many_are(run, tmp_path: Path) -> None:
    shard(tmp_path / "one/a.tar", {"x.jpg": b"x" * 1000, "x.cls": b"1"})
    assert run("index", tmp_path / "one")[0].startswith("1 sample in 1 object, ")
    assert ": 1 sample in 1 tar shard, " in run("inspect", tmp_path / "one")[0]
    assert "packed 1 sample into 1 shard, " in run("pack", tmp_path / "one", tmp_path / "out")[0]
    text, _ = run("feed", tmp_path / "one", "--explain", "--batch", "1")
    assert (
        ": 1 sample in 1 tar shard, " in text
        and "Batches: 1 step, of 1 sample for each rank; rank 0 of 1 gets 1 sample; " in text
    )
    assert "Expected: 1 request, " in text


def test_pack_refuses_a_destination_with_files(run, tmp_path: Path) -> None:
    raw(tmp_path / "raw")
    run("pack", tmp_path / "raw", tmp_path / "tar")
    out, _ = run("pack", tmp_path / "raw", tmp_path / "tar")
    assert out.startswith("already packed: 12 samples in 1 shard, ") and out.endswith("; nothing to do\n")
    assert json.loads(run("pack", tmp_path / "raw", tmp_path / "tar", "--json")[0])["already_packed"] is True
    _, err = run("pack", tmp_path / "raw", tmp_path / "tar", "--shard-size", "16KiB", code=1)
    assert str(tmp_path / "tar") in err and "--force" in err and "--shard-size" in err
    run("pack", tmp_path / "raw", tmp_path / "tar", "--force")
    (tmp_path / "tar/notes.txt").write_text("mine")
    _, err = run("pack", tmp_path / "raw", tmp_path / "tar", "--force", code=1)
    assert "notes.txt" in err and (tmp_path / "tar/notes.txt").exists()


@pytest.mark.parametrize("command", ["index", "inspect", "pack"])
def test_help_has_examples(run, command: str) -> None:
    out, _ = run(command, "--help")
    assert "Examples:" in out and f"millrace {command} " in out


@pytest.mark.parametrize(
    "args",
    [["index"], ["inspect"], ["pack", "a"], ["index", "a", "--nonsense"], ["pack", "a", "b", "--shard-size", "big"]],
)
def test_usage_errors(run, args: list[str]) -> None:
    run(*args, code=2)


def test_wrong_places(run, tmp_path: Path) -> None:
    for command in ("index", "inspect"):
        _, err = run(command, tmp_path / "nowhere", code=1)
        assert str(tmp_path / "nowhere") in err
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    _, err = run("index", tmp_path / "empty", code=1)
    assert "no samples under" in err
    _, err = run("index", "http://example.org/data", code=2)
    assert "http" in err


def test_mixed_data(run, tmp_path: Path) -> None:
    raw(tmp_path / "raw")
    shard(tmp_path / "raw/x.tar", {"a.jpg": b""})
    _, err = run("inspect", tmp_path / "raw", code=1)
    assert "both tar shards and other files" in err and "x.tar" in err


def test_truncated_shard(run, tmp_path: Path) -> None:
    path = shard(tmp_path / "tar/a.tar", {"a.jpg": b"x" * 5000})
    with open(path, "r+b") as file:
        file.truncate(3000)
    _, err = run("index", tmp_path / "tar", code=1)
    assert "a.tar" in err and "offset 3000" in err and "truncated" in err


def test_a_copy_with_its_index(run, tmp_path: Path) -> None:
    """Told from changed data where there is more than one object; the warning comes once."""
    for count in (1, 2):
        source, copy = tmp_path / f"{count}", tmp_path / f"{count}-copy"
        for n in range(count):
            shard(source / f"{n}.tar", {f"{n}.jpg": b"x"})
        run("index", source)
        shutil.copytree(source, copy, copy_function=shutil.copyfile)  # by another tool: ours carries the index over
        assert (copy / ".millrace/index").exists()
        if count == 1:
            _, err = run("inspect", copy, code=1)
            assert "was replaced" in err and "or is a copy" in err and "millrace index" in err
            run("index", copy)
        else:
            _, err = run("inspect", copy)
            assert err.count("copied from; it is built again") == 1, err
        _, err = run("inspect", copy)
        assert err == ""


def test_links_of_a_tar_are_not_dropped_silently(run, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "1.jpg").write_bytes(b"x" * 100)
    os.link(folder / "1.jpg", folder / "4.jpg")
    os.symlink("1.jpg", folder / "5.jpg")
    os.symlink("1.jpg", folder / "Makefile")  # would be no sample as a file either
    (tmp_path / "tar").mkdir()
    with tarfile.open(tmp_path / "tar/a.tar", "w") as tar:
        for name in ("1.jpg", "4.jpg", "5.jpg", "Makefile"):
            tar.add(folder / name, f"d/{name}")
    out, err = run("index", tmp_path / "tar")
    assert "1 sample " in out
    assert (
        "2 links of tar shards were passed over" in err
        and "'d/4.jpg' in 'a.tar'" in err
        and "--hard-dereference" in err
    )
    _, err = run("index", tmp_path / "tar")
    assert "link" not in err, "the shard was not read again"
    _, err = run("index", "--full", tmp_path / "tar")
    assert "2 links" in err
    (tmp_path / "tar/.millrace/index").unlink()
    _, err = run("pack", tmp_path / "tar", tmp_path / "out")
    assert "2 links" in err


def test_stale_and_damaged_index(run, tmp_path: Path) -> None:
    raw(tmp_path / "raw")
    run("index", tmp_path / "raw")
    (tmp_path / "raw/cat/0.jpg").write_bytes(b"other")
    _, err = run("inspect", tmp_path / "raw", code=1)
    assert "cat/0.jpg" in err and "millrace index" in err
    run("index", tmp_path / "raw")
    index = tmp_path / "raw/.millrace/index"
    data = bytearray(index.read_bytes())
    data[40] ^= 1
    index.write_bytes(data)
    _, err = run("inspect", tmp_path / "raw", code=1)
    assert "damaged" in err and "millrace index" in err
