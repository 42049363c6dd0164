"""Tests rows of tokens: they have fixed shapes, and are compared with rows that were computed with numpy."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

import millrace
import numpy as np
import pytest
from support import AT_SIZE, Samples, add_digests, binary
from token_corpus import (
    GROUP,
    Corpus,
    Piece,
    arrays,
    bucketed,
    check_rows,
    loader,
    packed,
    padded,
    some_lengths,
    streamed,
    write_corpus,
)

LENGTH = 32


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("corpus"), some_lengths(seed=1, count=300, most=100))


def index_arrays(folder: pathlib.Path, tokens: str) -> None:
    subprocess.run([binary(), "index", folder, "--tokens", tokens], check=True, capture_output=True)


@pytest.mark.parametrize("long", ["split", "truncate"])
def test_pad(corpus: Corpus, long: str) -> None:
    made = loader(corpus, millrace.Tokens(LENGTH, "pad", long=long, pad=-1))
    check_rows(corpus, made, padded(corpus, LENGTH, long), LENGTH, segments=False, pad=-1)
    left_out = sum(max(0, n - LENGTH) for n in corpus.lengths)
    assert made.rows[0]["truncated"] == (left_out if long == "truncate" else 0)
    assert made.rows[0]["empty"] == corpus.lengths.count(0) > 0


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("length", [1, 7, LENGTH, 100_000])
def test_stream(corpus: Corpus, documents: bool, length: int) -> None:
    made = loader(corpus, millrace.Tokens(length, "stream", documents=documents), memory="32MiB")
    check_rows(corpus, made, streamed(corpus, length), length, segments=documents)


@pytest.mark.parametrize("length", [9, LENGTH, 200])
@pytest.mark.parametrize("long", ["split", "truncate"])
def test_pack(corpus: Corpus, length: int, long: str) -> None:
    made = loader(corpus, millrace.Tokens(length, long=long))
    check_rows(corpus, made, packed(corpus, length, GROUP, long), length, segments=True)


def test_pack_of_many_groups(tmp_path: pathlib.Path) -> None:
    """Rows of 4,096 int64 are packed by 256: the fewest that there are."""
    many = write_corpus(tmp_path / "d", some_lengths(seed=2, count=2500, most=4096), dtype="int64")
    made = loader(many, millrace.Tokens(4096), memory="64MiB")
    expected = packed(many, 4096, 256)
    assert len(expected) > 2 * 256
    check_rows(many, made, expected, 4096, segments=True)
    assert made.padding < 0.01


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_types(corpus: Corpus, dtype: str) -> None:
    batch = next(iter(loader(corpus, millrace.Tokens(LENGTH, dtype=dtype))))
    assert batch["tokens"].dtype == dtype and batch["token_mask"].dtype == bool
    assert batch["position_ids"].dtype == batch["segment_ids"].dtype == "int32"


def test_the_order_is_the_plans(corpus: Corpus) -> None:
    made = loader(corpus, millrace.Tokens(LENGTH), shuffle="global", seed=5, epochs=2)
    for epoch in range(2):
        rows = np.concatenate([batch["row"][batch["valid"]] for batch in made])
        plan = millrace.Plan(len(rows), shuffle="global", seed=5, epoch=epoch)
        np.testing.assert_array_equal(rows, plan[np.arange(len(rows))])


LAYOUTS = [millrace.Tokens(LENGTH), millrace.Tokens(LENGTH, "pad"), millrace.Tokens(LENGTH, "stream")]


@pytest.mark.parametrize("tokens", LAYOUTS, ids=str)
@pytest.mark.parametrize("shuffle", ["window", "none"])
def test_any_kills_and_worlds(corpus: Corpus, tokens: millrace.Tokens, shuffle: str) -> None:
    """A run is cut at random places and continues with other worlds and batches: each row comes once, with the same
    content."""
    whole = loader(corpus, tokens, shuffle=shuffle, seed=3, epochs=1, digest="raw")
    wanted = {
        int(row): batch["tokens"][i].copy()
        for batch in whole
        for i, row in enumerate(batch["row"])
        if batch["valid"][i]
    }
    for seed in range(4):
        rng = np.random.default_rng(seed)
        position, seen, digests = None, [], []
        while position is None or not position.startswith("mr2-1-"):
            world, batch_size = int(rng.integers(1, 17)), int(rng.integers(1, 8))
            steps = int(rng.integers(1, 5))
            after = set()
            for rank in range(world):
                one = loader(
                    corpus,
                    tokens,
                    shuffle=shuffle,
                    seed=3,
                    epochs=1,
                    digest="raw",
                    batch_size=batch_size,
                    rank=rank,
                    world=world,
                    memory="4MiB",
                )
                if position is not None:
                    one.load_state_dict(position)
                batches = iter(one)
                for _, batch in zip(range(steps), batches):  # takes no batch too many
                    for i in np.flatnonzero(batch["valid"]):
                        np.testing.assert_array_equal(batch["tokens"][i], wanted[int(batch["row"][i])])
                        seen.append(int(batch["row"][i]))
                after.add(one.state_dict()["position"])
                digests.append(one.state_dict()["digest"])
                one.close()
            assert len(after) == 1
            position = after.pop()
        assert sorted(seen) == sorted(wanted)
        assert add_digests(*digests) == whole.report()["digest"]


def test_last_batches(corpus: Corpus) -> None:
    rows = loader(corpus, millrace.Tokens(LENGTH)).rows[0]["rows"]
    for last in ("pad", "drop", "wrap"):
        made = loader(corpus, millrace.Tokens(LENGTH), last=last, batch_size=7)
        masks = [batch["valid"] for batch in made]
        assert len(masks) == len(made) == (rows // 7 if last == "drop" else -(-rows // 7))
        assert rows % 7 != 0 and masks[-1].all() == (last != "pad")
        assert made.report()["samples"] == (rows // 7 * 7 if last == "drop" else rows)


def test_other_rows_are_another_order(corpus: Corpus) -> None:
    position = loader(corpus, millrace.Tokens(LENGTH)).state_dict()
    for other in (
        millrace.Tokens(LENGTH + 1),
        millrace.Tokens(LENGTH, "pad"),
        millrace.Tokens(LENGTH, long="truncate"),
    ):
        with pytest.raises(millrace.MismatchError, match="rows of tokens"):
            loader(corpus, other).load_state_dict(position)


# ---- Buckets

LENGTHS, SIZES = [8, 20, 60], [16, 6, 2]
BUCKETS = millrace.Tokens(layout="bucket", lengths=LENGTHS, batch_sizes=SIZES)


@pytest.mark.parametrize("long", ["split", "truncate"])
@pytest.mark.parametrize("world", [1, 3, 4])
@pytest.mark.parametrize("last", ["pad", "drop", "wrap"])
def test_buckets(corpus: Corpus, long: str, world: int, last: str) -> None:
    tokens = millrace.Tokens(layout="bucket", lengths=LENGTHS, batch_sizes=SIZES, long=long)
    expected = bucketed(corpus, LENGTHS, long)
    ranks = [
        loader(corpus, tokens, shuffle="window", rank=rank, world=world, last=last, epochs=1) for rank in range(world)
    ]
    seen: list[list[int]] = [[], [], []]
    steps = [0, 0, 0]
    for batches in zip(*ranks, strict=True):  # so all have equally many steps
        lengths = {batch["tokens"].shape for batch in batches}
        assert len(lengths) == 1  # and are in the same bucket
        ((size, length),) = lengths
        bucket = LENGTHS.index(length)
        assert size == SIZES[bucket]
        steps[bucket] += 1
        for batch in batches:
            for i in np.flatnonzero(batch["valid"]):
                assert batch["part"][i] == bucket
                wanted = arrays(corpus, expected[bucket][batch["row"][i]], length)
                np.testing.assert_array_equal(batch["tokens"][i], wanted.tokens)
                np.testing.assert_array_equal(batch["token_mask"][i], wanted.mask)
                seen[bucket].append(int(batch["row"][i]))
    for bucket, rows in enumerate(expected):
        each = SIZES[bucket] * world
        assert steps[bucket] == (len(rows) // each if last == "drop" else -(-len(rows) // each))
        if last == "drop":
            assert len(set(seen[bucket])) == len(seen[bucket]) == len(rows) // each * each
        elif last == "pad":
            assert sorted(seen[bucket]) == list(range(len(rows)))
        else:
            assert set(seen[bucket]) == set(range(len(rows))) and len(seen[bucket]) == steps[bucket] * each
    counted = sum(rank.report()["samples"] for rank in ranks)
    assert counted == sum(map(len, expected)) or last == "drop"
    assert sum(steps) == len(ranks[0])


def test_buckets_are_interleaved_and_shuffled(corpus: Corpus) -> None:
    def lengths(**options: Any) -> list[int]:
        return [batch["tokens"].shape[1] for batch in loader(corpus, BUCKETS, shuffle="window", epochs=1, **options)]

    first = lengths(seed=1)
    assert first == lengths(seed=1) and first != lengths(seed=2) and sorted(first) == sorted(lengths(seed=2))
    half = first[: len(first) // 2]
    for length in LENGTHS:
        assert abs(half.count(length) - first.count(length) / 2) <= 12  # a cycle of the mix


def test_buckets_resume_at_any_step(corpus: Corpus) -> None:
    options: dict[str, Any] = {"shuffle": "window", "seed": 4, "epochs": 2, "digest": "raw"}
    whole = loader(corpus, BUCKETS, **options)
    batches = [batch["tokens"].copy() for _ in range(2) for batch in whole]
    rng = np.random.default_rng(0)
    cuts = sorted({0, len(batches), *(int(n) for n in rng.integers(0, len(batches), 6))})
    position, digests = None, []
    for first, last in zip(cuts, cuts[1:]):
        part = loader(corpus, BUCKETS, **options)
        if position:
            part.load_state_dict(position)
        stream = (batch for _ in range(2) for batch in part)
        for number, batch in zip(range(first, last), stream):
            np.testing.assert_array_equal(batch["tokens"], batches[number])
        position = part.state_dict()
        digests.append(position["digest"])
    assert add_digests(*digests) == whole.report()["digest"]


def test_what_decides_about_the_order_of_buckets_is_refused_on_resume(corpus: Corpus) -> None:
    position = loader(corpus, BUCKETS).state_dict()
    others = [
        loader(corpus, millrace.Tokens(layout="bucket", lengths=LENGTHS, batch_sizes=[16, 6, 3])),
        loader(corpus, millrace.Tokens(layout="bucket", lengths=[8, 20, 61], batch_sizes=SIZES)),
        loader(corpus, BUCKETS, world=2),
        loader(corpus, BUCKETS, last="drop"),
    ]
    for other in others:
        with pytest.raises(millrace.MismatchError, match="number of ranks"):
            other.load_state_dict(position)
    same = millrace.Tokens(layout="bucket", lengths=LENGTHS, batch_sizes=[size // 2 for size in SIZES])
    loader(corpus, same, world=2, rank=1, last="wrap").load_state_dict(position)  # steps of as many rows


def test_the_digest_of_buckets_does_not_depend_on_the_world(corpus: Corpus) -> None:
    digests = []
    for world in (1, 2, 5):
        ranks = [
            loader(corpus, BUCKETS, rank=rank, world=world, epochs=1, digest="raw", shuffle="window")
            for rank in range(world)
        ]
        for rank in ranks:
            for _ in rank:
                pass
        digests.append(add_digests(*(rank.report()["digest"] for rank in ranks)))
    assert len(set(digests)) == 1


# ---- Declared shapes


def check_shapes(made: millrace.Loader) -> None:
    declared = made.shapes()
    rehearsed = list(made.rehearse())
    assert len(rehearsed) == len(declared)
    for batch, shape in zip(rehearsed, declared):
        assert {name: (array.shape, str(array.dtype)) for name, array in batch.items() if name != "key"} == dict(shape)
        assert not batch["valid"].any() and batch["key"] == [""] * len(batch["valid"])
    for batch in made:
        assert {name: (array.shape, str(array.dtype)) for name, array in batch.items() if name != "key"} in declared
        assert list(batch) == [
            *next(shape for shape in declared if shape["valid"].shape == batch["valid"].shape),
            "key",
        ]


@pytest.mark.parametrize(
    "tokens", [*LAYOUTS, BUCKETS, millrace.Tokens(LENGTH, "stream", documents=True, dtype="int32")], ids=str
)
def test_every_batch_has_a_declared_shape(corpus: Corpus, tokens: millrace.Tokens) -> None:
    made = loader(corpus, tokens)
    assert len(made.shapes()) == (3 if tokens is BUCKETS else 1)
    check_shapes(made)


@pytest.mark.parametrize(
    "options", [{}, {"image": millrace.Image(dtype="f32", layout="nchw")}, {"image": millrace.Image(channels=1)}]
)
def test_shapes_of_images(raw: Samples, options: dict[str, Any]) -> None:
    made = millrace.Loader(raw.uri, batch_size=7, output="numpy", last="pad", **AT_SIZE, **options)
    (shape,) = made.shapes()
    assert shape["valid"] == ((7,), "bool") and shape["label"] == millrace.Shape((7,), "int64")
    check_shapes(made)
    assert made.rows == [] and made.padding == 0


def test_rows_as_tuples(corpus: Corpus) -> None:
    plain = list(loader(corpus, millrace.Tokens(LENGTH)))
    pairs = list(loader(corpus, millrace.Tokens(LENGTH), as_tuple=("tokens", "token_mask", "row")))
    for (tokens, mask, row), batch in zip(pairs, plain, strict=True):
        for one, other in ((tokens, batch["tokens"]), (mask, batch["token_mask"]), (row, batch["row"])):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(
        millrace.InvalidArgumentError, match="as_tuple names 'image', and batches have .*token_mask, tokens"
    ):
        loader(corpus, millrace.Tokens(LENGTH), as_tuple=("image",))


def test_a_rehearsal_as_tensors(corpus: Corpus) -> None:
    torch = pytest.importorskip("torch")
    made = loader(corpus, millrace.Tokens(LENGTH, pad=3), output="torch")
    (batch,) = made.rehearse()
    first = next(iter(made))
    assert {k: v.dtype for k, v in batch.items() if k != "key"} == {k: v.dtype for k, v in first.items() if k != "key"}
    assert torch.equal(batch["tokens"], torch.full((4, LENGTH), 3))


# ---- What is refused


def test_long_documents_can_be_refused(corpus: Corpus) -> None:
    for tokens in (
        millrace.Tokens(LENGTH, long="refuse"),
        millrace.Tokens(layout="bucket", lengths=[4, LENGTH], batch_sizes=[1, 1], long="refuse"),
    ):
        with pytest.raises(
            millrace.MismatchError,
            match=r"part-0.bin/\d+': it has \d+ tokens, and the longest row that was declared has 32",
        ):
            loader(corpus, tokens)


def test_data_without_tokens(tar: Samples) -> None:
    with pytest.raises(millrace.MismatchError, match="no field 'tokens'.*its fields are: cls, json, png, txt"):
        millrace.Loader(tar.uri, tokens=millrace.Tokens(8))
    with pytest.raises(millrace.MismatchError, match="field 'json' holds no tokens"):
        millrace.Loader(tar.uri, tokens=millrace.Tokens(8, field="json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "has one length"),
        ({"length": 0}, "it must be 1 to 16777216"),
        ({"length": 8, "layout": "packed"}, "choose one of 'pack', 'pad'"),
        ({"length": 8, "layout": "bucket"}, "and no length"),
        ({"layout": "bucket", "lengths": [8]}, "and batch_sizes"),
        ({"layout": "bucket", "lengths": [8, 9], "batch_sizes": [1]}, "2 lengths and 1 batch_sizes"),
        ({"length": 8, "lengths": [8]}, "are those of 'bucket'"),
        ({"length": 8, "documents": True}, "for layout='stream'"),
        ({"length": 8, "long": "cut"}, "'split', 'truncate', 'refuse'"),
        ({"length": 8, "dtype": "uint16"}, "'int64', 'int32'"),
        ({"length": 8, "stored": "float32"}, "'uint8', 'uint16'"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=words):
        millrace.Tokens(**arguments)


def test_options_that_make_no_sense(corpus: Corpus) -> None:
    with pytest.raises(TypeError, match=r"tokens must be a millrace.Tokens"):
        millrace.Loader(corpus.uri, tokens=2048)  # type: ignore[arg-type]
    with pytest.raises(millrace.InvalidArgumentError, match="ascend; 4 comes after 8"):
        loader(corpus, millrace.Tokens(layout="bucket", lengths=[8, 4], batch_sizes=[1, 1]))
    with pytest.raises(millrace.InvalidArgumentError, match="neither images nor labels"):
        loader(corpus, millrace.Tokens(8), label="cls")
    with pytest.raises(millrace.InvalidArgumentError, match="digest of stored bytes"):
        loader(corpus, millrace.Tokens(8), digest="decoded")
    with pytest.raises(millrace.InvalidArgumentError, match="does not fit into int32"):
        loader(corpus, millrace.Tokens(8, dtype="int32", pad=2**31))
    with pytest.raises(millrace.InvalidArgumentError, match="cannot be mixed by length"):
        data = millrace.Dataset(corpus.uri)
        millrace.Loader(millrace.Mix([data, data]), tokens=BUCKETS)
    with pytest.raises(millrace.ExhaustedError, match="MiB would do"):
        loader(corpus, millrace.Tokens(1_000_000), memory="8MiB")


def test_tokens_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "a.npy", np.array([1, 2**40, 3]))
    index_arrays(tmp_path / "d", "2")
    data = Corpus(str(tmp_path / "d"), [])
    assert next(iter(loader(data, millrace.Tokens(4, "stream"))))["tokens"][0].tolist() == [1, 2**40, 3, 0]
    with pytest.raises(millrace.DamagedDataError, match="a.npy/00000000': token 1099511627776 does not fit into int32"):
        next(iter(loader(data, millrace.Tokens(4, "stream", dtype="int32"))))
    made = loader(data, millrace.Tokens(4, "stream", dtype="int32", pad=9, documents=True), bad_samples="replace")
    batches = iter(made)
    batch = next(batches)
    assert batch["tokens"][0].tolist() == [9, 9, 3, 9] and batch["token_mask"][0].tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert batch["segment_ids"][0].tolist() == [0, 0, 2, 0]
    (bad,) = made.report()["quarantine"]
    assert bad["sample"].endswith("sample 'a.npy/00000000'") and bad["replacement"] == ""


# ---- Parts of data sets, and several


def test_subsets(corpus: Corpus) -> None:
    chosen = [n for n in range(len(corpus.lengths)) if n % 3 == 0]
    part = millrace.Dataset(corpus.uri).where(samples=chosen)
    for tokens in LAYOUTS:
        made = millrace.Loader(part, tokens=tokens, batch_size=4, output="numpy", memory="8MiB", epochs=1)
        seen = np.concatenate([batch["tokens"][batch["token_mask"]] for batch in made])
        wanted = np.concatenate([corpus.tokens(Piece(n, 0, corpus.lengths[n])) for n in chosen])
        np.testing.assert_array_equal(np.sort(seen), np.sort(wanted))


def test_mixes(corpus: Corpus, tmp_path: pathlib.Path) -> None:
    other = write_corpus(tmp_path / "d", some_lengths(7, 100, 50))
    mix = millrace.Mix([millrace.Dataset(corpus.uri), millrace.Dataset(other.uri)], weights=[3, 1], epoch_samples=80)
    made = millrace.Loader(mix, tokens=millrace.Tokens(LENGTH), batch_size=8, output="numpy", memory="8MiB", epochs=1)
    rows = [packed(corpus, LENGTH, GROUP), packed(other, LENGTH, GROUP)]
    for batch in made:
        for i in range(8):
            part = int(batch["part"][i])
            wanted = arrays((corpus, other)[part], rows[part][batch["row"][i]], LENGTH)
            np.testing.assert_array_equal(batch["tokens"][i], wanted.tokens)
    assert made.report()["parts"] == [60, 20] and [entry["rows"] for entry in made.rows] == [len(r) for r in rows]


def test_long_documents_are_read_in_part(tmp_path: pathlib.Path) -> None:
    """Beyond 64 KiB a sample is not fetched whole for each of its rows."""
    folder = tmp_path / "d"
    folder.mkdir()
    tokens = np.random.default_rng(1).integers(0, 50_000, 200_000, dtype=np.uint16)
    tokens.tofile(folder / "train.bin")
    index_arrays(folder, "100000:uint16")
    for layout in ("stream", "pack", "pad"):
        made = loader(Corpus(str(folder), []), millrace.Tokens(1000, layout), shuffle="global", batch_size=3, epochs=1)
        seen = {
            int(row): batch["tokens"][i].copy()
            for batch in made
            for i, row in enumerate(batch["row"])
            if batch["valid"][i]
        }
        np.testing.assert_array_equal(np.concatenate([seen[row] for row in sorted(seen)]), tokens)


def test_repr_tells_what_was_given() -> None:
    assert repr(millrace.Tokens(128)) == "<millrace.Tokens 128, 'pack'>"
    assert (
        repr(millrace.Tokens(128, "pad", long="refuse", pad=-1))
        == "<millrace.Tokens 128, 'pad', long='refuse', pad=-1>"
    )
    shown = repr(millrace.Tokens(layout="bucket", lengths=[8, 64], batch_sizes=[4, 2], dtype="int32"))
    assert shown == "<millrace.Tokens 'bucket', lengths=[8, 64], batch_sizes=[4, 2], dtype='int32'>"
