"""A checkpoint that somebody else has made: LATEST, MANIFEST.json and state.json made to do harm (C31). All reading ends with a message."""

from __future__ import annotations

import base64
import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import millrace
import numpy as np
import pytest
from millrace import _state, checkpoint_export

DEEP = b"[" * 200_000
DEEP_WHOLE = b"[" * 50_000 + b"]" * 50_000
DEEP_OBJECTS = b'{"a":' * 50_000 + b"1" + b"}" * 50_000


def crc32c(data: bytes) -> str:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return f"{value ^ 0xFFFFFFFF:08x}"


def tensor(**changes: Any) -> bytes:
    chunk = {"shard": "r00000-00000.safetensors", "name": "a", "offset": 0, **changes.pop("chunk", {})}
    return json.dumps({"a": {"$": "tensor", "dtype": "F32", "shape": [2], "chunks": [chunk], **changes}}).encode()


def tagged(tag: Any, of: Any, **more: Any) -> bytes:
    return json.dumps({"a": {"$": tag, "of": of, **more}}).encode()


STATES = {
    "deep": DEEP,
    "deep-whole": DEEP_WHOLE,
    "deep-objects": DEEP_OBJECTS,
    "deep-other-tag": b'{"$": "set", "of": ' + DEEP_WHOLE + b"}",
    "no-json": b"\xff\xfe",
    "a-list": b"[1, 2]",
    "larger-than-its-bytes": tensor(shape=[2**50]),
    "larger-than-numbers": tensor(shape=[2**62, 2**62]),
    "negative": tensor(shape=[-2]),
    "beyond-its-shard": tensor(chunk={"offset": 2**62}),
    "another-file": tensor(chunk={"shard": "../../../../etc/passwd"}),
    "a-region-elsewhere": tensor(chunk={"begin": [2**62], "shape": [2**62]}),
    "unknown-type": tensor(dtype="F99999999999"),
    "no-chunks": tensor(chunks=5),
    "no-pairs": tagged("dict", 5),
    "unhashable": tagged("set", [[1]]),
    "no-scalar": tagged("scalar", "", dtype="<f4"),
    "an-object": tagged("scalar", base64.b64encode(b"x" * 8).decode(), dtype="O"),
    "no-base64": tagged("bytes", "x"),
    "no-device": tagged("torch.device", "none of torch's"),
    "a-pickle": tagged("pickle", base64.b64encode(b"cos\nsystem\n(S'touch harmed'\ntR.").decode()),
    "tag-of-a-list": tagged(["dict"], 5),
}

ENTRY = {"step": 1, "attempt": "e1-0123456789abcdef", "bytes": 1, "saved_ms": 1, "manifest_bytes": 2, "manifest_crc32c": "00000000"}  # fmt: skip


def latest(**changes: Any) -> bytes:
    entry = {**ENTRY, **changes.pop("entry", {})}
    record = {"format": "millrace-checkpoints", "version": 1, "epoch": 1, "writer": "w", "conditional_writes": True}
    return json.dumps({**record, "checkpoints": [entry], **changes}).encode()


LATESTS = {
    "deep": DEEP,
    "deep-whole": DEEP_WHOLE,
    "no-json": b"\xff\xfe",
    "another-folder": latest(entry={"attempt": "../../../../etc"}),
    "huge-manifest": latest(entry={"manifest_bytes": 2**63}),
    "huge-step": latest(entry={"step": 2**64 - 1}),
    "last-epoch": latest(epoch=2**64 - 1),
    "negative": latest(epoch=-1),
    "numbers": latest(checkpoints=5),
}

SHARD = {"name": "state.json", "bytes": 2, "crc32c": "00000000", "piece_bytes": 2, "piece_crc32c": "00000000"}
MANIFESTS = {
    "deep": DEEP,
    "another-folder": {**SHARD, "name": "../../../escaped"},
    "the-root": {**SHARD, "name": "/etc/passwd"},
    "huge": {**SHARD, "bytes": 2**62, "piece_bytes": 2**62},
    "large": {**SHARD, "bytes": 2**30, "piece_bytes": 2**30},
    "more-pieces": {**SHARD, "piece_bytes": 1},
}


def saved(folder: pathlib.Path, text: bytes = b"") -> pathlib.Path:
    """A checkpoint with any text as its state.json, whole as far as checksums tell."""
    with pytest.MonkeyPatch.context() as changed:
        if text:
            files = (_state.STATE_NAME, [np.frombuffer(text, np.uint8)])
            changed.setattr(_state.Encoded, "state_file", lambda self, chunks: files)
        millrace.Checkpoints(folder, rank=0).save(1, {"a": np.ones(2, np.float32)})
    return folder


def latest_of(folder: pathlib.Path) -> pathlib.Path:
    """A folder has it as numbered files, of which the highest counts."""
    return max(folder.glob("LATEST.0*"))


def with_manifest(folder: pathlib.Path, made: Any) -> pathlib.Path:
    """LATEST has the checksum of the manifest."""
    saved(folder)
    path = next(folder.rglob("MANIFEST.json"))
    manifest = json.loads(path.read_text())
    text = made if isinstance(made, bytes) else json.dumps({**manifest, "shards": [made]}).encode()
    path.write_bytes(text)
    record = json.loads(latest_of(folder).read_text())
    record["checkpoints"][0] |= {"manifest_bytes": len(text), "manifest_crc32c": crc32c(text)}
    latest_of(folder).write_text(json.dumps(record))
    return folder


def with_latest(folder: pathlib.Path, text: bytes) -> pathlib.Path:
    latest_of(saved(folder)).write_bytes(text)
    return folder


CASES: list[tuple[str, Callable[[pathlib.Path], pathlib.Path]]] = [
    *((f"state-{name}", lambda folder, text=text: saved(folder, text)) for name, text in STATES.items()),
    *((f"latest-{name}", lambda folder, text=text: with_latest(folder, text)) for name, text in LATESTS.items()),
    *((f"manifest-{name}", lambda folder, made=made: with_manifest(folder, made)) for name, made in MANIFESTS.items()),
]
HARMLESS = ["state-a-list", "latest-last-epoch"]  # what the state is, or numbers of claims


@pytest.mark.parametrize("name, make", CASES, ids=[name for name, _ in CASES])
def test_c31_reading_ends_with_a_message(
    millrace_bin: pathlib.Path, tmp_path: pathlib.Path, name: str, make: Callable[[pathlib.Path], pathlib.Path]
) -> None:
    work = tmp_path / "a" / "work"
    work.mkdir(parents=True)
    make(work / "run")
    saved(work / "other")
    for words in (["ls", "run"], ["show", "run"], ["verify", "run"], ["diff", "run", "other"], ["diff", "other", "run"], ["cp", "run", "copy"], ["gc", "run", "--keep", "1"]):  # fmt: skip
        done = subprocess.run(
            [str(millrace_bin), "checkpoint", *words], cwd=work, capture_output=True, timeout=300, check=False
        )
        assert done.returncode in (0, 1), (words, done.returncode, done.stderr[-2000:])
        assert done.returncode == 0 or done.stderr.startswith(b"millrace") or words[0] in ("diff", "verify"), done
        assert b"Traceback" not in done.stderr and b"terminate called" not in done.stderr
    for read in (
        lambda: millrace.Checkpoints(work / "run", rank=0).load(),
        lambda: millrace.Checkpoints(work / "run", rank=0).load(only=["a"]),
        lambda: millrace.Checkpoints(work / "run", rank=0).load(into={"a": np.zeros(2, np.float32)}),
        lambda: millrace.Checkpoints(work / "run", rank=0).describe(),
        lambda: checkpoint_export.export_checkpoint(work / "run", work / "out.safetensors"),
    ):
        try:
            read()
        except millrace.Error:
            continue
    if name not in HARMLESS:
        with pytest.raises(millrace.Error):
            millrace.Checkpoints(work / "run", rank=0).load()
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert not [path for path in found if "escaped" in path or "harmed" in path]
    assert {path.split("/")[2] for path in found if path.count("/") >= 2} <= {"run", "other", "copy", "out.safetensors"}
    assert not pathlib.Path("harmed").exists()


def test_c31_the_metric_of_a_checkpoint(tmp_path: pathlib.Path) -> None:
    from millrace import _best_checkpoints

    for text in (DEEP, b"[1]", b'{"metric": "x"}'):
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(_best_checkpoints, "NAME", "state.json")
            folder = saved(tmp_path / str(len(text)), text)
            metrics = _best_checkpoints.Metrics(millrace.Checkpoints(folder, rank=0)._core, "max")
            with pytest.raises(millrace.DamagedDataError):
                metrics._metric(1)
