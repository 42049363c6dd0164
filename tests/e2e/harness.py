"""Runs the `millrace` binary as a script would, and holds every run to what all of them must keep.

No run may hang (each has a time limit), die by a signal, end without a message when it fails, or print a secret.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ACCESS_KEY = "e2e-access-key"
SECRET_KEY = "e2e-S3cret/Do+Not+Print"
MIB = 1 << 20

_CRASHES = (
    "terminate called",
    "Traceback (most recent call last)",
    "Segmentation fault",
    "AddressSanitizer",
    "runtime error:",
    "what():",
)


def binary() -> Path:
    """MILLRACE_BIN, else the developer's build, else the newest build there is."""
    if "MILLRACE_BIN" in os.environ:
        return Path(os.environ["MILLRACE_BIN"]).resolve()
    preferred = REPOSITORY / "build/dev/bin/millrace"
    if preferred.exists():
        return preferred
    built = sorted(REPOSITORY.glob("build/*/bin/millrace"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise FileNotFoundError("no millrace binary: build the target `millrace`, or set MILLRACE_BIN")
    return built[-1]


@dataclass
class Result:
    args: list[str]
    code: int
    out: str
    err: str
    seconds: float
    peak_rss: int  # bytes, sampled from outside; 0 unless asked for

    def json(self) -> dict:
        """The one JSON object on stdout."""
        value = json.loads(self.out)
        assert isinstance(value, dict), self.out
        return value

    def failed(self, code: int, *words: str) -> str:
        """Asserts the exit status and that the message has each of these words (regular expressions). Returns the message."""
        assert self.code == code, f"{self}: expected exit status {code}"
        missing = [word for word in words if not re.search(word, self.err, re.IGNORECASE)]
        assert not missing, f"{self}: the message lacks {missing}"
        return self.err

    def __str__(self) -> str:
        return (
            f"millrace {' '.join(self.args)}\n  exit status {self.code} after {self.seconds:.1f} s\n"
            f"  stdout: {self.out[:2000]}\n  stderr: {self.err[:2000]}"
        )


def _check(result: Result) -> None:
    said = result.out + result.err
    assert SECRET_KEY not in said, f"{result}: prints the secret key"
    crash = [word for word in _CRASHES if word in said]
    assert not crash, f"{result}: {crash}"
    assert result.code in (0, 1, 2), f"{result}: neither success, failure nor usage error"
    if result.code:
        assert result.err.strip(), f"{result}: fails without a message"


@dataclass
class Sandbox:
    """Where the runs of a test find their home, cache and credentials; nothing of the user's own is seen."""

    home: Path

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("AWS_", "MILLRACE_", "XDG_")) and not k.lower().endswith("_proxy")
        }
        sanitizers = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        return {
            **kept,
            **sanitizers,
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "AWS_EC2_METADATA_DISABLED": "true",
            **(extra or {}),
        }

    def start(
        self,
        *args: object,
        env: Mapping[str, str] | None = None,
        out=subprocess.DEVNULL,
        err=subprocess.DEVNULL,
        unprivileged: bool = False,
        most_files: int = 0,
    ) -> subprocess.Popen:
        """`unprivileged`: permissions of files count, even for root. `most_files`: that it may have open at a time; 0: as many as this process."""
        drop = unprivileged and os.geteuid() == 0
        prefix = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if drop else []
        if most_files:
            prefix += ["prlimit", f"--nofile={most_files}:{most_files}"]
        return subprocess.Popen(
            [*prefix, str(binary()), *map(str, args)],
            env=self.env(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=self.home,
        )

    def run(
        self,
        *args: object,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
        watch_rss: bool = False,
        unprivileged: bool = False,
    ) -> Result:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            began = time.monotonic()
            process = self.start(*args, env=env, out=out, err=err, unprivileged=unprivileged)
            peak = 0
            try:
                while True:
                    try:
                        process.wait(0.01 if watch_rss else timeout)
                        break
                    except subprocess.TimeoutExpired:
                        if time.monotonic() - began >= timeout:
                            raise
                        peak = max(peak, _peak_rss(process.pid))
            except subprocess.TimeoutExpired:
                err.seek(0)
                raise AssertionError(
                    f"millrace {' '.join(map(str, args))}: hangs ({timeout} s)\n{err.read()[-2000:]!r}"
                ) from None
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            seconds = time.monotonic() - began
            out.seek(0)
            err.seek(0)
            result = Result(
                [str(a) for a in args],
                process.returncode,
                out.read().decode("utf-8", "replace"),
                err.read().decode("utf-8", "replace"),
                seconds,
                peak,
            )
        _check(result)
        return result

    def ok(self, *args: object, **how) -> Result:
        result = self.run(*args, **how)
        assert result.code == 0, str(result)
        return result

    def feed(
        self, uri: object, *more: object, env: Mapping[str, str] | None = None, timeout: float = 300, **options: object
    ) -> dict:
        return self.ok(*feed_args(uri, *more, **options), env=env, timeout=timeout).json()


def _peak_rss(pid: int) -> int:
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def feed_args(uri: object, *more: object, **options: object) -> list[object]:
    """The arguments of a small, quick feed; options as they are spelled, with _ for -."""
    settings = {"batch": 32, "size": 64, "threads": 2, "memory": "128MiB", "shuffle": "none", "seed": 1} | options
    return [
        "feed",
        uri,
        "--json",
        *more,
        *(part for name, value in settings.items() for part in ("--" + name.replace("_", "-"), value)),
    ]


@dataclass
class Server:
    url: str
    ca_file: str | None
    process: subprocess.Popen

    def env(self, **more: str) -> dict[str, str]:
        env = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }
        if self.ca_file:
            env["AWS_CA_BUNDLE"] = self.ca_file
        return env | more

    def client(self):
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
            verify=self.ca_file,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )


@contextlib.contextmanager
def devstore(
    sandbox: Sandbox, root: object, *args: object, faults: tuple[str, ...] = (), port: int = 0
) -> Iterator[Server]:
    """A running devstore; stopped by SIGTERM, which it must obey."""
    given = [part for spec in faults for part in ("--fault", spec)]
    with tempfile.TemporaryFile() as err:
        process = sandbox.start(
            "devstore",
            root,
            "--port",
            port,
            "--access-key",
            ACCESS_KEY,
            "--secret-key",
            SECRET_KEY,
            *args,
            *given,
            out=subprocess.PIPE,
            err=err,
        )
        try:
            url, ca_file = _read_greeting(process, "--tls" in args)
            if not url:
                err.seek(0)
                raise AssertionError(
                    f"devstore {root} {args} {faults}: does not say that it listens: {err.read()[-2000:]!r}"
                )
            yield Server(url, ca_file, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = "none: it had to be killed"
            process.stdout.close()
        err.seek(0)
        said = err.read().decode("utf-8", "replace")
        assert code == 0, f"devstore {root} {args} {faults}: exit status {code} on SIGTERM: {said[-2000:]}"
        assert SECRET_KEY not in said, "devstore prints the secret key"


def freeze(process: subprocess.Popen) -> None:
    """Stops a process, and returns when all of its threads stand still: a running one may continue for a while after the signal was sent."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 120
    states = [""]
    while any(state != "T" for state in states):
        assert time.monotonic() < deadline, f"process {process.pid} does not stop: {states}"
        stats = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/stat")]
        states = [stat.rpartition(")")[2].split()[0] for stat in stats]


def as_root(*command: object) -> None:
    """Where the tests run as somebody else, by sudo, as scripts/setup does it."""
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    done = subprocess.run([*prefix, *map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))} (needs root or sudo): {done.stderr.strip()}"


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system that can be filled: "8m" holds 8 MiB."""
    folder.mkdir()
    as_root("mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", folder)
    try:
        yield folder
    finally:
        as_root("umount", folder)


@contextlib.contextmanager
def logged_devstore(
    sandbox: Sandbox, root: object, log: Path, *args: object, faults: tuple[str, ...] = (), port: int = 0
) -> Iterator[Server]:
    """The same, with its access log in a file."""
    keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
    given = [part for spec in faults for part in ("--fault", spec)]
    with log.open("wb") as file:
        process = sandbox.start("devstore", root, "--port", port, "--access-log", *keys, *args, *given, out=file)
    try:
        found, deadline = None, time.monotonic() + 120
        while not found and time.monotonic() < deadline:
            time.sleep(0.01)
            found = re.search(r"^listening on (\S+)\n", log.read_text(), re.MULTILINE)
        assert found, f"devstore {root}: does not say that it listens"
        yield Server(found[1], None, process)
    finally:
        process.terminate()
        process.wait(120)


def _read_greeting(process: subprocess.Popen, tls: bool, limit: float = 120) -> tuple[str | None, str | None]:
    said, deadline = b"", time.monotonic() + limit
    while time.monotonic() < deadline:
        if not select.select([process.stdout], [], [], 0.1)[0]:
            continue
        some = os.read(process.stdout.fileno(), 4096)
        said += some
        text = said.decode()
        url = re.search(r"^listening on (https?://\S+:\d+)$", text, re.MULTILINE)
        ca_file = re.search(r"(/\S+\.(?:pem|crt))", text)
        if url and (ca_file or not tls):
            return url[1], ca_file[1] if ca_file else None
        if not some:
            break
    return None, None
