"""Shards as this project's scanners see them, through the small program `shard_dump` (built beside the tests)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]


def program(name: str) -> Path:
    """From the build that runs the tests (MILLRACE_BINARY_DIR), else from the newest one."""
    if "MILLRACE_BINARY_DIR" in os.environ:
        return Path(os.environ["MILLRACE_BINARY_DIR"]) / "bin" / name
    built = sorted(REPOSITORY.glob(f"build/*/bin/{name}"), key=lambda path: path.stat().st_mtime)
    assert built, f"build the target {name}"
    return built[-1]


def run_dump(path: Path, chunk: int = 65536) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program("shard_dump"), path, str(chunk)], capture_output=True, check=False, timeout=60)


def dump(path: Path, chunk: int = 65536) -> list[dict[str, Any]]:
    done = run_dump(path, chunk)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def values(path: Path, chunk: int = 65536) -> list[dict[str, tuple[str, str]]]:
    """{field: (type, sha256 of the value)} of each sample, in order."""
    samples = []
    for sample in dump(path, chunk):
        assert not any("error" in field for field in sample["fields"]), sample
        samples.append({field["name"]: (field["type"], field["sha256"]) for field in sample["fields"]})
    return samples


def value(kind: str, data: bytes) -> tuple[str, str]:
    """Returns what `values` says of a field of that type and value."""
    return kind, hashlib.sha256(data).hexdigest()


def array(numbers: Any) -> tuple[str, str]:
    file = io.BytesIO()
    np.save(file, np.asarray(numbers))
    return value("ndarray", file.getvalue())


def shortest(number: np.floating[Any]) -> bytes:
    """As short as it can be read back, in fixed or scientific notation, whichever is shorter: C++'s to_chars."""
    if not np.isfinite(number):
        return str(number).encode()
    fixed = np.format_float_positional(number, unique=True, trim="-")
    if "." not in fixed:
        fixed = f"{int(number)}" if fixed != "-0" else fixed  # of all integers of that length the very number
    mantissa, exponent = np.format_float_scientific(number, unique=True, trim="-", exp_digits=2).split("e")
    scientific = f"{mantissa}e{exponent}"
    return min(fixed, scientific, key=len).encode()  # fixed where both are of one length
