"""Labels that are stored in a file of their own."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal, Union

from . import _arguments

Native = tuple[str, str, str, bool]


@dataclasses.dataclass(frozen=True)
class Labels:
    """Represents a CSV, TSV or JSON-lines file with labels and further values of samples, by their keys. It is the
    value of ``labels=``.

        labels = millrace.Labels("s3://bucket/labels.csv", key_column="id", missing="drop")
        dataset = millrace.Dataset("s3://bucket/train", labels=labels)

    The label becomes the field ``cls`` of the samples. So it is the ``label`` of batches, the class for :meth:`Dataset.where` and
    :meth:`Dataset.balanced`, and a field that ``pack`` writes. Whole numbers are classes by number. Floats are delivered as float32. Texts
    are names of classes, which are numbered in their order (:attr:`Dataset.classes`).

    Every other column is a field of its name, for ``fields=``: an int, a float, a text, or JSON. These fields replace fields of the samples
    with the same names.

    Args:
        uri: The URI of the file: ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson``, ``.json``. Its first line names the columns. JSON objects, one a
            line or in an array, each name their columns.
        key_column: The column with the samples' keys. None: ``key``, ``__key__``, ``id``, ``image_id``, ``sample``, or a column that names a file
            (``path``, ``file``, ``filename`` ...). If no value is the key of a sample, the values are read as names of files, without their
            extension.
        label_column: The column with the label. None: ``cls``, ``label`` or ``class``. A file may have only further columns and no label.
        missing: ``"error"``: a sample without a label is refused when the data set is opened. In a file without labels, a sample without
            any value is refused. The message has their number and names some. ``"drop"``: the data set has only the samples with a label.
        csv_quotes: True: quotes in CSV and TSV enclose cells. False: they are text, as with ``csv.QUOTE_NONE``.
    """

    uri: str | os.PathLike[str]
    key_column: str | None = None
    label_column: str | None = None
    missing: Literal["error", "drop"] = "error"
    csv_quotes: bool = True

    def _native(self) -> Native:
        """Returns the checked values except ``missing``."""
        _arguments.choice("missing", self.missing, ("error", "drop"))
        key = _arguments.text("key_column", self.key_column) or ""
        label = _arguments.text("label_column", self.label_column) or ""
        return (_arguments.uri("the labels", self.uri, "a URI or a path"), key, label, bool(self.csv_quotes))


LabelsLike = Union[Labels, str, "os.PathLike[str]"]
"""This is a file of labels, or its URI."""


def to_labels(labels: Any) -> Labels:
    return labels if isinstance(labels, Labels) else Labels(labels)
