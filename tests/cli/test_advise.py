"""`millrace advise`: what it measures is true, and what it predicts follows from the lines that it shows."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace, damage_three

ROOT = Path(__file__).resolve().parents[2]
MODES = ["file", "fastfile", "mount-cache", "efs", "fsx", "streaming", "streaming-cache"]


def lines_of(prediction: dict[str, Any]) -> dict[str, float]:
    return {line["name"]: line["value"] for line in prediction["arithmetic"]}


def test_data_store_and_arithmetic(millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path) -> None:
    server = devstore("mem:", "--bucket", "bkt", "--first-byte-ms", "20", "--first-byte-sigma", "0")
    env = server.env() | {"MILLRACE_CACHE": str(tmp_path / "cache")}
    millrace("synth", "s3://bkt/raw", "--count", "60", "--kb", "20", env=env)
    # A machine that is not this one: nothing of what was tried here counts for it.
    prices = json.loads((ROOT / "src/diagnose/prices.json").read_text())
    [machine] = [each for each in prices["machines"] if each["name"] == "ml.p3.2xlarge"]
    machine["vcpus"] = vcpus = len(os.sched_getaffinity(0)) + 3
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    arguments = [
        "--machine",
        "ml.p3.2xlarge",
        "--prices",
        tmp_path / "prices.json",
        "--epochs",
        "3",
        "--step-ms",
        "0.1",
    ]
    advice = json.loads(millrace("advise", "s3://bkt/raw", "--json", *arguments, env=env).stdout)

    sizes = [item["Size"] for item in server.client().list_objects_v2(Bucket="bkt", Prefix="raw/class")["Contents"]]
    assert advice["data"]["samples"] == advice["data"]["objects"] == len(sizes) == 60
    assert advice["data"]["object_bytes"] == sum(sizes)
    assert advice["data"]["kind"] == "raw"
    assert 0.02 <= advice["store"]["first_byte_seconds"]
    assert advice["store"]["listed_objects"] >= 60  # the index is an object, too
    assert advice["cpu_seconds_per_sample"] > 0
    assert advice["bad_samples"] == 0 and advice["first_bad_sample"] is None

    predictions = {one["mode"]: one for one in advice["predictions"]}
    assert list(predictions) == MODES
    for one in predictions.values():
        lines = lines_of(one)
        assert lines["start-up"] == pytest.approx(one["startup_seconds"])
        assert lines["epoch"] == pytest.approx(one["epoch_seconds"])
        assert lines["requests"] == one["requests"]
        hours = (one["startup_seconds"] + one["epoch_seconds"] + 2 * one["later_epoch_seconds"]) / 3600
        assert one["machine_dollars"] == pytest.approx(hours * 3.825)
        assert one["dollars"] == pytest.approx(one["machine_dollars"] + one["request_dollars"] + one["other_dollars"])
    file = lines_of(predictions["file"])
    assert file["start-up"] == pytest.approx(file["listing"] + file["download"] + file["first batch"])
    assert file["download"] == pytest.approx(sum(sizes) / advice["store"]["download_bytes_per_second"])
    # Each object is a request; a loader that reads again asks again.
    assert predictions["file"]["requests"] == 61
    assert predictions["fastfile"]["requests"] == 3 * 60 + 1
    assert predictions["streaming"]["requests"] == 3 * 60 + 2
    assert predictions["streaming-cache"]["requests"] == 60 + 2
    assert predictions["mount-cache"]["requests"] == predictions["efs"]["requests"] == 61
    assert 0.9 < advice["data"]["compressed_share"] <= 1  # JPEGs

    assert advice["flow"]["source"] == "pack, then file" and len(advice["flow"]["steps"]) == 4
    # Some ms of CPU for an image, 128 of them in a step of 0.1 ms: far more vCPUs than a machine has.
    assert advice["accelerators"]["vcpus_missing"] == advice["accelerators"]["vcpus_needed"] - vcpus > 0
    assert all(one["startup_range"] is None and one["epoch_range"] is None for one in predictions.values())
    assert any("need" in sentence and "vCPUs" in sentence for sentence in advice["advice"])
    # The first batch takes no less than what was seen here beyond the arithmetic.
    streaming = lines_of(predictions["streaming"])
    assert streaming["start-up"] >= streaming["listing"] + streaming["index"] + streaming["first batch"] - 1e-9


def test_the_answer_comes_first_and_counts_the_model(
    millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path
) -> None:
    env = devstore("mem:", "--bucket", "bkt").env() | {"MILLRACE_CACHE": str(tmp_path / "cache")}
    millrace("synth", "s3://bkt/photos", "--count", "40", "--kb", "10", env=env)
    # A step takes a minute: five of them are an epoch, whatever brings the data.
    machine = ["--machine", "g5.xlarge", "--batch", "8", "--step-ms", "60000", "--epochs", "6"]
    advice = json.loads(millrace("advise", "s3://bkt/photos", "--json", *machine, env=env).stdout)
    predictions = {one["mode"]: one for one in advice["predictions"]}
    for mode in ("file", "fastfile", "mount-cache", "streaming", "streaming-cache"):
        one = predictions[mode]
        assert one["epoch_seconds"] == one["later_epoch_seconds"] == lines_of(one)["model of an epoch"] == 300
        hours = (one["startup_seconds"] + 6 * 300) / 3600
        assert one["machine_dollars"] == pytest.approx(hours * 1.006)
    assert len(advice["recommendation"]["no_difference"]) == 4 and advice["machine_price_date"] == "2026-01-21"
    answer = advice["answer"]
    assert [line.split(":")[0] for line in answer] == ["Do", "Cost", "Time", "Otherwise", "Limit"]
    assert answer[0].endswith("makes no difference to the time, so any other way will do, too.")
    assert answer[1].startswith("Cost: $0.5") and "for g5.xlarge at $1.01 an hour" in answer[1]
    assert "The price of the machine is of 2026-01-21, the others of 2022-12-01." in answer[1]
    assert advice["recommendation"]["mode"] == "streaming"  # the simplest of those that cost the same
    assert answer[2].startswith("Time: 30 min ") and answer[2].endswith("in which the model takes 5 min 0 s.")
    assert answer[4].startswith("Limit: the model")


@pytest.mark.parametrize("words", [[], ["--machine", "g5.xlarge", "--batch", "8", "--step-ms", "60000"]])
def test_a_folder_is_read_as_it_is(millrace: Millrace, tmp_path: Path, words: list[str]) -> None:
    """Nothing advises to copy, to mount or to keep what is on the disk already, and nobody pays for requests."""
    millrace("synth", tmp_path / "photos", "--count", "40", "--kb", "10")
    advice = json.loads(millrace("advise", tmp_path / "photos", "--json", *words).stdout)
    assert advice["recommendation"]["mode"] == "streaming" and advice["recommendation"]["no_difference"] == []
    answer = advice["answer"]
    assert answer[0].startswith("Do: read the folder as it is (`millrace.Loader`).")
    assert ("for g5.xlarge at $1.01 an hour" if words else "whose price is not known (--machine)") in answer[1]
    assert answer[3].startswith("Otherwise: nothing to compare")
    assert not any(word in line for line in answer for word in ("requests", "Storing", "the store"))
    assert [one["mode"] for one in advice["predictions"]] == MODES
    assert all(one["request_dollars"] == 0 for one in advice["predictions"])
    assert "The data are in a folder" in millrace("advise", tmp_path / "photos", *words).stdout.decode()


def test_what_was_tried_counts_on_this_machine(
    millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path
) -> None:
    env = devstore("mem:", "--bucket", "bkt").env() | {
        "MILLRACE_CACHE": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    (tmp_path / "temporary").mkdir()
    millrace("synth", "s3://bkt/raw", "--count", "60", "--kb", "20", env=env)
    advice = json.loads(millrace("advise", "s3://bkt/raw", "--json", "--epochs", "2", "--batch", "16", env=env).stdout)
    predictions = {one["mode"]: one for one in advice["predictions"]}
    for mode in ("streaming", "file"):
        least, most = predictions[mode]["startup_range"]
        assert 0 < least <= predictions[mode]["startup_seconds"] <= most
    streaming = predictions["streaming"]
    least, most = streaming["epoch_range"]
    assert 0 < least <= streaming["epoch_seconds"] <= most
    # Behind the first batch are 44 of 60 samples; a later epoch has all of them.
    assert streaming["later_epoch_seconds"] == pytest.approx(streaming["epoch_seconds"] * 60 / 44)
    lines = lines_of(streaming)
    assert lines["start-up by arithmetic"] == pytest.approx(lines["listing"] + lines["index"] + lines["first batch"])
    file = lines_of(predictions["file"])
    assert file["start-up"] == pytest.approx(file["listing"] + file["download"] + file["first batch"])
    assert predictions["fastfile"]["startup_range"] is None
    text = millrace("advise", "s3://bkt/raw", "--batch", "16", env=env).stdout.decode()
    assert "By the best and the worst of the trials on this machine:" in text
    assert re.search(
        r"^Tried: the loader \d+ times?, for (an epoch|\d+ samples): the first batch after .* samples/s$",
        text,
        re.MULTILINE,
    )
    assert re.search(r"^Tried: a copy of (everything|\d+ objects?) to files ", text, re.MULTILINE)
    assert not os.listdir(tmp_path / "temporary")


def test_text_shows_the_same(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "photos", "--count", "30", "--kb", "10")
    machine = ["--machine", "g5.xlarge", "--step-ms", "7"]
    text = millrace("advise", tmp_path / "photos", "--rates", "published", *machine).stdout.decode()
    assert [line.split(":")[0] for line in text.splitlines()[:5]] == ["Do", "Cost", "Time", "Otherwise", "Limit"]
    assert "Epochs include the model: 0.007 s for each, at 7 ms a step." in text and "; g5.xlarge of 2026-01-21" in text
    assert "30 samples in 30 objects (raw)" in text
    for title in (
        "File mode",
        "FastFile mode",
        "a mount, with a cache",
        "EFS",
        "FSx for Lustre",
        "streaming with Millrace",
        "streaming, with a cache",
    ):
        assert f"Arithmetic of {title}\n" in text
    # The numbers of a line give its result: 30 files at 150 a second.
    found = re.search(r"max\(\S+ KB / 200 MB/s, 30 / 150\) = (\S+) s", text)
    assert found and float(found[1]) == pytest.approx(0.2)
    assert "Prices of 2022-12-01" in text and "Decision flow without Millrace: pack, then file" in text


def test_what_cannot_be_decoded(millrace: Millrace, tmp_path: Path) -> None:
    folder = tmp_path / "sounds" / "a"
    folder.mkdir(parents=True)
    for n in range(3):
        (folder / f"{n}.wav").write_bytes(bytes(1000))
    advice = json.loads(millrace("advise", tmp_path / "sounds", "--json").stdout)
    assert advice["data"]["samples"] == 3
    assert advice["cpu_seconds_per_sample"] is None
    assert [one["mode"] for one in advice["predictions"]] == MODES
    streaming = lines_of(advice["predictions"][5])
    assert "CPU of an epoch" not in streaming and streaming["requests"] == 10 * 3 + 2
    text = millrace("advise", tmp_path / "sounds").stdout.decode()
    assert "CPU: left out" in text and "no field of the data set is an image" in text


def test_damaged_samples_are_counted(millrace: Millrace, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    millrace("synth", photos, "--count", "20", "--kb", "10")
    names = damage_three(photos)
    done = millrace("advise", photos, "--json", "--batch", "8")
    advice = json.loads(done.stdout)
    assert advice["bad_samples"] == 3 and advice["cpu_seconds_per_sample"] > 0
    first = advice["first_bad_sample"]
    assert any(name in first["sample"] for name in names) and first["reason"]
    assert b"takes its place" not in done.stderr, "it is not logged for each trial"
    text = millrace("advise", photos, "--batch", "8").stdout.decode()
    assert re.search(r"^Damaged: 3 samples, whose places others took; the first: .*photos", text, re.MULTILINE)


def test_recommendation_and_compressibility(millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for n in range(40):
        (folder / f"{n}.txt").write_text("the same words again and again " * 3000)
    env = devstore("mem:", "--bucket", "bkt").env() | {"MILLRACE_CACHE": str(tmp_path / "cache")}
    millrace("cp", "--recursive", folder, "s3://bkt/texts", env=env)
    advice = json.loads(millrace("advise", "s3://bkt/texts", "--json", "--epochs", "3", env=env).stdout)
    assert advice["data"]["compressed_share"] < 0.1
    assert any("zstd makes" in sentence for sentence in advice["advice"])
    what = advice["recommendation"]
    predictions = {one["mode"]: one for one in advice["predictions"]}
    compared = {
        mode: one["startup_seconds"] + one["epoch_seconds"] + 2 * one["later_epoch_seconds"]
        for mode, one in predictions.items()
        if mode not in ("efs", "fsx", "streaming-packed")
    }
    # The simplest of those that take the least time, since their requests cost less than a cent.
    fast = [mode for mode in compared if compared[mode] <= 1.05 * min(compared.values())]
    assert sorted([what["mode"], *what["no_difference"]]) == sorted(fast)
    simple = ["streaming", "streaming-cache", "fastfile", "mount-cache", "file"]
    assert what["mode"] == min(fast, key=simple.index)
    assert (what["format"], what["shard_bytes"], what["source_without_millrace"]) == (
        "tar",
        150_000_000,
        "pack, then file",
    )
    assert what["data_workers"] >= 1
    assert predictions["streaming-packed"]["requests"] < predictions["streaming"]["requests"]
    in_efs = json.loads(millrace("advise", "s3://bkt/texts", "--json", "--in-efs", env=env).stdout)
    assert {one["mode"]: one["requests"] for one in in_efs["predictions"]}["efs"] == 0


@pytest.mark.parametrize("packed", [True, False])
def test_requests_and_bytes_are_as_predicted(
    millrace: Millrace, devstore: Callable[..., Any], tmp_path: Path, packed: bool
) -> None:
    """The figures of an epoch, within 15 %: counted, not timed."""
    env = devstore("mem:", "--bucket", "bkt").env() | {"MILLRACE_CACHE": str(tmp_path / "cache")}
    uri = "s3://bkt/raw"
    millrace("synth", uri, "--count", "300", "--kb", "50", env=env)
    if packed:
        millrace("pack", uri, "s3://bkt/shards", "--shard-size", "4MiB", env=env)
        uri = "s3://bkt/shards"
    advice = json.loads(millrace("advise", uri, "--json", "--epochs", "1", env=env).stdout)
    fed = json.loads(millrace("feed", uri, "--json", env=env).stdout)
    streaming = {one["mode"]: one for one in advice["predictions"]}["streaming"]
    again = fed["retries"] + fed["hedges"]  # on a busy machine some are asked for twice, and some of these come twice
    requests = sum(fed["requests"][method] for method in ("GET", "LIST")) - again
    assert requests == pytest.approx(streaming["requests"], rel=0.15, abs=2)
    planned = advice["plan"]["bytes"] + advice["data"]["index_bytes"]
    assert 0.85 * planned <= fed["bytes_read"] <= 1.15 * planned + again * (8 << 20)


def test_usage_and_errors(millrace: Millrace, tmp_path: Path) -> None:
    millrace("advise", code=2)
    assert b"ml.p3.2xlarge" in millrace("advise", tmp_path, "--machine", "ml.none", code=2).stderr
    assert b"--step-ms" in millrace("advise", tmp_path, "--step-ms", "-1", code=2).stderr
    assert b"price list" in millrace("advise", tmp_path, "--prices", "nowhere.json", code=2).stderr
    assert b"millrace advise" in millrace("advise", tmp_path / "nowhere", code=1).stderr


class Gate:
    """Hands requests on to a server, and leaves those without an answer that `is_shut` says."""

    def __init__(self, port: int, is_shut: Callable[[str, str], bool]) -> None:
        self.met = threading.Event()  # by a request
        gone = self.gone = threading.Event()
        met = self.met

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def hand_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if is_shut(self.command, self.path):
                    met.set()
                    gone.wait()
                    self.close_connection = True
                    return
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
                server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    server.putheader(name, value)
                server.endheaders(body)
                answer = server.getresponse()
                data = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                server.close()

            do_GET = do_HEAD = do_PUT = hand_on

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, request: object, client_address: object) -> None: ...  # the command is gone

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.gone.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def gate() -> Iterator[Callable[..., Gate]]:
    made: list[Gate] = []

    def make(port: int, is_shut: Callable[[str, str], bool]) -> Gate:
        made.append(Gate(port, is_shut))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("trial", ["loader", "copy"])
def test_an_interrupt_ends_a_trial(
    millrace: Millrace,
    millrace_bin: Path,
    devstore: Callable[..., Any],
    gate: Callable[..., Gate],
    tmp_path: Path,
    trial: str,
) -> None:
    """From the moment when a trial has made its temporary folder, no object is answered: the trial waits for the first of them when it is interrupted."""
    server = devstore("mem:", "--bucket", "bkt")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = server.env() | {"MILLRACE_CACHE": str(tmp_path / "cache"), "TMPDIR": str(temporary)}
    if trial == "loader":
        millrace("synth", "s3://bkt/data", "--count", "20", "--kb", "10", env=env)
    else:  # what no loader decodes is only copied
        for n in range(20):
            server.client().put_object(Bucket="bkt", Key=f"data/{n}.wav", Body=bytes(1000))
    millrace("index", "s3://bkt/data", env=env)

    def is_shut(method: str, path: str) -> bool:
        is_object = method == "GET" and "list-type" not in path and ".millrace" not in path
        return is_object and any(temporary.iterdir())

    through = gate(server.port, is_shut)
    command = [millrace_bin, "advise", "s3://bkt/data", "--batch", "4"]
    run = subprocess.Popen(
        command,
        env={**os.environ, **env, "AWS_ENDPOINT_URL": through.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert through.met.wait(300) and run.poll() is None
        run.send_signal(signal.SIGINT)
        said, errors = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130 and not said, (said, errors)
    assert b"s3://bkt/data: interrupted while it was measured" in errors and errors.count(b"\n") == 1
    assert not list(temporary.iterdir())


def service(millrace: Millrace, *words: object) -> dict[str, Any]:
    advice: dict[str, Any] = json.loads(millrace("advise", "--service", "--json", *words).stdout)
    return advice


def test_service_of_the_report_on_heterogeneous_clusters(millrace: Millrace) -> None:
    """Its tables (004a to 004d) from its numbers, without a data set."""
    p4d, c5 = ["--machine", "ml.p4d.24xlarge"], ["--worker-machine", "ml.c5.18xlarge", "--worker-count", "2"]
    need = service(millrace, *p4d, *c5, "--vcpus-per-accelerator", "20", "--step-ms", "86")
    assert (need["bound"], need["vcpus_needed"], need["vcpus_missing"], need["vcpus_per_accelerator"]) == (
        "cpu",
        160,
        64,
        12,
    )
    assert need["accelerators_busy_most"] == pytest.approx(0.6)
    assert need["plans"][0]["vcpus_per_accelerator"] == 30 and need["plans"][0]["bound"] == "accelerator"
    for words, before, after, speedup, saving in (
        ([*p4d, *c5, "--before-ms", "192", "--after-ms", "86"], 0.201, 0.108, 2.23, 0.465),
        (
            ["--machine", "ml.p3.2xlarge", "--worker-machine", "ml.c5.9xlarge", "--worker-count", "1", "--before-ms", "1193", "--after-ms", "184"],
            0.127, 0.029, 6.48, 0.772,
        ),
    ):  # fmt: skip
        (plan,) = service(millrace, *words)["plans"]
        assert plan["dollars_per_100_steps_before"] == pytest.approx(before, abs=0.0005)
        assert plan["dollars_per_100_steps"] == pytest.approx(after, abs=0.0005)
        assert plan["speedup"] == pytest.approx(speedup, abs=0.005) and plan["saving"] == pytest.approx(
            saving, abs=0.0005
        )


def test_service_says_how_many_workers_of_which_kind(millrace: Millrace) -> None:
    training = ["--machine", "ml.p3.2xlarge", "--batch", "256", "--step-ms", "100"]
    given = [*training, "--cpu-ms", "12"]
    advice = service(millrace, *given)
    # 2,560 samples a second take 30.72 vCPUs, of which the machine has 8.
    assert (advice["bound"], advice["vcpus_needed"], advice["vcpus_missing"]) == ("cpu", 31, 23)
    plans = {plan["machine"]: plan for plan in advice["plans"]}
    assert set(plans) == {"ml.c5.9xlarge", "ml.c5.18xlarge"}
    assert plans["ml.c5.9xlarge"]["workers"] == 1 and plans["ml.c5.9xlarge"]["step_seconds"] == pytest.approx(0.1)
    assert advice["plans"][advice["take"]]["machine"] == "ml.c5.9xlarge"
    cost = (3.825 + 1.836) / 3600 * 0.1 * 100
    assert plans["ml.c5.9xlarge"]["dollars_per_100_steps"] == pytest.approx(cost)
    lines = lines_of(plans["ml.c5.9xlarge"])
    assert lines["100 steps after"] == pytest.approx(cost) and lines["saving"] == pytest.approx(
        1 - cost / lines["100 steps before"]
    )
    # A store or a network that is slower than the CPUs is named in their place.
    store = service(millrace, *given, "--sample-size", "100kB", "--store-rate", "20MB")
    assert store["bound"] == "store" and store["step_seconds"] == pytest.approx(256 * 1e5 / 20e6)
    assert service(millrace, *given, "--sample-size", "100kB", "--network-gbit", "0.08")["bound"] == "network"
    assert service(millrace, *training, "--cpu-ms", "1")["bound"] == "accelerator"

    text = millrace("advise", "--service", *given).stdout.decode()
    assert "8 are missing" not in text and "23 are missing" in text and "Take 1 machine of ml.c5.9xlarge." in text
    assert "256 x 1 x 0.012 / 8 = 0.384 s" in text and "Prices of 2022-12-01" in text


def test_service_measures_what_is_not_given(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "photos", "--count", "30", "--kb", "10")
    advice = service(millrace, tmp_path / "photos", "--machine", "ml.p4d.24xlarge", "--step-ms", "0.001")
    assert advice["cpu_seconds_per_sample"] > 0 and advice["vcpus_missing"] == advice["vcpus_needed"] - 96 > 0
    assert len(advice["plans"]) == 2 and advice["step_seconds"] > 1e-6
    given = service(millrace, tmp_path / "photos", "--machine", "ml.p4d.24xlarge", "--step-ms", "1", "--cpu-ms", "3")
    assert given["cpu_seconds_per_sample"] == 0.003


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "the time of the model"),
        (["--step-ms", "5"], "--cpu-ms"),
        (["--before-ms", "5", "--after-ms", "4"], "how many workers"),
        (["--vcpus-per-accelerator", "5"], "--step-ms"),
        (["--before-ms", "-5"], "--before-ms"),
        (["--worker-machine", "ml.none"], "ml.c5.9xlarge"),
        (["--worker-count", "0"], "--worker-count"),
    ],
)
def test_service_without_numbers(millrace: Millrace, words: list[str], why: str) -> None:
    assert why in millrace("advise", "--service", "--machine", "ml.p3.2xlarge", *words, code=2).stderr.decode()
    assert "--service" in millrace("advise", "--worker-count", "2", "s3://b/c", code=2).stderr.decode()
