"""Parquet files are packed: what becomes of each type, held against pyarrow; large ones, kills, and what cannot be read."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from . import oracle
from .conftest import Photos
from .harness import MIB, Sandbox, devstore

PYTHON = {"MILLRACE_PYTHON": sys.executable}


def write(path: Path, columns: dict[str, Any], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **more)
    return path


def npy(value: bytes) -> Any:
    return numpy.load(io.BytesIO(value), allow_pickle=False)


def test_types(sandbox: Sandbox, tmp_path: Path) -> None:
    table = {
        "text": pa.array(["a", None, "\u65e5\u672c"]),
        "blob": pa.array([b"\x00\xff", b"", None]),
        "whole": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()),
        "small": pa.array([1, 2, 255], pa.uint8()),
        "truth": pa.array([True, False, True]),
        "gaps": pa.array([7, None, 9], pa.int32()),
        "real": pa.array([0.1, None, -1e300]),
        "half": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "tokens": pa.array([[1, 2, 3], [4], [5, 6]], pa.list_(pa.uint16())),
        "points": pa.array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0]]], pa.list_(pa.list_(pa.float32(), 2))),
        "vector": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        "holes": pa.array([[1, None], [], [2]]),
        "record": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None]),
        "words": pa.array([["a", "b"], [], ["c"]]),
    }
    write(tmp_path / "in/part-0.parquet", table)
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", env=PYTHON)
    samples = oracle.read_tar(tmp_path / "out")
    assert [sample.key for sample in samples] == [f"part-0/{row:08d}" for row in range(3)]
    rows = [sample.fields for sample in samples]
    for name, expected in {
        "text": [b"a", b"", "\u65e5\u672c".encode()],
        "blob": [b"\x00\xff", b"", b""],
        "whole": [b"-9223372036854775808", b"0", b"9223372036854775807"],
        "small": [b"1", b"2", b"255"],
        "truth": [b"1", b"0", b"1"],
        "gaps": [b"7", b"null", b"9"],
        "real": [b"0.1", b"nan", b"-1e+300"],
        "half": [b"0.5", b"1.5", b"2.5"],
        "word": [b"x", b"y", b"x"],
    }.items():
        assert [row[name] for row in rows] == expected, name
    for name in ("holes", "record", "words"):
        assert [json.loads(row[name]) for row in rows] == table[name].to_pylist(), name
    for name, dtype in (("tokens", "uint16"), ("points", "float32"), ("vector", "int64")):
        for row, value in zip(rows, table[name].to_pylist()):
            found = npy(row[name])
            assert found.dtype == dtype and found.tolist() == value, name


def test_images_of_hugging_face_and_folders(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """Image structs, several files and row groups below S3; the same samples as packed from elsewhere."""
    for number, part in enumerate((photos.samples[:7], photos.samples[7:])):
        columns = {
            "__key__": [sample.key for sample in part],
            "image": [{"bytes": sample.fields["jpg"], "path": f"{sample.key}.jpg"} for sample in part],
            "label": [int(sample.fields["cls"]) for sample in part],
        }
        write(tmp_path / f"root/b/data/train-{number:05d}.parquet", columns, row_group_size=100)
    (tmp_path / "root/out").mkdir()
    fields = ("--field", "image=jpg", "--field", "label=cls")
    with devstore(sandbox, tmp_path / "root") as server:
        env = {**server.env(), **PYTHON}
        sandbox.ok("pack", "s3://b/data", "s3://out/tar", *fields, env=env)
        sandbox.run("index", "s3://b/data", env=env).failed(1, "train-00000.parquet", "millrace pack")
        digests = {
            sandbox.ok("feed", place, "--json", "--shuffle", "none", "--batch", "4", "--size", "32", env=env).json()[
                "digest"
            ]
            for place in ("s3://out/tar", photos.tar)
        }
    assert oracle.read_tar(tmp_path / "root/out/tar") == photos.samples
    assert len(digests) == 1


def test_several_shards_and_kept_work(sandbox: Sandbox, tmp_path: Path) -> None:
    """More than one scratch shard a file; what was unpacked before is not unpacked again."""
    blobs = [bytes([row]) * (1 << 20) for row in range(150)]
    write(tmp_path / "in/a.parquet", {"blob": blobs}, row_group_size=40)
    write(tmp_path / "in/b.parquet", {"blob": [b"last"]})
    scratch = tmp_path / "scratch"
    (tmp_path / "root").mkdir()
    with devstore(sandbox, tmp_path / "root") as server:
        args = ["pack", tmp_path / "in", "s3://out/x", "--scratch", scratch]
        sandbox.run(*args, env=PYTHON | server.env()).failed(1, "bucket")
        (folder,) = scratch.iterdir()
        shards = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.mds")}
        assert sorted(shards) == [
            "a.parquet.00000.mds",
            "a.parquet.00001.mds",
            "a.parquet.00002.mds",
            "b.parquet.00000.mds",
        ]
        (tmp_path / "root/out").mkdir()
        (folder / ".b.parquet.done").unlink()  # as if it had been killed there
        kept = tmp_path / "kept"
        os.link(folder / "a.parquet.00001.mds", kept)
        sandbox.ok(*args, env=PYTHON | server.env())
    assert kept.stat().st_mtime_ns == shards["a.parquet.00001.mds"]
    assert [sample.fields["blob"] for sample in oracle.read_tar(tmp_path / "root/out/x")] == [*blobs, b"last"]
    assert list(scratch.iterdir()) == []


def test_what_was_made_is_checked_before_it_is_used_again(sandbox: Sandbox, tmp_path: Path) -> None:
    """A shard that is gone, cut or another one, and marks that are none: made again, never packed as if it were all."""
    blobs = [bytes([row]) * (1 << 20) for row in range(100)]
    write(tmp_path / "in/a.parquet", {"blob": blobs}, row_group_size=40)
    (tmp_path / "root").mkdir()
    with devstore(sandbox, tmp_path / "root") as server:
        args = ["pack", tmp_path / "in", "s3://out/x", "--scratch", tmp_path / "scratch"]
        for what in ("gone", "cut", "swapped", "no mark", "other mark", "too many"):
            sandbox.run(*args, env=PYTHON | server.env()).failed(1, "bucket")
            (folder,) = (tmp_path / "scratch").iterdir()
            spoil(folder, what)
            (tmp_path / "root/out").mkdir()
            sandbox.ok(*args, env=PYTHON | server.env())
            assert [sample.fields["blob"] for sample in oracle.read_tar(tmp_path / "root/out/x")] == blobs, what
            assert list((tmp_path / "scratch").iterdir()) == []
            shutil.rmtree(tmp_path / "root/out")


def spoil(folder: Path, what: str) -> None:
    first, last, mark = folder / "a.parquet.00000.mds", folder / "a.parquet.00001.mds", folder / ".a.parquet.done"
    found = json.loads(mark.read_text())
    assert found == {"rows": 100, "shards": [first.stat().st_size, last.stat().st_size], "classes": {}}
    if what == "gone":
        last.unlink()
    elif what == "cut":
        os.truncate(last, last.stat().st_size - 1)
    elif what == "swapped":
        first.unlink()
        first.write_bytes(last.read_bytes())
    elif what == "too many":
        (folder / "a.parquet.00002.mds").write_bytes(last.read_bytes())
        mark.unlink()
    else:
        mark.write_text("" if what == "no mark" else json.dumps(found | {"rows": 99}))


def test_two_at_a_time(sandbox: Sandbox, tmp_path: Path) -> None:
    """One file, one scratch folder, two packs: neither sees what the other makes."""
    blobs = [os.urandom(1 << 16) for _ in range(3000)]
    write(tmp_path / "in/a.parquet", {"blob": blobs}, row_group_size=500, use_dictionary=False)
    for attempt in range(3):
        outs = [tmp_path / f"out{attempt}-{number}" for number in range(3)]
        started = [
            sandbox.start(
                "pack", tmp_path / "in", out, "--scratch", tmp_path / "scratch", env=PYTHON, err=subprocess.PIPE
            )
            for out in outs
        ]
        for process, out in zip(started, outs):
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            assert [sample.fields["blob"] for sample in oracle.read_tar(out)] == blobs
            shutil.rmtree(out)
        assert list((tmp_path / "scratch").iterdir()) == []


def test_nulls_within_lists(sandbox: Sandbox, tmp_path: Path) -> None:
    """A list that cannot be null may hold some that are."""
    inner = pa.list_(pa.float32(), 3)
    rows = [[[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0]], [[10.0, 11.0, 12.0]]]
    schema = pa.schema([pa.field("l", pa.list_(inner), nullable=False)])
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"l": pa.array(rows, pa.list_(inner))}, schema=schema), tmp_path / "in/a.parquet")
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", "--skip-bad", env=PYTHON)
    assert [json.loads(sample.fields["l"]) for sample in oracle.read_tar(tmp_path / "out")] == rows


def test_times_and_what_json_lacks(sandbox: Sandbox, tmp_path: Path) -> None:
    """The same text with and without pandas, to the nanosecond, within structs, lists and maps as well; and no NaN in JSON."""
    nan, inf = float("nan"), float("inf")
    moment = pa.timestamp("ns", tz="Europe/Berlin")
    table = {
        "moment": pa.array([1_577_836_800_000_000_001, None, -1], moment),
        "wall": pa.array([0, 1, 10**15], pa.timestamp("ms")),
        "took": pa.array([1_500_000_001, None, -1], pa.duration("ns")),
        "at": pa.array([86_399_999_999_999, 0, None], pa.time64("ns")),
        "day": pa.array([0, None, -719_163], pa.date32()),
        "span": pa.array(
            [{"t": 1, "d": 2}, None, {"t": None, "d": 3}],
            pa.struct([("t", pa.timestamp("ns")), ("d", pa.duration("us"))]),
        ),
        "map": pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.timestamp("s"))),
        "list": pa.array([[1, None], [], None], pa.list_(pa.duration("s"))),
        "holes": pa.array([[nan, None], [inf, -inf], [1.5]]),
        "blobs": pa.array([[b"\xff"], None, [b""]]),
    }
    write(tmp_path / "in/a.parquet", table)
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", env=PYTHON)
    expected: dict[str, list[Any]] = {
        "moment": ["2020-01-01T00:00:00.000000001Z", None, "1969-12-31T23:59:59.999999999Z"],
        "wall": ["1970-01-01T00:00:00.000", "1970-01-01T00:00:00.001", "33658-09-27T01:46:40.000"],
        "took": ["1.500000001s", None, "-0.000000001s"],
        "at": ["23:59:59.999999999", "00:00:00.000000000", None],
        "day": ["1970-01-01", None, "0000-12-31"],
        "span": [{"t": "1970-01-01T00:00:00.000000001", "d": "0.000002s"}, None, {"t": None, "d": "0.000003s"}],
        "map": [[["a", "1970-01-01T00:00:01.000"]], None, [["b", "1970-01-01T00:00:02.000"], ["c", None]]],
        "list": [["1s", None], [], None],
        "holes": [["NaN", None], ["Infinity", "-Infinity"], [1.5]],
        "blobs": [[{"base64": "/w=="}], None, [{"base64": ""}]],
    }

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    samples = oracle.read_tar(tmp_path / "out")
    for name, values in expected.items():
        assert [json.loads(sample.fields[name], parse_constant=refuse) for sample in samples] == values, name


def test_a_name_that_is_no_utf8(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write(tmp_path / "in/a.parquet", {"x": [1, 2]})
    os.rename(path, os.fsencode(path.parent) + b"/\xff.parquet")
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", "--format", "tfrecord", env=PYTHON)
    listed = (tmp_path / "out/shard-000000.tfrecord").read_bytes()  # the file's name is bytes there
    assert b"\xff/00000000" in listed and b"\xff/00000001" in listed


def test_documents_beside(sandbox: Sandbox, tmp_path: Path) -> None:
    """As data sets on the Hub have them. With images beside them, wherever these sort, the message names both."""
    write(tmp_path / "in/data/train-0.parquet", {"x": [1, 2]})
    for name in ("README.md", "LICENSE", "CITATION.cff", "data/readme.txt", "dataset_infos.json"):
        (tmp_path / "in" / name).write_text("x")
    assert sandbox.ok("pack", tmp_path / "in", tmp_path / "out", "--json", env=PYTHON).json()["samples"] == 2
    for name in ("a.jpg", "z.jpg"):
        (tmp_path / "in" / name).write_bytes(b"x")
        said = sandbox.run("pack", tmp_path / "in", tmp_path / "out", env=PYTHON).failed(
            1, "train-0.parquet", "only one of them", r"/\*\*/\*\.parquet", r"/\*\*/\*\.jpg"
        )
        assert "millrace pack" not in said.replace("millrace pack:", "")
        (tmp_path / "in" / name).unlink()
        shutil.rmtree(tmp_path / "in/.millrace", ignore_errors=True)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"image": [{"bytes": None, "path": "x.jpg"}]}, ("row 0", "image", "embed")),
        ({"big": pa.array([1, 2**64 - 1], pa.uint64())}, ("row 1", "column 'big'", "18446744073709551615", "64 bits")),
        ({"__key__": [1]}, ("__key__", "text")),
    ],
)
def test_refused(sandbox: Sandbox, tmp_path: Path, columns: dict[str, Any], words: tuple[str, ...]) -> None:
    path = write(tmp_path / "in/a.parquet", columns)
    sandbox.run("pack", path.parent, tmp_path / "out", env=PYTHON).failed(1, str(path), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["cut", "garbage", "damaged"])
def test_damage(sandbox: Sandbox, tmp_path: Path, how: str) -> None:
    path = write(
        tmp_path / "in/a.parquet",
        {"x": [os.urandom(1000) for _ in range(100)]},
        compression="zstd",
        write_page_checksum=True,
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 255  # of a page
    path.write_bytes({"cut": path.read_bytes()[:5000], "garbage": b"no parquet" * 10, "damaged": bytes(data)}[how])
    sandbox.run("pack", path.parent, tmp_path / "out", env=PYTHON).failed(1, str(path))
    assert not (tmp_path / "out").exists()


def test_without_arrow(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write(tmp_path / "in/a.parquet", {"x": [1]})
    no_python = {"MILLRACE_PYTHON": "no-such-python"}
    sandbox.run("pack", path.parent, tmp_path / "out", env=no_python).failed(1, "no-such-python", "MILLRACE_PYTHON")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    sandbox.run("pack", path.parent, tmp_path / "out", env={"MILLRACE_PYTHON": str(bare)}).failed(
        1, "pip install pyarrow"
    )


def test_hdf5_says_how_to_convert(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/train.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for command in (["index", tmp_path / "in"], ["pack", tmp_path / "in", tmp_path / "out"], ["feed", tmp_path / "in"]):
        sandbox.run(*command).failed(1, "train.h5", "h5py", "docs/formats/shards.md")


def test_what_the_documentation_makes_of_hdf5_can_be_fed(sandbox: Sandbox, tmp_path: Path) -> None:
    """The very snippet, with a stand-in for h5py."""
    text = (Path(__file__).resolve().parents[2] / "docs/formats/shards.md").read_text()
    snippet = text.split("### HDF5")[1].split("```python\n")[1].split("```")[0]
    (tmp_path / "h5py.py").write_text(
        "import contextlib, numpy\n"
        "@contextlib.contextmanager\n"
        "def File(name):\n"
        "    images = numpy.random.default_rng(0).integers(0, 256, (5, 8, 9, 3), numpy.uint8)\n"
        "    yield {'images': images, 'labels': numpy.arange(5)}\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", snippet], cwd=out, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    fed = sandbox.ok("feed", out, "--json", "--batch", "5", "--size", "8").json()
    assert fed["samples"] == 5


def test_parts_and_kills(sandbox: Sandbox, tmp_path: Path) -> None:
    """Parts at one time; and kills while Arrow reads, which leave a Python behind that must not harm the next."""
    blobs = [os.urandom(1 << 15) for _ in range(5000)]
    write(tmp_path / "in/a.parquet", {"blob": blobs}, row_group_size=500, use_dictionary=False)
    common = ["--shard-size", "16MiB", "--scratch", tmp_path / "scratch"]
    sandbox.ok("pack", tmp_path / "in", tmp_path / "whole", *common, env=PYTHON)
    shards = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.tar")}
    started = [
        sandbox.start(
            "pack", tmp_path / "in", tmp_path / "parts", *common, "--part", f"{part}/3", env=PYTHON, err=subprocess.PIPE
        )
        for part in (1, 2, 3)
    ]
    for process in started:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert {path.name: path.read_bytes() for path in (tmp_path / "parts").glob("*.tar")} == shards
    killed = 0
    for number in range(8):
        process = sandbox.start("pack", tmp_path / "in", tmp_path / "out", *common, env=PYTHON)
        time.sleep(0.05 + 0.1 * number)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", *common, env=PYTHON)
    assert killed >= 3
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.tar")} == shards
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.all
def test_memory_does_not_grow_with_the_source(sandbox: Sandbox, tmp_path: Path) -> None:
    """Neither of pack nor of the Python that reads for it."""
    peaks = []
    for mib in (256, 1024):
        path = tmp_path / f"in{mib}/a.parquet"
        path.parent.mkdir()
        with pq.ParquetWriter(path, pa.schema([("blob", pa.binary())]), use_dictionary=False) as writer:
            for number in range(mib // 16):  # row groups of 16 MiB
                writer.write_table(pa.table({"blob": [bytes([number]) * (1 << 20)] * 16}))
        python = tmp_path / f"python{mib}"
        measure = (
            "import resource, subprocess, sys; code = subprocess.call([sys.executable, *sys.argv[1:]]);"
            f"open({str(tmp_path / f'peak{mib}')!r}, 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss));"
            "sys.exit(code)"
        )
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{measure}" "$@"\n')
        python.chmod(0o755)
        env = {"MILLRACE_PYTHON": str(python)}
        args = ["pack", path.parent, tmp_path / f"out{mib}", "--memory", "64MiB", "--json"]
        result = sandbox.ok(*args, env=env, watch_rss=True, timeout=300)
        assert result.json()["samples"] == mib
        peaks.append((result.peak_rss, int((tmp_path / f"peak{mib}").read_text()) * 1024))
        shutil.rmtree(tmp_path / f"out{mib}")
    for small, large in zip(*peaks):
        assert 0 < large < small + 96 * MIB, peaks


def test_parquet_of_hugging_face_needs_no_options(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """As `datasets` writes it: an image, a ClassLabel, and a caption, some of them null."""
    samples = photos.samples[:6]
    columns = {
        "image": [{"bytes": sample.fields["jpg"], "path": f"{sample.key}.jpg"} for sample in samples[:5]] + [None],
        "label": pa.array([3, 0, None, 1, 2, 0], pa.int64()),
        "caption": ["a", None, "c", "d", "e", "f"],
        "score": [0.5, None, 1.5, 2.0, 2.5, 3.0],
    }
    features = {name: {"_type": "Value"} for name in columns}
    features["image"], features["label"] = {"_type": "Image"}, {"names": ["w", "x", "y", "z"], "_type": "ClassLabel"}
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in/train-00000-of-00001.parquet")
    sandbox.ok("pack", tmp_path / "in", tmp_path / "out", env=PYTHON)
    packed = [sample.fields for sample in oracle.read_tar(tmp_path / "out")]
    assert [set(fields) for fields in packed] == [{"jpg", "cls", "caption", "score"}] * 6
    assert [fields["cls"] for fields in packed] == [b"3", b"0", b"-1", b"1", b"2", b"0"]
    assert [fields["jpg"] for fields in packed] == [*(sample.fields["jpg"] for sample in samples[:5]), b""]
    feed = ["feed", tmp_path / "out", "--json", "--batch", "2", "--size", "32", "--bad-samples", "replace"]
    assert sandbox.ok(*feed).json()["samples"] == 6
    assert sandbox.ok("pack", tmp_path / "in", tmp_path / "out", "--json", env=PYTHON).json()["already_packed"]
    # The names of the columns stay where --field says so, and in other formats.
    sandbox.ok("pack", tmp_path / "in", tmp_path / "named", "--field", "image", "--field", "label", env=PYTHON)
    assert set(oracle.read_tar(tmp_path / "named")[0].fields) == {"image", "label"}
    sandbox.ok("pack", tmp_path / "in", tmp_path / "mds", "--format", "mds", env=PYTHON)
    found = sandbox.ok("inspect", tmp_path / "mds", "--json").json()["fields"]
    assert {field["name"] for field in found} >= {"image", "label"}
