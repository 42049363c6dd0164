"""Labels that lie in a file of their own."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal, Union

from . import _arguments

Native = tuple[str, str, str, bool]


@dataclasses.dataclass(frozen=True)
class Labels:
    """A CSV, TSV or JSON-lines file with labels and further values of samples, by their keys; for ``labels=``.

    The label becomes the field ``cls`` of the samples, and so the ``label`` of batches, the classes of :meth:`Dataset.where` and
    :meth:`Dataset.balanced`, and what ``pack`` writes: whole numbers are classes by number, floats are delivered as float32, and texts are
    names of classes, numbered in their order (:attr:`Dataset.classes`). Every other column is a field of its name, for ``fields=``: an int,
    a float, a text, or JSON. They take the place of fields of the same names that samples have already.

    Args:
        uri: Of the file: ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson``, ``.json``. Its first line names the columns; JSON objects, one a line or in
            an array, name them each.
        key_column: The column of the samples' keys. None: ``key``, ``__key__``, ``id``, ``image_id``, ``sample``, or one that names a file
            (``path``, ``file``, ``filename`` ...). If no key is that of a sample, names of files are understood: without their extension.
        label_column: That of the label. None: ``cls``, ``label`` or ``class``. A file may have none, and only further columns.
        missing: ``"error"``: a sample without a label (or, of a file without labels, without any value) is refused when the data set is
            opened; the message has their number and names some. ``"drop"``: the data set is that of the samples with one.
        csv_quotes: True: quotes in CSV and TSV stand around cells. False: they are text, as with ``csv.QUOTE_NONE``.
    """

    uri: str | os.PathLike[str]
    key_column: str | None = None
    label_column: str | None = None
    missing: Literal["error", "drop"] = "error"
    csv_quotes: bool = True

    def _native(self) -> Native:
        """Checked; ``missing`` apart."""
        _arguments.choice("missing", self.missing, ("error", "drop"))
        key = _arguments.text("key_column", self.key_column) or ""
        label = _arguments.text("label_column", self.label_column) or ""
        return (_arguments.uri("the labels", self.uri, "a URI or a path"), key, label, bool(self.csv_quotes))


LabelsLike = Union[Labels, str, "os.PathLike[str]"]
"""A file of labels, or its URI."""


def to_labels(labels: Any) -> Labels:
    return labels if isinstance(labels, Labels) else Labels(labels)
