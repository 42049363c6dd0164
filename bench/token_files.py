"""Writes token files for benchmarks, which feed them without decoding: the `.idx` that Megatron's IndexedDataset keeps
beside a `.bin`."""

from __future__ import annotations

import array
import itertools
import struct
from pathlib import Path

TOKEN_BYTES = 4  # int32


def write_idx(path: Path, lengths: array.array[int]) -> None:
    """Writes `lengths`, of type "i": the tokens of each sequence, each of which is a document."""
    count = len(lengths)
    offsets = array.array(
        "q", itertools.islice(itertools.accumulate((TOKEN_BYTES * length for length in lengths), initial=0), count)
    )
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, count, count + 1)
    path.write_bytes(head + lengths.tobytes() + offsets.tobytes() + array.array("q", range(count + 1)).tobytes())
