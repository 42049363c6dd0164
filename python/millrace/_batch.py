"""What a Loader yields, and what it says of where it is."""

from __future__ import annotations

from typing import Any, TypedDict


class _Label(TypedDict, total=False):
    image: Any
    label: Any
    part: Any
    tokens: Any
    token_mask: Any
    position_ids: Any
    segment_ids: Any
    row: Any


class Batch(_Label):
    """A Loader yields one for each batch of its rank: a dict of arrays (numpy, or torch tensors), B = ``batch_size`` rows.
    Only the last one of an epoch is shorter, with ``last="short"``, the default.

    ``image``: float32 ``[B, C, H, W]`` for torch, uint8 ``[B, H, W, C]`` for numpy, or as the Loader says. ``label``: int64 ``[B]``, or a list of B strings; absent when
    the data set has no labels. Or, in their place, what ``fields`` says.
    ``valid``: bool ``[B]``, False for padding, whose image is zeros, label -100 and key ``""``, and for the repeats of a short batch.
    ``sample``: int64 ``[B]``, the sample's ordinal in the index. ``part``: int64 ``[B]``, only of a Mix or buckets of tokens: the part it is of. ``key``: list of B strings, the sample's name.

    Of rows of tokens, :class:`Tokens` says what there is in place of ``image`` and ``label``.
    """

    valid: Any
    sample: Any
    key: list[str]


class State(TypedDict):
    """What :meth:`Loader.state_dict` returns. Plain values: fit for ``torch.save``, JSON or pickle."""

    version: int
    position: str
    samples: int
    digest: str | None
