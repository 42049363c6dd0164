"""`millrace bench`: its reports agree with each other and with the store, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from cli_support import Millrace, contents, damage_three

SHORT = ["--quick", "--seconds", "0.1", "--repeats", "2", "--batch", "16", "--size", "64", "--memory", "64MiB"]
SVG = "{http://www.w3.org/1999/xhtml}svg"


def bench(millrace: Millrace, *arguments: str | Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(millrace("bench", *arguments, *SHORT, "--json", "-", env=env).stdout)
    return report


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where temporary files go; empty afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_synthetic_data_on_a_local_server(millrace: Millrace, temporary: Path, tmp_path: Path) -> None:
    page, figures = tmp_path / "report.html", tmp_path / "report.json"
    arguments = [
        "--synthetic",
        "--samples",
        "80",
        "--first-byte-ms",
        "5",
        "--threads",
        "1,2",
        "--scenario",
        "all",
        "--shuffle",
        "global",
    ]
    env = {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(temporary)}
    text = millrace("bench", *arguments, *SHORT, "--html", page, "--json", figures, env=env).stdout.decode()
    assert not contents(temporary) and not list(temporary.iterdir())
    report = json.loads(figures.read_text())

    # The limit comes first, in all three.
    assert report["limit"].endswith(".") and "limit" in report["limit"]
    assert text.startswith(report["limit"])
    root = ET.parse(page).getroot()
    body = "".join(root.itertext())
    paragraphs = [element.text for element in root.iter() if element.get("class") == "limit"]
    assert paragraphs == [report["limit"]]

    # The page has its plots inside, and fetches nothing.
    assert len(list(root.iter(SVG))) == 7  # rate, waiting, batch times, orders, epochs, shards, first batch
    for plot in root.iter(SVG):  # whose names stand above its lines, and not on them
        lines = [
            group
            for group in plot.iter(SVG[:-3] + "g")
            if str(group.get("class")).startswith("line-") and len(group) > 1
        ]
        names = [text for text in plot.iter(SVG[:-3] + "text") if str(text.get("class")).startswith("line-")]
        assert len(names) == (len(lines) if len(lines) > 1 else 0)
        marks = [float(str(mark.get("cy"))) for mark in plot.iter(SVG[:-3] + "circle")]
        assert all(float(str(name.get("y"))) < min(marks) for name in names), plot.get("aria-label")
    source = page.read_text()
    assert "<script" not in source and "src=" not in source and "url(" not in source and "href" not in source

    assert [point["name"] for point in report["scenarios"]["d"]["points"]] == ["1 thread", "2 threads"]
    assert [point["shard_bytes"] for point in report["scenarios"]["c"]["points"]] == [2**20, 2**22, 2**24, 2**26]
    assert [point["data_samples"] for point in report["scenarios"]["e"]["points"]] == [20, 40, 80]
    orders = ["none", "window", "global", "raw"]
    assert [point["name"] for point in report["scenarios"]["a"]["points"]] == [
        f"{order}, {n}" for order in orders for n in ("1 thread", "2 threads")
    ]
    for name in ("with_cache", "without_cache"):
        assert [epoch["samples"] for epoch in report["scenarios"]["b"][name]] == [80, 80, 80]
    for point in (
        report["scenarios"]["d"]["points"] + report["scenarios"]["a"]["points"] + report["scenarios"]["c"]["points"]
    ):
        check_point(point, report)
    check_orders(report, text, body)
    resume, storm = report["scenarios"]["f"], report["scenarios"]["g"]
    assert resume["exact"] and resume["position"].startswith("mr2-0-32-")  # the middle of 80, in whole batches
    for point in resume["points"]:
        assert point["first_batch_seconds"]["median"] > 0 and point["requests"]["GET"] > 0
    assert storm["same_bytes"] and storm["storm"]["samples"] == storm["calm"]["samples"] == 80
    assert storm["storm"]["digest"] == storm["calm"]["digest"] != "0" * 32
    assert storm["storm"]["requests"]["retries"] > 0  # in the calm, a busy machine may make some, too
    for said in (
        "The samples after the interruption were those that would have come",
        "All 80 samples came, and every byte was right",
    ):
        assert said in text and said in body
    assert report["scenarios"]["e"]["downloads"] == []  # --quick
    for point in report["scenarios"]["e"]["points"]:
        assert 0 < point["open_seconds"]["median"] < point["first_batch_seconds"]["median"]
        assert point["requests"]["GET"] > 0 and point["requests"]["LIST"] > 0
        assert point["name"] in text
    assert report["prices"]["apply"] and report["prices"]["date"] in body
    for name in ("cpu", "kernel", "compiler"):
        assert report["environment"][name] in text and report["environment"][name] in body


def check_orders(report: dict[str, Any], text: str, body: str) -> None:
    """How much slower a random order is than the sequential one, with as many threads."""
    note = "fit into the memory budget, 64.0 MiB: neighbours in shards are read together in any order"
    assert note in text and note in body
    scenario = report["scenarios"]["a"]
    rates = {
        point["name"]: [window["samples"] / window["seconds"] for window in point["windows"]]
        for point in scenario["points"]
    }
    order = {id(ratio): "raw" if ratio["raw"] else ratio["shuffle"] for ratio in scenario["order_ratios"]}
    assert [(order[id(ratio)], ratio["threads"]) for ratio in scenario["order_ratios"]] == [
        (name, n) for name in ("window", "global", "raw") for n in (1, 2)
    ]
    for point in scenario["points"]:
        assert point["data_objects"] == (80 if point["raw"] else 1)
    for ratio in scenario["order_ratios"]:
        name = order[id(ratio)]
        threads = f"{ratio['threads']} thread{'s' if ratio['threads'] > 1 else ''}"
        shares = [
            random / sequential for random, sequential in zip(rates[f"{name}, {threads}"], rates[f"none, {threads}"])
        ]
        share = {"median": sum(shares) / 2, "least": min(shares), "most": max(shares)}  # of two repeats
        assert ratio["of_sequential"] == pytest.approx(share)
        point = next(point for point in scenario["points"] if point["name"] == f"{name}, {threads}")
        waited = sum(point["stalls"].values())
        assert ratio["waited_for_decoding"] == pytest.approx(point["stalls"]["decode"] / waited if waited else 0)
        said = f"{name}, {threads}: {ratio['of_sequential']['median']:.3f} of the sequential rate"
        assert said in text and said in body


def check_point(point: dict[str, Any], report: dict[str, Any]) -> None:
    """The figures of a point follow from its repeats."""
    assert len(point["windows"]) == report["settings"]["repeats"] == 2
    assert point["data_samples"] == 80
    rates = sorted(window["samples"] / window["seconds"] for window in point["windows"])
    rate = point["samples_per_second"]
    assert [rate["least"], rate["most"]] == pytest.approx(rates)
    assert rate["median"] == pytest.approx(sum(rates) / 2)
    assert point["samples_per_second_per_vcpu"] == pytest.approx(rate["median"] / report["environment"]["vcpus"])
    samples = sum(window["samples"] for window in point["windows"])
    gets = sum(window["requests"]["GET"] for window in point["windows"])
    assert point["requests"]["GET"] == gets
    assert point["epoch_requests"]["GET"] == pytest.approx(gets * 80 / samples, abs=0.51)
    assert sum(point["stalls"].values()) <= point["seconds"] * 1.01
    assert point["opening"]["requests"]["LIST"] >= 1
    assert point["model_busy"]["most"] == 0  # there is none


def test_a_download_stands_beside_the_first_batch(millrace: Millrace, tmp_path: Path) -> None:
    page, figures = tmp_path / "page.html", tmp_path / "figures.json"
    arguments = [
        "--synthetic",
        "--store",
        "folder",
        "--samples",
        "40",
        "--scenario",
        "first-batch",
        "--threads",
        "1",
        "--html",
        page,
        "--json",
        figures,
    ]
    text = millrace("bench", *arguments, *SHORT[1:]).stdout.decode()  # longer than --quick, which leaves it out
    scenario = json.loads(figures.read_text())["scenarios"]["e"]
    assert (
        [one["data_samples"] for one in scenario["downloads"]]
        == [point["data_samples"] for point in scenario["points"]]
        == [10, 20, 40]
    )
    assert all(
        0 < one["seconds"]["least"] <= one["seconds"]["median"] <= one["seconds"]["most"]
        for one in scenario["downloads"]
    )
    assert "to copy all of it to files first, as File mode does" in text and "File mode" in page.read_text()


def test_folder_of_the_user(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "photos", "--count", "40", "--kb", "10")
    report = bench(millrace, tmp_path / "photos", "--threads", "1")
    assert report["data"]["uri"] == str(tmp_path / "photos")
    (point,) = report["scenarios"]["d"]["points"]
    assert point["data_samples"] == point["data_objects"] == 40
    assert report["bad_samples"] == 0 and report["first_bad_sample"] is None
    assert not report["prices"]["apply"] and "epoch_request_dollars" not in point  # a folder charges nothing


def test_damaged_samples_are_counted(millrace: Millrace, tmp_path: Path) -> None:
    photos, page, figures = tmp_path / "photos", tmp_path / "report.html", tmp_path / "report.json"
    millrace("synth", photos, "--count", "20", "--kb", "10")
    names = damage_three(photos)
    arguments = ["--threads", "1", "--cache", tmp_path / "cache", "--scenario", "all", "--scenario", "b", *SHORT]
    done = millrace("bench", photos, *arguments, "--html", page, "--json", figures)
    report = json.loads(figures.read_text())
    assert report["bad_samples"] == 3, "each counts once, in however many repeats and epochs it comes"
    first = report["first_bad_sample"]
    assert any(name in first["sample"] for name in names) and first["reason"]
    assert report["scenarios"]["f"]["exact"]
    assert [epoch["samples"] for epoch in report["scenarios"]["b"]["without_cache"]] == [20] * 3
    told = f"3 samples, whose places others took; the first: {first['sample']}: {first['reason']}"
    assert f"Damaged: {told}" in done.stdout.decode()
    assert told in "".join(ET.parse(page).getroot().itertext())
    assert b"takes its place" not in done.stderr, "it is not logged for each measurement"


def test_others_are_not_compared_on_damaged_samples(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "photos", "--count", "20", "--kb", "10")
    damage_three(tmp_path / "photos")
    done = millrace("bench", tmp_path / "photos", "--rival", "dataloader", *SHORT, code=1)
    assert b"leave out --rival" in done.stderr


def test_data_that_are_all_damaged(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(30):
        (tmp_path / f"photos/{number}.jpg").write_bytes(b"no image" * 100)
    done = millrace("bench", tmp_path / "photos", *SHORT, code=1)
    assert b"samples in a row were damaged" in done.stderr


def test_model_and_cache_of_the_user(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "photos", "--count", "40", "--kb", "10")
    arguments = [
        "--threads",
        "1",
        "--step-ms",
        "20",
        "--scenario",
        "d",
        "--scenario",
        "b",
        "--cache",
        tmp_path / "cache",
    ]
    page = tmp_path / "page.html"
    report = bench(millrace, tmp_path / "photos", *arguments, "--html", page)
    (point,) = report["scenarios"]["d"]["points"]
    assert report["settings"]["step_ms"] == 20
    for window in point["windows"]:  # a step is a pause of 20 ms or more
        assert window["seconds"] >= 0.020 * window["batches"]
    assert 0 < point["model_busy"]["median"] <= 1
    # The model's share and the waits are parts of the time.
    assert sum(point["stalls"].values()) <= point["seconds"] * (1.01 - point["model_busy"]["least"]) + 0.01
    assert "Rate with a model of 20 ms a step" in page.read_text() and "the model was busy" in page.read_text()
    assert [epoch["samples"] for epoch in report["scenarios"]["b"]["with_cache"]] == [40, 40, 40]
    assert (tmp_path / "cache" / "millrace-cache-1").is_dir()


def test_a_page_without_python_is_refused_before_anything_is_measured(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()  # without samples, which would be the next error
    env = {"MILLRACE_PYTHON": "/bin/false", "PATH": str(tmp_path)}
    page = tmp_path / "page.html"
    errors = millrace("bench", tmp_path / "photos", "--html", page, *SHORT, env=env, code=1).stderr.decode()
    assert "'/bin/false' is no Python of 3.9 or later" in errors and "MILLRACE_PYTHON" in errors and "--json" in errors
    assert not page.exists()
    assert b"no Python" not in millrace("bench", tmp_path / "photos", *SHORT, env=env, code=1).stderr


def test_a_page_that_fails_leaves_the_figures(millrace: Millrace, tmp_path: Path) -> None:
    """Another program in the place of Python says that it is one, and draws nothing."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ $# = 2 ] && exit 0\necho "no room" >&2\nexit 3\n')
    python.chmod(0o755)
    millrace("synth", tmp_path / "photos", "--count", "20", "--kb", "10")
    arguments = [tmp_path / "photos", *SHORT, "--threads", "1", "--html", tmp_path / "page.html"]
    done = millrace("bench", *arguments, env={"MILLRACE_PYTHON": str(python)}, code=1)
    assert f"page.html was not drawn by '{python}': no room" in done.stderr.decode()
    assert b"Maximum rate" in done.stdout and b"Page:" not in done.stdout


def test_the_names_of_json_stay(millrace: Millrace, tmp_path: Path) -> None:
    millrace("synth", tmp_path / "photos", "--count", "20", "--kb", "10")
    report = bench(millrace, tmp_path / "photos", "--threads", "1", "--html", tmp_path / "page.html")
    assert list(report) == [
        *("schema", "bench_format", "version", "limit", "data", "environment", "settings", "prices", "published"),
        *("scenarios", "bad_samples", "first_bad_sample"),
    ]
    (point,) = report["scenarios"]["d"]["points"]
    assert list(point) == [
        *("name", "threads", "data_samples", "data_objects", "data_bytes", "samples_per_second"),
        *("samples_per_second_per_vcpu", "bytes_per_second", "cpu_seconds_per_1000_samples", "busy_cpus"),
        *("other_busy_cpus", "gets_per_1000_samples", "model_busy", "batch_p50_ms", "batch_p99_ms", "peak_rss_bytes"),
        *("seconds", "stalls", "requests", "epoch_requests", "opening", "windows"),
    ]


# In the place of NVIDIA's library: two GPUs, one of which is busy for half of the time.
DRIVER = """
#include <stdint.h>
#include <string.h>
struct use { unsigned gpu, memory; };
struct memory { uint64_t total, free, used; };
static unsigned numbers[2] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) { *device = &numbers[number]; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) { strncpy(name, "Test GPU", length); return 0; }
int nvmlDeviceGetUtilizationRates(void *device, struct use *use) { use->gpu = *(unsigned *)device * 50; use->memory = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) { memory->total = 4096; memory->free = 1024; memory->used = 3072; return 0; }
"""


def test_gpus_are_told_if_there_are_some(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", tmp_path / "driver.c"], check=True)
    millrace("synth", tmp_path / "photos", "--count", "40", "--kb", "10")
    page, figures = tmp_path / "page.html", tmp_path / "figures.json"
    arguments = [tmp_path / "photos", *SHORT, "--threads", "1", "--html", page, "--json", figures]
    text = millrace("bench", *arguments, env={"LD_LIBRARY_PATH": str(tmp_path)}).stdout.decode()
    report = json.loads(figures.read_text())
    (point,) = report["scenarios"]["d"]["points"]
    assert report["environment"]["gpus"] == ["Test GPU", "Test GPU"]
    assert point["gpu_busy"]["median"] == pytest.approx(0.25) and point["gpu_memory_bytes"] == 2 * 3072
    said = "GPUs meanwhile: 2 x Test GPU, busy 25 % of the time by any program, 6.0 KiB of memory in use"
    assert said in text and said in page.read_text()


def test_prices_can_be_replaced(millrace: Millrace, tmp_path: Path) -> None:
    prices = json.loads((Path(__file__).parents[2] / "src/diagnose/prices.json").read_text())
    prices["date"] = "2030-01-01"
    prices["s3"]["get_per_million"] = 1e6
    (tmp_path / "ours.json").write_text(json.dumps(prices))
    report = bench(
        millrace, "--synthetic", "--samples", "40", "--first-byte-ms", "0", "--prices", tmp_path / "ours.json"
    )
    (*_, point) = report["scenarios"]["d"]["points"]
    assert report["prices"]["date"] == "2030-01-01"
    assert point["epoch_request_dollars"] == pytest.approx(point["epoch_requests"]["GET"], rel=0.001)


def test_compare(millrace: Millrace, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    millrace("bench", "--synthetic", "--samples", "40", "--store", "folder", *SHORT, "--threads", "1", "--json", before)
    report = json.loads(before.read_text())
    (point,) = report["scenarios"]["d"]["points"]
    point["samples_per_second"] = {name: 2 * value + 1 for name, value in point["samples_per_second"].items()}
    point["samples_per_second"]["least"] = point["samples_per_second"]["median"]
    point["cpu_seconds_per_1000_samples"] = {name: 1000.0 for name in ("median", "least", "most")}
    report["environment"]["cpu"] = "another"
    after.write_text(json.dumps(report))
    result = json.loads(millrace("bench", "compare", before, after, "--json").stdout)
    verdicts = {one["measure"]: one["verdict"] for one in result["measures"]}
    assert verdicts["cpu_seconds_per_1000_samples"] == "worse"
    assert verdicts["batch_p50_ms"] == "same"
    assert [line for line in result["differences"] if line.startswith("cpu: ") and line.endswith(", another")]
    text = millrace("bench", "compare", before, after).stdout.decode()
    assert "d, 1 thread" in text and "worse" in text and "another" in text
    assert b"not a report" in millrace("bench", "compare", before, __file__, code=1).stderr
    assert b"cannot be opened" in millrace("bench", "compare", before, "nowhere.json", code=1).stderr


def test_interrupt_leaves_nothing_behind(millrace_bin: Path, temporary: Path) -> None:
    command = [str(millrace_bin), "bench", "--synthetic", "--samples", "1000000"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"TMPDIR": str(temporary)})
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    deadline = time.monotonic() + 300
    while not (list(temporary.iterdir()) and children.read_text()):  # first the folder, then the server
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    servers = [int(pid) for pid in children.read_text().split()]
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=300)
    assert run.returncode == 130 and b"interrupted" in errors, errors
    assert not list(temporary.iterdir())
    assert len(servers) == 1 and not Path(f"/proc/{servers[0]}").exists()


def test_usage(millrace: Millrace, tmp_path: Path) -> None:
    assert b"--synthetic" in millrace("bench", code=2).stderr
    assert b"leave out the URI" in millrace("bench", "s3://b/p", "--synthetic", code=2).stderr
    for name, letter, message in (
        ("shards", "c", b"--scenario shards compares data sets"),
        ("cache", "b", b"say where by --cache"),
        ("faults", "g", b"fails on purpose"),
    ):
        for scenario in (name, letter):  # letters are former names
            assert message in millrace("bench", tmp_path, "--scenario", scenario, code=2).stderr
    unknown = millrace("bench", tmp_path, "--scenario", "h", code=2).stderr
    assert b"must be one of rate, orders, cache, shards, first-batch, resume, faults, all, not h" in unknown
    assert b"--step-ms" in millrace("bench", tmp_path, "--step-ms", "-1", code=2).stderr
    for seconds in ("-1", "nan", "inf"):
        assert b"--seconds" in millrace("bench", tmp_path, "--seconds", seconds, code=2).stderr
    assert b"--threads" in millrace("bench", tmp_path, "--threads", "1,x", code=2).stderr
    assert b"no folder" in millrace("bench", tmp_path, "--html", tmp_path / "no/page.html", code=1).stderr
    (tmp_path / "bad.json").write_text("{}")
    assert b"price list" in millrace("bench", tmp_path, "--prices", tmp_path / "bad.json", code=2).stderr
    assert b"millrace bench" in millrace("bench", tmp_path / "nowhere", code=1).stderr
