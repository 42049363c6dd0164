"""`scripts/wheel` makes a wheel that needs neither Debian's libraries nor a compiler."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.all, pytest.mark.timeout(2400)]

# What every Linux on which CPython runs has.
BASE = {
    "libc.so.6",
    "libm.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libgcc_s.so.1",
    "libz.so.1",
}
OLDEST_GLIBC = (2, 34)  # Amazon Linux 2023 and RHEL 9


def run(*command: str | pathlib.Path, timeout: float = 1200, **environment: str) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=own | environment, timeout=timeout
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT / "scripts/wheel", folder)
    (made,) = folder.glob("*.whl")
    return made


def needed(file: pathlib.Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", file, LC_ALL="C")))


def unpacked_programs(wheel: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """All ELF files of a wheel: commands, modules and libraries."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return [file for file in folder.rglob("*") if file.is_file() and file.open("rb").read(4) == b"\x7fELF"]


def test_all_libraries_are_inside(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert f"-manylinux_{OLDEST_GLIBC[0]}_{OLDEST_GLIBC[1]}_" in wheel.name  # as docs/install.md says
    programs = unpacked_programs(wheel, tmp_path)
    bundled = {file.name for file in tmp_path.glob("millrace_data.libs/*")}
    assert {"millrace", *bundled} < {file.name for file in programs}
    for program in programs:
        assert needed(program) <= BASE | bundled, program
    licences = {file.name for file in tmp_path.glob("*.dist-info/licenses/*")}
    # Of a library in the wheel, of headers, of data, and of Millrace; and a text that such files refer to.
    assert {
        "libssl3.copyright",
        "libstb-dev.copyright",
        "pybind11.copyright",
        "fonts-dejavu-core.copyright",
        "LICENSE",
    } < licences
    assert "LGPL-2.1" in licences


def test_no_symbol_is_newer_than_the_oldest_system(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Also none of libstdc++, whose version is another one on each system: it is inside, and nothing of it is seen from outside."""
    programs = unpacked_programs(wheel, tmp_path)
    assert len(programs) > 10
    for program in programs:
        symbols = run("readelf", "--dyn-syms", "-W", program, LC_ALL="C").splitlines()
        versions = {
            (*map(int, number.split(".")),) for line in symbols for number in re.findall(r"@GLIBC_([0-9.]+)", line)
        }
        assert versions and max(versions) <= OLDEST_GLIBC, program
        assert not [line for line in symbols if re.search(r"@(GLIBCXX|CXXABI)_", line)], program
    # Frames of torch and of ours may be on one stack: one unwinder.
    (module,) = [program for program in programs if program.name.startswith("_core.")]
    assert "libgcc_s.so.1" in needed(module)
    defined = [line.split() for line in run("readelf", "--dyn-syms", "-W", module, LC_ALL="C").splitlines()]
    assert [words[7] for words in defined if len(words) > 7 and words[0][0].isdigit() and words[6] != "UND"] == [
        "PyInit__core"
    ]


BESIDE_TORCH = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import millrace, torch

def thrown(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__

for _ in range(3):
    print(thrown(lambda: torch.zeros(2) @ torch.zeros(3)), thrown(lambda: millrace.Plan("many")), thrown(lambda: millrace.Plan(-1)),
          thrown(lambda: list(millrace.Loader("/nowhere/a.tar", batch_size=1))), thrown(lambda: millrace.Plan(10)[10]))
print(millrace.__file__)
"""


@pytest.mark.parametrize("order", [("torch", "millrace"), ("millrace", "torch")])
def test_exceptions_are_thrown_and_caught_beside_torch(
    wheel: pathlib.Path, tmp_path: pathlib.Path, order: tuple[str, str]
) -> None:
    """torch brings the libstdc++ of the system into the process; the module has one of its own."""
    pytest.importorskip("torch")
    unpacked_programs(wheel, tmp_path)
    *lines, place = run(sys.executable, "-c", BESIDE_TORCH, *order, PYTHONPATH=str(tmp_path)).splitlines()
    assert lines == ["RuntimeError TypeError InvalidArgumentError NotFoundError IndexError"] * 3
    assert pathlib.Path(place).is_relative_to(tmp_path)


def test_a_clean_environment(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", wheel)
    ask = "import importlib.metadata as m, millrace; print(m.version('millrace-data'), millrace.__version__)"
    versions = run(python, "-c", ask).split()
    versions += run(tmp_path / "venv/bin/millrace", "--version").split()[1:]
    stated = re.search(r"project\(millrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert stated is not None and versions == [stated[1]] * 3
    share = tmp_path / "venv/share"
    for place in (
        "man/man1/millrace-feed.1",
        "bash-completion/completions/millrace",
        "zsh/site-functions/_millrace",
        "fish/vendor_completions.d/millrace.fish",
    ):
        assert "feed" in (share / place).read_text()
    # The types come along.
    users = tmp_path / "users.py"
    users.write_text("import millrace\nreveal_type(millrace.Plan(10)[3])\nmillrace.Loader('p', batch=3)\n")
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(python),
        "--cache-dir",
        str(tmp_path / "c"),
        str(users),
    ]
    said = subprocess.run(
        mypy, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}
    ).stdout
    assert 'Revealed type is "int"' in said.replace("builtins.int", "int")
    assert 'Unexpected keyword argument "batch"' in said and "Found 1 error" in said, said


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


def why_no_root() -> str:
    """Why a bare system cannot be made and entered here; "": it can."""
    if os.geteuid() != 0:
        return "making a bare system and entering it need root"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if mirror() is None:
        return "apt knows no mirror of the release that runs here"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        return "unshare cannot make namespaces here"
    return ""


class BareSystem:
    """Debian's smallest system with Python, in a folder, with a process table of its own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        release, uri = mirror() or ("", "")
        run("debootstrap", "--variant=minbase", "--include=python3,python3-venv", release, root, uri)

    def run(self, *command: str) -> str:
        enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i HOME=/root PATH=/venv/bin:/usr/bin:/bin "$@"'
        return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, self.root, *command)


@pytest.fixture
def bare(tmp_path: pathlib.Path) -> Iterator[BareSystem]:
    if reason := why_no_root():
        pytest.skip(reason)
    yield BareSystem(tmp_path / "root")
    shutil.rmtree(tmp_path / "root")  # pytest keeps folders of earlier runs; this one is large


def test_a_bare_system(
    wheel: pathlib.Path, bare: BareSystem, millrace_bin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    wheels = bare.root / "wheels"
    run(sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--dest", wheels, "numpy")
    shutil.copy(wheel, wheels)
    shutil.copy(HERE / "wheel_user.py", bare.root / "user.py")
    bare.run("python3", "-m", "venv", "/venv")
    bare.run("pip", "install", "--no-index", "--find-links", "/wheels", "millrace-data")

    (program,) = bare.root.glob("venv/lib/python3.*/site-packages/millrace/bin/millrace")
    for line in bare.run("ldd", f"/{program.relative_to(bare.root)}").splitlines():
        name, _, place = line.strip().partition(" => ")
        assert pathlib.Path(name.split()[0]).name in {*BASE, "linux-vdso.so.1"} or place.startswith("/venv/"), line

    # As on another distribution, OpenSSL finds no authorities where Debian keeps them.
    for folder in ("etc/ssl", "usr/lib/ssl"):
        shutil.rmtree(bare.root / folder)
    inside = json.loads(bare.run("python", "/user.py", "/tmp/user", "/etc/pki/tls/certs/ca-bundle.crt"))
    assert inside.pop("trusted") == [False, True]
    path = f"{millrace_bin.parent}{os.pathsep}{os.environ['PATH']}"
    outside = json.loads(
        run(sys.executable, HERE / "wheel_user.py", tmp_path / "user", PATH=path, PYTHONPATH=os.environ["PYTHONPATH"])
    )
    assert inside == outside
    assert outside["feed"] == outside["loader"]
