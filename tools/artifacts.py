#!/usr/bin/env python3
"""Makes artifacts that need no compiler. Two runs give the same bytes: names are sorted, and all times are SOURCE_DATE_EPOCH.

usage: artifacts.py chart FOLDER             the Helm chart

       artifacts.py tarball WHEEL FOLDER     the command of a wheel, and all that it needs

       artifacts.py sbom WHEEL FOLDER        the bill of materials of a wheel, as CycloneDX

       artifacts.py checksums FOLDER         SHA256SUMS of all files there
"""

from __future__ import annotations

import email.parser
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import uuid
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy/helm/millrace"


class File(NamedTuple):
    content: bytes
    executable: bool = False
    link: str = ""  # what a symbolic link names


def epoch() -> int:
    """The time of all files: SOURCE_DATE_EPOCH, which scripts/dist sets to that of the last commit."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def project_version() -> str:
    stated = re.search(r"project\(millrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert stated is not None
    return stated[1]


def write_tar_gz(path: Path, files: dict[str, File]) -> None:
    """Owner and group are root, modes are 0644 and 0755."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            file = files[name]
            entry = tarfile.TarInfo(name)
            entry.mtime = epoch()
            entry.mode = 0o755 if file.executable or file.link else 0o644
            entry.uname = entry.gname = "root"
            if file.link:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                archive.addfile(entry)
            else:
                entry.size = len(file.content)
                archive.addfile(entry, io.BytesIO(file.content))
    with open(path, "wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=epoch()) as compressed:
        compressed.write(packed.getvalue())


def make_chart(folder: Path) -> Path:
    """As `helm package` would, whose archives have the time of their making in them."""
    made = folder / f"millrace-{project_version()}.tgz"
    ignored = [line for line in (CHART / ".helmignore").read_text().split() if line]
    files = {
        f"millrace/{path.relative_to(CHART)}": File(path.read_bytes())
        for path in CHART.rglob("*")
        if path.is_file() and not any(path.match(pattern) for pattern in ignored)
    }
    write_tar_gz(made, files)
    return made


class Wheel:
    """A wheel that scripts/wheel has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, File] = {}
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    self.files[entry.filename] = File(archive.read(entry), bool(entry.external_attr >> 16 & 0o111))
        (self.info,) = {name.split("/")[0] for name in self.files if name.split("/")[0].endswith(".dist-info")}
        self.data = self.info.removesuffix(".dist-info") + ".data/data/"
        self.libraries = "millrace_data.libs/"
        metadata = email.parser.BytesParser().parsebytes(self.files[f"{self.info}/METADATA"].content)
        self.name, self.version = metadata["Name"], metadata["Version"]
        # manylinux_2_34_x86_64 -> x86_64
        self.machine = re.sub(r"^(many)?linux_(\d+_\d+_)?", "", path.stem.split("-")[-1].split(".")[0])

    def below(self, prefix: str) -> dict[str, File]:
        return {name[len(prefix) :]: file for name, file in self.files.items() if name.startswith(prefix)}


def make_tarball(wheel: Wheel, folder: Path) -> Path:
    """The command finds its libraries relative to itself, as in the wheel; bin/millrace is a link to it."""
    top = f"millrace-{wheel.version}-linux-{wheel.machine}"
    files = {f"{top}/bin/millrace": File(b"", link="../lib/millrace/bin/millrace")}
    places = {
        "millrace/bin/": "lib/millrace/bin/",
        wheel.libraries: f"lib/{wheel.libraries}",
        f"{wheel.data}share/": "share/",
        f"{wheel.info}/licenses/": "share/doc/millrace/licenses/",
    }
    for source, target in places.items():
        found = wheel.below(source)
        if not found:
            raise SystemExit(f"artifacts: {wheel.path} has nothing below {source}; scripts/wheel makes one that has")
        files |= {f"{top}/{target}{name}": file for name, file in found.items()}
    made = folder / f"{top}.tar.gz"
    write_tar_gz(made, files)
    return made


def _debian_version(package: str, machine: str) -> tuple[str, str]:
    """Version and source package, as dpkg of this machine has them, which made the wheel, or those that scripts/arm64-sysroot unpacked."""
    form = "${Version}\\t${source:Package}\\t${source:Version}\\n"
    system = "/" if machine == os.uname().machine else f"{ROOT}/build/arm64-sysroot/"
    command = ["dpkg-query", f"--admindir={system}var/lib/dpkg", "-W", "-f", form, package]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode != 0:
        raise SystemExit(f"artifacts: {package} is in the wheel, but dpkg does not know it: {said.stderr.strip()}")
    version, source, source_version = said.stdout.splitlines()[0].split("\t")
    return version, f"{source}@{source_version}"


def _release() -> str:
    found = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    return f"{found['ID']}-{found.get('VERSION_ID', 'unstable')}"


def _nanobind_version() -> str:
    code = "import importlib.metadata as m; print(m.version('nanobind'))"
    said = subprocess.run([ROOT / ".venv/bin/python", "-c", code], check=True, capture_output=True, text=True)
    return said.stdout.strip()


def _robin_map_version() -> str:
    """As its headers state it, which nanobind brings."""
    command = [ROOT / ".venv/bin/python", "-m", "nanobind", "--include_dir"]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    header = Path(said.stdout.strip()).parent / "ext/robin_map/include/tsl/robin_growth_policy.h"
    numbers = re.findall(r"^#define TSL_RH_VERSION_\w+ (\d+)$", header.read_text(), re.MULTILINE)
    return ".".join(numbers)


def bill_of_materials(wheel: Wheel) -> dict[str, Any]:
    """The packages whose licences are in the wheel: each of them is in it, as a library, as headers, or as data."""
    components = []
    for name in sorted(wheel.below(f"{wheel.info}/licenses/")):
        package, dot, _ = name.rpartition(".copyright")
        if not dot:
            continue
        properties = []
        if package == "nanobind":
            version = _nanobind_version()
            reference = f"pkg:pypi/nanobind@{version}"
        elif package == "robin-map":
            version = _robin_map_version()
            reference = f"pkg:github/tessil/robin-map@v{version}"
        else:
            version, source = _debian_version(package, wheel.machine)
            reference = (
                f"pkg:deb/debian/{package}@{version.replace(':', '%3A').replace('+', '%2B')}?distro={_release()}"
            )
            properties = [{"name": "millrace:debian:source", "value": source}]
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": reference,
            "name": package,
            "version": version,
            "purl": reference,
        }
        if properties:
            component["properties"] = properties
        components.append(component)
    for name, file in sorted(wheel.below(wheel.libraries).items()):
        components.append(
            {
                "type": "file",
                "bom-ref": f"file:{wheel.libraries}{name}",
                "name": f"{wheel.libraries}{name}",
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.content).hexdigest()}],
            }
        )
    itself = f"pkg:pypi/{wheel.name}@{wheel.version}"
    content = wheel.path.read_bytes()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same for the same wheel.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, itself + hashlib.sha256(content).hexdigest())}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "library",
                "bom-ref": itself,
                "name": wheel.name,
                "version": wheel.version,
                "purl": itself,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
            },
        },
        "components": components,
        "dependencies": [{"ref": itself, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def make_sbom(wheel: Wheel, folder: Path) -> Path:
    made = folder / f"{wheel.path.name}.cdx.json"
    made.write_text(json.dumps(bill_of_materials(wheel), indent=1) + "\n")
    return made


def make_checksums(folder: Path) -> Path:
    """In the format of sha256sum, which checks them by -c."""
    made = folder / "SHA256SUMS"
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.is_file() and path != made
    ]
    made.write_text("".join(lines))
    return made


def main(arguments: list[str]) -> None:
    folder = Path(arguments[-1]) if len(arguments) > 1 else Path()
    if len(arguments) == 2 and arguments[0] == "chart":
        made = make_chart(folder)
    elif len(arguments) == 3 and arguments[0] == "tarball":
        made = make_tarball(Wheel(Path(arguments[1])), folder)
    elif len(arguments) == 3 and arguments[0] == "sbom":
        made = make_sbom(Wheel(Path(arguments[1])), folder)
    elif len(arguments) == 2 and arguments[0] == "checksums":
        made = make_checksums(folder)
    else:
        sys.exit(__doc__)
    print(made)


if __name__ == "__main__":
    main(sys.argv[1:])
