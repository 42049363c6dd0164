"""Tests Ctrl-C while the loader waits for a store that stalls, and threads."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import pytest
from support import Samples, check_script, devstore, run_script
from thoroughness import repeats

# The stall takes an hour, which no test waits for.
STALL = "GET b/tar/*.tar stall=0:3600000"


@pytest.fixture(scope="module")
def stalled(tar: Samples, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Returns a store whose shards send no first byte of their bodies; the index lies beside them."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(tar.uri, root / "b" / "tar", ignore=shutil.ignore_patterns(".millrace"))
    with devstore(root) as environment:
        check_script("import millrace; millrace.Dataset('s3://b/tar')", **environment)
    with devstore(root, "--fault", STALL) as environment:
        yield environment


PRELUDE = """
import os, signal, sys, threading, millrace
loader = millrace.Loader("s3://b/tar", batch_size=4, size=8, output="numpy")
def once_it_waits(act):
    before = loader.report()["waited"]
    def watch():
        while loader.report()["waited"] <= before: pass
        act()
    threading.Thread(target=watch).start()
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_while_waiting(stalled: dict[str, str]) -> None:
    script = (
        PRELUDE
        + """
once_it_waits(interrupt)
try:
    for batch in loader:
        print("a batch?")
except KeyboardInterrupt as error:
    kept = error  # as notebooks keep it; the iterator has gone all the same
    print("interrupted", len(loader._iteration._runs))
# The loader is still whole: it waits again, and another signal gets through.
batches = iter(loader)
once_it_waits(interrupt)
try:
    next(batches)
except KeyboardInterrupt:
    print("again", loader.state_dict()["samples"])
report = loader.report()
print(report["bottleneck"] != "consumer", report["waited"] > 0)
"""
    )
    out = check_script(script, timeout=300, **stalled)
    assert out.splitlines() == ["interrupted 0", "again 0", "True True"]


def test_ctrl_c_that_nobody_catches_ends_the_program(stalled: dict[str, str]) -> None:
    result = run_script(PRELUDE + "once_it_waits(interrupt)\nfor batch in loader: pass", timeout=300, **stalled)
    assert result.returncode == -2, result.stderr  # Python dies by SIGINT, as a shell expects
    assert result.stderr.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_while_a_plan_is_looked_through(tar: Samples) -> None:
    script = f"""
import os, signal, sys, threading, millrace
mix = millrace.Mix([millrace.Dataset({tar.uri!r})], epoch_samples=10**15, draws="independent")
plan = millrace.Plan(mix)
looking = threading.Event()
def interrupt():
    looking.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
sys.setswitchinterval(1000)  # from here on the other thread runs only if the call lets it
looking.set()
try:
    plan.positions(3)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert check_script(script, timeout=300) == "interrupted\n"


def test_no_signal_costs_a_batch(tar: Samples) -> None:
    """However often a handler raises, the loop has what the position says."""
    script = f"""
import itertools, signal, millrace
class Interrupt(Exception): pass
armed = False
def handler(number, frame):
    global armed
    if armed:
        armed = False
        raise Interrupt
signal.signal(signal.SIGALRM, handler)
interrupts = 0
for attempt in range({repeats(200)}):
    loader = millrace.Loader({tar.uri!r}, batch_size=2, size=8, epochs=1, seed=attempt, output="numpy")
    seen = []
    tries = 0
    batches = iter(loader)
    while len(seen) < len(loader):
        try:
            armed = True
            tries += 1
            # A little later each time: a machine that takes longer for a batch gets there, too.
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + attempt % 50 * 1e-5 + tries * 1e-6, 0.0003)
            for batch in batches:
                seen.append(batch)
            armed = False
            break
        except Interrupt:
            interrupts += 1
            assert loader.report()["samples"] == sum(int(b["valid"].sum()) for b in seen), "lost"
    samples = sorted(s for b in seen for s, m in zip(b["sample"].tolist(), b["valid"].tolist()) if m)
    assert samples == list(range(len(loader.dataset))), (attempt, samples)
    if interrupts > {repeats(200)}: break
signal.setitimer(signal.ITIMER_REAL, 0)
print("interrupted" if interrupts > {repeats(200) // 4} else interrupts)
"""
    assert check_script(script, timeout=600) == "interrupted\n"


@pytest.mark.parametrize(
    "fault", [STALL, "GET b/tar/*.tar retry-after=60", "HEAD b/* delay-ms=3600000", "GET b/tar/ delay-ms=3600000"]
)
def test_ctrl_c_while_an_index_is_built(tar: Samples, tmp_path: pathlib.Path, fault: str) -> None:
    """The build waits for any answer of the store: a shard, another attempt, the index beside the data, the listing."""
    shutil.copytree(tar.uri, tmp_path / "b" / "tar", ignore=shutil.ignore_patterns(".millrace"))
    script = """
import os, signal, threading, millrace
def interrupt(done):
    # Again and again: it may come before the program is ready for it.
    while not done.wait(0.3): os.kill(os.getpid(), signal.SIGINT)
def once(number, frame):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
armed = False
signal.signal(signal.SIGINT, once)
done = threading.Event()
threading.Thread(target=interrupt, args=(done,)).start()
try:
    armed = True
    millrace.Dataset("s3://b/tar")
    print("opened?")
except KeyboardInterrupt:
    done.set()
    print("interrupted")
"""
    with devstore(tmp_path, "--fault", fault) as environment:
        out = check_script(script, timeout=300, MILLRACE_CACHE=str(tmp_path / "cache"), **environment)
    assert out == "interrupted\n"
    assert not list((tmp_path / "cache").rglob("*.index")) and not list(tmp_path.rglob(".millrace/index"))


def test_handlers_run_while_waiting_and_may_close_the_loader(stalled: dict[str, str]) -> None:
    script = (
        PRELUDE
        + """
signal.signal(signal.SIGALRM, lambda *_: loader.close())
once_it_waits(lambda: os.kill(os.getpid(), signal.SIGALRM))
try:
    next(iter(loader))
except millrace.UsageError as error:
    print(error)
"""
    )
    assert "the Loader is closed" in check_script(script, timeout=300, **stalled)


def test_close_from_another_thread_ends_the_wait(stalled: dict[str, str]) -> None:
    script = (
        PRELUDE
        + """
once_it_waits(loader.close)
try:
    next(iter(loader))
except millrace.UsageError as error:
    print(error)
"""
    )
    assert "the Loader is closed" in check_script(script, timeout=300, **stalled)


def test_report_and_close_wait_for_nobody_who_waits(stalled: dict[str, str]) -> None:
    """20,000 turns of the 50 ms after which a waiting thread looks for signals would take far longer than the script may."""
    script = (
        PRELUDE
        + """
def consume():
    started.set()
    try:
        next(iter(loader))
    except millrace.UsageError as error:
        print(error)

started = threading.Event()
consumer = threading.Thread(target=consume)
consumer.start()
started.wait()
for _ in range(20_000):
    loader.report()
loader.close()
consumer.join()
"""
    )
    assert "the Loader is closed" in check_script(script, timeout=300, **stalled)


def test_other_threads_run_while_one_waits(stalled: dict[str, str]) -> None:
    script = (
        PRELUDE
        + """
def consume():
    try:
        next(iter(loader))
    except millrace.UsageError:
        print("consumer ended")
consumer = threading.Thread(target=consume)
consumer.start()
while loader.report()["waited"] == 0: pass
for _ in range(20):
    loader.report(), loader.epoch
print("reported")
loader.close()
consumer.join()
"""
    )
    assert check_script(script, timeout=300, **stalled).splitlines() == ["reported", "consumer ended"]


def test_the_interpreter_ends_while_a_daemon_thread_waits(stalled: dict[str, str]) -> None:
    script = (
        PRELUDE
        + """
started = threading.Event()
def consume():
    started.set()
    try:
        next(iter(loader))
    except millrace.UsageError:
        pass
threading.Thread(target=consume, daemon=True).start()
started.wait()
sys.setswitchinterval(5)  # so that the thread asks for the interpreter in vain until it is gone
print("end")
"""
    )
    assert check_script(script, timeout=300, **stalled) == "end\n"


def test_wrong_credentials(stalled: dict[str, str]) -> None:
    script = """
import millrace
try:
    millrace.Dataset("s3://b/tar")
except PermissionError as error:
    assert isinstance(error, millrace.AccessDeniedError)
    print(error)
"""
    out = check_script(script, **{**stalled, "AWS_SECRET_ACCESS_KEY": "wrong-secret"})
    assert "s3://b" in out and "wrong-secret" not in out


def test_missing_bucket(stalled: dict[str, str]) -> None:
    script = """
import millrace
try:
    millrace.Dataset("s3://nowhere/tar")
except FileNotFoundError as error:
    print(error)
"""
    assert "nowhere" in check_script(script, **stalled)
