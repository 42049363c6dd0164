"""Has workers in processes of their own, for tests of the data service."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import millrace
import numpy as np
from support import binary


class Worker:
    """Is a worker in a process of its own."""

    def __init__(
        self, *options: object, env: dict[str, str], listen: str = "127.0.0.1:0", program: tuple[str, ...] = ()
    ) -> None:
        program = program or (str(binary()), "worker")
        command = [*program, "--listen", listen, "--threads", "2", *map(str, options)]
        if "--memory" not in options:
            command += ["--memory", "1GiB"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        match = re.fullmatch(r"listening on (\S+:\d+)\n", said)
        assert match, said
        self.address = match[1]

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class FunctionWorker(Worker):
    """Does the same by `python -m millrace.worker`, which runs functions of a module of Python."""

    def __init__(self, *options: object, functions: str, env: dict[str, str]) -> None:
        program = (sys.executable, "-m", "millrace.worker")
        super().__init__("--allow-functions", functions, *options, env=env, program=program)


OPTIONS: dict[str, Any] = {
    "batch_size": 8,
    "size": 16,
    "augment": True,
    "digest": "raw",
    "epochs": 1,
    "memory": "64MiB",
    "output": "numpy",
}


def plain(batch: Any) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def received(uri: Any, **options: Any) -> tuple[list[dict[str, Any]], millrace.Loader]:
    loader = millrace.Loader(uri, **{**OPTIONS, **options})
    with loader:
        batches = [plain(batch) for _ in range(options.get("epochs", 1)) for batch in loader]
    return batches, loader


def outcome(loader: millrace.Loader) -> tuple[Any, ...]:
    report = loader.report()
    return report["digest"], report["position"], report["samples"], report["parts"]


def rows_of_workers(loader: millrace.Loader) -> dict[str, int]:
    return {entry["worker"]: entry["rows"] for entry in loader.report()["workers"]}


class Proxy:
    """Is a relay to a worker. It flips a byte of every n-th piece of what the worker says, says all of it later, or
    never ends what is longer than a kilobyte. Or the requests of the trainer take their time, as over a long way; then
    it counts how many of them are in flight."""

    def __init__(
        self, address: str, *, flips_every: int = 0, delay: float = 0, way: float = 0, drips: bool = False
    ) -> None:
        host, port = address.split(":")
        self._to = (host, int(port))
        self._every, self._drips = flips_every, drips
        self.delay = delay  # may be changed at any time
        self._way = way
        self._counting = threading.Lock()
        self._on_their_way = 0
        self.most_on_their_way = 0
        self._pieces = 0
        self.connections = 0
        self.bytes_from_worker = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what blocks in accept() does not wake when the socket is closed
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                try:
                    worker = socket.create_connection(self._to)
                except OSError:  # it was killed; the trainer is told the same
                    client.close()
                    continue
                threading.Thread(target=self._relay, args=(client, worker, False), daemon=True).start()
                threading.Thread(target=self._relay, args=(worker, client, True), daemon=True).start()

    def _relay(self, source: socket.socket, to: socket.socket, from_worker: bool) -> None:
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(65536)):
                self._pieces += from_worker
                self.bytes_from_worker += len(data) * from_worker
                if from_worker and self._every and self._pieces % self._every == 0:
                    data[len(data) * 2 // 3] ^= 0x40
                while from_worker and self._drips and len(data) > 600:
                    to.sendall(data[:1])  # until the trainer gives it up
                    time.sleep(0.2)
                if self.delay:
                    time.sleep(self.delay)
                if self._way and not from_worker:
                    self._go_a_long_way()
                to.sendall(data)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _go_a_long_way(self) -> None:
        with self._counting:
            self._on_their_way += 1
            self.most_on_their_way = max(self.most_on_their_way, self._on_their_way)
        time.sleep(self._way)
        with self._counting:
            self._on_their_way -= 1


def is_late(worker: dict[str, Any]) -> bool:
    """Returns whether, by its report, the worker was given up or overtaken: a busy machine can keep it from its CPU for
    as long as a trainer waits."""
    return any(word in worker["last_failure"] for word in ("does not answer", "faster", "no connection"))


def is_sound(worker: dict[str, Any]) -> bool:
    """Returns whether, by its report, the worker has not failed, except for being late."""
    return worker["failures"] == 0 or is_late(worker)


def none_here(workers: list[dict[str, Any]]) -> bool:
    """Returns whether, by a report, the trainer has decoded nothing itself, except for a worker that was late."""
    return workers[-1]["rows"] == 0 or any(map(is_late, workers[:-1]))


def make_certificates(folder: pathlib.Path, names: dict[str, str]) -> None:
    """Makes an authority, and for each name a folder with its certificate as Kubernetes mounts one. The values are what
    the certificate is for, such as ``"DNS:localhost,IP:127.0.0.1"``."""

    def openssl(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    folder.mkdir(parents=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    usage = ["-addext", "keyUsage=critical,keyCertSign"]
    openssl(
        "req",
        "-x509",
        *key,
        "-days",
        30,
        "-subj",
        f"/CN={folder.name}",
        "-keyout",
        folder / "ca.key",
        "-out",
        folder / "ca.crt",
        *usage,
    )
    for name, meant in names.items():
        own = folder / name
        own.mkdir()
        openssl("req", "-new", *key, "-subj", f"/CN={name}", "-keyout", own / "tls.key", "-out", own / "request")
        (own / "extensions").write_text(f"subjectAltName={meant}\n")
        signing = [
            "-CA",
            folder / "ca.crt",
            "-CAkey",
            folder / "ca.key",
            "-CAcreateserial",
            "-days",
            30,
            "-extfile",
            own / "extensions",
        ]
        openssl("x509", "-req", "-in", own / "request", "-out", own / "tls.crt", *signing)
        (own / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
