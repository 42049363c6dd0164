"""Makes bare systems in folders, by mmdebstrap, of what the mirror of this machine has: Debian's releases, Ubuntu's,
and Debian for arm64 by an emulator."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class System(NamedTuple):
    title: str
    release: str
    distribution: str = "debian"
    machine: str = "x86_64"
    python: str = "python3"  # the interpreter, and the package that brings it


SYSTEMS = {
    system.title: system
    for system in (
        System("Debian 12", "bookworm"),
        System("Debian 13", "trixie"),
        System("Ubuntu 22.04", "jammy", "ubuntu", python="python3.11"),
        System("Ubuntu 24.04", "noble", "ubuntu"),
        System("Ubuntu 26.04", "resolute", "ubuntu"),
        System("Debian 12, arm64", "bookworm", machine="aarch64"),
        System("Debian 13, arm64", "trixie", machine="aarch64"),
    )
}


def run(*command: str | pathlib.Path, timeout: float = 1200, **environment: str) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=own | environment, timeout=timeout
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def mirror() -> tuple[str, str] | None:
    """Returns Debian's release on this machine, and the mirror that apt takes it from."""
    release = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)
    if release is None:
        return None
    command = [ROOT / "scripts/debian-suites", "$(RELEASE) $(REPO_URI)"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    uris = dict(reversed([line.split(maxsplit=1) for line in said.splitlines()]))
    return (release[1], uris[release[1]].rstrip("/")) if release[1] in uris else None


def _uri(system: System) -> str:
    """Returns the archive. Ubuntu's is beside Debian's, if the mirror has it."""
    here = mirror()
    assert here is not None
    return here[1] if system.distribution == "debian" else f"{here[1].rpartition('/')[0]}/{system.distribution}"


def _is_there(system: System) -> bool:
    try:
        with urllib.request.urlopen(f"{_uri(system)}/dists/{system.release}/Release", timeout=30):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


def why_not(system: System) -> str:
    """Returns why a bare system cannot be made and entered here; "": it can."""
    if os.geteuid() != 0:
        return "making a bare system and entering it need root"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed"
    if mirror() is None:
        return "apt knows no mirror of the release that runs here"
    if not _is_there(system):
        return f"the mirror has no {system.distribution} {system.release}"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        return "unshare cannot make namespaces here"
    if system.machine != os.uname().machine:
        done = subprocess.run([ROOT / "scripts/arm64-run", "true"], capture_output=True, text=True)
        return done.stderr.strip()
    return ""


ENTER = """
set -e
mount -t proc proc "$0/proc"
exec chroot "$0" env -i HOME=/root PATH=/venv/bin:/command/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


class BareSystem:
    """Is a distribution's smallest system with Python, in a folder, with a process table of its own."""

    def __init__(self, root: pathlib.Path, system: System) -> None:
        self.root, self.system = root, system
        self.emulated = system.machine != os.uname().machine
        # apt, which Ubuntu's smallest system lacks, brings libstdc++: numpy needs the system's.
        packages = ["apt", system.python, "python3-venv" if system.python == "python3" else f"{system.python}-venv"]
        options: list[str] = []
        components, suites = "main", [system.release]
        if system.distribution == "ubuntu":
            keys = root.parent / f"{root.name}.keys"
            run(ROOT / "scripts/debian-unpack", "trixie", "ubuntu-keyring", keys)
            options.append(f"--keyring={keys}/usr/share/keyrings/ubuntu-archive-keyring.gpg")
            components, suites = "main universe", [system.release, f"{system.release}-updates"]
        if self.emulated:
            # The packages are unpacked and not configured: a namespace of users makes no devices.
            packages += ["coreutils", "dash", "base-passwd"]
            options += ["--architectures=arm64", "--variant=extract"]
        else:
            options.append("--variant=minbase")
        sources = [f"deb {_uri(system)} {suite} {components}" for suite in suites]
        run("mmdebstrap", *options, f"--include={','.join(packages)}", system.release, root, *sources)
        if self.emulated:
            self._finish()
        shutil.copy("/etc/resolv.conf", self.root / "etc")
        self._add_devices()

    @classmethod
    def of(cls, root: pathlib.Path, system: System) -> BareSystem:
        """Returns one that is there already."""
        bare = cls.__new__(cls)
        bare.root, bare.system, bare.emulated = root, system, False
        bare._add_devices()
        return bare

    def _finish(self) -> None:
        """Does what the scripts of the packages would have done."""
        for name in ("bin", "sbin", "lib"):
            if not (self.root / name).exists():
                (self.root / name).symlink_to(f"usr/{name}")
        for name in ("proc", "root"):
            (self.root / name).mkdir(exist_ok=True)
        for name in ("passwd", "group"):
            shutil.copy(self.root / f"usr/share/base-passwd/{name}.master", self.root / "etc" / name)
        if not (self.root / "usr/bin/sh").exists():
            (self.root / "usr/bin/sh").symlink_to("dash")

    def _add_devices(self) -> None:
        for name, number in {"null": (1, 3), "urandom": (1, 9), "fuse": (10, 229)}.items():
            device = self.root / "dev" / name
            if not device.exists():
                device.parent.mkdir(exist_ok=True)
                os.mknod(device, stat.S_IFCHR, os.makedev(*number))
                device.chmod(0o666)

    def run(self, *command: str) -> str:
        start: list[str | pathlib.Path] = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        if self.emulated:
            start = [ROOT / "scripts/arm64-run"]
        return run(*start, "sh", "-c", ENTER, self.root, *command)


def _unmount_below(folder: pathlib.Path) -> None:
    """A run of mmdebstrap that was killed leaves mounts, among them the machine's /dev/shm, which must not be emptied."""
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in reversed(mounts):
        if pathlib.Path(mount).is_relative_to(folder.resolve()):
            run("umount", mount)


@contextlib.contextmanager
def made(folder: pathlib.Path, system: System) -> Iterator[BareSystem]:
    """Skips the test where there can be none. The folder is removed: pytest keeps those of earlier runs, and this one is large."""
    if reason := why_not(system):
        pytest.skip(reason)
    try:
        yield BareSystem(folder, system)
    finally:
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.parent / f"{folder.name}.keys", ignore_errors=True)
