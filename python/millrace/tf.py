"""Provides TensorFlow and Keras with a Loader as a ``tf.data.Dataset``, and a Keras callback that stores its position.

    import keras, millrace.tf

    # The Loader becomes a data set of TensorFlow.
    loader = millrace.Loader("s3://bucket/train", batch_size=256, size=224, augment=True, seed=1, output="numpy")
    dataset = millrace.tf.dataset(loader).map(lambda batch: (batch["image"], batch["label"], batch["valid"]))
    # The callback keeps the position beside the model.
    positions = millrace.tf.PositionCallback(loader, "s3://bucket/run-7/positions.json", save_freq=500)
    backup = keras.callbacks.BackupAndRestore("/nvme/run-7", save_freq=500)
    # Start the program again after a kill: it continues with the next sample.
    model.fit(dataset, epochs=90, callbacks=[positions, backup])

The module needs the packages ``tensorflow`` and ``keras``.
"""

from __future__ import annotations

import itertools
import json
import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _arguments, _float_types
from ._batch import State
from ._device import Device
from ._errors import InvalidArgumentError, MismatchError, NotFoundError, UnsupportedError, UsageError
from ._files import open as open_file
from ._loader import Loader

if TYPE_CHECKING:
    tf: Any
    keras: Any

    class _Callback:  # the used parts of Keras, so that type checks work without the packages
        model: Any
        params: dict[str, Any]

        def __init__(self) -> None: ...

else:
    import keras
    import tensorflow as tf
    from keras.callbacks import Callback as _Callback

__all__ = ["PositionCallback", "dataset"]

_STATES_KEPT = 1024  # states of delivered batches; tf.data may prefetch fewer than that
_ENTRIES_KEPT = 100  # entries of a file of positions


def dataset(loader: Loader, *, signature: Mapping[str, Any] | None = None, restart: bool = False) -> Any:
    """Returns the batches of a Loader as a ``tf.data.Dataset`` of dicts of tensors.

        dataset = millrace.tf.dataset(loader).map(lambda batch: (batch["image"], batch["label"]))
        model.fit(dataset, epochs=90)

    Shapes are static except for the rows of the last batch. An iteration is one epoch of the Loader, or the rest of it, and the cardinality is
    ``len(loader)``. Arrays are not copied: tensors are views of the Loader's memory. Batches that ``shuffle``, ``cache`` or a long
    ``prefetch`` hold count against its budget. The data set does not prefetch, since the Loader does. So ``loader.state_dict()`` is the
    position after the received batches, unless the program adds ``prefetch``. :class:`PositionCallback` is exact with ``prefetch``, too.

    Elements have all entries of batches whose shape and type are known: images, labels, ``valid``, ``sample``, tokens, and texts and keys as
    ``tf.string``. With buckets of tokens, dimensions that differ are None. With ``last="short"``, which is the Loader's default, the number of
    rows is None. With ``last="pad"``, weigh samples by ``valid``.

    Args:
        loader: A Loader with ``output="numpy"`` or with torch tensors.
        signature: A ``tf.TensorSpec`` by name, for all or some of the entries. It is required for a Loader with a transform, whose shapes are
            not known. None: shapes and types come from the Loader.
        restart: True: each iteration begins at the first sample of the first epoch, as validation should.

    Raises:
        UnsupportedError: The Loader has a transform, and there is no ``signature``; or it has a ``device`` other than ``"cpu"``.
    """
    if not isinstance(loader, Loader):
        _arguments.refuse("loader", "a millrace.Loader", loader)
    if signature is not None and not isinstance(signature, Mapping):
        _arguments.refuse("signature", "a dict of tf.TensorSpec", signature)
    if loader._hand_over.as_tuple:
        raise InvalidArgumentError("elements of tf.data are dicts here; make the Loader without as_tuple")
    if loader._device is not None and type(loader._device) is not Device:
        raise UnsupportedError(
            "the Loader sends its batches to a device, and tf.data takes them from the host; make it without device="
        )
    specs = _signature(loader) if signature is None else dict(signature)
    feed = _Feed() if restart else _feeds.setdefault(loader, _Feed())
    found = weakref.ref(loader)  # TensorFlow never releases the function that it gets

    def batches() -> Iterator[dict[str, Any]]:
        alive = found()
        if alive is None:
            raise UsageError(
                "the tf.data.Dataset of this iterator is gone, and with it the Loader; keep the one or the other"
            )
        return feed.batches(alive, specs, restart)

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    # take() gives the cardinality. A resumed epoch is shorter, and _Feed.batches ends it.
    made = (
        tf.data.Dataset.from_generator(batches, output_signature=specs).repeat().take(len(loader)).with_options(options)
    )
    made._millrace_loader = loader  # which thus lives as long as it, and as data sets and iterators that are made of it
    return made


class _Feed:
    """The states after the last batches that were delivered to tf.data, which may be ahead of the program."""

    def __init__(self) -> None:
        self.delivered = 0
        self.received = 0  # of these, as far as a callback has said
        self._states: deque[State] = deque(
            maxlen=_STATES_KEPT
        )  # the last is that after the last batch that was delivered
        self.is_over = False  # True: the epoch has ended, and the next request is empty

    def batches(self, loader: Loader, specs: Mapping[str, Any], restart: bool) -> Iterator[dict[str, Any]]:
        """Yields the rest of an epoch. ``repeat()`` asks for another one in the same iteration, and ends if it is empty."""
        if self.is_over:
            self.is_over = False
            return
        if restart:
            loader.reset()
        if loader._iteration.is_used_up:
            return
        state = loader.state_dict()
        if not self._states or self._states[-1]["position"] != state["position"]:
            self.begin(state)
        before = self.delivered
        iterator = iter(loader)
        while element := [{name: _array(batch, name) for name in specs} for batch in itertools.islice(iterator, 1)]:
            self.delivered += 1
            self._states.append(loader.state_dict())
            yield element.pop()  # this frame holds no batch while tf.data has it
        self.is_over = self.delivered > before

    def begin(self, state: State) -> None:
        """Notes that the Loader was set to another position."""
        self.delivered = self.received = 0
        self._states.clear()
        self._states.append(state)

    def state(self, loader: Loader) -> State:
        """Returns the state after the last batch that the program received."""
        ahead = self.delivered - self.received
        if ahead == 0:
            return loader.state_dict()
        if ahead >= len(self._states):
            raise UsageError(
                f"tf.data has prefetched {ahead} batches, and positions are kept of {_STATES_KEPT}; let prefetch() hold fewer"
            )
        return self._states[-1 - ahead]

    def rewind(self, loader: Loader) -> None:
        """Sets the Loader back, so that batches that were prefetched and never received come again."""
        if self.delivered != self.received:
            state = self.state(loader)
            loader.load_state_dict(state)
            self.begin(state)


_feeds: weakref.WeakKeyDictionary[Loader, _Feed] = weakref.WeakKeyDictionary()


def _signature(loader: Loader) -> dict[str, Any]:
    if loader._has_functions:
        raise UnsupportedError(
            "the batches of a transform are not known ahead; name their types: signature={'image': tf.TensorSpec((32, 224, 224, 3), tf.float32)}"
        )
    specs: dict[str, Any] = {}
    fixed = loader._last != "short"
    for batch in loader.rehearse():
        columns: dict[str, Any] = {**batch}
        for name, column in columns.items():
            if isinstance(column, list):
                if not all(isinstance(value, (str, bytes)) for value in column):
                    continue  # JSON, or arrays of many shapes
                shape, kind = (len(column),), tf.string
            else:
                shape, kind = tuple(column.shape), tf.as_dtype(str(column.dtype).removeprefix("torch."))
            spec = tf.TensorSpec(shape if fixed else (None, *shape[1:]), kind)
            known = specs.get(name)
            specs[name] = spec if known is None else known.most_specific_common_supertype([spec])
    return specs


def _array(batch: Any, name: str) -> Any:
    if not isinstance(batch, Mapping) or name not in batch:
        has = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        raise InvalidArgumentError(f"signature names {name!r}, and the Loader's batch has {has}")
    column = batch[name]
    return _float_types.array_of(column) if type(column).__module__.partition(".")[0] == "torch" else column


class PositionCallback(_Callback):
    """A Keras callback that stores the position of a Loader beside the checkpoints of another callback, and restores it.

        positions = millrace.tf.PositionCallback(loader, "s3://bucket/run-7/positions.json", save_freq=500)
        backup = keras.callbacks.BackupAndRestore("/nvme/run-7", save_freq=500)
        model.fit(dataset, epochs=90, callbacks=[positions, backup])

    Pass it **before** ``BackupAndRestore`` or ``ModelCheckpoint``, with the same ``save_freq``. Positions are stored by the number of steps of
    the optimizer, which those callbacks save with the model. So when training continues, the position belongs to the loaded model, even if a
    kill left only one of the two files up to date.

    With ``BackupAndRestore`` nothing else is needed. After ``keras.models.load_model()``, call ``fit(..., initial_epoch=callback.restore(model))``.
    A model that has not been trained begins at the Loader's own position.

    An epoch that was resumed in its middle is shorter. At its end Keras prints once "Your input ran out of data". The next epoch is whole.

    Args:
        loader: The Loader of the :func:`dataset` that ``fit`` gets.
        path: The URI or path of the file of positions, which has a few KiB of JSON. Rank 0 writes it.
        save_freq: ``"epoch"``, or a number of batches, as for ``keras.callbacks.ModelCheckpoint``.

    Raises:
        InvalidArgumentError: An argument has no valid value.
    """

    def __init__(self, loader: Loader, path: str | os.PathLike[str], save_freq: str | int = "epoch") -> None:
        super().__init__()
        if not isinstance(loader, Loader):
            _arguments.refuse("loader", "the millrace.Loader that millrace.tf.dataset() got", loader)
        self._loader = loader
        self._path = _arguments.uri("path", path)
        self._every = 0 if save_freq == "epoch" else _arguments.integer("save_freq", save_freq, least=1)
        self._feed = _feeds.setdefault(loader, _Feed())
        self._entries: list[dict[str, Any]] = []
        self._is_restored = False
        self._epoch_began = 0
        self._batch = -1  # the last one of this epoch, in Keras's count
        self._unsaved = 0  # batches

    def state_dict(self) -> State:
        """Returns the position after the last batch on which the model was trained."""
        return self._feed.state(self._loader)

    def restore(self, model: Any) -> int:
        """Sets the Loader to the position at which ``model`` was saved.

            model = keras.models.load_model("model.keras")
            model.fit(dataset, epochs=90, initial_epoch=positions.restore(model), callbacks=[positions])

        Args:
            model: A model that was saved with the positions of this callback.

        Returns:
            The epoch with which training continues, for ``fit(initial_epoch=)``.

        Raises:
            MismatchError: The file has no position for this model.
        """
        self._is_restored = True
        steps = _steps(model)
        if steps == 0:
            return self._loader.epoch
        entries = self._read()
        self._entries = [entry for entry in entries if entry["steps"] <= steps]
        if not self._entries or self._entries[-1]["steps"] != steps:
            known = ", ".join(str(entry["steps"]) for entry in entries[-5:]) or "none"
            raise MismatchError(
                f"{self._path} has no position for this model, which was trained for {steps} steps (the last that it has: {known}); give PositionCallback "
                "before the callback that saves the model, with the same save_freq"
            )
        state = self._entries[-1]["state"]
        self._loader.load_state_dict(state)
        self._feed.begin(state)
        return self._loader.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        self._feed.rewind(self._loader)  # Keras takes a batch to build a model from its shapes

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._is_restored:
            at = self.restore(self.model)  # which BackupAndRestore has loaded by now
            # The model was saved after the last batch of an epoch whose end Keras did not see. Nothing is left of that epoch.
            self._feed.is_over = at == epoch + 1 and self.params.get("steps") == len(self._loader)
        self._epoch_began, self._batch = self._feed.received, -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._unsaved += batch - self._batch
        self._batch = batch
        # The last of several steps of one execution may be beyond the end of the epoch.
        self._feed.received = min(self._epoch_began + batch + 1, self._feed.delivered)
        if self._every and self._unsaved >= self._every:
            self._unsaved = 0
            self._save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not self._every:
            self._save()

    def _save(self) -> None:
        steps = _steps(self.model)
        self._entries = [entry for entry in self._entries if entry["steps"] < steps][1 - _ENTRIES_KEPT :]
        self._entries.append({"steps": steps, "state": self.state_dict()})
        if self._loader._rank == 0:
            with open_file(self._path, "w") as file:
                json.dump(self._entries, file)

    def _read(self) -> list[dict[str, Any]]:
        try:
            with open_file(self._path, "r") as file:
                entries: list[dict[str, Any]] = json.load(file)
        except NotFoundError:
            return []
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"{self._path} is not a file of positions: {error}; name another, or remove it"
            ) from None
        return entries


def _steps(model: Any) -> int:
    """Returns the number of steps that the optimizer has made."""
    optimizer = getattr(model, "optimizer", None)
    return 0 if optimizer is None else int(keras.ops.convert_to_numpy(optimizer.iterations))
