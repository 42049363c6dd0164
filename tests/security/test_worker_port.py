"""The port of a worker, and who answers at its address: floods (C10), a stranger who wants the token (C14)."""

from __future__ import annotations

import contextlib
import pathlib
import resource
import socket
import threading
import urllib.request
from collections.abc import Iterator

import millrace
import pytest
from e2e.mounting import wait_until
from ports import free_port
from service_support import Worker, is_late, is_sound, received
from support import Samples, write_tar

FLOOD = 2000
PER_ADDRESS = 1024  # docs/service.md


@pytest.fixture
def many_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limits[1] < 2 * FLOOD:
        pytest.skip(f"no process may have {2 * FLOOD} open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * FLOOD), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def tar(tmp_path: pathlib.Path) -> Samples:
    (tmp_path / "tar").mkdir()
    return write_tar(tmp_path / "tar", count=50)


@contextlib.contextmanager
def flood(address: str, sources: list[str]) -> Iterator[None]:
    """Connections that have sent the begin of a head, and do not end it."""
    host, port = address.split(":")
    with contextlib.ExitStack() as stack:
        for number in range(FLOOD):
            source = (sources[number % len(sources)], 0)
            try:
                attacker = socket.create_connection((host, int(port)), source_address=source)
                stack.enter_context(attacker)
                attacker.sendall(b"GET /millrace/hello HTTP/1.1\r\nX: ")
            except OSError:
                pass  # the worker has closed it
        yield


@pytest.mark.parametrize("sources", [["127.0.0.1"], ["127.0.0.2", "127.0.0.3", "127.0.0.4"]], ids=["one", "three"])
def test_c10_a_trainer_reads_during_a_flood(tar: Samples, many_files: None, sources: list[str]) -> None:
    """The flood comes from the address of the trainer itself, or from three others."""
    port = free_port()
    worker = Worker("--metrics-port", port, env={})
    try:
        local, _ = received(tar.uri)
        with flood(worker.address, sources):
            for _ in range(20):  # on a busy machine a worker may be late, and the trainer reads for itself
                remote, loader = received(tar.uri, workers=[worker.address])
                assert remote == local
                report = loader.report()["workers"]
                assert is_sound(report[0]), report
                if report[0]["rows"] > 0:
                    break
                assert is_late(report[0]), report
            assert report[0]["rows"] > 0
            descriptors = pathlib.Path(f"/proc/{worker.process.pid}/fd")
            wait_until(lambda: len(list(descriptors.iterdir())) < PER_ADDRESS * len(sources) + 200, "few connections")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert b"millrace_" in answer.read()
    finally:
        worker.end()


def test_c14_a_stranger_at_the_address_learns_no_token(tar: Samples, tmp_path: pathlib.Path) -> None:
    token = "0123456789abcdef" * 4
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    heard = bytearray()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                trainer, _ = listener.accept()
                with trainer, contextlib.suppress(OSError):
                    trainer.settimeout(60)
                    heard.extend(trainer.recv(65536))
                    trainer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        local, _ = received(tar.uri)
        remote, loader = received(tar.uri, workers=millrace.Service([address], token=tmp_path / "token"))
        listener.shutdown(socket.SHUT_RDWR)
    assert remote == local and loader.report()["workers"][0]["rows"] == 0
    assert b"HTTP/1.1" in heard and b"0123456789abcdef" not in heard
