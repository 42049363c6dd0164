"""Shards of results, for batch inference, preprocessing, and other programs that make samples one by one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from . import _arguments, _core
from ._errors import AlreadyExistsError, InvalidArgumentError, MismatchError, NotFoundError, UsageError
from ._foreign_json import parse_json
from ._ranks import rank_and_world
from ._sample_values import FORMER_KEY, KEY, RENAMED

_MARK = ".millrace/incomplete"
_DONE = ".millrace/written"
_JOURNAL = ".millrace/writer-"
_LAST = "last"  # a rank that has ended has it beside its journal
_KIND = "millrace.ShardWriter 2"
_KINDS_READ = (_KIND, "millrace.ShardWriter 1")  # of complete places; the first version wrote other keys

_Json = dict[str, Any]


class ShardWriter:
    """Writes samples to WebDataset shards. They become one data set when all ranks have ended. An interrupted program can continue.

        with millrace.ShardWriter("s3://bucket/embeddings") as writer:
            loader = millrace.Loader("s3://bucket/images", shuffle=False, epochs=1)
            # Continue behind the stored samples.
            if writer.state is not None:
                loader.load_state_dict(writer.state)
            for batch in loader:
                rows = zip(batch["key"], batch["valid"], model(batch["image"]))
                # Rows of padding are not valid.
                for key, valid, vector in rows:
                    if valid:
                        writer.write({"key": key, "embedding.npy": vector})
                writer.advance(loader.state_dict())

    Readers see nothing before the end: until the last rank has ended, a mark makes :class:`Dataset` and all commands refuse the place.
    If the body of ``with`` raises, or the program is killed, only complete shards stay for the next run of the same program. ``state`` is
    then the state of the last :meth:`advance` that they contain. If the program continues at ``state``, every sample is stored exactly once,
    for every kind of interruption. If it never calls :meth:`advance`, it begins from the start.

    Args:
        uri: An empty place, or one where the same ranks have begun.
        shard_size: The size of a shard, in bytes or as ``"256MiB"``. A shard ends at the first :meth:`advance` at which it is this large. If
            the program never calls :meth:`advance`, it ends at the first such sample.
        rank, world: As for :class:`Loader`. Each rank writes its own shards.

    Raises:
        AlreadyExistsError: The place holds something else.
        MismatchError: Another number of ranks, or another program, has begun there.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        shard_size: int | str = "256MiB",
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        self.uri = _arguments.uri("uri", uri).rstrip("/") + "/"
        self._shard_bytes = _core.to_bytes("shard_size", _arguments.memory(shard_size, "shard_size"))
        self.rank, self.world = rank_and_world(rank, world)
        if not 0 <= self.rank < self.world:
            raise InvalidArgumentError(f"rank is {self.rank}, of {self.world}; it must be 0 to {self.world - 1}")
        self._shard: _core.WriteFile | None = None
        self._name = ""
        self._bytes = self._samples = 0  # of the open shard
        self._samples_before = 0  # of a complete place, which has no journal
        self._last_key: str | None = None
        self._advances = self._closed = False
        self._journal: list[_Json] = []
        done = self._read(_DONE)
        self._complete = done is not None
        if done is not None:
            self._check(done, _DONE)
            self._state = done["states"][self.rank]
            self._samples_before = int(done.get("samples_of_ranks", [0] * self.world)[self.rank])
            self._ended = True
            self._clear()  # the rank that made it complete may have been killed before it did
            return
        self._begin()
        there = self._list("")
        self._journal = self._entries(self.rank, there)
        self._state = next((entry["state"] for entry in reversed(self._journal) if entry["state"] is not None), None)
        self._ended = bool(self._journal) and bool(self._journal[-1]["last"])
        if not self._ended:
            self._sweep(there)

    @property
    def state(self) -> Any:
        """Returns the last state that :meth:`advance` got for samples that are stored, to continue from there; None at
        the beginning."""
        return self._state

    @property
    def complete(self) -> bool:
        """True if all ranks have ended, so that the data set can be read."""
        return self._complete

    @property
    def samples(self) -> int:
        """The number of samples that this rank has written, including earlier runs."""
        return self._samples_before + sum(int(entry["samples"]) for entry in self._journal) + self._samples

    def write(self, sample: Mapping[str, Any]) -> None:
        """Adds a sample: ``"key"``, and its fields by name.

            writer.write({"key": "7", "jpg": data, "cls": 3, "embedding.npy": vector})

        Names of fields are extensions, such as ``jpg``, ``cls`` or ``embedding.npy``. Bytes are stored as they are, text as UTF-8, and
        numbers as text. If the name ends in ``npy``, arrays and tensors are stored as such files. If it ends in ``json``, all values that
        JSON has are allowed. The key may contain folders and dots, and Millrace reads it back unchanged.

        Args:
            sample: A dict with ``"key"``, a string, and at least one field.

        Raises:
            InvalidArgumentError: A shard cannot hold a name or a value. The shard has not changed.
            UsageError: This rank has ended already, in this run or in an earlier one.
        """
        self._check_open()
        if not isinstance(sample, Mapping) or not isinstance(sample.get(KEY), str) or FORMER_KEY in sample:
            advice = f"; {RENAMED}" if isinstance(sample, Mapping) and FORMER_KEY in sample else ""
            _arguments.refuse("sample", f"a dict with '{KEY}' (a string) and fields{advice}", sample)
        key = sample[KEY]
        fields = [(name, _stored(key, name, value)) for name, value in sample.items() if name != KEY]
        if not fields:
            raise InvalidArgumentError(f"sample '{key}' has no fields; give at least one beside '{KEY}'")
        data = _core.tar_sample(key, fields)
        if self._samples and key == self._last_key:
            raise InvalidArgumentError(
                f"two samples in a row have the key '{key}', which in a shard would make them one; give each its own"
            )
        if self._shard is None:
            self._name = f"shard-{self.rank:05d}-{len(self._journal):06d}.tar"
            self._shard = _core.WriteFile(self.uri + self._name, True)
            self._shard.write(_core.tar_begin())
        self._shard.write(data)
        self._bytes += len(data)
        self._samples += 1
        self._last_key = key
        if not self._advances and self._bytes >= self._shard_bytes:
            self._end_shard(last=False)

    def advance(self, state: Any) -> None:
        """Declares that all samples up to ``state``, such as ``loader.state_dict()``, are written.

        After the first call, shards end only at such calls. A call costs nothing unless a shard ends.

        Args:
            state: The state to continue from. JSON must be able to hold it.

        Raises:
            InvalidArgumentError: JSON cannot hold ``state``.
        """
        self._check_open()
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"the state cannot be kept as JSON: {error}; give plain values, such as loader.state_dict()"
            ) from None
        self._advances = True
        self._state = state
        if self._bytes >= self._shard_bytes:
            self._end_shard(last=False)

    def close(self) -> None:
        """Ends this rank's part. The samples since the last shard become a shard. The last rank to end makes the data set visible."""
        if self._closed:
            return
        self._closed = True
        if not self._ended:
            self._end_shard(last=True)
            self._ended = True
        if not self._complete:
            self._write_once(f"{_JOURNAL}{self.rank:05d}-{_LAST}", {})
            self._finish()

    def discard(self) -> None:
        """Ends without the samples since the last complete shard. A later run continues after that shard."""
        self._closed = True
        if self._shard is not None:
            self._shard.discard()
            self._shard = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __repr__(self) -> str:
        what = "complete" if self._complete else f"{self.samples:,} samples so far"
        return f"<millrace.ShardWriter {self.uri}: rank {self.rank} of {self.world}, {what}>"

    # ---- Shards and what is known of them

    def _end_shard(self, last: bool) -> None:
        """Writes the shard, and then the entry of the journal that makes it count."""
        shard, self._shard = self._shard, None
        etag = ""
        if shard is not None:
            end = _core.tar_end()
            shard.write(end)
            shard.commit()
            etag = _core.stat_object(self.uri + self._name)[2]
        entry = {
            "shard": self._name if shard is not None else None,
            "bytes": len(_core.tar_begin()) + self._bytes + len(end) if shard is not None else 0,
            "etag": etag,
            "samples": self._samples,
            "state": self._state,
            "last": last,
        }
        self._write(f"{_JOURNAL}{self.rank:05d}-{len(self._journal):06d}", entry)
        self._journal.append(entry)
        self._bytes = self._samples = 0

    def _entries(self, rank: int, there: Mapping[str, tuple[int, str]]) -> list[_Json]:
        """Returns the journal of a rank up to the first shard that differs from its entry. ``there`` lists the objects of the place."""
        start = f"{_JOURNAL}{rank:05d}-"
        names = sorted(name for name in there if name.startswith(start) and not name.endswith(_LAST))
        entries: list[_Json] = []
        for number, name in enumerate(names):
            entry = self._read(name)
            if name != f"{start}{number:06d}" or entry is None:
                break
            if entry["shard"] is not None and there.get(entry["shard"]) != (entry["bytes"], entry["etag"]):
                break
            entries.append(entry)
        # Samples before the first advance() are written again, since the program begins at the beginning.
        while entries and entries[-1]["state"] is None and not entries[-1]["last"]:
            entries.pop()
        return entries

    def _sweep(self, there: Mapping[str, tuple[int, str]]) -> None:
        """Removes objects that do not count.

        These are shards of this rank that a killed run has not entered into the journal. They are also entries, with all later ones, whose
        shard was replaced by another process with the same rank.
        """
        start = f"{_JOURNAL}{self.rank:05d}-"
        counted = {entry["shard"] for entry in self._journal} | {
            f"{start}{number:06d}" for number in range(len(self._journal))
        }
        own = (f"shard-{self.rank:05d}-", start)
        self._remove([name for name in there if name.startswith(own) and name not in counted])

    # ---- The place as a whole

    def _begin(self) -> None:
        mark = {"kind": _KIND, "world": self.world}
        found = self._read(_MARK)
        if found is None:
            others = [name for name in self._list("") if not name.startswith(_JOURNAL)]
            found = self._read(_MARK) if others else None  # another rank may just have begun
            if others and found is None:
                raise AlreadyExistsError(
                    f"{self.uri} holds {others[0]!r} already; results need an empty place: choose another, or remove its contents"
                )
        if found is None:
            self._write_once(_MARK, mark)
            found = self._read(_MARK) or mark
        self._check(found, _MARK)

    def _check(self, found: _Json, name: str) -> None:
        if found.get("kind") not in (_KINDS_READ if name == _DONE else (_KIND,)):
            raise MismatchError(
                f"{self.uri}{name} is not of a ShardWriter of this version; end what was begun there, or choose an empty place"
            )
        if found["world"] != self.world:
            raise MismatchError(
                f"{self.uri} was begun by {found['world']} ranks, and this is one of {self.world}; continue with as many, or choose an empty place"
            )

    def _finish(self) -> None:
        """Completes the data set if all ranks have ended. Each of them may do this, also several at the same time."""
        there = self._list("")
        if all(f"{_JOURNAL}{rank:05d}-{_LAST}" in there for rank in range(self.world)):
            journals = [self._entries(rank, there) for rank in range(self.world)]
            if all(entries and entries[-1]["last"] for entries in journals):
                self._record(journals, there)
        if self._read(_DONE) is None:  # the other ranks are at it
            return
        self._clear()
        self._complete = True

    def _clear(self) -> None:
        """Removes the mark that keeps readers away, and the journals, which are no longer needed."""
        names = [f".millrace/{name}" for name in self._list(".millrace/")]
        self._remove([name for name in names if name == _MARK or name.startswith(_JOURNAL)])

    def _record(self, journals: list[list[_Json]], there: Mapping[str, tuple[int, str]]) -> None:
        counted = {entry["shard"] for entries in journals for entry in entries}
        self._remove([name for name in there if name.startswith("shard-") and name not in counted])
        of_ranks = [sum(entry["samples"] for entry in entries) for entries in journals]
        states = [entries[-1]["state"] for entries in journals]
        done = {
            "kind": _KIND,
            "world": self.world,
            "samples": sum(of_ranks),
            "samples_of_ranks": of_ranks,
            "states": states,
        }
        self._write_once(_DONE, done)

    # ---- The store

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self.uri}: this writer was closed")
        if self._ended:
            raise UsageError(
                f"{self.uri}: rank {self.rank} has written all of its samples already; remove the place to write it again"
            )

    def _list(self, folder: str) -> dict[str, tuple[int, str]]:
        try:
            objects, _ = _core.list_place(self.uri + folder, True, 0)
        except NotFoundError:
            return {}
        return {name: (size, etag) for name, size, etag, _ in objects if name}

    def _read(self, name: str) -> _Json | None:
        try:
            file = _core.ReadFile(self.uri + name)
            try:
                text = file.read(0, file.size)
            finally:
                file.close()
        except (
            NotFoundError
        ):  # also while it is read: another rank, which has made the place complete, removes journals
            return None
        try:
            value = parse_json(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise MismatchError(f"{self.uri}{name} was not written by a ShardWriter; choose an empty place")
        return value

    def _write(self, name: str, value: _Json) -> None:
        file = _core.WriteFile(self.uri + name, True)  # never in place of another
        file.write(json.dumps(value).encode())
        file.commit()

    def _write_once(self, name: str, value: _Json) -> None:
        try:
            self._write(name, value)
        except AlreadyExistsError:
            pass  # by another rank, or by an earlier run

    def _remove(self, names: list[str]) -> None:
        try:
            _core.remove_objects([self.uri + name for name in names])
        except NotFoundError:
            pass  # by another rank


def _stored(key: str, name: Any, value: Any) -> bytes | bytearray | memoryview:
    """Returns the bytes of a field."""
    if not isinstance(name, str):
        _arguments.refuse("the name of a field", "a string", name)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value
    if isinstance(value, str):
        return value.encode()
    kind = name.rpartition(".")[2]
    if kind == "json":
        return json.dumps(value).encode()
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, (np.ndarray, np.generic)) and (kind == "npy" or value.ndim > 0):
        if kind != "npy":
            raise InvalidArgumentError(
                f"sample '{key}': the field '{name}' is an array; give it a name that ends in 'npy', such as '{name}.npy'"
            )
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return file.getvalue()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item()
    if isinstance(value, (int, float)):
        return repr(int(value) if isinstance(value, bool) else value).encode()
    raise InvalidArgumentError(
        f"sample '{key}': the field '{name}' is a {type(value).__name__}; give bytes, text, a number, an array, or, under a name that ends in 'json', a value that JSON has"
    )
