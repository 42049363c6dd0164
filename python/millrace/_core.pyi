"""The native part of millrace (python/src). Use the package; this module has no stable interface."""

from typing import Any, Callable, final

import numpy as np
import numpy.typing as npt

__version__: str
STATUS_CODES: tuple[str, ...]

def configure(io_threads: int, cpu_threads: int, memory: str) -> None: ...
@final
class Dataset:
    def __init__(self, uri: str, progress: Callable[[int, int], object] | None) -> None: ...
    def __len__(self) -> int: ...
    def policy(self, shuffle: str) -> tuple[int, int, int]: ...
    def samples(self, into: npt.NDArray[np.int64]) -> None: ...
    def read(self, rank: int) -> tuple[str, list[tuple[str, str, bytes]]]: ...
    def where(
        self,
        *,
        keys: tuple[int, int, int] | None,
        classes: list[str] | None,
        min_bytes: int,
        max_bytes: int,
        has: list[str],
        samples: npt.NDArray[np.int64] | None,
    ) -> Dataset: ...
    def by_class(self) -> list[Dataset]: ...
    def group_by(self, groups: npt.NDArray[np.int64], count: int) -> list[Dataset]: ...
    @property
    def indexed(self) -> int: ...
    @property
    def uri(self) -> str: ...
    @property
    def fields(self) -> list[str]: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def class_counts(self) -> dict[str, int]: ...
    @property
    def kind(self) -> str: ...
    @property
    def objects(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def fingerprint(self) -> int: ...

def split_keys(fractions: list[float], seed: int) -> list[tuple[int, int, int]]: ...

_Mix = tuple[int, list[tuple[int, list[float]]], str, bool]
_Tokens = tuple[str, int, list[tuple[int, int]], bool, str, str]

@final
class Batches:
    def __iter__(self) -> Batches: ...
    def __next__(self) -> dict[str, Any]: ...

@final
class Loader:
    def __init__(
        self,
        datasets: list[Dataset],
        *,
        mix: _Mix | None,
        batch: int,
        height: int,
        width: int,
        channels: int,
        augment: bool,
        crop_scale: tuple[float, float],
        crop_ratio: tuple[float, float],
        flip_probability: float,
        dtype: str,
        layout: str,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        image_field: str,
        label_field: str | None,
        label_kind: str,
        bad_samples: str,
        shuffle: str,
        order: tuple[int | None, int | None, int | None],
        seed: int,
        epochs: int,
        rank: int,
        world: int,
        last: str,
        memory: str,
        digest: str,
        tokens: _Tokens | None,
        token_type: str,
        pad_token: int,
    ) -> None: ...
    def batches(self, convert: Callable[[Any], Any] | None) -> Batches: ...
    def restart(self, position: str) -> None: ...
    def close(self) -> None: ...
    def report(self) -> dict[str, Any]: ...
    def shapes(self) -> list[list[tuple[str, str, tuple[int, ...]]]]: ...
    def rows(self) -> list[dict[str, Any]]: ...
    @property
    def epoch(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...

@final
class Plan:
    def __init__(
        self,
        samples: int,
        datasets: list[Dataset],
        *,
        mix: _Mix | None,
        shuffle: str,
        seed: int,
        epoch: int,
        policies: list[tuple[int, int, int]],
    ) -> None: ...
    def __len__(self) -> int: ...
    def at(self, positions: npt.NDArray[np.int64], into: npt.NDArray[np.int64]) -> None: ...
    def part(self, positions: npt.NDArray[np.int64], into: npt.NDArray[np.int64]) -> None: ...
    def position_of(self, samples: npt.NDArray[np.int64], part: int, into: npt.NDArray[np.int64]) -> None: ...
    def positions(self, sample: int, part: int) -> npt.NDArray[np.int64]: ...
