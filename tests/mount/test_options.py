"""How a mount is started: -o, /etc/fstab's helper, the log."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from e2e.harness import REPOSITORY, Sandbox, Server, binary, freeze
from e2e.mounting import is_mounted, mounted, needs_fuse, wait_until

pytestmark = needs_fuse


def test_options_of_mount(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    words = f"rw,_netdev,nofail,x-systemd.automount,noatime,cache={tmp_path / 'cache'},metadata-ttl=1h,timeout=20s,memory=256MiB"
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "-o", words, env=store.env()):
        assert (tmp_path / "mnt" / "z").stat().st_mode & 0o777 == 0o444  # mount(8) says rw where nothing was said
        (tmp_path / "mnt" / "a" / "b.txt").read_bytes()
        with pytest.raises(OSError):
            (tmp_path / "mnt" / "new").write_bytes(b"")
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "-o", "writable,umask=077", env=store.env()):
        assert (tmp_path / "mnt" / "z").stat().st_mode & 0o777 == 0o600
        (tmp_path / "mnt" / "new").write_bytes(b"x")
        assert shutil.disk_usage(tmp_path / "mnt").free > 1 << 40
    wrong = {
        "ca=1": "ca=1",
        "uid=": "uid",
        "timeout=soon": "timeout",
        "cache": "cache",
        "cache-size=big": "--cache-size",
    }
    for words, said in wrong.items():
        sandbox.run("mount", "s3://b", tmp_path / "mnt", "-o", words, env=store.env()).failed(2, said)


def test_no_links(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    store.client().put_object(Bucket="b", Key="link.rclonelink", Body=b"z")
    with mounted(sandbox, "s3://b", tmp_path / "mnt", "-o", "writable,no-links", env=store.env()):
        assert (tmp_path / "mnt" / "link.rclonelink").read_bytes() == b"z"
    for options, said in (
        (("--no-links",), "beside --writable"),
        (("--writable", "--links", "--no-links"), "contradicts --links"),
    ):
        sandbox.run("mount", "s3://b", tmp_path / "mnt", *options, env=store.env()).failed(2, said)


def test_the_helper_of_fstab(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    helper = REPOSITORY / "deploy" / "mount" / "mount.millrace"
    env = sandbox.env(store.env()) | {"PATH": f"{binary().parent}:{os.environ['PATH']}"}
    # As mount(8) calls it.
    subprocess.run([helper, "s3://b", folder, "-n", "-o", "rw,_netdev,allow_other,umask=022"], env=env, check=True)
    try:
        assert (folder / "z").stat().st_size == 1
        mounts = next(line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line)
        assert mounts.startswith("s3://b ") and " fuse.millrace ro," in mounts and "allow_other" in mounts
    finally:
        subprocess.run(["umount", folder], check=True)
    assert subprocess.run([helper, "s3://b", folder, "-f"], env=env, check=False).returncode == 0
    assert not is_mounted(folder)
    refused = subprocess.run([helper, "s3://none-there", folder], env=env, check=False, capture_output=True, text=True)
    assert refused.returncode == 1 and "none-there" in refused.stderr


def test_the_log_has_what_went_wrong(sandbox: Sandbox, store: Server, tmp_path: Path) -> None:
    folder, log = tmp_path / "mnt", tmp_path / "log"
    folder.mkdir()
    sandbox.ok("mount", "s3://b", folder, "--log", log, "--timeout", "15s", env=store.env())
    try:
        with open(folder / "large", "rb", buffering=0) as file:
            freeze(store.process)
            try:
                with pytest.raises(OSError):
                    os.pread(file.fileno(), 10, 9_000_000)
            finally:
                store.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "large" in log.read_text() and "--timeout" in log.read_text(), "a line in the log")
    finally:
        subprocess.run(["umount", folder], check=True)


def test_the_unit_of_systemd_has_options_that_exist() -> None:
    unit = (REPOSITORY / "deploy" / "mount" / "millrace-mount.service").read_text()
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    said = subprocess.run([binary(), "mount", "--help"], check=True, capture_output=True, text=True).stdout
    for word in command.split():
        assert not word.startswith("-") or word in said, word
