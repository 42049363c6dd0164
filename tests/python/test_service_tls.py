"""Tests trainers and workers that prove to each other who they are."""

from __future__ import annotations

import pathlib
import socket
import ssl
import subprocess
from typing import Any

import millrace
import pytest
from service_support import OPTIONS, is_late, is_sound, make_certificates, none_here, outcome, received
from support import Samples, binary


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Makes two authorities: `ours` with certificates for this machine, for nobody (`trainer`) and for another name,
    and `theirs`."""
    folder = tmp_path_factory.mktemp("tls")
    here = "DNS:localhost,IP:127.0.0.1"
    make_certificates(folder / "ours", {"worker": here, "trainer": "DNS:trainer", "other": "DNS:workers.example"})
    make_certificates(folder / "theirs", {"stranger": here})
    return folder


def test_rows_come_over_tls(tar: Samples, workers: Any, tls: pathlib.Path) -> None:
    addresses = [workers("--tls", tls / "ours" / "worker").address for _ in range(2)]
    local, one = received(tar.uri)
    remote, other = received(tar.uri, workers=millrace.Service(addresses, tls=tls / "ours" / "trainer"))
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert all(map(is_sound, report)), report
    # On a busy machine a worker that begins late may be overtaken.
    assert all(entry["rows"] > 0 or entry["last_failure"] for entry in report[:2]) and none_here(report)


def test_refusals_say_why(tar: Samples, workers: Any, tls: pathlib.Path, capfd: Any) -> None:
    """If the worker or the trainer is not trusted, the batches come all the same, and the report says why the worker
    has no part in them."""
    secured = workers("--tls", tls / "ours" / "worker").address
    plain = workers().address
    elsewhere = workers("--tls", tls / "ours" / "other").address
    local, one = received(tar.uri)
    ours, theirs = tls / "ours" / "trainer", tls / "theirs" / "stranger"
    for worker, folder, why in (
        (secured, theirs, "certificate is not trusted"),
        (secured, None, "speaks TLS"),
        (plain, ours, "TLS handshake failed"),
        (elsewhere, ours, "certificate is not trusted for 127.0.0.1"),
    ):
        remote, other = received(tar.uri, workers=millrace.Service([worker], tls=folder))
        assert remote == local and outcome(other) == outcome(one)
        report = other.report()["workers"]
        assert why in report[0]["last_failure"] and report[0]["rows"] == 0, report
        said = capfd.readouterr().err
        assert why in said and said.count("no worker serves") == 1, said
    remote, other = received(tar.uri, workers=millrace.Service([elsewhere], tls=ours, tls_name="workers.example"))
    assert remote == local and is_sound(other.report()["workers"][0])


def test_a_trainer_of_another_authority_is_refused_by_the_worker(
    tar: Samples, workers: Any, tls: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The trainer trusts the worker, but has a certificate that the worker does not trust."""
    worker = workers("--tls", tls / "ours" / "worker")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes((tls / "theirs" / "stranger" / name).read_bytes())
    (tmp_path / "ca.crt").write_bytes((tls / "ours" / "ca.crt").read_bytes())
    _, loader = received(tar.uri, workers=millrace.Service([worker.address], tls=tmp_path))
    report = loader.report()["workers"]
    assert "the server ended TLS" in report[0]["last_failure"] and report[0]["rows"] == 0


def test_c14_certificates_have_roles(tar: Samples, workers: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A trainer's certificate makes nobody a worker, and a worker's nobody a trainer."""
    here = "DNS:localhost,IP:127.0.0.1"
    folder = tmp_path_factory.mktemp("roles") / "run"
    make_certificates(
        folder,
        {
            "worker": f"{here}\nextendedKeyUsage=serverAuth",
            "trainer": f"{here}\nextendedKeyUsage=clientAuth",
        },
    )
    worker = workers("--tls", folder / "worker").address
    impostor = workers("--tls", folder / "trainer").address
    local, _ = received(tar.uri)
    remote, loader = received(tar.uri, workers=millrace.Service([worker], tls=folder / "trainer"))
    assert remote == local and is_sound(loader.report()["workers"][0])
    for address, own, why in (
        (impostor, folder / "trainer", "certificate is not trusted"),
        (worker, folder / "worker", "the server ended TLS"),
    ):
        for _ in range(10):
            remote, loader = received(tar.uri, workers=millrace.Service([address], tls=own))
            report = loader.report()["workers"][0]
            if not is_late(report):  # a busy machine can take too long for a handshake
                break
        assert remote == local and report["rows"] == 0 and why in report["last_failure"], report


def test_nobody_without_a_certificate_gets_an_answer(workers: Any, tls: pathlib.Path) -> None:
    worker = workers("--tls", tls / "ours" / "worker")
    host, port = worker.address.split(":")
    context = ssl.create_default_context(cafile=str(tls / "ours" / "ca.crt"))
    request = b"GET /millrace/hello HTTP/1.1\r\nHost: x\r\nMillrace-Service: 4\r\n\r\n"
    with (
        pytest.raises(OSError),
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        wrapped.sendall(request)
        if not wrapped.recv(100):
            raise ConnectionResetError
    own = tls / "ours" / "trainer"
    context.load_cert_chain(own / "tls.crt", own / "tls.key")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        wrapped.sendall(request)
        assert wrapped.recv(100).startswith((b"HTTP/1.1 200", b"HTTP/1.1 426"))  # a worker, of whichever version


def test_certificates_in_place_of_a_token(tls: pathlib.Path) -> None:
    """The address is one that others reach: TLS will do, and --allow is asked for all the same."""
    made = subprocess.run(
        [str(binary()), "worker", "--listen", "0.0.0.0:0", "--tls", str(tls / "ours" / "worker")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 2 and "--allow" in made.stderr


def test_folders_that_are_none(tar: Samples, tls: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(millrace.NotFoundError, match=r"ca\.crt"):
        millrace.Loader(tar.uri, workers=millrace.Service(["h:1"], tls=tmp_path), **OPTIONS)
    (tmp_path / "ca.crt").write_text("no PEM")
    with pytest.raises(millrace.InvalidArgumentError, match="not a PEM file"):
        millrace.Loader(tar.uri, workers=millrace.Service(["h:1"], tls=tmp_path), **OPTIONS)
    with pytest.raises(millrace.InvalidArgumentError, match="tls_name is the name"):
        millrace.Loader(tar.uri, workers=millrace.Service(["h:1"], tls_name="x"), **OPTIONS)
    made = subprocess.run(
        [str(binary()), "worker", "--listen", "127.0.0.1:0", "--tls", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode != 0 and "not a PEM file" in made.stderr
