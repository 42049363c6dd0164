"""`scripts/dist --no-build` makes artifacts of the sources and of a wheel. Two runs make the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_wheel

ROOT = Path(__file__).resolve().parents[2]
SDIST, CHART, TARBALL = "millrace_data-{}.tar.gz", "millrace-{}.tgz", "millrace-0.1.0-linux-x86_64.tar.gz"


def version() -> str:
    stated = re.search(r"project\(millrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert stated is not None
    return stated[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    small_wheel.make(folder)
    run(folder)
    return folder


def run(folder: Path, **environment: str) -> None:
    environment = {**os.environ, **environment}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [
            "sh",
            "-c",
            'umask "$0" && exec "$@"',
            environment.get("UMASK", "022"),
            ROOT / "scripts/dist",
            "--no-build",
            folder,
        ],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_runs_make_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """Also with another time zone, language and mask of modes."""
    shutil.copy(next(dist.glob("*.whl")), tmp_path)
    run(tmp_path, TZ="Asia/Kathmandu", LC_ALL="C", UMASK="077")
    names = {path.name for path in dist.iterdir()}
    assert names == {path.name for path in tmp_path.iterdir()} and len(names) == 6
    for name in names:
        assert (dist / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_times_are_those_that_are_asked_for(tmp_path: Path) -> None:
    small_wheel.make(tmp_path)
    run(tmp_path, SOURCE_DATE_EPOCH="1700000000")
    for name in (SDIST.format(version()), CHART.format(version()), TARBALL):
        with tarfile.open(tmp_path / name) as archive:
            assert {entry.mtime for entry in archive if entry.isfile()} == {1700000000}, name


def test_two_wheels_of_a_platform_give_one_tarball(tmp_path: Path) -> None:
    """And a bill of materials each."""
    wheels = [small_wheel.make(tmp_path, python) for python in ("cp311-cp311", "cp312-abi3")]
    run(tmp_path)
    assert [path.name for path in tmp_path.glob("millrace-*-linux-*")] == [TARBALL]
    assert {path.name for path in tmp_path.glob("*.cdx.json")} == {f"{wheel.name}.cdx.json" for wheel in wheels}


@pytest.mark.parametrize(
    ("python", "machine", "taken"),
    [
        ("3.11", "x86_64", "cp311-cp311"),
        ("3.12", "x86_64", "cp312-abi3"),
        ("3.14", "x86_64", "cp312-abi3"),
        ("3.11", "aarch64", "cp311-cp311"),
        ("3.13", "aarch64", "cp312-abi3"),
    ],
)
def test_pip_takes_the_wheel_that_fits(tmp_path: Path, python: str, machine: str, taken: str) -> None:
    """By the command of docs/install.md, of a folder with all of them."""
    assert "pip install --no-index --find-links dist millrace-data" in (ROOT / "docs/install.md").read_text()
    (tmp_path / "dist").mkdir()
    for tags in ("cp311-cp311", "cp312-abi3"):
        for each in ("x86_64", "aarch64"):
            small_wheel.make(tmp_path / "dist", tags, each)
    system = [f"--python-version={python}", f"--platform=manylinux_2_34_{machine}", "--only-binary=:all:", "--no-deps"]
    command = [sys.executable, "-m", "pip", "download", *system, "--dest", tmp_path / "taken"]
    subprocess.run([*command, "--no-index", "--find-links", tmp_path / "dist", "millrace-data"], check=True)
    (wheel,) = (tmp_path / "taken").iterdir()
    assert wheel.name == f"millrace_data-0.1.0-{taken}-manylinux_2_34_{machine}.whl"


def test_checksums(dist: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK") == 5, done.stdout + done.stderr


def test_the_sources(dist: Path) -> None:
    """All that git has, and the metadata."""
    with tarfile.open(dist / SDIST.format(version())) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        information = archive.extractfile(f"millrace_data-{version()}/PKG-INFO")
        assert information is not None and b"\nName: millrace-data\n" in information.read()
    tracked = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert {"SECURITY.md", "CHANGELOG.md", "CMakeLists.txt", "LICENSE"} <= names
    assert names - {"PKG-INFO"} == set(tracked)


def test_the_tarball_runs_where_it_is_unpacked(dist: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-x", "-f", dist / TARBALL, "-C", tmp_path], check=True)
    top = tmp_path / "millrace-0.1.0-linux-x86_64"
    # From any folder, by its own path and by a link to it.
    (tmp_path / "link").symlink_to(top / "bin/millrace")
    for program in (top / "bin/millrace", tmp_path / "link"):
        said = subprocess.run([program], cwd="/", check=True, capture_output=True, text=True).stdout
        assert said == "libzstd-01234567.so.1\n"
    assert (top / "share/man/man1/millrace.1").exists()
    assert (top / "share/doc/millrace/licenses/LICENSE").exists()


def test_the_chart(dist: Path) -> None:
    with tarfile.open(dist / CHART.format(version())) as archive:
        names = archive.getnames()
    chart = ROOT / "deploy/helm/millrace"
    wanted = {f"millrace/{path.relative_to(chart)}" for path in chart.rglob("*") if path.is_file()}
    assert set(names) == wanted and "millrace/Chart.yaml" in names


@pytest.fixture
def bill(dist: Path) -> Any:
    (path,) = dist.glob("*.cdx.json")
    return json.loads(path.read_text())


def test_the_bill_of_materials_names_what_is_inside(dist: Path, bill: Any) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    (wheel,) = dist.glob("*.whl")
    itself = bill["metadata"]["component"]
    assert (itself["name"], itself["version"]) == ("millrace-data", "0.1.0")
    assert itself["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    found = {component["name"]: component for component in bill["components"]}
    assert set(found) == {"libc6", "libc-bin", small_wheel.LIBRARY}
    assert found["libc6"]["version"] == small_wheel.version_of("libc6")
    assert found["libc6"]["purl"].startswith("pkg:deb/debian/libc6@") and "+" not in found["libc6"]["purl"]
    (source,) = found["libc-bin"]["properties"]
    assert source["value"] == "glibc@" + small_wheel.version_of("libc6")
    assert found[small_wheel.LIBRARY]["hashes"][0]["content"] == hashlib.sha256(b"\x7fELF").hexdigest()
    references = {component["bom-ref"] for component in bill["components"]}
    assert len(references) == 3 and set(bill["dependencies"][0]["dependsOn"]) == references


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str, str], str]:
    """The message of artifacts.py about a wheel, of which a part is missing or has another name."""

    def say(command: str, name: str) -> str:
        path = small_wheel.make(tmp_path)
        unpacked = tmp_path / "unpacked"
        subprocess.run(["python3", "-m", "zipfile", "-e", path, unpacked], check=True)
        shutil.rmtree(unpacked / name) if (unpacked / name).is_dir() else (unpacked / name).rename(
            unpacked / name.replace("libc6", "no-such-package")
        )
        path.unlink()
        parts = sorted(str(part.relative_to(unpacked)) for part in unpacked.iterdir())
        subprocess.run(["python3", "-m", "zipfile", "-c", path, *parts], check=True, cwd=unpacked)
        done = subprocess.run(
            ["python3", ROOT / "tools/artifacts.py", command, path, tmp_path],
            capture_output=True,
            text=True,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
        )
        assert done.returncode != 0 and not list(tmp_path.glob("*.tar.gz")) and not list(tmp_path.glob("*.json"))
        return done.stderr

    return say


def test_a_wheel_without_its_parts_is_refused(broken: Callable[[str, str], str]) -> None:
    assert "millrace_data.libs/" in broken("tarball", "millrace_data.libs")


def test_a_package_that_dpkg_does_not_know_is_named(broken: Callable[[str, str], str]) -> None:
    assert "no-such-package" in broken("sbom", f"{small_wheel.INFO}/licenses/libc6.copyright")
