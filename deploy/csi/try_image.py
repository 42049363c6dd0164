#!/usr/bin/env python3
"""Runs the instructions of the Containerfile in a folder instead of an image, for machines without podman. It needs root and debootstrap.

    make wheel
    deploy/csi/try_image.py /var/tmp/image

FROM is a Debian that debootstrap makes. RUN runs in it by chroot, and COPY copies from the repository. At the end, the program of ENTRYPOINT
prints its help there, which imports everything that it needs. Then Millrace mounts a folder there, reads in it and unmounts it. The folder
stays; give one that is empty or does not exist. Without a wheel, --without-wheel tries the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SUITES = {"12": "bookworm", "13": "trixie"}


@dataclass
class Step:
    word: str
    rest: str


def steps_of(text: str) -> list[Step]:
    """Returns the instructions of a Containerfile. Continued lines are joined, and comments are left out."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [Step(*line.split(maxsplit=1)) for line in joined if line.strip()]


def without_wheel(steps: list[Step]) -> list[Step]:
    kept = [step for step in steps if not (step.word == "COPY" and ".whl" in step.rest)]
    return [Step(step.word, re.sub(r"\S+\.whl\b", "", step.rest)) for step in kept]


def suite_of(image: str) -> str:
    name, _, tag = image.partition(":")
    version = tag.removesuffix("-slim")
    if name != "debian" or version not in SUITES:
        raise SystemExit(f"try_image: {image} is no Debian that this program knows; add it to SUITES")
    return SUITES[version]


def copy(root: Path, sources: list[str], target: str) -> None:
    """Copies as COPY does: the contents of a folder, or files that a pattern names."""
    place = root / target.lstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    for source in sources:
        found = sorted(REPOSITORY.glob(source.rstrip("/")))
        if not found:
            raise SystemExit(
                f"try_image: there is no {source}" + ("; run `make wheel`" if source.startswith("dist/") else "")
            )
        for path in found:
            if path.is_dir():
                shutil.copytree(path, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(path, place)


@contextlib.contextmanager
def mounts(root: Path, binds: list[Path]) -> Iterator[None]:
    """Mounts the file systems of the kernel that programs in it need, and `binds` of this machine, such as the settings of a mirror."""
    made: list[Path] = []
    try:
        for arguments in (["-t", "proc", "proc", root / "proc"], ["--bind", "/dev", root / "dev"]):
            subprocess.run(["mount", *arguments], check=True)
            made.append(Path(arguments[-1]))
        for path in binds:
            place = root / str(path).lstrip("/")
            if path.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
            subprocess.run(["mount", "--bind", "-o", "ro", path, place], check=True)
            made.append(place)
        yield
    finally:
        for place in reversed(made):
            subprocess.run(["umount", "-l", place], check=False)


def run_in(root: Path, command: list[str], environment: dict[str, str]) -> None:
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower().endswith("_proxy")
    }
    base = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        "HOME": "/root",
    }
    subprocess.run(["chroot", root, *command], check=True, env=base | inherited | environment)


def certificates(root: Path) -> dict[str, str]:
    """Copies the certificates that pip trusts on this machine, for pip in the folder, since a mirror may have an authority of its own."""
    own = os.environ.get("PIP_CERT", "")
    if not Path(own).is_file():
        return {}
    shutil.copy2(own, root / "etc/pip-certificates.crt")
    return {"PIP_CERT": "/etc/pip-certificates.crt"}


def do(step: Step, root: Path, environment: dict[str, str], mirror: str) -> list[str]:
    """Runs one instruction. Returns the command if the instruction is ENTRYPOINT."""
    print(f"try_image: {step.word} {step.rest}", flush=True)
    if step.word == "FROM":
        subprocess.run(["debootstrap", "--variant=minbase", suite_of(step.rest), root, mirror], check=True)
        shutil.copy2("/etc/resolv.conf", root / "etc/resolv.conf", follow_symlinks=True)
    elif step.word == "RUN":
        run_in(root, ["/bin/sh", "-c", step.rest], environment)
    elif step.word == "COPY":
        *sources, target = shlex.split(step.rest)
        copy(root, sources, target)
    elif step.word == "ENV":
        name, _, value = step.rest.partition("=")
        environment[name] = value.replace(
            "$PATH", environment.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        )
    elif step.word == "ENTRYPOINT":
        return json.loads(step.rest)
    else:
        raise SystemExit(f"try_image: {step.word} is no instruction that this program knows")
    return []


def try_mount(root: Path, environment: dict[str, str]) -> None:
    """Tries a mount in the background, with the libraries of the wheel and the programs of the image, such as fusermount3."""
    source, folder = "/opt/millrace-csi/plugin", "/mnt"
    print(f"try_image: millrace mount {source} {folder}", flush=True)
    try:
        run_in(root, ["millrace", "mount", source, folder], environment)
        run_in(root, ["diff", "-r", source, folder], environment)
        run_in(root, ["umount", folder], environment)
    finally:
        subprocess.run(["umount", "-l", root / folder.lstrip("/")], stderr=subprocess.DEVNULL, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder")
    parser.add_argument(
        "--mirror", default="http://deb.debian.org/debian", metavar="URL", help="of Debian (default: %(default)s)"
    )
    parser.add_argument("--without-wheel", action="store_true", help="leave Millrace itself out")
    parser.add_argument(
        "--bind",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="show this file or folder there, too, such as /etc/pip.conf",
    )
    options = parser.parse_args()
    if options.root.exists() and any(options.root.iterdir()):
        parser.error(f"{options.root} is not empty")
    environment: dict[str, str] = {}
    first, *others = steps_of((Path(__file__).parent / "Containerfile").read_text())
    if options.without_wheel:
        others = without_wheel(others)
    do(first, options.root, environment, options.mirror)
    environment |= certificates(options.root)
    with mounts(options.root, options.bind):
        command: list[str] = []
        for step in others:
            command = do(step, options.root, environment, options.mirror) or command
        run_in(options.root, [*command, "--help"], environment)
        if not options.without_wheel:
            try_mount(options.root, environment)


if __name__ == "__main__":
    main()
