"""Tests that `scripts/wheel` makes a wheel that needs neither Debian's libraries nor a compiler."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import bare_system
import pytest
from artifact_uses import install, python_of, use_tarball, use_wheel, used_by_the_build
from bare_system import SYSTEMS, BareSystem, System, run
from support import devstore

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.all, pytest.mark.timeout(2400)]

# Every Linux on which CPython runs has these.
BASE = {
    "libc.so.6",
    "libm.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libgcc_s.so.1",
    "libz.so.1",
}
OLDEST_GLIBC = (2, 34)  # Amazon Linux 2023 and RHEL 9


def made_wheels(folder: pathlib.Path, machine: str, *options: str) -> dict[str, pathlib.Path]:
    """Returns both wheels by their tags of Python and ABI."""
    run(ROOT / "scripts/wheel", *options, folder, timeout=2400)
    made = {"-".join(file.stem.split("-")[2:4]): file for file in folder.glob(f"*_{machine}.whl")}
    assert set(made) == {"cp311-cp311", "cp312-abi3"}
    return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    return made_wheels(tmp_path_factory.mktemp("dist"), os.uname().machine)


@pytest.fixture(scope="module")
def arm64_wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    if shutil.which("aarch64-linux-gnu-g++") is None or shutil.which("qemu-aarch64-static") is None:
        pytest.fail("the cross compiler or the emulator is not installed: run scripts/setup arm64")
    return made_wheels(tmp_path_factory.mktemp("dist"), "aarch64", "--arm64")


@pytest.fixture(scope="module")
def wheel(wheels: dict[str, pathlib.Path]) -> pathlib.Path:
    """Returns the wheel for the Python that runs the tests."""
    return wheels["cp311-cp311"]


@pytest.fixture(
    params=[(made, tag) for made in ("wheels", "arm64_wheels") for tag in ("cp311-cp311", "cp312-abi3")], ids="-".join
)
def each_wheel(request: pytest.FixtureRequest) -> pathlib.Path:
    made, tag = request.param
    wheel: pathlib.Path = request.getfixturevalue(made)[tag]
    return wheel


def needed(file: pathlib.Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", file, LC_ALL="C")))


def unpacked_programs(wheel: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns all ELF files of a wheel: commands, modules and libraries."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return [file for file in folder.rglob("*") if file.is_file() and file.open("rb").read(4) == b"\x7fELF"]


def test_all_libraries_are_inside(each_wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert f"-manylinux_{OLDEST_GLIBC[0]}_{OLDEST_GLIBC[1]}_" in each_wheel.name  # as docs/install.md says
    programs = unpacked_programs(each_wheel, tmp_path)
    bundled = {file.name for file in tmp_path.glob("millrace_data.libs/*")}
    assert {"millrace", *bundled} < {file.name for file in programs}
    for program in programs:
        assert needed(program) <= BASE | bundled, program
    licences = {file.name for file in tmp_path.glob("*.dist-info/licenses/*")}
    # These are the licenses of a library in the wheel, of headers, of data, and of Millrace. A text is also there that
    # such files refer to.
    assert {
        "libssl3.copyright",
        "libstb-dev.copyright",
        "nanobind.copyright",
        "robin-map.copyright",
        "fonts-dejavu-core.copyright",
        "LICENSE",
    } < licences
    assert "LGPL-2.1" in licences


def test_no_symbol_is_newer_than_the_oldest_system(each_wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """This includes the symbols of libstdc++, whose version is another one on each system: it is inside, and nothing of
    it is seen from outside."""
    programs = unpacked_programs(each_wheel, tmp_path)
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
    # The linker of arm64 lists sections, too, as local symbols.
    seen = [words for words in defined if len(words) > 7 and words[0][0].isdigit() and words[4] != "LOCAL"]
    assert [words[7] for words in seen if words[6] != "UND"] == ["PyInit__core"]


def interpreter(version: str) -> pathlib.Path | None:
    """Returns CPython of this version, of the system or of pyenv, whose commands in PATH may be of versions that are
    not chosen."""
    folder = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(f"python{version}"), *sorted(folder.glob(f"{version}.*/bin/python"), reverse=True)):
        if found is None:
            continue
        said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        if said.startswith(f"Python {version}."):
            return pathlib.Path(found)
    return None


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_one_wheel_is_of_all_later_versions(
    wheels: dict[str, pathlib.Path], version: str, millrace_bin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """It feeds there what the build feeds with the Python that runs the tests."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no CPython {version}")
    wheel = wheels["cp312-abi3"]
    assert [path.name for path in unpacked_programs(wheel, tmp_path / "wheel") if "_core" in path.name] == [
        "_core.abi3.so"
    ]
    run(python, "-m", "venv", tmp_path / "venv")
    bin_folder = tmp_path / "venv/bin"
    run(bin_folder / "python", "-m", "pip", "install", wheel)
    program = [bin_folder / "python", "-W", "error", HERE / "wheel_user.py"]
    inside = run(*program, tmp_path / "inside", PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    path = f"{millrace_bin.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": os.environ["PYTHONPATH"]}
    outside = run(sys.executable, HERE / "wheel_user.py", tmp_path / "outside", **environment)
    assert json.loads(inside) == json.loads(outside)
    (tmp_path / "store/b").mkdir(parents=True)
    (tmp_path / "store/b/object").write_bytes(b"content")
    with devstore(tmp_path / "store") as environment:
        assert json.loads(run(bin_folder / "millrace", "doctor", "--json", "s3://b", **environment))["ok"]


def test_two_runs_make_the_same_bytes(tmp_path: pathlib.Path) -> None:
    """The second one compiles all that the first one has compiled."""
    made = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        run(ROOT / "scripts/wheel", "--fresh", folder, SOURCE_DATE_EPOCH="1700000000")
        made.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert len(made[0]) > 0 and made[0] == made[1]


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


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_a_thousand_samples_in_a_bare_system(
    request: pytest.FixtureRequest, millrace_bin: pathlib.Path, tmp_path: pathlib.Path, system: System
) -> None:
    """They are fed and mounted as the build does, by the tarball of the command, and by the wheel that the system's
    Python takes. A system of another machine runs in an emulator."""
    own = system.machine == os.uname().machine
    wheels: dict[str, pathlib.Path] = request.getfixturevalue("wheels" if own else "arm64_wheels")
    run(
        "python3",
        ROOT / "tools/artifacts.py",
        "tarball",
        wheels["cp311-cp311"],
        tmp_path,
        SOURCE_DATE_EPOCH="1700000000",
    )
    (tarball,) = tmp_path.glob("*.tar.gz")
    outside = used_by_the_build(tmp_path / "user", millrace_bin)
    with bare_system.made(tmp_path / "root", system) as bare:
        assert use_tarball(bare, tarball) == outside
        used = {tag: use_wheel(bare, wheel) for tag, wheel in wheels.items()}
        taken = "cp311-cp311" if python_of(bare) == (3, 11) else "cp312-abi3"
        assert used == {tag: outside if tag == taken else None for tag in wheels}


@pytest.mark.parametrize("title", ["Debian 12", "Debian 13"])
def test_a_bare_system(
    wheels: dict[str, pathlib.Path], millrace_bin: pathlib.Path, tmp_path: pathlib.Path, title: str
) -> None:
    wheel = wheels["cp311-cp311" if title == "Debian 12" else "cp312-abi3"]
    with bare_system.made(tmp_path / "root", SYSTEMS[title]) as bare:
        use_in_bare_system(wheel, bare, millrace_bin, tmp_path)


def use_in_bare_system(
    wheel: pathlib.Path, bare: BareSystem, millrace_bin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    install(wheel, bare, python_of(bare))
    shutil.copy(HERE / "wheel_user.py", bare.root / "user.py")
    shutil.copy(HERE / "command_user.py", bare.root)

    (program,) = bare.root.glob("venv/lib/python3.*/site-packages/millrace/bin/millrace")
    for line in bare.run("ldd", f"/{program.relative_to(bare.root)}").splitlines():
        name, _, place = line.strip().partition(" => ")
        assert pathlib.Path(name.split()[0]).name in {*BASE, "linux-vdso.so.1"} or place.startswith("/venv/"), line

    # OpenSSL finds no authorities at the place where Debian keeps them, as on another distribution.
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
