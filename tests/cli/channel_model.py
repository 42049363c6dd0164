"""A model of SageMaker's Pipe mode, apart from src/: from the objects of a bucket to the bytes of each epoch that a program gets."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass, field

WORD = (1 << 64) - 1


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def global_order(count: int, seed: int, epoch: int) -> list[int]:
    """The global shuffle of docs/plan.md, of up to 256 items: Fisher and Yates, driven by a hash."""
    assert count <= 256
    key = mix(int.from_bytes(b"MR-globa", "big"))
    for part in (seed, epoch):
        key = mix(key ^ mix((part + 0x2545F4914F6CDD1D) & WORD))
    key = mix(key)
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        pair = mix((key + (i >> 1)) & WORD)
        half = pair >> 32 if i & 1 else pair & 0xFFFFFFFF
        j = half * (i + 1) >> 32
        order[i], order[j] = order[j], order[i]
    return order


def record(data: bytes) -> bytes:
    return struct.pack("<II", 0xCED7230A, len(data)) + data + bytes(-len(data) % 4)


def records(stream: bytes) -> list[bytes]:
    """As AWS's readers take a stream of RecordIO apart: by the lengths."""
    found, at = [], 0
    while at < len(stream):
        magic, length = struct.unpack_from("<II", stream, at)
        assert magic == 0xCED7230A, (at, hex(magic))
        assert length < 1 << 29
        found.append(stream[at + 8 : at + 8 + length])
        at += 8 + (length + 3) // 4 * 4
    assert at == len(stream)
    return found


@dataclass
class Channel:
    """`items` of a channel: each a list of the bytes that it consists of."""

    items: list[list[bytes]]
    wrapped: bool = False
    seed: int | None = None
    hosts: list[str] = field(default_factory=list)  # of a sharded channel

    @classmethod
    def of_prefix(cls, objects: dict[str, bytes], prefix: str, unzip: bool = False, **settings: object) -> Channel:
        keys = sorted(key for key in objects if key.startswith(prefix))
        return cls([[gzip.decompress(objects[key]) if unzip else objects[key]] for key in keys], **settings)  # type: ignore[arg-type]

    @classmethod
    def of_manifest(cls, objects: dict[str, bytes], manifest: str, **settings: object) -> Channel:
        head, *names = json.loads(manifest)
        return cls([[objects[(head["prefix"] + name).removeprefix("s3://bkt/")]] for name in names], **settings)  # type: ignore[arg-type]

    @classmethod
    def of_augmented(
        cls, objects: dict[str, bytes], manifest: str, attributes: list[str], **settings: object
    ) -> Channel:
        def value(line: dict[str, object], name: str) -> bytes:
            found = line[name]
            if name.endswith("-ref"):
                return objects[str(found).removeprefix("s3://bkt/")]
            return (found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))).encode()

        lines = [json.loads(line) for line in manifest.splitlines() if line]
        return cls([[value(line, name) for name in attributes] for line in lines], **settings)  # type: ignore[arg-type]

    def epoch(self, number: int, host: str = "") -> bytes:
        order = list(range(len(self.items))) if self.seed is None else global_order(len(self.items), self.seed, number)
        if self.hosts:
            order = order[sorted(self.hosts).index(host) :: len(self.hosts)]
        parts = [part for item in order for part in self.items[item]]
        return b"".join(record(part) if self.wrapped else part for part in parts)
