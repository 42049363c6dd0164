#!/usr/bin/env python3
"""Makes an image of containers as a tarball in the layout of OCI: a base system, and the command above it. No daemon is needed.

usage: oci_image.py ROOT TARBALL FOLDER

       ROOT: the folder of a base system, as mmdebstrap makes it; TARBALL: the command, as artifacts.py makes it

Two runs give the same bytes for the same packages: names are sorted, all times are SOURCE_DATE_EPOCH, and what the making of ROOT left is out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import stat
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from artifacts import epoch

USER = 65532  # no user of the base system; a number, so that Kubernetes can tell that it is not root
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
TYPE = "application/vnd.oci.image"

# Logs, caches, and what is of the machine that made the base system.
LEFT_OUT = re.compile(
    r"(dev|proc|sys|run|tmp|debootstrap|var/(log|tmp)|var/cache|var/lib/apt/lists)/.*"
    r"|etc/(resolv\.conf|hostname|machine-id|hosts|apt/sources\.list(\.d/.*)?)|var/lib/(dbus|systemd)/.*|.*\.dpkg-(old|new)|etc/.*-"
)


def _compressed(content: bytes) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as out:
        out.write(content)
    return packed.getvalue()


def _add(archive: tarfile.TarFile, entry: tarfile.TarInfo, content: bytes = b"") -> None:
    entry.mtime = epoch()
    entry.uname = entry.gname = ""
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _days_of_passwords(shadow: bytes) -> bytes:
    """The day on which a password was set is that of SOURCE_DATE_EPOCH."""
    return re.sub(rb"(?m)^([^:\n]*:[^:\n]*:)\d+:", rb"\g<1>%d:" % (epoch() // 86400), shadow)


def base_layer(root: Path) -> bytes:
    packed = io.BytesIO()
    firsts: dict[tuple[int, int], str] = {}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).parts):
            name = path.relative_to(root).as_posix()
            about = path.lstat()
            if LEFT_OUT.fullmatch(name) or not (
                stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode) or stat.S_ISLNK(about.st_mode)
            ):
                continue
            entry = tarfile.TarInfo(name)
            entry.mode = stat.S_IMODE(about.st_mode)
            entry.uid, entry.gid = about.st_uid, about.st_gid
            content = b""
            first = firsts.setdefault((about.st_dev, about.st_ino), name)
            if stat.S_ISDIR(about.st_mode):
                entry.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(about.st_mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
            elif first != name:
                entry.type, entry.linkname = tarfile.LNKTYPE, first
            else:
                content = path.read_bytes()
                if name == "etc/shadow":
                    content = _days_of_passwords(content)
            _add(archive, entry, content)
    return packed.getvalue()


def command_layer(tarball: Path) -> bytes:
    """The tarball's files in /opt/millrace, the command in PATH, and a home of the user."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("home", "home/millrace"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            if name != "home":
                entry.uid = entry.gid = USER
            _add(archive, entry)
        with tarfile.open(tarball) as command:
            for entry in command:
                file = command.extractfile(entry) if entry.isreg() else None
                entry.name = "opt/millrace/" + entry.name.partition("/")[2]
                entry.pax_headers = {}
                _add(archive, entry, file.read() if file else b"")
        link = tarfile.TarInfo("usr/local/bin/millrace")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, "/opt/millrace/bin/millrace", 0o777
        _add(archive, link)
    return packed.getvalue()


class Layout:
    """The blobs of an image, by their digests."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def add(self, content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": f"{TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, value: object, kind: str) -> dict[str, Any]:
        return self.add(json.dumps(value, sort_keys=True).encode(), kind)


def make_image(root: Path, tarball: Path, folder: Path) -> Path:
    stated = re.fullmatch(r"millrace-([0-9.]+)-linux-(\w+)\.tar\.gz", tarball.name)
    if stated is None or stated[2] not in MACHINES:
        raise SystemExit(f"oci_image: {tarball.name} is no tarball of the command, as artifacts.py makes it")
    version, machine = stated[1], MACHINES[stated[2]]
    time = datetime.fromtimestamp(epoch(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layout = Layout()
    layers = [base_layer(root), command_layer(tarball)]
    config = {
        "architecture": machine,
        "os": "linux",
        "created": time,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/millrace"],
            "Entrypoint": ["millrace"],
            "WorkingDir": "/home/millrace",
            "Labels": {
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.title": "millrace",
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
        "history": [{"created": time, "created_by": made} for made in ("mmdebstrap", "millrace")],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{TYPE}.manifest.v1+json",
        "config": layout.add_json(config, "config.v1+json"),
        "layers": [layout.add(_compressed(layer), "layer.v1.tar+gzip") for layer in layers],
    }
    described = layout.add_json(manifest, "manifest.v1+json") | {
        "platform": {"architecture": machine, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": version},
    }
    index = {"schemaVersion": 2, "mediaType": f"{TYPE}.index.v1+json", "manifests": [described]}
    made = folder / f"millrace-{version}-oci-{machine}.tar"
    with tarfile.open(made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        files = {f"blobs/sha256/{digest}": content for digest, content in layout.blobs.items()}
        files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
        files["index.json"] = json.dumps(index, sort_keys=True).encode()
        for name in sorted(files):
            _add(archive, tarfile.TarInfo(name), files[name])
    return made


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(make_image(*map(Path, sys.argv[1:])))
