"""The process: greeting, signals, ports, TLS, latency, limits, the access log."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, SSLError
from ports import free_port


def run(binary: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), "devstore", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def test_port_in_use(millrace_bin: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run(millrace_bin, tmp_path, "--port", taken.getsockname()[1])
    assert result.returncode == 1
    assert "in use" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mem:", "--fault", "GET b/* explode"], "unknown action"),
        (["mem:", "--bandwidth", "fast"], "fast"),
        (["mem:", "--tail-fraction", "2"], "fraction"),
        (["mem:", "--bucket", "Bad_Name"], "bucket"),
        (["mem:", "--port", "70000"], "port"),
        ([], "root"),
    ],
)
def test_wrong_usage(millrace_bin: Path, arguments: list[str], words: str) -> None:
    result = run(millrace_bin, *arguments)
    assert (result.returncode, words in result.stderr) == (2, True), result.stderr


def test_root_that_is_missing(millrace_bin: Path) -> None:
    result = run(millrace_bin, "nowhere/at/all")
    assert (result.returncode, "not a folder" in result.stderr) == (1, True), result.stderr


def test_help_has_examples(millrace_bin: Path) -> None:
    text = run(millrace_bin, "--help").stdout
    assert "Examples:" in text and "--fault" in text and "error-in-200" in text


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stops_promptly(devstore: Any, how: signal.Signals) -> None:
    store = devstore("mem:", "--anonymous", "--fault", "GET * delay-ms=3600000")
    with socket.create_connection(("127.0.0.1", store.port)) as waiting:
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        store.process.send_signal(how)
        assert store.process.wait(120) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_listing_ends_with_the_server(devstore: Any, tmp_path: Path, how: signal.Signals) -> None:
    """Links that form circles make a listing that would continue for years."""
    bucket = tmp_path / "root" / "bucket"
    bucket.mkdir(parents=True)
    for name in ("a", "b"):
        (bucket / name).symlink_to(".")
    store = devstore(tmp_path / "root", "--anonymous")
    with socket.create_connection(("127.0.0.1", store.port)) as waiting:
        waiting.sendall(b"GET /bucket?list-type=2 HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting.settimeout(0.5)
        with pytest.raises(TimeoutError):  # it is at work
            waiting.recv(1)
        store.process.send_signal(how)
        assert store.process.wait(120) == 0


def test_links_lead_not_out_of_the_root(devstore: Any, tmp_path: Path) -> None:
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root" / "bucket" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "bucket" / "folder").symlink_to(tmp_path)
    store = devstore(tmp_path / "root")
    s3 = store.client()
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    for key in ("link", "folder/secret"):
        with pytest.raises(ClientError, match="NoSuchKey"):
            s3.get_object(Bucket="bucket", Key=key)
    s3.put_object(Bucket="bucket", Key="folder/secret", Body=b"mine")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    store.stop()
    assert "leads out of" in (tmp_path / "devstore-0.err").read_text()


def test_port_can_be_chosen(millrace_bin: Path, tmp_path: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        [str(millrace_bin), "devstore", str(tmp_path), "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"listening on http://127.0.0.1:{port}\n"
    process.terminate()
    assert process.wait(120) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            [],
            "AWS_ACCESS_KEY_ID=millrace AWS_SECRET_ACCESS_KEY=millrace-secret AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1",
        ),
        (["--anonymous", "--region", "eu-west-1"], "AWS_REGION=eu-west-1 AWS_DEFAULT_REGION=eu-west-1"),
        (
            ["--access-key", "a;b", "--secret-key", "mine"],
            "AWS_ACCESS_KEY_ID='a;b' AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1"
            "  # AWS_SECRET_ACCESS_KEY is the secret that you gave",
        ),
    ],
)
def test_the_server_prints_the_settings_of_its_clients(
    millrace_bin: Path, tmp_path: Path, options: list[str], expected: str
) -> None:
    """The line works in a shell, for a client that knows nothing else; it has no secret that the user has set."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "key").write_bytes(b"1")
    words = [millrace_bin, "devstore", tmp_path, "--port", "0", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        line = process.stdout.readline()
        script = line + ("export AWS_SECRET_ACCESS_KEY=mine\n" if "mine" in options else "") + '"$0" ls s3://bucket'
        script += " --no-sign-request" if "--anonymous" in options else ""
        clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
        listed = subprocess.run(["bash", "-c", script, millrace_bin], env=clean, capture_output=True, text=True)
        process.terminate()
    assert line == f"export AWS_ENDPOINT_URL={url} {expected}\n"
    assert listed.returncode == 0 and "key" in listed.stdout, listed.stderr


def test_the_settings_name_the_ca_file(millrace_bin: Path) -> None:
    words = [millrace_bin, "devstore", "mem:", "--port", "0", "--tls"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ca_file = process.stdout.readline().removeprefix("CA file: ").strip()
        process.stdout.readline()
        assert process.stdout.readline().endswith(f" AWS_CA_BUNDLE={ca_file}\n")
        process.terminate()


def test_tls(devstore: Any) -> None:
    store = devstore("mem:", "--tls", "--bucket", "bucket")
    assert store.url.startswith("https://127.0.0.1:")
    s3 = store.client()
    body = bytes(range(256)) * 20_000
    s3.put_object(Bucket="bucket", Key="k", Body=body)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == body
    ca_file, store.ca_file = store.ca_file, ""
    with pytest.raises(SSLError):
        store.client().list_buckets()
    store.stop()
    assert not Path(ca_file).exists()


SLOW = {2, 4, 8, 12}  # of requests for /bucket/0 to /bucket/39, as the seed has it


def test_latency(devstore: Any) -> None:
    """The model is a function of the seed: each server has the same slow requests."""
    for _ in range(2):
        store = devstore(
            "mem:", "--anonymous", "--first-byte-ms", "1", "--first-byte-tail-ms", "3600000", "--tail-fraction", "0.1"
        )
        sockets = [socket.create_connection(("127.0.0.1", store.port), timeout=120) for _ in range(40)]
        for number, connection in enumerate(sockets):
            connection.sendall(f"GET /bucket/{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        for number in set(range(40)) - SLOW:
            assert sockets[number].recv(9) == b"HTTP/1.1 ", number
        store.stop()
        assert [sockets[number].recv(9) for number in SLOW] == [b""] * len(SLOW)
        for connection in sockets:
            connection.close()


def test_first_byte(devstore: Any, raw: Any) -> None:
    """Half of the requests take that long or longer: a server may be late, but not early."""
    client = raw(devstore("mem:", "--anonymous", "--first-byte-ms", "40"))
    times = []
    for number in range(9):
        start = time.monotonic()
        client.request("GET", f"/bucket/{number}")
        times.append((time.monotonic() - start) * 1000)
    assert statistics.median(times) >= 30


def test_bandwidth_is_per_connection(devstore: Any, raw: Any) -> None:
    """A hundred connections that shared it would take 200 s, and they take two; so they have half of that, on a busy machine, too."""
    store = devstore("mem:", "--anonymous", "--bucket", "bucket", "--bandwidth", "64KiB")
    raw(store).request("PUT", "/bucket/k", bytes(128 << 10))
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        bodies = list(pool.map(lambda _: raw(store).request("GET", "/bucket/k")[2], range(100), timeout=100))
    assert time.monotonic() - start >= 1.9  # a server may be late, but not early
    assert all(len(body) == 128 << 10 for body in bodies)


def test_rate_per_prefix(devstore: Any) -> None:
    s3 = devstore("mem:", "--bucket", "bucket", "--rate-per-prefix", "2").client()  # fewer than any machine asks for
    codes: list[str] = []
    start = time.monotonic()
    while "SlowDown" not in codes or len(codes) < 20:
        try:
            s3.put_object(Bucket="bucket", Key=f"a/{len(codes)}", Body=b"")
            codes.append("ok")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert set(codes) == {"ok", "SlowDown"}
    assert (
        2 <= codes.count("ok") <= 3 + 2 * (time.monotonic() - start)
    )  # as many as that time allows, however long it was
    s3.put_object(Bucket="bucket", Key="b/1", Body=b"")  # another prefix


def test_access_log(devstore: Any) -> None:
    store = devstore("mem:", "--bucket", "bucket", "--access-log")
    s3 = store.client()
    s3.put_object(Bucket="bucket", Key="folder/k", Body=b"12345")
    s3.list_objects_v2(Bucket="bucket")
    store.process.terminate()
    lines = store.process.stdout.read().splitlines()
    assert [line.split()[1:5] for line in lines] == [
        ["PUT", "/bucket/folder/k", "PutObject", "200"],
        ["GET", "/bucket", "ListObjectsV2", "200"],
    ]
    assert not any(word in "\n".join(lines) for word in ("Signature", "Credential", "millrace-secret"))


def test_many_connections(devstore: Any, raw: Any) -> None:
    """Connections cost no threads."""
    store = devstore("mem:", "--anonymous", "--threads", "1")
    sockets = [socket.create_connection(("127.0.0.1", store.port)) for _ in range(200)]
    for connection in sockets:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    for connection in sockets:
        assert connection.recv(20).startswith(b"HTTP/1.1 200 OK")
    threads = len(list(Path(f"/proc/{store.process.pid}/task").iterdir()))
    assert threads <= 8
    for connection in sockets:
        connection.close()
