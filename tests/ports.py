"""Ports for servers that cannot take port 0: those whose port others must know before they listen, and those that go away and come back."""

from __future__ import annotations

import os
import random
import socket

# Below the kernel's range for outgoing connections, so that none of these takes the port between its choice and the server's bind, nor while
# the server is away. The scripts of tests/servers choose from 10000 on.
_PORTS = range(3000, 10_000)
_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has. Processes of one run of the tests never get the same one."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = [port for port in _PORTS if port % count == number % count and port not in _given]
    for port in random.sample(own, len(own)):
        _given.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:  # somebody has it
                continue
        return port
    raise AssertionError(f"there is no free port from {_PORTS.start} to {_PORTS.stop - 1}")
