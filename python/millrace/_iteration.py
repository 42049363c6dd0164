"""This module has the iterators of a Loader, and the place at which the next one begins."""

from __future__ import annotations

import contextlib
import gc
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Union

from . import _arguments, _core
from ._batch import Batch, State
from ._errors import Error, ExhaustedError, InvalidArgumentError, UnsupportedError, UsageError
from ._hand_over import HandOver
from ._positions import epoch_of, is_staged, start_of_epoch
from ._stream import CLOSED, Stream, finish_stops
from ._stream import Batches as StreamBatches

STATE_VERSION = 1
_COUNTED = 2  # batches: an iterator that has delivered fewer, and was not taken to its end, has only looked


Feed = Union[_core.Loader, Stream]
"""The source of the batches of one iterator at a time: it reads, or stands at a position."""


class NoBatches:
    """The epoch of a feed whose samples are fewer than a step, if the last step is dropped."""

    delivered = 0
    rows = 0

    def __iter__(self) -> NoBatches:
        return self

    def __next__(self) -> Any:
        raise StopIteration


Batches = Union[_core.Batches, StreamBatches, NoBatches]
"""The rest of one epoch of a feed."""


class _Run:
    """An iterator as the loader sees it. It has its feed until it was taken to its end, or nothing refers to it any more."""

    def __init__(self, feed: Feed, batches: Batches, place: str, epochs: int) -> None:
        self.feed = feed
        self.batches = batches
        self.place = place  # where it began
        self.epoch = epoch_of(place)
        self.epochs = epochs  # up to which the feed reads
        self.counts = feed.counts()  # the counts before it
        self.loaded_at = 0  # batches that it had delivered when a state was loaded
        self.is_stale = False  # True: a state was loaded or an epoch set since it was made
        self.iterator: weakref.ref[BatchIterator] | None = None  # the program's iterator
        self.end: State | None = (
            None  # after its last batch, once its epoch was taken to the end; it has no feed any more
        )

    @property
    def steps(self) -> int:
        return self.batches.delivered - self.loaded_at

    @property
    def is_counted(self) -> bool:
        """Returns false if it has only looked. If one batch is left of an epoch, it counts, since a program that counts
        batches asks for no other."""
        if self.end is not None or self.batches.delivered >= _COUNTED:
            return True
        is_rest = self.place != start_of_epoch(self.place, self.epoch)
        return is_rest and self.batches.delivered > 0 and self.feed.epoch > self.epoch


class Iteration:
    """Represents the epochs of a Loader, one for each iterator, and the feeds from which these read.

    ``again`` makes one more feed of the same data, for a second iterator beside one that is alive. ``batches_of`` gives what a feed
    delivers. ``reads_on`` says that a feed may read the next epoch ahead when one was taken to its end; ``epochs``: 0 is without end.
    """

    def __init__(
        self,
        feed: Feed,
        again: Callable[[], Feed],
        batches_of: Callable[[Feed], Batches],
        epochs: int,
        reads_on: bool,
        steps: Callable[[], int],
    ) -> None:
        self.steps = steps  # of an epoch
        self._feed = feed
        self._again = again
        self._batches_of = batches_of
        self._epochs = epochs
        self._reads_on = reads_on
        self._runs: list[_Run] = []  # of the iterators that are alive, in the order in which they were made
        self._place: str = feed.report()["position"]  # of the next iterator
        self._is_ready_at: str | None = None  # the feed stands there, and may read on beyond the epoch
        self._looked: _Run | None = None  # it has gone, and the feed is yet to go back to where it began
        self._failure: Error | None = None
        self._is_closed = False

    # ---- Iterators

    def begin(self) -> BatchIterator:
        if self._is_closed:
            raise UsageError(CLOSED)
        _ = self._feed.epoch  # raises in a fork
        if self._failure is not None:
            raise self._failure
        self._end_runs()
        if self.is_used_up:
            raise UsageError(
                f"all {self._epochs} epochs of the Loader were taken, and this loop would be one more; make it with a larger epochs=, or with "
                "epochs=None for no bound; set_epoch() and load_state_dict() go back"
            )
        is_second = any(run.feed is self._feed for run in self._runs)
        feed = self._again() if is_second else self._feed
        epochs = epoch_of(self._place) + 1
        if not is_second and self._is_ready_at == self._place:
            epochs = self._epochs
        else:
            counts = None if is_second else feed.counts() if self._looked is None else self._looked.counts
            feed.begin(self._place, epochs, counts)
        self._is_ready_at = self._looked = None
        run = _Run(feed, self._batches_of(feed), self._place, epochs)
        if not isinstance(run.batches, NoBatches):
            _start(feed)
        made = BatchIterator(self, run, is_second or bool(self._runs))
        run.iterator = weakref.ref(made)
        self._runs.append(run)
        return made

    # A handler of a signal may raise in the middle of the next two functions. Then _end_runs does the rest.

    def has_ended(self, run: _Run) -> None:
        """Notes that the epoch of ``run`` was taken to its end."""
        if run.end is None:
            if isinstance(run.batches, NoBatches):
                run.feed.begin(start_of_epoch(run.place, run.epoch + 1), run.epochs, run.feed.counts())
            run.end = _state_of(run.feed.report())
        self._move_beyond(run)
        if not self._remove(run):
            return  # another thread has seen it first
        if run.feed is not self._feed:
            _drop(run.feed)
            return
        following = start_of_epoch(run.place, run.epoch + 1)
        if not self._reads_on or self._place != following or self.is_used_up or self._runs:
            run.feed.stop()
            return
        if run.epochs != self._epochs:
            run.feed.begin(following, self._epochs, run.feed.counts())
        with contextlib.suppress(ExhaustedError):  # the next iterator raises it
            run.feed.start()
            self._is_ready_at = following

    def has_gone(self, run: _Run) -> None:
        """Notes that nothing refers to the iterator of ``run`` any more. Finalizers call it, on any thread."""
        if run not in self._runs:
            return
        is_counted = run.is_counted
        if is_counted:
            self._move_beyond(run)
        if run.feed is not self._feed:
            _drop(run.feed)
        else:
            run.feed.stop()
            self._looked = None if is_counted else run
        self._remove(run)

    def has_failed(self, run: _Run, error: Error) -> None:
        if not run.is_stale:
            self._failure = error

    def others_of(self, run: _Run) -> bool:
        return any(other is not run and not other.is_stale for other in self._runs)

    # ---- The place

    @property
    def is_used_up(self) -> bool:
        """True if the next iterator would be beyond the last epoch."""
        return self._epochs != 0 and epoch_of(self.place) >= self._epochs

    @property
    def next_position(self) -> str:
        """Returns the position of the next batch: that of the iterator that is ahead, or the place of the next one."""
        run = self._ahead
        return self.place if run is None else str(run.feed.report()["position"])

    @property
    def epoch(self) -> int:
        """Returns the epoch of the next batch."""
        run = self._ahead
        now = (self._feed if run is None else run.feed).epoch  # raises in a fork
        return epoch_of(self.place) if run is None else now

    def report(self) -> dict[str, Any]:
        """Describes the iterator that is ahead, or the last one that counts. Any thread may ask while another one waits for a batch."""
        run, looked = self._ahead, self._looked
        if run is not None:
            return run.feed.report()
        return self._feed.report() if looked is None else looked.feed.report(looked.counts)

    def state(self) -> State:
        return _state_of(self.report())

    def load(self, position: str) -> None:
        """Sets the position of the next iterator, with new counts. A position that is refused changes nothing."""
        place = self._feed.settled(position)
        self._end_runs()
        for run in self._runs:
            run.loaded_at = run.batches.delivered
            run.is_stale = True
            if run.feed is self._feed:  # the iterator keeps it
                self._feed = self._again()
        self._looked = None
        self._feed.begin(place, self._epochs, None)
        self._place = place
        self._is_ready_at = None
        self._failure = None

    @property
    def feed(self) -> Feed:
        """Returns the feed from which the next iterator reads, or the feed of the iterator that is alive."""
        return self._feed

    @property
    def rows_of_last(self) -> int | None:
        """Returns the number of rows of the last received batch, before functions changed it. None: there is no such
        batch."""
        run = self._ahead
        return None if run is None else run.batches.rows

    @property
    def place(self) -> str:
        """Returns the position at which the next iterator begins."""
        self._advance()
        return self._place

    def close(self) -> None:
        self._is_closed = True
        for feed in {id(feed): feed for feed in [self._feed, *(run.feed for run in self._runs)]}.values():
            feed.close()

    @property
    def _ahead(self) -> _Run | None:
        """The iterator that is alive and has delivered most since the last load."""
        runs = [run for run in self._runs if run.steps > 0]
        return max(runs, key=lambda run: run.steps, default=None)

    def _end_runs(self) -> None:
        """Ends the iterators of loops that count batches and do not ask for one beyond the last. Also does what a signal has left undone."""
        for run in list(self._runs):
            if run.iterator is not None and run.iterator() is None:
                self.has_gone(run)
            elif run.end is not None or (run.is_counted and run.feed.epoch > run.epoch):
                self.has_ended(run)
        self._advance()

    def _remove(self, run: _Run) -> bool:
        """Removes a run, and returns True if it existed."""
        try:
            self._runs.remove(run)
        except ValueError:
            return False
        return True

    def _advance(self) -> None:
        for run in self._runs:
            if run.is_counted:
                self._move_beyond(run)

    def _move_beyond(self, run: _Run) -> None:
        if not run.is_stale and epoch_of(self._place) <= run.epoch:
            self._place = start_of_epoch(run.place, run.epoch + 1)


class BatchIterator:
    """Represents an epoch of a :class:`millrace.Loader`, or the rest of one. Its reads stop when nothing refers to it
    any more."""

    def __init__(self, iteration: Iteration, run: _Run, is_second: bool) -> None:
        self._iteration = iteration
        self._run = run
        self._batches = run.batches
        self._is_second = is_second

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        if self._run.end is None:
            if self._is_second and self._batches.delivered > 0:
                self._warn()
            try:
                # Not next(): after a call, Python runs the handlers of signals, and one that raises would lose the batch.
                for batch in self._batches:
                    return batch  # type: ignore[return-value]
            except BaseException as error:
                if isinstance(error, Error) and not isinstance(error, (ExhaustedError, UsageError)):
                    self._iteration.has_failed(self._run, error)
                del self  # a traceback that is kept, as in notebooks, does not count as a use of the iterator
                raise
            self._iteration.has_ended(self._run)
        raise StopIteration

    def state_dict(self) -> State:
        """Returns the position after the last batch that this iterator has delivered, for :meth:`Loader.load_state_dict`."""
        return _state_of(self._run.feed.report()) if self._run.end is None else self._run.end

    def __len__(self) -> int:
        """Returns the batches of a whole epoch, as torch's iterators do, for any number of batches that were taken."""
        steps = self._iteration.steps()
        if not steps and is_staged(self.state_dict()["position"]):
            raise TypeError(
                "start='staged': the length of a first epoch is not known before its end, and that of a later one after its first batch; see len(loader)"
            )
        return steps

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "an iterator of a Loader cannot be copied or sent to another process; take its state_dict(), and give it to another Loader: "
            "load_state_dict(state)"
        )

    def _warn(self) -> None:
        self._is_second = False
        if self._iteration.others_of(self._run):
            warnings.warn(
                "two iterators of one Loader deliver batches at a time; each has memory of its own, and the state_dict() of the Loader describes "
                "the one that has delivered more. Take iterator.state_dict(), or drop the iterator that is no longer needed",
                stacklevel=3,
            )

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None:
            with contextlib.suppress(Error):  # in a fork
                self._iteration.has_gone(run)


def position_of(state: State | str) -> str:
    """Returns the position in the result of ``Loader.state_dict()``, or a position itself."""
    if isinstance(state, str):
        return state
    if not isinstance(state, Mapping):
        _arguments.refuse("state", "the result of state_dict(), or its position (a string)", state)
    if not {"version", "position"} <= state.keys():
        raise InvalidArgumentError(
            f"state must be the result of Loader.state_dict(), a dict with 'version' and 'position'; this one has {_shown_keys(state)}. "
            "If a checkpoint has other states, too, give only the loader's: load_state_dict(checkpoint['loader'])"
        )
    version, position = state["version"], state["position"]
    if version != STATE_VERSION:
        raise InvalidArgumentError(
            f"a loader's state of version {version!r}; this Millrace ({_core.__version__}) reads version {STATE_VERSION}"
        )
    if not isinstance(position, str):
        raise InvalidArgumentError(f"a loader's state whose position is {position!r}; it must be a string")
    return position


def _shown_keys(state: Mapping[str, Any]) -> str:
    shown = [repr(key) for key in list(state)[:5]] + ["..."] * (len(state) > 5)
    return f"the keys {', '.join(shown)}" if shown else "no keys"


def _state_of(report: dict[str, Any]) -> State:
    return {
        "version": STATE_VERSION,
        "position": report["position"],
        "samples": report["samples"],
        "digest": report["digest"],
    }


def _start(feed: Feed) -> None:
    try:
        feed.start()
    except ExhaustedError:
        # A loader that only a reference cycle keeps, as a traceback makes it, holds its memory until the next collection.
        gc.collect()
        finish_stops()
        feed.start()


def _drop(feed: Feed) -> None:
    """Ends the work of a feed, perhaps a moment later. Finalizers may call it."""
    if isinstance(feed, Stream):
        feed.abandon()
    else:
        feed.close()


def iteration_over(
    native: _core.Loader,
    make_stream: Callable[[_core.Loader], Stream] | None,
    convert: Any,
    hand_over: HandOver,
    epochs: int,
    reads_on: bool,
    is_empty: bool,
) -> Iteration:
    """Returns the iteration of a Loader. It does not refer to the Loader, since that would be a cycle."""

    def feed_of(native: _core.Loader) -> Feed:
        if make_stream is None:
            return native
        stream = make_stream(native)
        streams.add(stream)
        return stream

    def batches_of(feed: Feed) -> Any:
        if is_empty:
            return NoBatches()
        if isinstance(feed, Stream):
            return feed.batches()
        return feed.batches(convert, hand_over.native_floats(convert is not None), list(hand_over.as_tuple))

    streams: weakref.WeakSet[Stream] = weakref.WeakSet()
    reads_on = reads_on and not is_empty
    iteration = Iteration(
        feed_of(native),
        lambda: feed_of(native.again()),
        batches_of,
        epochs,
        reads_on,
        (lambda: 0) if is_empty else lambda: native.steps_per_epoch or native.counted_steps,
    )
    weakref.finalize(iteration, _abandon, streams)
    return iteration


def _abandon(streams: weakref.WeakSet[Stream]) -> None:
    for stream in list(streams):
        stream.abandon()
