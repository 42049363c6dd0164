"""Keys, tokens and signatures appear in no output, log or report, whatever the command, and whatever goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

KEY_ID = "AKIDOFTHETEST"
SECRET = "S3cr3t/Of+The=Test"
TOKEN = "T0ken//Of+The==Test"


class Tap:
    """Passes connections on to a server, and keeps what clients send."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sent: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # the client is told the same
                client.close()
                continue
            for way in ((client, server, self._sent.append), (server, client, lambda _: None)):
                self._threads.append(threading.Thread(target=self._pass_on, args=way))
                self._threads[-1].start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, keep: Callable[[bytes], None]) -> None:
        try:
            while piece := source.recv(1 << 16):
                keep(piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def signatures(self) -> set[str]:
        """Returns the signatures of all requests so far."""
        found = re.findall(rb"Signature=([0-9a-f]{64})", b"".join(self._sent))
        return {signature.decode() for signature in found}

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)


@dataclass
class Runner:
    """Runs commands with all there is to log, and looks at what they say and leave behind."""

    binary: Path
    home: Path
    tap: Tap
    said: int = field(default=0)

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [str(self.binary), *map(str, arguments)],
            capture_output=True,
            cwd=self.home,
            env=os.environ
            | {"MILLRACE_LOG": "debug", "HOME": str(self.home), "AWS_MAX_ATTEMPTS": "2"}
            | self.keys()
            | variables,
            timeout=300,
        )
        self.said += len(done.stdout) + len(done.stderr)
        self.look(done.stdout + done.stderr, f"{arguments} {sorted(variables)}")
        return done

    def keys(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.tap.port}",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def look(self, text: bytes, where: str) -> None:
        for secret in {SECRET, TOKEN, *self.tap.signatures()}:
            assert secret.encode() not in text, (where, text[-2000:])
        assert not re.search(rb"authorization:|AWS4-HMAC-SHA256 Credential=|x-amz-signature=", text, re.IGNORECASE), (
            where,
            text[-2000:],
        )

    def look_at_files(self) -> None:
        """State, index, cache and what was copied."""
        for path in self.home.rglob("*"):
            if path.is_file() and not path.name.startswith("given-"):
                self.look(path.read_bytes(), str(path))


@pytest.fixture
def runner(devstore: Callable[..., Any], millrace_bin: Path, tmp_path: Path) -> Iterator[Runner]:
    server = devstore(
        "mem:", "--bucket", "bkt", "--access-key", KEY_ID, "--secret-key", SECRET,
        "--fault", "* bkt/expired* error=400:ExpiredToken", "--fault", "* bkt/broken* status=503",
    )  # fmt: skip
    tap = Tap(server.port)
    home = tmp_path / "home"
    home.mkdir()
    yield Runner(millrace_bin, home, tap)
    tap.stop()


COMMANDS = [
    ["ls", "s3://bkt"],
    ["ls", "--recursive", "s3://bkt/raw/"],
    ["cat", "s3://bkt/raw/none"],
    ["cp", "--recursive", "s3://bkt/raw", "copied"],
    ["cp", "--recursive", "images", "s3://bkt/raw"],
    ["sync", "images", "s3://bkt/synced"],
    ["rm", "--recursive", "s3://bkt/synced"],
    ["index", "s3://bkt/raw"],
    ["inspect", "s3://bkt/raw"],
    ["pack", "--force", "s3://bkt/raw", "s3://bkt/packed"],
    ["feed", "s3://bkt/raw", "--json", "--batch", "4", "--size", "16", "--memory", "64MiB", "--state", "state.json"],
    ["doctor", "s3", "s3://bkt/raw"],
    ["doctor", "s3", "--json", "s3://bkt/raw"],
]


def run_all(runner: Runner, **variables: str) -> list[int]:
    return [runner.run(*command, **variables).returncode for command in COMMANDS]


def test_good_keys(runner: Runner) -> None:
    runner.run("synth", "images", "--count", "8", "--kb", "6", "--seed", "1")
    runner.run("cp", "--recursive", "images", "s3://bkt/raw")
    assert run_all(runner) == [0, 0, 1] + [0] * (len(COMMANDS) - 3)
    assert len(runner.tap.signatures()) > len(COMMANDS)  # else nothing was looked for
    assert runner.said > 1000
    runner.look_at_files()


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_SECRET_ACCESS_KEY": SECRET + "x"},
        {"AWS_ACCESS_KEY_ID": "NOBODY"},
        {"AWS_SESSION_TOKEN": TOKEN},  # devstore answers InvalidToken
        {"AWS_REGION": "eu-west-1"},
        {"AWS_ENDPOINT_URL": f"http://{KEY_ID}:{SECRET}@127.0.0.1:1"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_SESSION_TOKEN": TOKEN},
        {"AWS_ENDPOINT_URL": f"http://127.0.0.1:1/?X-Amz-Signature={SECRET}"},
        {"AWS_SECRET_ACCESS_KEY": ""},
    ],
    ids=["wrong secret", "wrong key", "wrong token", "wrong region", "keys in the endpoint", "nobody listens", "presigned endpoint", "no secret"],
)  # fmt: skip
def test_wrong_keys_and_endpoints(runner: Runner, variables: dict[str, str]) -> None:
    runner.run("synth", "images", "--count", "4", "--kb", "6", "--seed", "1")
    codes = run_all(runner, **variables)
    works = "AWS_REGION" in variables  # the right one is learnt
    assert (0 in codes) == works and set(codes) <= {0, 1, 2}, codes
    runner.look_at_files()


def test_errors_of_the_store(runner: Runner) -> None:
    """Expired tokens, found so by the store, and a store that fails; also where keys come from a profile."""
    (runner.home / "given-credentials").write_text(
        f"[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    )
    profile = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_SHARED_CREDENTIALS_FILE": str(runner.home / "given-credentials"),
    }
    for variables in ({}, profile):
        for uri in ("s3://bkt/expired/x", "s3://bkt/broken/x"):
            for command in (["cat", uri], ["ls", uri], ["cp", uri, "copied"], ["feed", uri], ["doctor", "s3", uri]):
                assert runner.run(*command, **variables).returncode == 1
    assert b"renew" in runner.run("cat", "s3://bkt/expired/x", **profile).stderr


PROGRAMS = {
    "fails": f"echo {SECRET} >&2; echo {TOKEN}; exit 3",
    "says too little": f"""echo '{{"Version": 1, "SecretAccessKey": "{SECRET}"}}'""",
    "is no JSON": f"echo '{{{SECRET}'",
    "has expired": f"""echo '{{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "{SECRET}", "SessionToken": "{TOKEN}", "Expiration": "2001-01-01T00:00:00Z"}}'""",
    "is of no use": f"""echo '{{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "{SECRET}", "SessionToken": "{TOKEN}"}}'""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_credential_process(runner: Runner, program: str) -> None:
    (runner.home / "given-process").write_text(f"{PROGRAMS[program]}\n")
    # The secret as an argument, too.
    (runner.home / "given-config").write_text(
        f"[default]\ncredential_process = /bin/sh {runner.home}/given-process {SECRET}\n"
    )
    variables = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_CONFIG_FILE": str(runner.home / "given-config"),
    }
    for command in (["ls", "s3://bkt"], ["feed", "s3://bkt/raw"], ["doctor", "s3", "s3://bkt"]):
        assert runner.run(*command, **variables).returncode == 1
    runner.look_at_files()


def test_profiles_that_cannot_be_read(runner: Runner) -> None:
    given = runner.home / "given-credentials"
    variables = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": str(given)}
    for text in (
        f"[default]\naws_secret_access_key {SECRET}\n",
        f"{SECRET}\n",
        f"[default\naws_secret_access_key = {SECRET}\n",
        f"[default]\naws_secret_access_key = {SECRET}\n",  # without a key id
    ):
        given.write_text(text)
        for command in (["ls", "s3://bkt"], ["doctor", "s3", "s3://bkt"]):
            assert runner.run(*command, **variables).returncode in (1, 2)


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://bkt/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={SECRET}",
        f"https://bkt.s3.amazonaws.com/key?X-Amz-Date=x&X-Amz-Signature={SECRET}",
        f"https://bkt.s3.amazonaws.com/key?X-Amz-Security-Token={TOKEN}",
        f"s3://{KEY_ID}:{SECRET}@bkt/key",
        f"http://{KEY_ID}:{SECRET}@127.0.0.1/bkt/key",
    ],
)
def test_uris_with_secrets(runner: Runner, uri: str) -> None:
    for command in (
        ["ls", uri], ["cat", uri], ["cp", uri, "x"], ["cp", "x", uri], ["sync", uri, "x"], ["rm", uri], ["index", uri],
        ["inspect", uri], ["pack", uri, "x"], ["feed", uri], ["doctor", "s3", uri],
    ):  # fmt: skip
        assert runner.run(*command).returncode in (1, 2)
