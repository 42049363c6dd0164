"""The samples that `millrace feed` must deliver, computed without Millrace.

Everything here follows the text of the interface: the order of the index, the names of keys and fields, and the digest. It
shares no code with the program, and Python's tarfile is its reader, so that a mistake has to be made twice to go unseen.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

MODULUS = 1 << 128
ZERO = "0" * 32


@dataclass(frozen=True)
class Sample:
    key: str
    fields: dict[str, bytes]


def _counted(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def sample_hash(sample: Sample, epoch: int, position: int) -> int:
    parts = [struct.pack("<QQ", epoch, position), _counted(sample.key.encode())]
    for name, data in sorted((name.encode(), data) for name, data in sample.fields.items()):
        parts += [_counted(name), _counted(data)]
    return xxhash.xxh3_128_intdigest(b"".join(parts), seed=0)


def as_hex(value: int) -> str:
    return f"{value % MODULUS:032x}"


def digest(samples: Iterable[Sample], epoch: int = 0) -> str:
    """The digest of samples that are delivered in this order from position 0."""
    return as_hex(sum(sample_hash(sample, epoch, position) for position, sample in enumerate(samples)))


def add(*digests: str) -> str:
    return as_hex(sum(int(d, 16) for d in digests))


def find_order(samples: list[Sample], wanted: str, epoch: int = 0) -> tuple[int, ...] | None:
    """The order of these few samples that has this digest: order[p] is the sample at position p. None: no order has it."""
    hashes = [[sample_hash(s, epoch, p) for s in samples] for p in range(len(samples))]
    target = int(wanted, 16)
    for order in itertools.permutations(range(len(samples))):
        if sum(hashes[p][s] for p, s in enumerate(order)) % MODULUS == target:
            return order
    return None


def split_name(name: str) -> tuple[str, str] | None:
    """Key and field of an object's path or a member's name; None when the name has no field."""
    while name.startswith("./"):
        name = name[2:]
    folder, slash, base = name.rpartition("/")
    stem, dot, field = base.partition(".")
    if not stem or not dot:
        return None
    return folder + slash + stem, field.lower()


def _files(root: Path) -> list[tuple[str, Path]]:
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if ".millrace" not in relative.split("/"):
                found.append((relative, path))
    return sorted(found, key=lambda item: item[0].encode())


def read_raw(root: Path) -> list[Sample]:
    files = _files(root)
    folders = sorted({relative.split("/")[0] for relative, _ in files if "/" in relative}, key=str.encode)
    samples = []
    for relative, path in files:
        key, field = split_name(relative)
        fields = {field: path.read_bytes()}
        if "/" in relative:
            fields["cls"] = str(folders.index(relative.split("/")[0])).encode()
        samples.append(Sample(key, fields))
    return samples


def read_shard(path: Path) -> list[Sample]:
    samples: list[Sample] = []
    with tarfile.open(path) as tar:
        for member in tar:
            if not member.isreg() or re.match(r"__[^/]*__($|/)", member.name):
                continue
            named = split_name(member.name)
            if named is None:
                continue
            key, field = named
            if not samples or samples[-1].key != key:
                samples.append(Sample(key, {}))
            samples[-1].fields[field] = tar.extractfile(member).read()
    return samples


def read_tar(root: Path) -> list[Sample]:
    return [s for relative, path in _files(root) if relative.endswith(".tar") for s in read_shard(path)]
