"""Uses the artifacts of a version in bare systems: installs each, feeds 1,000 samples from devstore, mounts them, and compares the digests with those
that the build gives. `scripts/smoke` runs it, which prints a table, and test_wheel.py has its parts.

usage: artifact_uses.py DIST FOLDER        DIST: as scripts/dist makes it; FOLDER: for the systems; the build's command comes from PATH
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pathlib
import shutil
import sys
import tarfile
from collections.abc import Callable

import bare_system
from bare_system import SYSTEMS, BareSystem, run

HERE = pathlib.Path(__file__).parent


def fits(wheel: pathlib.Path, python: tuple[int, int], machine: str) -> bool:
    """Returns true if an interpreter of this version installs the wheel on such a machine."""
    _, _, tag, abi, platform = wheel.stem.split("-")
    lowest = (int(tag[2]), int(tag[3:]))
    return platform.endswith(f"_{machine}") and (lowest == python or (abi == "abi3" and lowest < python))


def install(wheel: pathlib.Path, bare: BareSystem, python: tuple[int, int]) -> None:
    """Installs the wheel without a network: the wheel of numpy is fetched by the pip outside."""
    wheels = bare.root / "wheels"
    version = f"--python-version={python[0]}.{python[1]}"
    platforms = [f"--platform=manylinux{glibc}_{bare.system.machine}" for glibc in ("_2_28", "_2_27", "2014")]
    run(sys.executable, "-m", "pip", "download", "--only-binary=:all:", version, *platforms, "--dest", wheels, "numpy")
    shutil.copy(wheel, wheels)
    bare.run(bare.system.python, "-m", "venv", "/venv")
    bare.run("pip", "install", "--no-index", "--find-links", "/wheels", "millrace-data")


def python_of(bare: BareSystem) -> tuple[int, int]:
    major, minor = bare.run(bare.system.python, "-c", "import sys; print(*sys.version_info[:2])").split()
    return int(major), int(minor)


def used_by_the_build(folder: pathlib.Path, command: pathlib.Path) -> dict[str, object]:
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    found: dict[str, object] = json.loads(run(sys.executable, HERE / "command_user.py", folder, PATH=path))
    assert found["samples"] == 1000
    return found


def _use(bare: BareSystem, name: str) -> dict[str, object]:
    shutil.copy(HERE / "command_user.py", bare.root)
    found: dict[str, object] = json.loads(bare.run(bare.system.python, "/command_user.py", f"/tmp/{name}"))
    return found


def use_tarball(bare: BareSystem, tarball: pathlib.Path) -> dict[str, object] | None:
    """Returns None if it is for another machine."""
    if not tarball.name.endswith(f"-linux-{bare.system.machine}.tar.gz"):
        return None
    unpacked = bare.root / "command"
    unpacked.mkdir()
    run("tar", "-xzf", tarball, "-C", unpacked, "--strip-components=1", "--no-same-owner")
    try:
        return _use(bare, "tarball")
    finally:
        shutil.rmtree(unpacked)


def use_wheel(bare: BareSystem, wheel: pathlib.Path) -> dict[str, object] | None:
    """Returns None if the system's Python or machine is another one."""
    python = python_of(bare)
    if not fits(wheel, python, bare.system.machine):
        return None
    install(wheel, bare, python)
    try:
        # The package is used, too.
        shutil.copy(HERE / "wheel_user.py", bare.root)
        shutil.copy(HERE / "command_user.py", bare.root)
        found = json.loads(bare.run("python", "/wheel_user.py", f"/tmp/{wheel.name}.package"))
        assert found["feed"] == found["loader"], found
        return _use(bare, wheel.name)
    finally:
        shutil.rmtree(bare.root / "venv")
        shutil.rmtree(bare.root / "wheels")


def use_package(bare: BareSystem, package: pathlib.Path) -> dict[str, object] | None:
    """Returns None if the release or the machine is another one: a package is made for the release that made it, whose versions of
    libraries it names."""
    if (bare.system.release, bare.system.machine) != ((bare_system.mirror() or ("",))[0], os.uname().machine):
        return None
    shutil.copy(package, bare.root)
    bare.run("apt-get", "update", "-qq")
    bare.run("apt-get", "install", "-qq", "--no-install-recommends", f"/{package.name}")
    try:
        return _use(bare, "package")
    finally:
        bare.run("apt-get", "purge", "-qq", "millrace")


# These are the steps of command_user.py, for a system without Python and a user without FUSE.
IMAGE_USER = """
set -e
export AWS_ACCESS_KEY_ID=millrace AWS_SECRET_ACCESS_KEY=millrace-secret MILLRACE_CACHE=$HOME/cache
mkdir -p $HOME/s3/bucket
millrace devstore $HOME/s3 --port 0 >$HOME/said &
until grep -q 'listening on' $HOME/said; do sleep 0.1; done
export AWS_ENDPOINT_URL=$(sed -n 's/.*listening on:* //p' $HOME/said)
{
  millrace synth s3://bucket/raw --count 1000 --kb 2
  millrace pack s3://bucket/raw s3://bucket/train --shard-size 256KiB
} >&2
millrace feed s3://bucket/train --json --seed 3 --epochs 1
kill $!
"""


def use_image(image: pathlib.Path, root: pathlib.Path) -> dict[str, object]:
    """Runs it as the user that the image names, with its environment. The layers are unpacked without a daemon."""
    with tarfile.open(image) as archive:

        def blob(digest: str) -> bytes:
            file = archive.extractfile("blobs/" + digest.replace(":", "/"))
            assert file is not None
            return file.read()

        index = archive.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        about = json.loads(blob(manifest["config"]["digest"]))["config"]
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer["digest"])))) as files:
                files.extractall(root)
    bare = BareSystem.of(root, SYSTEMS["Debian 12"])
    enter = ["chroot", f"--userspec={about['User']}", "/", "env", "-i", *about["Env"]]
    fed = json.loads(bare.run(*enter, "sh", "-c", IMAGE_USER))
    version = bare.run(*enter, *about["Entrypoint"], "--version").strip()
    return {"command": version, **{name: fed[name] for name in ("digest", "samples")}}


def outcome(use: Callable[[], dict[str, object] | None], wanted: dict[str, object]) -> str:
    try:
        found = use()
    except (AssertionError, OSError) as error:
        print(error, file=sys.stderr)
        return "FAILED"
    if found is None:
        return "not for it"
    if any(found[name] != wanted[name] for name in found):
        print(f"{found} instead of {wanted}", file=sys.stderr)
        return "OTHER DIGEST"
    return "installed, fed, mounted: digests equal" if "mounted" in found else "unpacked, fed: digest equal"


def rows(dist: pathlib.Path, folder: pathlib.Path, command: pathlib.Path) -> dict[str, dict[str, str]]:
    """Returns artifact -> system -> outcome."""
    wanted = used_by_the_build(folder / "build", command)
    table: dict[str, dict[str, str]] = {}
    uses: list[tuple[pathlib.Path, Callable[..., dict[str, object] | None]]] = []
    uses += [(tarball, use_tarball) for tarball in sorted(dist.glob("millrace-*-linux-*.tar.gz"))]
    uses += [(package, use_package) for package in dist.glob("millrace_*.deb")]
    uses += [(wheel, use_wheel) for wheel in sorted(dist.glob("millrace_data-*.whl"))]
    for title, system in SYSTEMS.items():
        here = system.machine == os.uname().machine
        own = [use for use in uses if system.machine in use[0].name or (here and use[0].suffix == ".deb")]
        for artifact, _ in uses:
            table.setdefault(artifact.name, {})[title] = "not for it"
        if not own:
            continue
        if reason := bare_system.why_not(system):
            for artifact, _ in own:
                table[artifact.name][title] = f"not run: {reason}"
            continue
        with bare_system.made(folder / "system", system) as bare:
            for artifact, use in own:
                done = outcome(lambda use=use, bare=bare, artifact=artifact: use(bare, artifact), wanted)  # type: ignore[misc]
                table[artifact.name][title] = done
    for image in dist.glob("millrace-*-oci-*.tar"):
        done = outcome(lambda image=image: use_image(image, folder / "image"), wanted)  # type: ignore[misc]
        table[image.name] = {title: "has its own" for title in SYSTEMS} | {"Debian 12": done}
        shutil.rmtree(folder / "image")
    return table


def main() -> None:
    dist, folder = map(pathlib.Path, sys.argv[1:])
    command = shutil.which("millrace")
    if command is None:
        sys.exit("artifact_uses: no millrace is in PATH: build it first")
    table = rows(dist, folder, pathlib.Path(command))
    print("| Artifact | " + " | ".join(SYSTEMS) + " |\n|---|" + "---|" * len(SYSTEMS))
    for artifact, outcomes in table.items():
        print(f"| `{artifact}` | " + " | ".join(outcomes[title] for title in SYSTEMS) + " |")
    if any(done.isupper() for outcomes in table.values() for done in outcomes.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
