"""This module has the batches that a Loader yields, and the state that describes its position."""

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
    """A batch of a Loader: a dict of arrays (torch tensors or numpy arrays) with B = ``batch_size`` rows.

        for batch in millrace.Loader("s3://bucket/train", batch_size=64):
            loss = criterion(model(batch["image"]), batch["label"])

    With ``last="short"``, which is the default, the last batch of an epoch may have fewer rows. No other batch does.

    | Entry | Type and shape | Content |
    |---|---|---|
    | ``image`` | torch: float32 ``[B, C, H, W]``; numpy: uint8 ``[B, H, W, C]`` | The pixels. Options of the Loader change type and shape. |
    | ``label`` | int64 ``[B]``, or a list of B strings | The class. The entry is absent if the data set has no labels. |
    | ``valid`` | bool ``[B]`` | False for rows of padding, and for repeated rows of a short batch. |
    | ``sample`` | int64 ``[B]`` | The number of the sample in the index. |
    | ``part`` | int64 ``[B]`` | The number of the part of a :class:`Mix`, or of the bucket of tokens. Other batches do not have it. |
    | ``key`` | list of B strings | The name of the sample. |

    A row of padding has an image of zeros, the label -100 and the key ``""``.
    With ``fields``, the named entries take the place of ``image`` and ``label``.
    With ``tokens``, the entries that :class:`Tokens` lists take their place.
    """

    valid: Any
    sample: Any
    key: list[str]


class State(TypedDict):
    """Represents the state that :meth:`Loader.state_dict` returns. Its values are plain: ``torch.save``, JSON and
    pickle can store it.

        state = loader.state_dict()
        print(state["samples"])

    ``version``: the format of the state. ``position``: the place in the order of samples. ``samples``: the number of samples
    that this rank has received. ``digest``: the digest so far, or None without the option ``digest`` of the Loader.
    """

    version: int
    position: str
    samples: int
    digest: str | None
