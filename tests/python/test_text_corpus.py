"""Tests TokenWriter, and texts that become tokens. A stand-in for the package tokenizers has a word for a token;
tests/frameworks runs the real one."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
from typing import Any

import millrace
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from support import binary

STAND_IN = """
import json


class Tokenizer:
    def __init__(self, words):
        self.words = words

    @staticmethod
    def from_str(text):
        return Tokenizer(json.loads(text)["words"])

    def to_str(self):
        return json.dumps({"words": self.words})

    def get_vocab_size(self, with_added_tokens):
        return len(self.words) + 100000 * ("<large>" in self.words)

    def token_to_id(self, token):
        return self.words.index(token) if token in self.words else None

    def encode_batch(self, texts, add_special_tokens):
        assert not add_special_tokens
        return [Encoding([self.words.index(word) for word in text.split()]) for text in texts]


class Encoding:
    def __init__(self, ids):
        self.ids = ids
"""
WORDS = ["<end>", "<begin>", *(f"w{number}" for number in range(500))]


@pytest.fixture
def tokenizer(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Returns its tokenizer.json; the stand-in is found by this process and by those that it starts."""
    folder = tmp_path / "stand-in"
    folder.mkdir()
    (folder / "tokenizers.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "tokenizers", raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.setenv("MILLRACE_PYTHON", sys.executable)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"words": WORDS}))
    return tmp_path / "tokenizer.json"


def some_texts(seed: int, count: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{word}" for word in rng.integers(0, 500, rng.integers(0, 40))) for _ in range(count)]


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def documents(uri: Any) -> list[list[int]]:
    return [sample["tokens"].tolist() for sample in millrace.Dataset(uri)]


def test_a_writers_documents_come_back(uri: str) -> None:
    wanted = [[1, 2, 3], [], [65535], list(range(1000))]
    with millrace.TokenWriter(uri, dtype="uint16", file_size=1500, about={"tokenizer": "x"}) as writer:
        for document in wanted[:2]:
            writer.write(document)
        with pytest.raises(millrace.MismatchError, match="being written"):
            millrace.Dataset(uri)
        writer.write(np.array(wanted[2], np.int64))
        writer.write(wanted[3])
        writer.write(range(5))
    wanted.append(list(range(5)))
    assert writer.documents == 5 and writer.tokens == 1009
    dataset = millrace.Dataset(uri)
    assert documents(uri) == wanted and dataset.kind == "tokens" and dataset.objects == 4  # two pairs
    with millrace.open(f"{uri}/tokens.json", "r") as file:
        about = json.load(file)
    assert about["documents"] == 5 and about["tokens"] == 1009 and about["tokenizer"] == "x" and about["files"] == 2
    rows = [
        batch["tokens"]
        for batch in millrace.Loader(uri, tokens=millrace.Tokens(256, "pack"), batch_size=2, epochs=1, output="numpy")
    ]
    assert sum(int((row != 0).sum()) for row in rows) == sum(token != 0 for document in wanted for token in document)


def test_files_are_those_of_megatron(tmp_path: pathlib.Path) -> None:
    with millrace.TokenWriter(tmp_path / "out", dtype="int32") as writer:
        writer.write([7, 8, 9])
        writer.write([10])
    assert np.fromfile(tmp_path / "out/tokens-00000.bin", "<i4").tolist() == [7, 8, 9, 10]
    idx = (tmp_path / "out/tokens-00000.idx").read_bytes()
    assert idx[:9] == b"MMIDIDX\0\0" and struct.unpack_from("<QBQQ", idx, 9) == (1, 4, 2, 3)
    assert struct.unpack_from("<2i2q3q", idx, 34) == (3, 1, 0, 12, 0, 1, 2) and len(idx) == 34 + 8 + 16 + 24


def test_a_writer_that_raised_leaves_a_place_to_begin_again(uri: str) -> None:
    with pytest.raises(ZeroDivisionError):
        with millrace.TokenWriter(uri, file_size=4) as writer:
            writer.write([1])
            writer.write([2])
            raise ZeroDivisionError
    with pytest.raises(millrace.MismatchError, match="being written"):
        millrace.Dataset(uri)
    with millrace.TokenWriter(uri) as writer:
        writer.write([3])
    assert documents(uri) == [[3]]
    with pytest.raises(millrace.AlreadyExistsError, match="holds"):
        millrace.TokenWriter(uri)


def test_tokens_that_are_none_are_refused(uri: str) -> None:
    with millrace.TokenWriter(uri, dtype="uint16") as writer:
        writer.write([1])
        for wrong in ([65536], [-1]):
            with pytest.raises(millrace.InvalidArgumentError, match="does not fit into uint16"):
                writer.write(wrong)
        for other in ([1.5], "text", [[1, 2]], 3):
            with pytest.raises(TypeError, match="whole numbers"):
                writer.write(other)
    assert documents(uri) == [[1]]
    with pytest.raises(millrace.UsageError, match="was closed"):
        writer.write([1])
    with pytest.raises(millrace.InvalidArgumentError, match="dtype"):
        millrace.TokenWriter(f"{uri}/x", dtype="float32")
    with pytest.raises(millrace.InvalidArgumentError, match="no document"):
        with millrace.TokenWriter(f"{uri}/y"):
            pass


def write_corpus(folder: pathlib.Path) -> list[str]:
    """Writes it in all forms, by the order of their token files."""
    folder.mkdir(parents=True)
    texts = [some_texts(seed, 30) for seed in range(4)]

    def lines(part: int) -> bytes:
        return b"".join(json.dumps({"id": n, "text": text}).encode() + b"\n" for n, text in enumerate(texts[part]))

    (folder / "a.jsonl").write_bytes(lines(0) + b"\n")
    (folder / "b.json.gz").write_bytes(gzip.compress(lines(1)))
    compressed = subprocess.run(["zstd", "-q", "-c"], input=lines(2), capture_output=True, check=True).stdout
    (folder / "c.jsonl.zst").write_bytes(compressed)
    pq.write_table(pa.table({"text": texts[3], "n": list(range(30))}), folder / "d.parquet")
    (folder / "e.txt").write_text("w1 w2\nw3\n")
    (folder / "README.md").write_text("no text")
    return [*texts[0], *texts[1], *texts[2], *texts[3], "w1 w2 w3"]


def test_texts_in_all_forms(tokenizer: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = write_corpus(tmp_path / "corpus")
    told: list[tuple[str, int, int]] = []
    report = millrace.pack(
        tmp_path / "corpus",
        tmp_path / "out",
        tokenizer=tokenizer,
        bos="<begin>",
        eos="<end>",
        progress=lambda *work: told.append(work),
    )
    wanted = [[1, *ids(text), 0] for text in texts]
    assert documents(tmp_path / "out") == wanted
    assert report["documents"] == len(wanted) and report["tokens"] == sum(map(len, wanted)) and report["files"] == 5
    assert report["dtype"] == "uint16" and report["vocabulary"] == 502 and report["skipped"] == 0
    assert told[-1][0] == "tokenizing" and told[-1][1] == told[-1][2] > 0
    about = json.loads((tmp_path / "out/tokens.json").read_text())
    assert about["tokenizer_sha256"] == hashlib.sha256(json.dumps({"words": WORDS}).encode()).hexdigest()
    assert millrace.pack(tmp_path / "corpus", tmp_path / "out", tokenizer=tokenizer, bos="<begin>", eos="<end>")[
        "already_packed"
    ]
    with pytest.raises(millrace.AlreadyExistsError, match="other tokens"):
        millrace.pack(tmp_path / "corpus", tmp_path / "out", tokenizer=tokenizer)
    assert millrace.pack(tmp_path / "corpus", tmp_path / "out", tokenizer=tokenizer, force=True)["tokens"] == sum(
        map(len, map(ids, texts))
    )


def test_the_command(tokenizer: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = write_corpus(tmp_path / "corpus")
    sources = [tmp_path / "corpus/a.jsonl", tmp_path / "corpus/b.json.gz"]  # as a shell writes a pattern out
    done = subprocess.run(
        [binary(), "pack", *sources, tmp_path / "out", "--tokenizer", tokenizer, "--eos", "<end>", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert documents(tmp_path / "out") == [[*ids(text), 0] for text in texts[:60]]
    assert json.loads(done.stdout)["documents"] == 60
    failed = subprocess.run(
        [binary(), "pack", *sources, tmp_path / "more", "--tokenizer", tokenizer, "--eos", "</s>"],
        capture_output=True,
        text=True,
    )
    assert (
        failed.returncode == 1 and failed.stderr == "millrace pack: eos is '</s>', which the tokenizer does not know\n"
    )


def test_a_loader_of_texts_makes_tokens_once(
    tokenizer: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_corpus(tmp_path / "corpus")
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    made = millrace.Tokens(64, "pack", tokenizer=tokenizer, eos="<end>", pad=501)

    def seen(uri: Any) -> list[int]:
        options = {"batch_size": 2, "epochs": 1, "shuffle": "none", "output": "numpy", "last": "pad"}
        found: list[int] = []
        with millrace.Loader(uri, tokens=made, **options) as loader:
            for batch in loader:
                found += batch["tokens"][batch["token_mask"]].tolist()
        return sorted(found)

    wanted = sorted(token for text in texts for token in [*ids(text), 0])
    assert seen(tmp_path / "corpus") == wanted
    (folder,) = (tmp_path / "cache/text").glob("*/")
    before = (folder / "a.bin").stat().st_ino
    assert seen(f"{tmp_path}/corpus") == wanted and (folder / "a.bin").stat().st_ino == before
    (tmp_path / "corpus/e.txt").write_text("w9 w9 w9")
    assert seen(tmp_path / "corpus").count(WORDS.index("w9")) == wanted.count(WORDS.index("w9")) + 3
    with pytest.raises(millrace.InvalidArgumentError, match="the URI of texts"):
        millrace.Loader(millrace.Dataset(folder), tokens=made, batch_size=2)
    with pytest.raises(millrace.InvalidArgumentError, match="give tokenizer, too"):
        millrace.Tokens(64, eos="<end>")


def test_patterns_and_places_in_a_bucket(tokenizer: pathlib.Path, bucket: str, server_folder: pathlib.Path) -> None:
    texts = write_corpus(server_folder / "bucket/text/corpus")
    millrace.pack(f"{bucket}/text/corpus/*.json*", f"{bucket}/text/out", tokenizer=tokenizer)
    assert documents(f"{bucket}/text/out") == [ids(text) for text in texts[:90]]


def test_an_interrupted_pack_goes_on_with_the_next_file(tokenizer: pathlib.Path, tmp_path: pathlib.Path) -> None:
    texts = write_corpus(tmp_path / "corpus")

    def stop(work: str, done: int, total: int) -> None:
        if (tmp_path / "out/b.idx").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        millrace.pack(tmp_path / "corpus", tmp_path / "out", tokenizer=tokenizer, progress=stop)
    with pytest.raises(millrace.MismatchError, match="being written"):
        millrace.Dataset(tmp_path / "out")
    kept = (tmp_path / "out/a.bin").stat().st_ino
    millrace.pack(tmp_path / "corpus", tmp_path / "out", tokenizer=tokenizer)
    assert (tmp_path / "out/a.bin").stat().st_ino == kept
    assert documents(tmp_path / "out") == [ids(text) for text in texts]
    assert not list((tmp_path / "out/.millrace").glob("text/*"))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": "w1"', "line 3 is no JSON"),
        (b"\xff", "line 3 is no JSON"),
        (b'{"id": 3, "body": "w1"}', "line 3 has no text in 'text'; its members are: id, body"),
        (b'{"text": 5}', "line 3 has no text in 'text'"),
    ],
)
def test_bad_lines_are_named_or_left_out(
    tokenizer: pathlib.Path, tmp_path: pathlib.Path, line: bytes, why: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b'{"text": "w1"}\n\n' + line + b'\n{"text": "w2 w3"}\n')
    with pytest.raises((millrace.DamagedDataError, millrace.InvalidArgumentError), match=why):
        millrace.pack(tmp_path / "in", tmp_path / "out", tokenizer=tokenizer)
    report = millrace.pack(tmp_path / "in", tmp_path / "out2", tokenizer=tokenizer, skip_bad=True)
    assert report["skipped"] == 1 and why.split(";")[0] in report["first_skipped"][0]
    assert documents(tmp_path / "out2") == [ids("w1"), ids("w2 w3")]


def test_other_fields_and_types(tokenizer: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"doc": {"body": "w1 w2"}}\n{"doc.body": "w3"}\n')
    report = millrace.pack(tmp_path / "in", tmp_path / "out", tokenizer=tokenizer, text_field="doc.body", dtype="int64")
    assert documents(tmp_path / "out") == [ids("w1 w2"), ids("w3")] and report["dtype"] == "int64"
    (tmp_path / "tokenizer.json").write_text(json.dumps({"words": [*WORDS, "<large>"]}))
    assert (
        millrace.pack(tmp_path / "in", tmp_path / "large", tokenizer=tokenizer, text_field="doc.body")["dtype"]
        == "int32"
    )


def test_what_cannot_be_packed_says_so(
    tokenizer: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x")
    with pytest.raises(millrace.NotFoundError, match="there are no texts"):
        millrace.pack(tmp_path / "in", tmp_path / "out", tokenizer=tokenizer)
    (tmp_path / "in/a.jsonl").write_text('{"text": "w1"}\n')
    (tmp_path / "in/a.txt").write_text("w1")
    with pytest.raises(millrace.InvalidArgumentError, match="would become the same token files, 'a'"):
        millrace.pack(tmp_path / "in", tmp_path / "out", tokenizer=tokenizer)
    with pytest.raises(millrace.InvalidArgumentError, match="it is not a tokenizer.json"):
        millrace.pack(tmp_path / "in/a.jsonl", tmp_path / "out", tokenizer=tmp_path / "in/a.txt")
    with pytest.raises(millrace.InvalidArgumentError, match="give tokenizer, too"):
        millrace.pack(tmp_path / "in", tmp_path / "out", eos="<end>")
    with pytest.raises(TypeError, match="tokenizer must be"):
        millrace.pack(tmp_path / "in", tmp_path / "out", tokenizer=3)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(millrace.UnsupportedError, match="pip install tokenizers"):
        millrace.pack(tmp_path / "in", tmp_path / "out", tokenizer=tokenizer)
