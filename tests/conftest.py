"""Has the fixtures of every Python test: the `millrace` binary, and `devstore` processes."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import thoroughness
from room import with_room

ROOT = Path(__file__).resolve().parent.parent
ACCESS_KEY = "millrace"
SECRET_KEY = "millrace-secret"


# If the tests run in the background of a shell, Ctrl-C is ignored, and would be by what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # likewise, under nohup


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only `make test-all` runs."""
    left_out = [] if thoroughness.ALL else [item for item in items if item.get_closest_marker("all")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def find_binary() -> Path | None:
    """Returns MILLRACE_BIN, else the `dev` build, else the newest of all builds."""
    if named := os.environ.get("MILLRACE_BIN"):
        return Path(named)
    usual = ROOT / "build" / "dev" / "bin" / "millrace"
    if usual.exists():
        return usual
    built = sorted(ROOT.glob("build/*/bin/millrace"), key=lambda path: path.stat().st_mtime)
    return built[-1] if built else None


@pytest.fixture(scope="session")
def millrace_bin() -> Path:
    binary = find_binary()
    if binary is None or not binary.exists():
        pytest.fail("there is no `millrace`: build it, or name it by MILLRACE_BIN")
    return binary


@pytest.fixture
def cache_folder(tmp_path: Path) -> Iterator[Path]:
    """Returns a folder for a cache, which does not exist yet, on a file system that has room for it."""
    with with_room(tmp_path) as folder:
        yield folder / "cache"


@functools.cache
def boto3_session() -> Any:
    """Makes one session for all clients: reading botocore's models is what takes long."""
    import boto3  # type: ignore[import-untyped]

    return boto3.session.Session()


class Devstore:
    """Is a running `millrace devstore`."""

    def __init__(self, binary: Path, root: str, arguments: tuple[str, ...], stderr: Path) -> None:
        self.root = root
        self._stderr = stderr
        with stderr.open("wb") as errors:
            command = [str(binary), "devstore", root, "--port", "0", *arguments]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.ca_file = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.match(r"CA file: (\S+)$", line):
                self.ca_file = found[1]
            if found := re.match(r"listening on (https?://\S+:(\d+))$", line):
                self.url = found[1]
                self.port = int(found[2])
                return
        raise AssertionError(f"devstore {root} {arguments} ended: {stderr.read_text()}")

    def env(self) -> dict[str, str]:
        """Returns what AWS clients need to use it."""
        env = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }
        if self.ca_file:
            env["AWS_CA_BUNDLE"] = self.ca_file
        return env

    def client(self, *, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY, **config: Any) -> Any:
        """Makes a boto3 client without retries; `config` goes to botocore.config.Config, `region_name` included."""
        from botocore.config import Config  # type: ignore[import-untyped]

        settings: dict[str, Any] = {"region_name": "us-east-1", "read_timeout": 120}
        settings["retries"] = {"total_max_attempts": 1}
        return boto3_session().client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            verify=self.ca_file or None,
            config=Config(**{**settings, **config}),
        )

    def stop(self) -> None:
        """Stops it by SIGTERM, which must be obeyed."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(120)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
        said = self._stderr.read_text()
        assert code == 0, f"devstore ended with {code}: {said}"
        assert SECRET_KEY not in said


StartDevstore = Callable[..., Devstore]


def starter(binary: Path, folder: Path) -> Iterator[StartDevstore]:
    running: list[Devstore] = []

    def start(root: str | Path | None = None, *arguments: str) -> Devstore:
        if root is None:
            root = folder / f"devstore-{len(running)}"
            root.mkdir()
        running.append(Devstore(binary, str(root), arguments, folder / f"devstore-{len(running)}.err"))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def devstore(millrace_bin: Path, tmp_path: Path) -> Iterator[StartDevstore]:
    """devstore("mem:", "--seed", "1") starts one; all are stopped after the test. Without a root: a new folder."""
    yield from starter(millrace_bin, tmp_path)


@pytest.fixture(scope="module")
def module_devstore(millrace_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDevstore]:
    """Does the same, but stops them after the last test of the module: for tests that only read."""
    yield from starter(millrace_bin, tmp_path_factory.mktemp("devstore"))


@pytest.fixture(autouse=True)
def no_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests must not use the keys, profiles, proxies or scheduler of who runs them."""
    others = (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "kubernetes_service_host",
        "ecs_container_metadata_uri_v4",
    )
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower() in others:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
