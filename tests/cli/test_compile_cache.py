"""`millrace compile-cache`: what one host compiles others find; statuses and signals; a host that dies while it compiles."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, lines
from test_run import is_gone, wait_until

CACHE = "s3://bkt/compiled"

# Stands for a compiler: its cache is a folder, and a hit makes no file. Prints whether it was one.
COMPILER = """
import os, pathlib, sys
folder = pathlib.Path(os.environ[sys.argv[1]])
file = folder / "graph" / "kernel.so"
print("hit" if file.exists() and file.read_bytes() == b"code" * 1000 else "miss", flush=True)
file.parent.mkdir(parents=True, exist_ok=True)
file.write_bytes(b"code" * 1000)
"""


def compiler(variable: str = "TORCHINDUCTOR_CACHE_DIR", then: str = "") -> list[str]:
    return ["--", sys.executable, "-c", COMPILER + then, variable]


@contextlib.contextmanager
def running(binary: Path, env: dict[str, str], *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(binary), "compile-cache", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "variable", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "NEURON_COMPILE_CACHE_URL"]
)
def test_another_host_finds_it(millrace: Millrace, bucket: Bucket, tmp_path: Path, variable: str) -> None:
    first = millrace("compile-cache", CACHE, "--dir", tmp_path / "a", *compiler(variable), env=bucket.env)
    assert lines(first) == ["miss"] and b"this host compiles" in first.stderr and b"1 new file stored" in first.stderr
    second = millrace("compile-cache", CACHE, "--dir", tmp_path / "b", *compiler(variable), env=bucket.env)
    assert lines(second) == ["hit"] and b"1 of 1 cached file can be used; 1 of 1 missing file fetched" in second.stderr
    other = millrace(
        "compile-cache", CACHE, "--key", "other", "--dir", tmp_path / "c", *compiler(variable), env=bucket.env
    )
    assert lines(other) == ["miss"]


def test_what_only_hosts_with_the_same_folder_can_use_counts_for_them(millrace: Millrace, tmp_path: Path) -> None:
    """JAX's keys have the path of its folder, unless its caches of XLA are off, as they are by default."""
    env = {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "all"}
    show = "print(os.environ['JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES'], flush=True)\n"
    usable = {"a": None, "b": b"0 of 1 cached file can be used", "a again": b"1 of 2 cached files can be used"}
    for host, told in usable.items():
        folder = tmp_path / host.split()[0]
        command = ["compile-cache", tmp_path / "store", "--dir", folder]
        done = millrace(*command, *compiler("JAX_COMPILATION_CACHE_DIR", show), env=env)
        assert lines(done) == ["hit" if "again" in host else "miss", "all"]
        assert b"JAX finds only what hosts with the same folder have compiled" in done.stderr
        assert told is None or told in done.stderr, done.stderr
        folder.rename(tmp_path / f"{host} is gone")
    done = millrace(
        "compile-cache", tmp_path / "store", "--dir", tmp_path / "c", *compiler("JAX_COMPILATION_CACHE_DIR", show)
    )
    assert lines(done) == ["miss", "none"] and b"same folder" not in done.stderr


def test_a_folder_is_a_store_too(millrace: Millrace, tmp_path: Path) -> None:
    for host, found in (("a", "miss"), ("b", "hit")):
        done = millrace("compile-cache", tmp_path / "store", "--dir", tmp_path / host, *compiler())
        assert lines(done) == [found]


def test_damaged_code_is_not_run(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    run = ["compile-cache", CACHE, "--key", "k", *compiler()]
    assert lines(millrace(*run, env=bucket.env | {"MILLRACE_CACHE": str(tmp_path / "a")})) == ["miss"]
    (key,) = (key for key in bucket.keys() if "/objects/" in key)
    bucket.put(**{key: b"evil" * 1000})
    second = millrace(*run, env=bucket.env | {"MILLRACE_CACHE": str(tmp_path / "b")})
    assert lines(second) == ["miss"] and b"cannot be used" in second.stderr
    assert bucket.objects()[key] == b"code" * 1000
    assert lines(millrace(*run, env=bucket.env | {"MILLRACE_CACHE": str(tmp_path / "c")})) == ["hit"]


def test_what_the_user_has_set_stays(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    own = {"TRITON_CACHE_DIR": str(tmp_path / "own"), "JAX_COMPILATION_CACHE_DIR": "gs://bucket/x"}
    script = "import os; print(os.environ['TRITON_CACHE_DIR'], os.environ['JAX_COMPILATION_CACHE_DIR'], os.environ.get('MILLRACE_ATTEMPT'))"
    run = ["compile-cache", CACHE, "--dir", tmp_path / "a", "--", sys.executable, "-c", script]
    done = millrace(*run, env=bucket.env | own | {"MILLRACE_ATTEMPT": "7"})
    assert lines(done) == [f"{tmp_path}/own gs://bucket/x 7"]
    assert b"the cache of jax is left alone" in done.stderr


@pytest.mark.parametrize(("failure", "status"), [("exit 3", 3), ("kill -9 $$", 137), ("exit 0", 0)])
def test_the_status_is_that_of_the_command(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, failure: str, status: int
) -> None:
    done = millrace(
        "compile-cache",
        CACHE,
        "--dir",
        tmp_path,
        "--",
        "sh",
        "-c",
        f"echo once; {failure}",
        code=status,
        env=bucket.env,
    )
    assert lines(done) == ["once"]
    # A failure tells nothing, so that the next host is to compile; it does not have to wait for that.
    done = millrace("compile-cache", CACHE, "--dir", tmp_path, "--", "sh", "-c", "exit 0", env=bucket.env)
    assert (b"this host compiles" in done.stderr) == (status != 0)


def test_what_cannot_be_executed(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    done = millrace("compile-cache", CACHE, "--dir", tmp_path, "--", tmp_path / "nothing", code=127, env=bucket.env)
    assert b"No such file" in done.stderr


def test_a_command_runs_without_its_store(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    done = millrace("compile-cache", "s3://nowhere/x", "--dir", tmp_path, *compiler(), env=bucket.env)
    assert lines(done) == ["miss"] and b"the command runs without it" in done.stderr


def test_a_command_runs_without_credentials(millrace: Millrace, tmp_path: Path) -> None:
    """If not even the settings of the store are right."""
    env = {
        "AWS_PROFILE": "missing",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    done = millrace("compile-cache", CACHE, "--dir", tmp_path, *compiler(then="sys.exit(3)\n"), code=3, env=env)
    assert lines(done) == ["miss"] and b"the command runs without it" in done.stderr


def test_usage(millrace: Millrace, tmp_path: Path) -> None:
    for arguments in (
        [],
        [tmp_path],
        ["ftp://x", "--", "true"],
        [tmp_path, "--key", "a/b", "--", "true"],
        [tmp_path, "--max-size", "much", "--", "true"],
        [tmp_path, "--wait-for-compiler", "-1", "--", "true"],
    ):
        millrace("compile-cache", *arguments, code=2)


def test_the_key_is_told(millrace: Millrace, tmp_path: Path) -> None:
    done = millrace("compile-cache", tmp_path / "store", "--print-key", "--", sys.executable, "train.py")
    (line,) = lines(done)
    version = ".".join(map(str, sys.version_info[:3]))
    assert len(line.split()[0]) == 20 and f"Python {version}" in line and "torch" in line
    assert not (tmp_path / "store").exists()


def test_news_are_stored_while_the_command_runs(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path
) -> None:
    """So that others need not wait for the end of a training, and nothing is lost if it is killed."""
    trains = compiler(then="import signal\nsignal.pause()\n")
    with running(millrace_bin, bucket.env, CACHE, "--settle", "0.3", "--dir", tmp_path / "a", *trains) as first:
        assert first.stdout is not None and first.stdout.readline() == "miss\n"
        with running(millrace_bin, bucket.env, CACHE, "--dir", tmp_path / "b", *compiler()) as second:
            out, err = second.communicate(timeout=300)
        assert out == "hit\n", err
        assert first.poll() is None


def test_a_host_that_dies_is_replaced(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    with running(
        millrace_bin,
        bucket.env,
        CACHE,
        "--key",
        "k",
        "--lease",
        "6",
        "--dir",
        tmp_path / "a",
        "--",
        "sh",
        "-c",
        "echo compiles; sleep 600",
    ) as first:
        assert first.stdout is not None and first.stdout.readline() == "compiles\n"
        with running(
            millrace_bin, bucket.env, CACHE, "--key", "k", "--lease", "6", "--dir", tmp_path / "b", *compiler()
        ) as second:
            assert second.stderr is not None
            while "waiting for it" not in (line := second.stderr.readline()):
                assert line
            first.kill()
            out, err = second.communicate(timeout=300)
    assert out == "miss\n" and "has stopped renewing its lease" in err and "1 new file stored" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path, number: signal.Signals
) -> None:
    """The command ends as it likes; then what it has compiled is stored, if it ended well."""
    waits = "import signal\nsignal.signal(int(sys.argv[2]), lambda *_: sys.exit(0))\nprint('ready', flush=True)\nsignal.pause()\n"
    with running(
        millrace_bin, bucket.env, CACHE, "--dir", tmp_path / "a", *compiler(then=waits), str(int(number))
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["miss\n", "ready\n"]
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
    assert (
        process.returncode == 0 and f"{number.name} is passed on to the command\n" in err and "1 new file stored" in err
    )
    assert lines(millrace("compile-cache", CACHE, "--dir", tmp_path / "b", *compiler(), env=bucket.env)) == ["hit"]


def test_a_limit_that_was_asked_for_ends_it(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    with running(
        millrace_bin,
        bucket.env,
        CACHE,
        "--grace",
        "0.1",
        "--dir",
        tmp_path,
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo ready; while :; do sleep 0.05; done",
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGKILL and "has not ended in time" in err


def test_a_signal_while_it_waits_ends_it(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    with running(
        millrace_bin,
        bucket.env,
        CACHE,
        "--key",
        "k",
        "--dir",
        tmp_path / "a",
        "--",
        "sh",
        "-c",
        "echo compiles; sleep 600",
    ) as first:
        assert first.stdout is not None and first.stdout.readline() == "compiles\n"
        with running(millrace_bin, bucket.env, CACHE, "--key", "k", "--dir", tmp_path / "b", *compiler()) as second:
            assert second.stderr is not None
            while "waiting for it" not in (line := second.stderr.readline()):
                assert line
            second.send_signal(signal.SIGTERM)
            out, _ = second.communicate(timeout=300)
    assert second.returncode == 128 + signal.SIGTERM and out == ""


def test_a_notice_while_it_waits_reaches_the_command(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    """It is not the end of the command, which may be `millrace run`, before it has begun."""
    with running(
        millrace_bin, bucket.env, CACHE, "--key", "k", "--dir", tmp_path / "a", *compiler(then="input()\n")
    ) as first:
        assert first.stdout is not None and first.stdout.readline() == "miss\n"
        with running(
            millrace_bin, bucket.env, CACHE, "--key", "k", "--dir", tmp_path / "b", "--", "sleep", "600"
        ) as second:
            assert second.stderr is not None
            while "waiting for it" not in (line := second.stderr.readline()):
                assert line
            second.send_signal(signal.SIGUSR1)
            first.communicate("\n", timeout=300)
            _, err = second.communicate(timeout=300)
    assert second.returncode == 128 + signal.SIGUSR1 and "attempt 1 of 1" in err


def test_a_killed_program_takes_the_command_with_it(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    with running(
        millrace_bin, bucket.env, CACHE, "--dir", tmp_path, "--", "sh", "-c", "echo $$; while :; do sleep 0.05; done"
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        wait_until(lambda: is_gone(pid), f"process {pid} is still there")


@pytest.mark.all
def test_inductor_hits(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    """torch.compile on the CPU, which calls g++: the second host compiles nothing."""
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "from torch._dynamo.utils import counters\n"
        "@torch.compile\n"
        "def f(x, y):\n"
        "    return (torch.sin(x) * torch.cos(y)).sum(1) + torch.relu(x @ y.T)[:, 0]\n"
        "x = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64) / 1000\n"
        "f(x, x)\n"
        "print(counters['inductor']['fxgraph_cache_miss'], counters['inductor']['fxgraph_cache_hit'])\n"
    )
    found = []
    for host in ("a", "b"):
        done = millrace("compile-cache", CACHE, "--dir", tmp_path / host, "--", sys.executable, script, env=bucket.env)
        found += lines(done)
    assert found == ["1 0", "0 1"]
    objects = {host: {p.relative_to(tmp_path / host) for p in (tmp_path / host).rglob("*.so")} for host in ("a", "b")}
    assert objects["a"] and objects["a"] == objects["b"]
