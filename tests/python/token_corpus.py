"""Writes token files whose every token shows where it is from. Says what rows they make, computed without Millrace, and
compares loaders with that."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import struct
from typing import Any

import millrace
import numpy as np
import pytest

STRIDE = 4096  # token = 1 + document * STRIDE + place in it
GROUP = 4096  # rows of a group where rows are this short: kMaxGroup of pipeline/token_rows.cc


@dataclasses.dataclass(frozen=True)
class Piece:
    document: int
    offset: int
    length: int


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Has documents in the order of the index: those of the first file, then those of the next."""

    uri: str
    lengths: list[int]

    def tokens(self, piece: Piece) -> np.ndarray:
        first = 1 + piece.document * STRIDE + piece.offset
        return np.arange(first, first + piece.length)


def write_corpus(folder: pathlib.Path, lengths: list[int], files: int = 2, dtype: str = "int32") -> Corpus:
    """Writes as Megatron's IndexedDataset does, in `files` pairs."""
    code = {"int32": 4, "int64": 5}[dtype]
    folder.mkdir(parents=True, exist_ok=True)
    document = 0
    for file, part in enumerate(np.array_split(np.array(lengths, dtype=np.int64), files)):
        tokens = [np.arange(n) + 1 + (document + i) * STRIDE for i, n in enumerate(part)]
        document += len(part)
        data = np.concatenate([*tokens, np.empty(0)]).astype(dtype)
        (folder / f"part-{file}.bin").write_bytes(data.tobytes())
        pointers = np.concatenate([[0], np.cumsum(part)])[:-1] * data.itemsize
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(part), len(part) + 1)
        index += part.astype(np.int32).tobytes() + pointers.astype(np.int64).tobytes()
        (folder / f"part-{file}.idx").write_bytes(index + np.arange(len(part) + 1, dtype=np.int64).tobytes())
    return Corpus(str(folder), lengths)


def some_lengths(seed: int, count: int, most: int) -> list[int]:
    """Returns lengths that are mostly short, some zero, some long."""
    rng = np.random.default_rng(seed)
    return [int(n) for n in rng.integers(0, rng.integers(1, most, count))]


# ---- The rows, by the text of docs/tokens.md: each is a list of pieces.


def cut(corpus: Corpus, longest: int, long: str = "split") -> list[Piece]:
    pieces = []
    for document, length in enumerate(corpus.lengths):
        end = min(length, longest) if long == "truncate" else length
        pieces += [Piece(document, at, min(longest, end - at)) for at in range(0, end, longest)]
    return pieces


def padded(corpus: Corpus, length: int, long: str = "split") -> list[list[Piece]]:
    return [[piece] for piece in cut(corpus, length, long)]


def bucketed(corpus: Corpus, lengths: list[int], long: str = "split") -> list[list[list[Piece]]]:
    pieces = cut(corpus, lengths[-1], long)
    return [[[p] for p in pieces if above < p.length <= length] for above, length in zip([0, *lengths], lengths)]


def streamed(corpus: Corpus, length: int) -> list[list[Piece]]:
    everywhere = [(document, at) for document, n in enumerate(corpus.lengths) for at in range(n)]
    rows = []
    for first in range(0, len(everywhere), length):
        row = []
        for document, places in itertools.groupby(everywhere[first : first + length], key=lambda place: place[0]):
            offsets = [at for _, at in places]
            row.append(Piece(document, offsets[0], len(offsets)))
        rows.append(row)
    return rows


def packed(corpus: Corpus, length: int, group: int, long: str = "split") -> list[list[Piece]]:
    """Is a naive reading of the description: everything is looked for by going through all of it."""
    place = {piece: at for at, piece in enumerate(cut(corpus, length, long))}

    def add(rows: list[list[Piece]], piece: Piece, most: float) -> bool:
        room = [length - sum(p.length for p in row) for row in rows]
        fits = [at for at in range(len(rows)) if room[at] >= piece.length]
        if fits:
            rows[min(fits, key=lambda at: (room[at], at))].append(piece)
        elif len(rows) < most:
            rows.append([piece])
        else:
            return False
        return True

    def fit(pieces: list[Piece], most: float) -> list[list[Piece]] | None:
        rows: list[list[Piece]] = []
        fitted = [add(rows, piece, most) for piece in sorted(pieces, key=lambda p: (-p.length, place[p]))]
        return rows if all(fitted) else None

    def in_order(rows: list[list[Piece]]) -> list[list[Piece]]:
        return sorted((sorted(row, key=place.__getitem__) for row in rows), key=lambda row: place[row[0]])

    made: list[list[Piece]] = []
    waiting: list[Piece] = []
    for piece in place:
        waiting.append(piece)
        if sum(p.length for p in waiting) < (group + group // 8 + 2) * length:
            continue
        most = group * length
        while True:
            totals = list(itertools.accumulate(p.length for p in waiting))
            taken = sum(total <= most for total in totals)
            rows = fit(waiting[:taken], group)
            if rows is not None:
                break
            most -= max(1, most // group)
        left = [p for i, p in enumerate(waiting[taken:]) if i >= 256 or not add(rows, p, group)]
        waiting = left
        made += in_order(rows)
    return made + in_order(fit(waiting, float("inf")) or [])


@dataclasses.dataclass
class Arrays:
    """Holds what a row must be, place by place."""

    tokens: np.ndarray
    mask: np.ndarray
    positions: np.ndarray
    segments: np.ndarray


def arrays(corpus: Corpus, row: list[Piece], length: int, pad: int = 0) -> Arrays:
    used = sum(piece.length for piece in row)
    rest = np.zeros(length - used, dtype=np.int64)
    return Arrays(
        tokens=np.concatenate([*(corpus.tokens(piece) for piece in row), rest + pad]),
        mask=np.arange(length) < used,
        positions=np.concatenate([*(np.arange(piece.length) for piece in row), rest]),
        segments=np.concatenate([*(np.full(piece.length, n + 1) for n, piece in enumerate(row)), rest]),
    )


# ---- Loaders


def loader(corpus: Corpus, tokens: millrace.Tokens, **options: Any) -> millrace.Loader:
    options = {
        "batch_size": 4,
        "shuffle": "none",
        "output": "numpy",
        "memory": "8MiB",
        "rank": 0,
        "world": 1,
        **options,
    }
    return millrace.Loader(corpus.uri, tokens=tokens, **options)


def check_rows(
    corpus: Corpus, made: millrace.Loader, expected: list[list[Piece]], length: int, segments: bool, pad: int = 0
) -> None:
    """Checks one epoch without shuffle."""
    at = 0
    for batch in made:
        assert ("position_ids" in batch) == ("segment_ids" in batch) == segments
        for row in np.flatnonzero(batch["valid"]):
            wanted = arrays(corpus, expected[at], length, pad)
            np.testing.assert_array_equal(batch["tokens"][row], wanted.tokens)
            np.testing.assert_array_equal(batch["token_mask"][row], wanted.mask)
            if segments:
                np.testing.assert_array_equal(batch["position_ids"][row], wanted.positions)
                np.testing.assert_array_equal(batch["segment_ids"][row], wanted.segments)
            assert batch["row"][row] == at and batch["sample"][row] == expected[at][0].document
            files = np.array_split(np.arange(len(corpus.lengths)), 2)
            file = int(expected[at][0].document >= len(files[0]))
            assert batch["key"][row] == f"part-{file}.bin/{expected[at][0].document - file * len(files[0]):08d}"
            at += 1
        for row in np.flatnonzero(~batch["valid"]):
            assert (
                (batch["tokens"][row] == pad).all() and not batch["token_mask"][row].any() and batch["key"][row] == ""
            )
    assert at == len(expected)
    used = sum(piece.length for row in expected for piece in row)
    assert made.rows[0]["rows"] == len(expected) and made.rows[0]["tokens"] == used
    assert made.padding == pytest.approx(1 - used / (len(expected) * length))
    report = made.report()
    assert report["tokens"] == used and report["token_places"] == len(made) * 4 * length
