"""`feed --tokens`: rows of tokens on the command line."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash

from . import corpus
from .harness import Sandbox
from .test_tokens import some_tokens, write_pair

LENGTHS = [7, 1, 300, 64, 0, 2, 1000, 16, 16, 5]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_pair(tmp_path / "d" / "a", some_tokens(1, LENGTHS, "uint16"), "uint16")
    return tmp_path / "d"


def feed(sandbox: Sandbox, *arguments: object) -> dict:
    return sandbox.ok("feed", *arguments, "--json").json()


def piece_hash(epoch: int, position: int, start: int, key: str, offset: int, tokens: np.ndarray) -> int:
    """As docs/tokens.md says."""
    head = struct.pack("<QQQQ", epoch, position, start, len(key)) + key.encode()
    return xxhash.xxh3_128_intdigest(head + struct.pack("<QQ", offset, len(tokens)) + tokens.tobytes(), seed=0)


def test_digest_of_padded_rows(sandbox: Sandbox, data: Path) -> None:
    expected, position = 0, 0
    for number, document in enumerate(some_tokens(1, LENGTHS, "uint16")):
        for offset in range(0, len(document), 64):
            expected += piece_hash(0, position, 0, f"a.bin/{number:08d}", offset, document[offset : offset + 64])
            position += 1
    result = feed(sandbox, data, "--tokens", "64:pad", "--shuffle", "none")
    assert result["digest"] == f"{expected % 2**128:032x}" and result["samples"] == position
    assert result["tokens"] == sum(LENGTHS) and result["token_places"] == 128 * 64


def test_digest_of_a_stream(sandbox: Sandbox, data: Path) -> None:
    expected, place = 0, 0
    for number, document in enumerate(some_tokens(1, LENGTHS, "uint16")):
        offset = 0
        while offset < len(document):
            taken = min(len(document) - offset, 64 - place % 64)
            piece = document[offset : offset + taken]
            expected += piece_hash(0, place // 64, place % 64, f"a.bin/{number:08d}", offset, piece)
            place, offset = place + taken, offset + taken
    for layout in ("stream", "stream:documents"):
        assert (
            feed(sandbox, data, "--tokens", f"64:{layout}", "--shuffle", "none")["digest"]
            == f"{expected % 2**128:032x}"
        )


def test_ranks_and_resuming_add_up(sandbox: Sandbox, data: Path) -> None:
    for tokens in ("64", "64:pad", "8x4,64x2,500x1:bucket"):
        whole = feed(sandbox, data, "--tokens", tokens)
        ranks = [feed(sandbox, data, "--tokens", tokens, "--world", 3, "--rank", rank) for rank in range(3)]
        assert sum(int(part["digest"], 16) for part in ranks) % 2**128 == int(whole["digest"], 16)
        first = feed(sandbox, data, "--tokens", tokens, "--batch", 2, "--stop-after", 5)
        rest = feed(sandbox, data, "--tokens", tokens, "--batch", 2, "--resume", first["position"])
        assert (int(first["digest"], 16) + int(rest["digest"], 16)) % 2**128 == int(whole["digest"], 16)
        assert first["samples"] + rest["samples"] == whole["samples"]


def test_what_is_said_of_rows(sandbox: Sandbox, data: Path) -> None:
    rows = feed(sandbox, data, "--tokens", "64:pad:truncate")["rows"]
    (table,) = rows["tables"]
    assert rows["layout"] == "pad" and rows["long"] == "truncate"
    assert (table["length"], table["rows"], table["documents"], table["empty"]) == (64, 9, 9, 1)
    assert table["tokens"] == sum(min(n, 64) for n in LENGTHS) and table["truncated"] == sum(
        max(n - 64, 0) for n in LENGTHS
    )
    assert rows["padding"] == pytest.approx(1 - table["tokens"] / (9 * 64))
    text = sandbox.ok("feed", data, "--tokens", "64:pad:truncate").out
    assert "9 rows of 64 tokens with 239 tokens of 9 of the 10 documents" in text
    assert (
        "1172 tokens of documents that are longer than a row are left out" in text
        and "1 document without tokens" in text
    )
    assert "rows/s" in text and "% padding" in text
    explained = sandbox.ok("feed", data, "--tokens", "8x4,64x2,1000x1:bucket", "--explain").out
    assert "buckets by length" in explained and "steps of 1 row" in explained and "steps" in explained
    as_json = sandbox.ok("feed", data, "--tokens", "8x4,64x2,1000x1:bucket", "--explain", "--json").json()
    assert [table["rows"] for table in as_json["rows"]["tables"]] == [4, 3, 2]
    assert as_json["batches"]["steps"] == sum(table["steps"] for table in as_json["rows"]["tables"]) == 1 + 2 + 2


def test_explain_comes_true(sandbox: Sandbox, tmp_path: Path) -> None:
    lengths = [int(n) for n in np.random.default_rng(3).integers(1, 400, 2000)]
    write_pair(tmp_path / "d" / "a", some_tokens(2, lengths, "int32"), "int32")
    for tokens in ("512", "512:stream", "128x8,512x4:bucket"):
        for world in (1, 4):
            arguments = [tmp_path / "d", "--tokens", tokens, "--world", world, "--batch", 4]
            expected = sandbox.ok("feed", *arguments, "--explain", "--json").json()
            result = feed(sandbox, *arguments)
            assert (
                result["samples"] == expected["batches"]["samples"]
                and result["batches"] == expected["batches"]["steps"]
            )
            assert result["requests"]["GET"] == expected["expected"]["requests"]
            assert result["bytes_read"] == expected["expected"]["bytes"]


@pytest.mark.parametrize(
    "tokens",
    [
        "x",
        "0",
        "8:packed",
        "8:pad:documents",
        "8:stream:split",
        "8:bucket",
        "8x:bucket",
        "9x1,8x1:bucket",
        "8:pack:split:more",
    ],
)
def test_what_makes_no_sense(sandbox: Sandbox, data: Path, tokens: str) -> None:
    sandbox.run("feed", data, "--tokens", tokens).failed(2, "--tokens")


def test_resuming_other_rows_is_refused(sandbox: Sandbox, data: Path) -> None:
    position = feed(sandbox, data, "--tokens", "64", "--batch", 2, "--stop-after", 2)["position"]
    sandbox.run("feed", data, "--tokens", "65", "--resume", position).failed(1, "rows of tokens")
    position = feed(sandbox, data, "--tokens", "8x4,64x2:bucket", "--stop-after", 2)["position"]
    sandbox.run("feed", data, "--tokens", "8x4,64x2:bucket", "--world", 2, "--resume", position).failed(
        1, "number of ranks"
    )


def test_long_documents_refused_by_name(sandbox: Sandbox, data: Path) -> None:
    sandbox.run("feed", data, "--tokens", "299:pack:refuse").failed(1, "a.bin/00000002", "300 tokens", "299")
    assert not list((data / ".millrace").glob("packs-*"))


def test_an_index_is_not_disturbed(sandbox: Sandbox, data: Path) -> None:
    feed(sandbox, data, "--tokens", "64")
    assert len(list((data / ".millrace").glob("packs-64-*"))) == 1
    assert json.loads(sandbox.ok("inspect", data, "--json").out)["samples"] == len(LENGTHS)
    corpus.write(data / "b.bin", b"")
    assert sandbox.run("feed", data, "--tokens", "64").code != 0  # the index, and so the rows, are not of these data


def test_explain_tells_what_rows_hold_and_where_the_memory_goes(sandbox: Sandbox, data: Path) -> None:
    for tokens in ("64", "64:pad", "64:stream"):
        report = feed(sandbox, data, "--tokens", tokens, "--explain", "--shuffle", "none")
        rows = report["first"]
        fed = feed(sandbox, data, "--tokens", tokens, "--shuffle", "none", "--batch", len(rows), "--stop-after", 1)
        assert sum(row["tokens"] for row in rows) == fed["tokens"]
        assert {row["pieces"] for row in rows} == {1} or tokens != "64:pad"
        memory = report["memory"]
        parts = (
            memory["batches"] * memory["batch_bytes"]
            + memory["fetch_bytes"]
            + memory["reserve_bytes"]
            + memory["account_bytes"]
            + memory["unused_bytes"]
        )
        assert parts == memory["bytes"]
    out = sandbox.ok("feed", data, "--tokens", "64:stream", "--explain", "--shuffle", "none").out
    assert "for rows that were fetched" in out and "for tables of rows, keys and states" in out
    # 7 + 1 + 56 of the third document.
    assert [line.split() for line in out.splitlines()][-10] == ["0", "64", "3", "0,", "a.bin/00000000,", "a.bin"]
