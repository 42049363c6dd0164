"""Rows of tokens: how samples of different lengths become batches of fixed shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from . import _arguments
from ._errors import InvalidArgumentError

_MAX_LENGTH = 2**24  # RowSpec::kMaxLength
_STORED = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


class Shape(NamedTuple):
    """Represents the shape and the type of an array of a batch, which :meth:`Loader.shapes` returns.

        for shapes in loader.shapes():
            print(shapes["image"].shape, shapes["image"].dtype)

    ``shape``: the sizes of the dimensions. ``dtype``: the name of the type, such as ``"float32"``.
    """

    shape: tuple[int, ...]
    dtype: str


class Rows(TypedDict):
    """Represents the rows of one length that were made from the documents: an entry of :attr:`Loader.rows`.

        for rows in loader.rows:
            print(rows["length"], rows["rows"], rows["fill"])

    ``length``: the tokens of a row. ``rows``: the number of rows. ``tokens``: the tokens in them. ``documents``: the number of documents in
    them. ``fill``: the share of places that hold tokens; the rest is padding. ``truncated``: tokens that were left out
    (``long="truncate"``). ``empty``: documents without tokens, which are in no row.
    """

    length: int
    rows: int
    tokens: int
    documents: int
    truncated: int
    empty: int
    fill: float


class Tokens:
    """Makes a :class:`Loader` deliver rows of tokens, of one length or of a few.

        loader = millrace.Loader("s3://bucket/corpus", batch_size=8, tokens=millrace.Tokens(2048, "pack"))
        for batch in loader:
            loss = model(batch["tokens"], batch["position_ids"], batch["segment_ids"])

    The samples of ``data`` are documents: sequences of Megatron's ``.bin``/``.idx`` pairs, pieces of arrays (``millrace index --tokens``), or
    MDS samples with a column such as ``ndarray:int32`` or ``bytes`` (see ``stored``). Their lengths are in the index. So the rows are computed
    from the index, once, and kept beside it. The same data and parameters make the same rows everywhere.

    A batch has these entries, with B rows of L places:

    | Entry | Type and shape | Content |
    |---|---|---|
    | ``tokens`` | int64 or int32 ``[B, L]`` | The tokens. |
    | ``token_mask`` | bool ``[B, L]`` | False for padding. |
    | ``position_ids`` | int32 ``[B, L]`` | The token's place in its piece of a document, from 0; 0 for padding. |
    | ``segment_ids`` | int32 ``[B, L]`` | The number of the piece within the row, from 1; 0 for padding. |
    | ``row`` | int64 ``[B]`` | The number of the row. |
    | ``sample``, ``key`` | int64 ``[B]``, list of B strings | The document with which the row begins. |

    ``position_ids`` and ``segment_ids`` exist with ``"pack"``, and with ``"stream"`` and ``documents``.

    Args:
        length: The tokens of a row. For inputs and targets that are shifted by one, take one more. None: with ``"bucket"``.
        layout: ``"pack"``: several documents share a row, by best fit and longest first, so that there is hardly any padding. ``"pad"``: each
            row has one document, and the rest is padding. ``"stream"``: rows are windows over the documents in the order of the index,
            and only the last one is padded. ``"bucket"``: as ``"pad"``, and each document goes to the shortest of ``lengths`` that holds it.
        lengths: For ``"bucket"``: the lengths of rows, ascending, in place of ``length``.
        batch_sizes: For ``"bucket"``: the rows of a batch of one rank, for each length. The Loader's ``batch_size`` does not count. All ranks
            are in the same bucket at the same step.
        documents: For ``"stream"``. True: batches have ``position_ids`` and ``segment_ids``.
        long: The rule for documents that are longer than a row (the longest one). ``"split"``: they are split into several. ``"truncate"``:
            they are truncated. ``"refuse"``: an error names the document. A stream is always split.
        field: The field that holds the tokens.
        stored: The type of the numbers in a field of bytes, such as a column ``bytes`` of MDS: for example ``"uint16"`` or ``"int64"``. None:
            the field has a type of its own.
        dtype: The type of ``tokens``: ``"int64"`` or ``"int32"``.
        pad: The token for padding.
        tokenizer: A ``tokenizer.json``, a tokenizer of the package ``tokenizers``, or a fast one of ``transformers``. ``data`` is then the URI of
            texts, or a list of URIs, as for ``millrace.pack(..., tokenizer=)``. The first process of each machine makes the tokens once,
            and keeps them in the cache folder as token files. For workers, and for many machines, let ``millrace pack`` make them instead.
            None: ``data`` has tokens.
        text_field, bos, eos: With ``tokenizer``, as for :func:`millrace.pack`.

    Raises:
        InvalidArgumentError: An option has no valid value, or contradicts another one.
    """

    def __init__(
        self,
        length: int | None = None,
        layout: Literal["pack", "pad", "stream", "bucket"] = "pack",
        *,
        lengths: Sequence[int] | None = None,
        batch_sizes: Sequence[int] | None = None,
        documents: bool = False,
        long: Literal["split", "truncate", "refuse"] = "split",
        field: str = "tokens",
        stored: str | None = None,
        dtype: Literal["int64", "int32"] = "int64",
        pad: int = 0,
        tokenizer: Any = None,
        text_field: str | None = None,
        bos: str | None = None,
        eos: str | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.text_field = _arguments.text("text_field", text_field) or "text"
        self.bos, self.eos = _arguments.text("bos", bos), _arguments.text("eos", eos)
        if tokenizer is None and (text_field is not None or bos is not None or eos is not None):
            raise InvalidArgumentError("text_field, bos and eos are for texts that become tokens; give tokenizer, too")
        self.layout = _arguments.choice("layout", layout, ("pack", "pad", "stream", "bucket"))
        self.long = _arguments.choice("long", long, ("split", "truncate", "refuse"))
        self.documents = _arguments.flag("documents", documents)
        self.dtype = _arguments.choice("dtype", dtype, ("int64", "int32"))
        self.pad = _arguments.integer("pad", pad, least=-(2**63), most=2**63 - 1)
        self.field = _arguments.text("field", field) or "tokens"
        self.stored = None if stored is None else _arguments.choice("stored", stored, _STORED)
        self.length = 0
        self.buckets: list[tuple[int, int]] = []
        if self.layout == "bucket":
            if length is not None or lengths is None or batch_sizes is None:
                raise InvalidArgumentError(
                    "buckets have lengths=[256, 512, ...] and batch_sizes=[64, 32, ...], and no length"
                )
            rows, sizes = _numbers("lengths", lengths, _MAX_LENGTH), _numbers("batch_sizes", batch_sizes, 2**24)
            if len(rows) != len(sizes) or not rows:
                raise InvalidArgumentError(
                    f"{len(rows)} lengths and {len(sizes)} batch_sizes; give one for each bucket"
                )
            self.buckets = list(zip(rows, sizes))
        else:
            if length is None or lengths is not None or batch_sizes is not None:
                raise InvalidArgumentError(
                    f"layout {layout!r} has one length, and the Loader's batch_size; lengths and batch_sizes are those of 'bucket'"
                )
            self.length = _arguments.integer("length", length, least=1, most=_MAX_LENGTH)
        if self.documents and self.layout != "stream":
            raise InvalidArgumentError(
                "documents is for layout='stream'; 'pack' has position_ids and segment_ids anyway, 'pad' one document a row"
            )

    def __repr__(self) -> str:
        shown = [repr(self.layout)]
        if self.buckets:
            shown += [
                f"lengths={[row for row, _ in self.buckets]}",
                f"batch_sizes={[batch for _, batch in self.buckets]}",
            ]
        else:
            shown.insert(0, str(self.length))
        usual = {"documents": False, "long": "split", "field": "tokens", "stored": None, "dtype": "int64", "pad": 0}
        shown += [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        return f"<millrace.Tokens {', '.join(shown)}>"

    def _native(self) -> tuple[str, int, list[tuple[int, int]], bool, str, str, str]:
        return self.layout, self.length, self.buckets, self.documents, self.long, self.field, self.stored or ""


def _numbers(name: str, values: Any, most: int) -> list[int]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        _arguments.refuse(name, "a sequence of integers", values)
    return [_arguments.integer(name, value, least=1, most=most) for value in values]
