"""Bare systems in folders, made by debootstrap: Debian's of this machine and of the next version, and Ubuntu's where its keys are."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator

import pytest

UBUNTU_KEYS = pathlib.Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
RELEASES = ["bookworm", "trixie", "jammy"]


def run(*command: str | pathlib.Path, timeout: float = 1200, **environment: str) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=own | environment, timeout=timeout
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def mirror() -> tuple[str, str] | None:
    """Debian's release on this machine, and the mirror that apt takes it from."""
    release = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)
    if release is None:
        return None
    folder = pathlib.Path("/etc/apt")
    for file in sorted(folder.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(re.findall(r"^(\w+):\s*(.*)$", stanza, re.MULTILINE))
            if release[1] in fields.get("Suites", "").split() and fields.get("URIs"):
                return release[1], fields["URIs"].split()[0]
    for file in [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]:
        if file.exists() and (
            found := re.search(rf"^deb (?:\[.*\] )?(\S+) {release[1]} ", file.read_text(), re.MULTILINE)
        ):
            return release[1], found[1]
    return None


def why_not(release: str) -> str:
    """Why a bare system cannot be made and entered here; "": it can."""
    if os.geteuid() != 0:
        return "making a bare system and entering it need root"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if mirror() is None:
        return "apt knows no mirror of the release that runs here"
    if release == "jammy" and not UBUNTU_KEYS.exists():
        return "the keys of Ubuntu's mirrors are not installed"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        return "unshare cannot make namespaces here"
    return ""


class BareSystem:
    """Debian's smallest system with Python, in a folder, with a process table of its own."""

    def __init__(self, root: pathlib.Path, release: str) -> None:
        self.root, self.release = root, release
        ubuntu = release == "jammy"
        uri = [] if ubuntu else [(mirror() or ("", ""))[1]]  # debootstrap knows Ubuntu's own
        packages = "python3" if ubuntu else "python3,python3-venv"
        run("debootstrap", "--variant=minbase", f"--include={packages}", release, root, *uri)
        self._add_devices()

    @classmethod
    def of(cls, root: pathlib.Path, release: str) -> BareSystem:
        """A system that lies there already."""
        system = cls.__new__(cls)
        system.root, system.release = root, release
        system._add_devices()
        return system

    def _add_devices(self) -> None:
        for name, number in {"null": (1, 3), "urandom": (1, 9), "fuse": (10, 229)}.items():
            device = self.root / "dev" / name
            if not device.exists():
                device.parent.mkdir(exist_ok=True)
                os.mknod(device, stat.S_IFCHR, os.makedev(*number))
                device.chmod(0o666)

    def run(self, *command: str) -> str:
        enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i HOME=/root PATH=/venv/bin:/command/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"'
        return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, self.root, *command)


@contextlib.contextmanager
def made(folder: pathlib.Path, release: str) -> Iterator[BareSystem]:
    """Skips the test where there can be none. The folder is removed: pytest keeps those of earlier runs, and this one is large."""
    if reason := why_not(release):
        pytest.skip(reason)
    try:
        yield BareSystem(folder, release)
    finally:
        shutil.rmtree(folder)
