"""Tests artifacts of earlier versions: the results and the messages that docs/compatibility.md promises.

The versions are those of the code: they are read from what it writes.
"""

from __future__ import annotations

import gc
import json
import pathlib
import re
import struct
import subprocess
from typing import Any

import millrace
import pytest
from crc32c import crc32c
from millrace import _moved_options
from room import with_room
from support import AT_SIZE, HEIGHT, WIDTH, Samples, add_digests, binary, loader_of, write_raw, write_tar

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text()
OLDEST = 1  # a version that no release reads any more


def documented(phrase: str) -> str:
    """Returns the phrase, fit for ``match=``; the page has it."""
    assert phrase in re.sub(r"\s+", " ", PAGE), f"docs/compatibility.md does not say: {phrase}"
    return re.escape(phrase)


def run(*words: object, code: int = 0) -> str:
    done = subprocess.run([str(binary()), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def version_of_order(position: str) -> int:
    found = re.match(r"mr(\d+)-", position)
    assert found
    return int(found[1])


# ---- Positions and states


# The next version is that of positions with a stage, which this release knows, too.
@pytest.mark.parametrize("step, release", [(-1, "a former release"), (2, "a newer release")])
def test_a_position_of_another_version(tar: Samples, step: int, release: str) -> None:
    loader = loader_of(tar)
    batches = iter(loader)
    next(batches), next(batches)
    state = batches.state_dict()
    now = version_of_order(state["position"])
    other = {**state, "position": state["position"].replace(f"mr{now}-", f"mr{now + step}-", 1)}
    message = f"is of version {now + step} of the order of samples, and this release makes version {now}.* {release}"
    with pytest.raises(millrace.InvalidArgumentError, match=message) as caught:
        loader.load_state_dict(other)
    assert re.search(documented("or start again without a position"), str(caught.value))
    assert loader.state_dict() == state, "the loader stays as it was"


def test_a_state_of_another_version(tar: Samples) -> None:
    loader = loader_of(tar)
    state = loader.state_dict()
    with pytest.raises(millrace.InvalidArgumentError, match=documented("a loader's state of version")):
        loader.load_state_dict({**state, "version": state["version"] + 1})


def test_positions_do_not_depend_on_the_defaults(tar: Samples) -> None:
    """A position of a Loader of bytes, arrays and padded batches is one of a Loader that names none of these."""
    old = millrace.Loader(tar.uri, batch_size=8, raw=True, output="numpy", last="pad", digest="raw", seed=3, **AT_SIZE)
    new = millrace.Loader(tar.uri, batch_size=8, digest="raw", seed=3, **AT_SIZE)
    batches = iter(old)
    next(batches), next(batches)
    state = batches.state_dict()
    new.load_state_dict(state)
    rest = [key for batch in batches for key in batch["key"] if key]
    got = list(new)
    assert [key for batch in got for key in batch["key"]] == rest
    assert add_digests(state["digest"], new.report()["digest"]) == old.report()["digest"]
    assert str(got[0]["image"].dtype) == "torch.float32" and got[0]["image"].shape[1:] == (3, HEIGHT, WIDTH)
    assert len(got[-1]["key"]) == len(tar) % 8
    for phrase in ("`raw=True`", '`last="pad"`', '`output="numpy"`'):
        documented(phrase)


# ---- Indexes


def test_an_index_of_an_older_version(tmp_path: pathlib.Path) -> None:
    samples = write_tar(tmp_path, count=12)
    keys = [sample["key"] for sample in millrace.Dataset(samples.uri)]
    index = tmp_path / ".millrace" / "index"
    now = struct.unpack_from("<I", index.read_bytes(), 8)[0]
    assert now > OLDEST
    data = bytearray(index.read_bytes())
    struct.pack_into("<I", data, 8, OLDEST)
    struct.pack_into("<I", data, 12, crc32c(bytes(data[:12])))
    index.write_bytes(data)
    gc.collect()
    remedy = documented("build it again: millrace index")
    message = f"index of version {OLDEST}; this Millrace reads version {now}; {remedy} {re.escape(samples.uri)}"
    with pytest.raises(millrace.DamagedDataError, match=message):
        millrace.Dataset(samples.uri)
    assert index.read_bytes() == data, "others may still use it"
    said = run("index", samples.uri)
    assert (
        documented("everything is read again, since the older index cannot be used")
        and "everything is read again" in said
    )
    assert struct.unpack_from("<I", index.read_bytes(), 8)[0] == now
    assert [sample["key"] for sample in millrace.Dataset(samples.uri)] == keys


# ---- The cache


def as_of_version(head: bytes, version: int) -> bytes:
    made = bytearray(head)
    struct.pack_into("<I", made, 8, version)
    struct.pack_into("<I", made, 4092, crc32c(bytes(made[:4092])))
    return bytes(made)


def test_a_cache_of_an_older_version(bucket: str, tar: Samples, tmp_path: pathlib.Path, capfd: Any) -> None:
    uri = f"{bucket}/old-cache"
    for shard in sorted(pathlib.Path(tar.uri).glob("*.tar")):
        with millrace.open(f"{uri}/{shard.name}", "wb") as file:
            file.write(shard.read_bytes())

    def feed(folder: pathlib.Path) -> dict[str, Any]:
        with millrace.Loader(
            uri, batch_size=8, size=16, digest="raw", epochs=1, memory="32MiB", cache=folder
        ) as loader:
            for _ in loader:
                pass
            return dict(loader.report())

    with with_room(tmp_path) as folder:
        first, second = feed(folder), feed(folder)
        assert second["cache"]["miss_bytes"] == 0
        gc.collect()  # no loader has the folder open
        place = folder / "millrace-cache-1"
        files = [path for path in place.glob("??/*") if path.is_file()]
        for path in files:
            with path.open("r+b") as file:
                head = file.read(4096)
                (now,) = struct.unpack_from("<I", head, 8)
                file.seek(0)
                file.write(as_of_version(head, now - 1))
        usage = place / "usage"
        usage.write_bytes(usage.read_bytes()[:16] + struct.pack("<Q", now - 1))
        capfd.readouterr()
        third, fourth = feed(folder), feed(folder)
        said = capfd.readouterr().err
    assert files and f"removed {len(files)} files of another version of Millrace" in said
    assert re.search(documented("their data come from the store again"), said)
    assert third["cache"]["miss_bytes"] == first["cache"]["miss_bytes"] > 0 == fourth["cache"]["miss_bytes"]
    assert {report["digest"] for report in (first, second, third, fourth)} == {first["digest"]}


# ---- Shards, and packs that were interrupted


def test_a_pack_that_an_earlier_version_has_begun(tmp_path: pathlib.Path) -> None:
    source, place = tmp_path / "raw", tmp_path / "packed"
    source.mkdir()
    write_raw(source, count=6)
    run("pack", source, place, "--part", "1/2", "--shard-size", "4KiB")
    mark = place / ".millrace" / "incomplete"
    job = json.loads(mark.read_text())
    del job["keys"]  # earlier versions did not say how they wrote them
    mark.write_text(json.dumps(job))
    said = run("pack", source, place, "--shard-size", "4KiB", code=1)
    assert re.search(documented("it was begun by another version of Millrace, which wrote keys in another way"), said)
    assert "--force" in said
    run("pack", source, place, "--shard-size", "4KiB", "--force")
    assert len(millrace.Dataset(place)) == 6


def test_results_that_an_earlier_version_has_begun(tmp_path: pathlib.Path) -> None:
    with millrace.ShardWriter(tmp_path / "new", rank=0, world=2) as writer:
        writer.write({"key": "a", "txt": "x"})
    now = json.loads((tmp_path / "new/.millrace/incomplete").read_text())["kind"]
    (tmp_path / "old/.millrace").mkdir(parents=True)
    older = {"kind": f"millrace.ShardWriter {int(now.rpartition(' ')[2]) - 1}", "world": 1}
    (tmp_path / "old/.millrace/incomplete").write_text(json.dumps(older))
    with pytest.raises(millrace.MismatchError, match=documented("is not of a ShardWriter of this version")):
        millrace.ShardWriter(tmp_path / "old")


# ---- Options


def test_all_old_options_are_in_the_table() -> None:
    """tests/python/test_option_groups.py has the errors."""
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    old = " ".join(rows)
    for places in (_moved_options.PLACES, _moved_options.OF_IMAGES, _moved_options.OF_WORKERS):
        for name in places:
            assert re.search(rf"\b{name}=", old), name
