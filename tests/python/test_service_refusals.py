"""Tests workers that will not serve a loader: of another version, of another data set. It decodes by itself, and says
why. (Certificates: test_service_tls.py.)"""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
import socket
from typing import Any

import millrace
import pytest
from service_support import Proxy, is_late, outcome, received
from support import Samples, devstore, write_tar


def ask(address: str, method: str, target: str, body: bytes = b"", version: int = 0) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request(method, target, body, {"Millrace-Service": str(version)})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def version_of(address: str) -> int:
    """Returns the version of the data service, as a worker says it."""
    found = re.search(r"the worker version (\d+)", ask(address, "GET", "/millrace/hello")[1])
    assert found
    return int(found[1])


class OtherVersion(Proxy):
    """Changes requests on their way, so that they say that they are of another version of the data service."""

    def __init__(self, address: str, version: int) -> None:
        self.version = str(version).encode()
        super().__init__(address)

    def _relay(self, source: socket.socket, to: socket.socket, from_worker: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                to.sendall(
                    data if from_worker else re.sub(rb"(?i)(millrace-service: )\d+", rb"\g<1>" + self.version, data)
                )
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def refused(uri: Any, address: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    """All rows come, none of them from there, and both report and warning say why."""
    local, one = received(uri)
    for _ in range(10):
        capfd.readouterr()
        remote, other = received(uri, workers=[address])
        assert remote == local and outcome(other) == outcome(one)
        report = other.report()["workers"]
        if not is_late(report[0]):
            break
    assert report[0]["rows"] == 0 and report[-1]["rows"] > 0
    assert why in report[0]["last_failure"], report
    said = capfd.readouterr().err
    assert why in said and said.count("no worker serves") == 1, said


@pytest.mark.parametrize("step", [-1, 1])
def test_another_version(tar: Samples, workers: Any, capfd: pytest.CaptureFixture[str], step: int) -> None:
    address = workers().address
    now = version_of(address)
    relay = OtherVersion(address, now + step)
    versions = f"the trainer speaks version {now + step} of the data service, and the worker version {now}; "
    refused(tar.uri, relay.address, versions + "install the same Millrace on both", capfd)
    relay.close()
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text()
    assert re.search(re.sub(r"\d+", r"\\d+", versions) + "install the same Millrace on both", page)


def test_another_bucket_of_the_same_name(
    tar: Samples, bucket: str, workers: Any, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The worker's settings lead to another store, which has other data at the same place."""
    uri = f"{bucket}/namesake"
    for shard in sorted(pathlib.Path(tar.uri).glob("*.tar")):
        with millrace.open(f"{uri}/{shard.name}", "wb") as file:
            file.write(shard.read_bytes())
    (tmp_path / "bucket" / "namesake").mkdir(parents=True)
    write_tar(tmp_path / "bucket" / "namesake", count=49)
    with devstore(tmp_path) as elsewhere:
        refused(uri, workers(**elsewhere).address, "another data set", capfd)


def test_the_seed_of_the_fuzzer_is_of_this_version(workers: Any) -> None:
    """Otherwise all that the fuzzer makes of it would be refused at its first bytes."""
    address = workers().address
    now = version_of(address)
    seed = pathlib.Path(__file__).resolve().parents[2] / "fuzz/corpus/stream_spec/plain"
    status, session = ask(address, "POST", "/millrace/open", seed.read_bytes(), now)
    assert status == 201, session
    status = 204
    while status == 204:
        status, said = ask(address, "GET", f"/millrace/next?session={session}&sequence=0", version=now)
    assert status == 500 and "No such file or directory" in said, said  # the data
