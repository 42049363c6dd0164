"""Token files: Megatron's pairs, written here as its IndexedDataset does, and plain arrays as numpy and nanoGPT write them."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from . import corpus, oracle
from .conftest import Photos
from .harness import Sandbox, devstore

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}


def idx_of(sequences: list[np.ndarray], dtype: str, documents: list[int] | None = None, modes: bytes = b"") -> bytes:
    """numpy.memmap and struct.unpack of Megatron's _IndexReader find in it what they look for."""
    lengths = [len(sequence) for sequence in sequences]
    pointers = [sum(lengths[:n]) * np.dtype(dtype).itemsize for n in range(len(lengths))]
    documents = list(range(len(lengths) + 1)) if documents is None else documents
    return (
        b"MMIDIDX\x00\x00"
        + struct.pack("<Q", 1)
        + struct.pack("<B", CODES[dtype])
        + struct.pack("<Q", len(lengths))
        + struct.pack("<Q", len(documents))
        + np.array(lengths, dtype=np.int32).tobytes(order="C")
        + np.array(pointers, dtype=np.int64).tobytes(order="C")
        + np.array(documents, dtype=np.int64).tobytes(order="C")
        + modes
    )


def write_pair(stem: Path, sequences: list[np.ndarray], dtype: str, **more) -> None:
    corpus.write(stem.with_suffix(".bin"), b"".join(sequence.tobytes() for sequence in sequences))
    corpus.write(stem.with_suffix(".idx"), idx_of(sequences, dtype, **more))


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def some_tokens(seed: int, lengths: list[int], dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return [rng.random(n).astype(dtype) for n in lengths]
    limits = np.iinfo(dtype)
    return [rng.integers(limits.min, limits.max, n, dtype=dtype, endpoint=True) for n in lengths]


LENGTHS = [7, 1, 300, 64, 2, 1000]


def samples_of(name: str, arrays: list[np.ndarray]) -> list[oracle.Sample]:
    return [oracle.Sample(f"{name}/{n:08d}", {"tokens": npy(array)}) for n, array in enumerate(arrays)]


def check_read(root: Path, expected: list[oracle.Sample]) -> None:
    """Python's view of them: arrays, in any order."""
    import millrace

    dataset = millrace.Dataset(root)
    assert dataset.kind == "tokens" and dataset.fields == ["tokens"] and len(dataset) == len(expected)
    for n in np.random.default_rng(1).permutation(len(expected)):
        sample = dataset.read(n)
        assert sample["key"] == expected[n].key
        wanted = np.load(io.BytesIO(expected[n].fields["tokens"]))
        assert sample["tokens"].dtype == wanted.dtype
        np.testing.assert_array_equal(sample["tokens"], wanted)


@pytest.mark.parametrize("dtype", CODES)
def test_megatron_pairs(sandbox: Sandbox, tmp_path: Path, dtype: str) -> None:
    first, second = some_tokens(1, LENGTHS, dtype), some_tokens(2, [5, 5], dtype)
    write_pair(tmp_path / "d" / "corpus_text_document", first, dtype, documents=[0, 2, 6])
    write_pair(tmp_path / "d" / "more" / "b", second, dtype, modes=b"\x00\x01")
    expected = samples_of("corpus_text_document.bin", first) + samples_of("more/b.bin", second)
    report = sandbox.ok("inspect", tmp_path / "d", "--json").json()
    assert report["kind"] == "tokens" and report["samples"] == 8
    assert [(field["name"], field["type"]) for field in report["fields"]] == [("tokens", "ndarray")]
    assert "token files" in sandbox.ok("inspect", tmp_path / "d").out
    check_read(tmp_path / "d", expected)
    assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)


def test_an_idx_is_what_megatron_reads(tmp_path: Path) -> None:
    """The tests' own writer, held against how _IndexReader takes the parts."""
    sequences = some_tokens(3, LENGTHS, "uint16")
    data = idx_of(sequences, "uint16")
    assert struct.unpack_from("<9sQBQQ", data) == (b"MMIDIDX\0\0", 1, 8, 6, 7)
    lengths = np.frombuffer(data, np.int32, 6, 34)
    pointers = np.frombuffer(data, np.int64, 6, 34 + lengths.nbytes)
    tokens = b"".join(s.tobytes() for s in sequences)
    for sequence, length, pointer in zip(sequences, lengths, pointers, strict=True):
        np.testing.assert_array_equal(np.frombuffer(tokens, np.uint16, length, pointer), sequence)
    assert 34 + 12 * 6 + 8 * 7 == len(data)


def test_sequences_without_tokens(sandbox: Sandbox, tmp_path: Path) -> None:
    sequences = some_tokens(4, [0, 3, 0, 0, 2, 0], "int32")
    write_pair(tmp_path / "d" / "a", sequences, "int32")
    expected = samples_of("a.bin", sequences)
    check_read(tmp_path / "d", expected)
    for shuffle in ("none", "global"):
        assert sandbox.feed(tmp_path / "d", shuffle=shuffle)["samples"] == 6
    assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)


def test_arrays_as_nanogpt_writes_them(sandbox: Sandbox, tmp_path: Path) -> None:
    tokens = some_tokens(5, [10_007], "uint16")[0]
    path = tmp_path / "d" / "train.bin"
    path.parent.mkdir()
    memory = np.memmap(path, dtype=np.uint16, mode="w+", shape=(len(tokens),))
    memory[:] = tokens
    memory.flush()
    corpus.write(path.parent / "meta.pkl", b"passed over")
    assert sandbox.ok("index", path.parent, "--tokens", "64:uint16", "--json").json()["samples"] == 157
    data = np.memmap(path, dtype=np.uint16, mode="r")
    expected = samples_of("train.bin", [np.array(data[at : at + 64]) for at in range(0, len(data), 64)])
    assert len(np.load(io.BytesIO(expected[-1].fields["tokens"]))) == 10_007 % 64
    check_read(path.parent, expected)
    assert sandbox.feed(path.parent)["digest"] == oracle.digest(expected)


@pytest.mark.parametrize("dtype", CODES)
def test_arrays_as_numpy_saves_them(sandbox: Sandbox, tmp_path: Path, dtype: str) -> None:
    flat, rows = some_tokens(6, [100], dtype)[0], some_tokens(7, [80], dtype)[0].reshape(5, 16)
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "flat.npy", flat)
    np.save(tmp_path / "d" / "rows.npy", rows)
    with (tmp_path / "d" / "version2.npy").open("wb") as file:
        np.lib.format.write_array(file, rows, version=(2, 0))
    expected = samples_of("flat.npy", [flat[at : at + 16] for at in range(0, 100, 16)])
    expected += samples_of("rows.npy", list(rows)) + samples_of("version2.npy", list(rows))
    sandbox.ok("index", tmp_path / "d", "--tokens", 16)
    check_read(tmp_path / "d", expected)
    assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(expected)


def test_from_s3(sandbox: Sandbox, tmp_path: Path) -> None:
    sequences = some_tokens(8, [*LENGTHS, 400_000], "int64")
    write_pair(tmp_path / "root" / "b" / "d" / "a", sequences, "int64")
    corpus.write(tmp_path / "root" / "b" / "e" / "x.bin", sequences[-1].tobytes())
    with devstore(sandbox, tmp_path / "root") as server:
        found = sandbox.feed("s3://b/d", env=server.env())
        assert found["digest"] == oracle.digest(samples_of("a.bin", sequences))
        sandbox.ok("index", "s3://b/e", "--tokens", "1024:int64", env=server.env())
        cut = [sequences[-1][at : at + 1024] for at in range(0, 400_000, 1024)]
        assert sandbox.feed("s3://b/e", env=server.env())["digest"] == oracle.digest(samples_of("x.bin", cut))


@pytest.mark.parametrize("dtype", ["uint16", "int64"])
def test_packed_they_are_the_same(sandbox: Sandbox, tmp_path: Path, dtype: str) -> None:
    import millrace

    sequences = some_tokens(9, LENGTHS, dtype)
    write_pair(tmp_path / "in" / "a", sequences, dtype)
    expected = samples_of("a.bin", sequences)
    for kind in ("tar", "tfrecord", "mds", "recordio"):
        packed = sandbox.ok("pack", tmp_path / "in", tmp_path / kind, "--format", kind, "--shard-size", "4KiB")
        assert "rows of tokens (`feed --tokens`, `Loader(tokens=...)`) are made of token files" in packed.err
        assert f"millrace sync {tmp_path / 'in'} {tmp_path / kind}" in packed.err
        refused = sandbox.run("feed", tmp_path / kind, "--tokens", "16", "--batch", "2").failed(1, "tokens")
        assert "holds no tokens" in refused or "no field 'tokens'" in refused
        dataset = millrace.Dataset(tmp_path / kind)
        assert len(dataset) == len(expected)
        for n, array in enumerate(sequences):
            value = dataset.read(n)["npy" if kind == "recordio" else "tokens"]
            np.testing.assert_array_equal(np.load(io.BytesIO(value)) if isinstance(value, bytes) else value, array)
    assert oracle.read_tar(tmp_path / "tar") == expected
    digests = {sandbox.feed(tmp_path / kind, shuffle="global")["digest"] for kind in ("in", "mds")}
    assert len(digests) == 1
    assert sandbox.feed(tmp_path / "mds")["digest"] == oracle.digest(expected)


def test_arrays_that_are_cut_anew_are_another_source(sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.write(tmp_path / "in" / "a.bin", bytes(range(200)) * 20)
    pack = ("pack", tmp_path / "in", tmp_path / "out", "--format", "mds")
    sandbox.ok("index", tmp_path / "in", "--tokens", "8:uint16")
    sandbox.ok(*pack)
    sandbox.ok("index", tmp_path / "in", "--tokens", "8:int16")
    sandbox.run(*pack).failed(1, "have changed since")
    sandbox.ok(*pack, "--force")


def test_what_cannot_be_packed_is_said(sandbox: Sandbox, tmp_path: Path) -> None:
    write_pair(tmp_path / "in" / "a", some_tokens(10, [3, 0], "int32"), "int32")
    sandbox.run("pack", tmp_path / "in", tmp_path / "out", "--format", "mds").failed(1, "a.bin/00000001", "tokens")
    sandbox.run("pack", tmp_path / "in", tmp_path / "out", "--format", "tokens").failed(2, "--format")
    sandbox.ok("pack", tmp_path / "in", tmp_path / "tar")


def test_truncated_files_are_named(sandbox: Sandbox, tmp_path: Path) -> None:
    sequences = some_tokens(11, LENGTHS, "uint16")
    for cut in ("bin", "idx"):
        folder = tmp_path / cut
        write_pair(folder / "a", sequences, "uint16")
        path = folder / f"a.{cut}"
        path.write_bytes(path.read_bytes()[:-1])
        sandbox.run("index", folder).failed(1, re.escape(str(path)), "truncated")
    corpus.write(tmp_path / "plain" / "a.bin", sequences[2].tobytes()[:-1])
    path = tmp_path / "plain" / "a.bin"
    sandbox.run("index", path.parent, "--tokens", "100:uint16").failed(
        1, re.escape(str(path)), "offset 599", "truncated"
    )
    corpus.write(tmp_path / "npy" / "a.npy", npy(sequences[2])[:-1])
    sandbox.run("index", tmp_path / "npy", "--tokens", "100").failed(1, "a.npy", "offset 727", "truncated")


def test_arrays_that_are_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    arrays = {
        "big-endian": np.arange(4, dtype=">i4"),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "objects": np.array([1, None], dtype=object),
        "0 axes": np.array(5),
        "3 axes": np.zeros((2, 2, 2)),
        "records": np.zeros(2, dtype=[("a", "<i4")]),
        "rows have 3": np.zeros((2, 3), dtype=np.uint16),
        "complex|type": np.zeros(2, dtype=np.complex64),
    }
    for what, array in arrays.items():
        np.save(tmp_path / "a.npy", array)
        sandbox.run("index", tmp_path, "--tokens", 2).failed(1, r"a\.npy", what)
    for wrong in ("0", "x", "12:", "12:u2", "-3"):
        sandbox.run("index", tmp_path, f"--tokens={wrong}").failed(2, "--tokens")


def test_an_index_of_other_data_says_how_to_build_it(sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.write(tmp_path / "d" / "a.bin", bytes(1000))
    sandbox.ok("index", tmp_path / "d", "--tokens", "64:int16")
    corpus.write(tmp_path / "d" / "a.bin", bytes(2000))
    said = sandbox.run("inspect", tmp_path / "d").failed(1, "build it again")
    command = re.search(r"millrace (index --tokens \S+) ", said)
    assert command, said
    sandbox.ok(*command[1].split(), tmp_path / "d")
    assert json.loads(sandbox.ok("inspect", tmp_path / "d", "--json").out)["samples"] == 16


def test_a_length_that_the_index_does_not_tell_is_not_made_up(sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.write(tmp_path / "d" / "a.bin", bytes(1000))
    sandbox.ok("index", tmp_path / "d", "--tokens", "2048:uint16")
    corpus.write(tmp_path / "d" / "b.bin", bytes(100_000))
    sandbox.run("inspect", tmp_path / "d").failed(1, r"millrace index --tokens LENGTH\[:TYPE\] ")


def test_arrays_are_brought_up_to_date(sandbox: Sandbox, tmp_path: Path) -> None:
    tokens = some_tokens(13, [1000, 500, 300], "uint16")
    for n, array in enumerate(tokens[:2]):
        corpus.write(tmp_path / "d" / f"{n}.bin", array.tobytes())
    index = ("index", tmp_path / "d", "--tokens", "64:uint16", "--json")
    assert sandbox.ok(*index).json()["reused_objects"] == 0
    corpus.write(tmp_path / "d" / "2.bin", tokens[2].tobytes())
    assert sandbox.ok(*index).json()["reused_objects"] == 2
    other = sandbox.ok(*index, "--output", tmp_path / "other").json()
    assert other["reused_objects"] == 3
    full = sandbox.ok(*index, "--full", "--output", tmp_path / "full").json()
    assert full["reused_objects"] == 0
    built = {(tmp_path / name).read_bytes() for name in ("other", "full", "d/.millrace/index")}
    assert len(built) == 1
    expected = [
        s for n, array in enumerate(tokens) for s in samples_of(f"{n}.bin", np.split(array, range(64, len(array), 64)))
    ]
    check_read(tmp_path / "d", expected)


def test_pairs_from_s3_are_brought_up_to_date(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    sequences = {name: some_tokens(seed, [*LENGTHS, 700_000], "int64") for seed, name in enumerate("abc")}
    with devstore(sandbox, tmp_path / "root") as server:
        for names, reused in (("ab", 0), ("c", 4), ("a", 4)):
            for name in names:
                sequences[name] = list(reversed(sequences[name]))
                write_pair(tmp_path / "root" / "b" / "d" / name, sequences[name], "int64")
            assert sandbox.ok("index", "s3://b/d", "--json", env=server.env()).json()["reused_objects"] == reused
        expected = [s for name in "abc" for s in samples_of(f"{name}.bin", sequences[name])]
        assert sandbox.feed("s3://b/d", env=server.env())["digest"] == oracle.digest(expected)


def test_damaged_pairs_are_left_out_when_asked_to(sandbox: Sandbox, tmp_path: Path) -> None:
    sequences = some_tokens(14, LENGTHS, "uint16")
    for name in "abc":
        write_pair(tmp_path / "d" / name, sequences, "uint16")
    for name in ("a.bin", "b.idx"):
        path = tmp_path / "d" / name
        path.write_bytes(path.read_bytes()[:-1])
    sandbox.run("index", tmp_path / "d").failed(1, r"a\.bin")
    report = sandbox.ok("index", tmp_path / "d", "--skip-bad", "--json").json()
    assert report["samples"] == len(LENGTHS) and [shard["object"] for shard in report["damaged"]] == ["a.bin", "b.bin"]
    check_read(tmp_path / "d", samples_of("c.bin", sequences))
    assert sandbox.feed(tmp_path / "d")["digest"] == oracle.digest(samples_of("c.bin", sequences))


def test_feed_says_that_there_are_no_images_where_there_is_nothing_else(sandbox: Sandbox, tmp_path: Path) -> None:
    import millrace

    write_pair(tmp_path / "d" / "a", some_tokens(12, [3], "int32"), "int32")
    with pytest.raises(
        millrace.Error, match="no field of the data set is an image.*its fields are: tokens; token files.*tokens="
    ):
        millrace.Loader(millrace.Dataset(tmp_path / "d"))
    sandbox.run("feed", tmp_path / "d", "--image-field", "jpg").failed(1, "its fields are: tokens")


def test_images_beside_tokens_are_refused_before_the_first_batch(
    photos: Photos, sandbox: Sandbox, tmp_path: Path
) -> None:
    import millrace

    data = tmp_path / "texts"
    write_pair(data / "a", some_tokens(12, [3], "int32"), "int32")
    reason = r"texts: no field .* its fields are: tokens; token files are fed as rows: give --tokens .*tokens="
    for uris in ((photos.tar, data), (data, photos.tar)):
        for more in ((), ("--explain",)):
            sandbox.run("feed", *uris, *more).failed(1, reason)
        with pytest.raises(millrace.Error, match=reason):
            millrace.Loader(millrace.Mix([millrace.Dataset(uri) for uri in uris]))
