"""Tests `millrace.configure(metrics_port=)`: the numbers are those of the loaders' reports."""

from __future__ import annotations

import pathlib

import millrace
from support import Samples, binary, check_script

PRELUDE = """
import os, sys, threading, urllib.request
import millrace
uri = sys.argv[1]
millrace.configure(metrics_port=0)
url = millrace.metrics_url()
def metrics():
    values = {}
    for line in urllib.request.urlopen(url, timeout=120).read().decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values
def loader_of(**options):
    return millrace.Loader(uri, **{"batch_size": 8, "size": 8, "output": "numpy", "epochs": 1, **options})
def named(name, **labels):
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
def assert_told(*reports):
    told = metrics()
    data = named("", data=uri)
    for name, key in (("samples", "samples"), ("tokens", "tokens"), ("seconds", "seconds"), ("quarantined_samples", "quarantined")):
        assert told["millrace_loader_" + name + "_total" + data] == sum(report[key] for report in reports), (name, told)
    for cause in reports[0]["stalls"]:
        value = told[named("millrace_loader_stall_seconds_total", data=uri, cause=cause)]
        assert abs(value - sum(report["stalls"][cause] for report in reports)) < 1e-9, cause
    return told
"""


def test_numbers_equal_the_report(tar: Samples) -> None:
    check_script(
        PRELUDE
        + """
loader = loader_of(shuffle="none")
batches = iter(loader)
for _ in range(3):
    next(batches)
state = loader.state_dict()
told = assert_told(loader.report())
assert told[named("millrace_loader_open", data=uri)] == 1
first = loader.report()
loader.load_state_dict(state)  # its report begins again, the counters go on
for batch in loader:
    pass
second = loader.report()
assert first["samples"] == 24 and second["samples"] == 26
assert_told(first, second)
loader.close()
told = assert_told(first, second)
assert told[named("millrace_loader_open", data=uri)] == 0
with loader_of() as other:
    for batch in other:
        pass
third = other.report()
del other, loader
told = assert_told(first, second, third)
assert told[named("millrace_loader_begun_total", data=uri)] == 3
assert told["millrace_store_read_bytes_total"] > 0
assert told[named("millrace_store_requests_total", method="GET")] > 0
assert 0 <= told["millrace_memory_reserved_bytes"] <= told["millrace_memory_budget_bytes"]
assert abs(told["process_start_time_seconds"] - __import__("time").time()) < 600
assert told[named("millrace_build_info", version=millrace.__version__)] == 1
""",
        tar.uri,
    )


def test_cache(tar: Samples, cache_folder: pathlib.Path) -> None:
    check_script(
        PRELUDE
        + """
reports = []
for _ in range(2):
    with loader_of(cache=sys.argv[2]) as loader:
        for batch in loader:
            pass
    reports.append(loader.report()["cache"])
told = metrics()
for name, key in (("hit_bytes", "hit_bytes"), ("miss_bytes", "miss_bytes"), ("store_requests", "requests")):
    assert told[named(f"millrace_cache_{name}_total", data=uri)] == sum(report[key] for report in reports), name
assert reports[1]["hit_bytes"] > 0
""",
        tar.uri,
        str(cache_folder),
    )


def test_checkpoints(tmp_path: pathlib.Path) -> None:
    """There are saves of all kinds, and one that fails, since another process has claimed the checkpoints."""
    check_script(
        PRELUDE
        + """
import time
import numpy
def told():
    prefix = "millrace_checkpoint_"
    return {name.removeprefix(prefix).split("{")[0]: value for name, value in metrics().items() if name.startswith(prefix)}
begun = time.time()
assert told() == {}
state = {"step": 1, "weights": numpy.arange(1000.0)}
checkpoints = millrace.Checkpoints(uri)
checkpoints.save(1, state)
first = told()
assert (first["saves_total"], first["save_failures_total"]) == (1, 0), first
assert first["last_save_seconds"] == first["save_seconds_total"] > 0
assert begun - 1 <= first["newest_timestamp_seconds"] <= time.time() + 1
checkpoints.save(2, state, asynchronous=True)
checkpoints.wait()
second = told()
assert (second["saves_total"], second["save_failures_total"]) == (2, 0), second
assert second["newest_timestamp_seconds"] > first["newest_timestamp_seconds"]
assert second["save_seconds_total"] == first["save_seconds_total"] + second["last_save_seconds"]
other = millrace.Checkpoints(uri)
other.save(3, state)
for asynchronous in (False, True):
    try:
        checkpoints.save(4, state, asynchronous=asynchronous)
        checkpoints.wait()
    except millrace.MismatchError:
        pass
    else:
        raise AssertionError(asynchronous)
last = told()
assert (last["saves_total"], last["save_failures_total"]) == (3, 2), last
assert [name for name in metrics() if name.startswith("millrace_checkpoint_saves_total")] == [named("millrace_checkpoint_saves_total", checkpoints=uri + "/")]
""",
        str(tmp_path / "ckpt"),
    )


def test_forks_serve_nothing_and_leave_the_parent_alone(tar: Samples) -> None:
    check_script(
        PRELUDE
        + """
loader = loader_of()
batches = iter(loader)
next(batches)
pid = os.fork()
if pid == 0:
    ok = millrace.metrics_url() is None
    with loader_of() as own:
        ok = ok and sum(1 for _ in own) == 7
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert_told(loader.report())
""",
        tar.uri,
    )


def test_wrong_places() -> None:
    assert millrace.metrics_url() is None
    check_script("""
import socket, millrace
for bad in (-1, 70000, "x", "host:"):
    try:
        millrace.configure(metrics_port=bad)
    except millrace.InvalidArgumentError as error:
        assert "metrics_port" in str(error), error
    else:
        raise AssertionError(bad)
with socket.create_server(("127.0.0.1", 0)) as taken:
    try:
        millrace.configure(metrics_port=taken.getsockname()[1])
    except millrace.AlreadyExistsError as error:
        assert "the port is in use" in str(error), error
    else:
        raise AssertionError
assert millrace.metrics_url() is None
millrace.configure(metrics_port="127.0.0.1:0")  # nothing was left behind
assert millrace.metrics_url().startswith("http://127.0.0.1:")
""")


def test_waits_for_functions_are_told(tar: Samples) -> None:
    """The report, the metrics and `millrace top` show them, also while the program waits."""
    check_script(
        PRELUDE
        + """
import json, subprocess
waiting, go_on = threading.Event(), threading.Event()
def slow(sample):
    if not go_on.is_set():
        waiting.set()
        go_on.wait(600)
    return sample
loader = loader_of(shuffle="none", transform=slow)
def read():
    for batch in loader:
        pass
reader = threading.Thread(target=read)
reader.start()
waiting.wait(600)
told_by_top = {"stall_shares": {}, "waited_share": 0}
while told_by_top["stall_shares"].get("transform", 0) < 0.5 or told_by_top["waited_share"] < 0.5:
    command = [sys.argv[2], "top", url.split("/")[2], "--once", "--json"]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    [told_by_top] = json.loads(shown)["loaders"]
go_on.set()
reader.join()
report = loader.report()
assert report["stalls"]["transform"] > 1, report
told = metrics()
def seconds(cause):
    return told[named("millrace_loader_stall_seconds_total", data=uri, cause=cause)]
data_causes = [cause for cause in report["stalls"] if cause != "transform"]
assert abs(seconds("transform") - report["stalls"]["transform"]) < 1
assert abs(sum(map(seconds, data_causes)) - sum(report["stalls"][cause] for cause in data_causes)) < 1
assert abs(told[named("millrace_loader_seconds_total", data=uri)] - report["seconds"]) < 1
before = metrics()
loader.load_state_dict(loader.state_dict())
loader.close()
assert all(metrics()[name] >= value for name, value in before.items() if name.startswith("millrace_loader_stall"))
""",
        tar.uri,
        str(binary()),
    )
