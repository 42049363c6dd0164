"""The process: greeting, signals, ports, TLS, latency, limits, the access log."""

from __future__ import annotations

import concurrent.futures
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, SSLError


def run(binary: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), "devstore", *map(str, arguments)], capture_output=True, text=True, timeout=30, check=False
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
        start = time.monotonic()
        store.process.send_signal(how)
        assert store.process.wait(10) == 0
        assert time.monotonic() - start < 5


def test_port_can_be_chosen(millrace_bin: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [str(millrace_bin), "devstore", str(tmp_path), "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"listening on http://127.0.0.1:{port}\n"
    process.terminate()
    assert process.wait(10) == 0
    process.stdout.close()


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


def measure(store: Any, raw: Any, n: int) -> list[float]:
    client = raw(store)
    times = []
    for i in range(n):
        start = time.monotonic()
        client.request("GET", f"/bucket/{i}")
        times.append((time.monotonic() - start) * 1000)
    return times


def test_latency(devstore: Any, raw: Any) -> None:
    model = ("--first-byte-ms", "40", "--first-byte-tail-ms", "1500", "--tail-fraction", "0.1")
    slow = devstore("mem:", "--anonymous", *model)
    times = measure(slow, raw, 40)
    assert statistics.median(times) >= 30
    tail = [ms for ms in times if ms >= 1000]
    assert 1 <= len(tail) <= 12
    # The model is a function of the seed: another server has the same slow requests.
    same = devstore("mem:", "--anonymous", *model)
    assert [ms >= 1000 for ms in measure(same, raw, 40)] == [ms >= 1000 for ms in times]


def test_bandwidth_is_per_connection(devstore: Any, raw: Any) -> None:
    store = devstore("mem:", "--anonymous", "--bucket", "bucket", "--bandwidth", "4MiB")
    raw(store).request("PUT", "/bucket/k", bytes(2 << 20))
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        bodies = list(pool.map(lambda _: raw(store).request("GET", "/bucket/k")[2], range(4)))
    elapsed = time.monotonic() - start
    assert all(len(body) == 2 << 20 for body in bodies)
    assert 0.49 <= elapsed < 1.9  # one after the other would take 2 s


def test_rate_per_prefix(devstore: Any) -> None:
    s3 = devstore("mem:", "--bucket", "bucket", "--rate-per-prefix", "5").client()
    codes: list[str] = []
    start = time.monotonic()
    for n in range(20):
        try:
            s3.put_object(Bucket="bucket", Key=f"a/{n}", Body=b"")
            codes.append("ok")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert set(codes) == {"ok", "SlowDown"}
    assert 5 <= codes.count("ok") <= 6 + 5 * (time.monotonic() - start)
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
