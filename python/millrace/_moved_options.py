"""Options that a Loader once had and that have another place now: an error names it to a program that gives one."""

from __future__ import annotations

from collections.abc import Iterable

_PLACES = {
    "window": "shuffle=millrace.Shuffle(window=)",
    "extent": "shuffle=millrace.Shuffle(extent=)",
    "lanes": "shuffle=millrace.Shuffle(lanes=)",
    "cache_size": "cache=millrace.Cache(path, size=)",
    "pin": "cache=millrace.Cache(path, pin=)",
    "streams": "workers=millrace.Service([...], streams=)",
    "local_streams": "workers=millrace.Service([...], local_streams=)",
    "worker_token_file": "workers=millrace.Service([...], token=)",
    "worker_tls": "workers=millrace.Service([...], tls=)",
    "worker_tls_name": "workers=millrace.Service([...], tls_name=)",
    "worker_compression": "workers=millrace.Service([...], compression=)",
}


def check(names: Iterable[str], taker: str = "millrace.Loader") -> None:
    """Raises TypeError for the first of them that has moved."""
    for name in names:
        if name in _PLACES:
            raise TypeError(f"{taker} takes no {name}; write {_PLACES[name]}")
