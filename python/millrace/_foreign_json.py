"""JSON that others have written, perhaps with the intent to do harm."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parses JSON. Raises ValueError for all other texts, and for JSON that is nested too deeply for Python's parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
