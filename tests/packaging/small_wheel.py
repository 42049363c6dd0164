"""A wheel with the parts of one that scripts/wheel makes, which takes no compiler."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

INFO = "millrace_data-0.1.0.dist-info"
LIBRARY = "millrace_data.libs/libzstd-01234567.so.1"


def make(folder: Path, python: str = "cp311-cp311", machine: str = "x86_64") -> Path:
    """With a shell script as the command, and the licences of two packages that this machine has."""
    wheel = folder / f"millrace_data-0.1.0-{python}-manylinux_2_34_{machine}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.4\nName: millrace-data\nVersion: 0.1.0\n\nText\n")
        archive.writestr(
            f"{INFO}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {python}-manylinux_2_34_{machine}\n"
        )
        for name in ("libc6.copyright", "libc-bin.copyright", "LICENSE"):
            archive.writestr(f"{INFO}/licenses/{name}", f"the licence of {name}\n")
        program = zipfile.ZipInfo("millrace/bin/millrace")
        program.external_attr = 0o100755 << 16
        archive.writestr(program, '#!/bin/sh\nls "$(dirname "$(realpath "$0")")/../../millrace_data.libs"\n')
        archive.writestr("millrace/__init__.py", "")
        archive.writestr(LIBRARY, b"\x7fELF")
        archive.writestr("millrace_data-0.1.0.data/data/share/man/man1/millrace.1", ".TH MILLRACE 1\n")
    return wheel


def version_of(package: str) -> str:
    command = ["dpkg-query", "-W", "-f", "${Version}", package]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
