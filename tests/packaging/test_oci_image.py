"""`tools/oci_image.py` makes the image of a container of a base system and the command, without a daemon."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import small_wheel

ROOT = Path(__file__).resolve().parents[2]


def base_system(root: Path, day: int) -> Path:
    """As mmdebstrap makes one on a day: with logs, and what is of the machine."""
    for name, text in {
        "usr/bin/sh": "#!",
        "etc/shadow": f"root:*:{day}:0:99999:7:::\n",
        "etc/shadow-": f"root:*:{day}:0:99999:7:::\n",
        "etc/hostname": f"machine-{day}\n",
        "etc/apt/sources.list.d/0000mirror.list": f"deb mirror-{day}\n",
        "var/log/bootstrap.log": f"{day}\n",
        "var/cache/ldconfig/aux-cache": f"{day}\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(0o644)
    (root / "usr/bin/sh").chmod(0o4755)
    os.link(root / "usr/bin/sh", root / "usr/bin/zsh")
    (root / "bin").symlink_to("usr/bin")
    return root


def make(folder: Path, day: int) -> Path:
    folder.mkdir()
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    wheel = small_wheel.make(folder)
    run = {"check": True, "env": environment, "capture_output": True}
    subprocess.run(["python3", ROOT / "tools/artifacts.py", "tarball", wheel, folder], **run)  # type: ignore[call-overload]
    (tarball,) = folder.glob("millrace-*.tar.gz")
    root = base_system(folder / "root", day)
    subprocess.run(["python3", ROOT / "tools/oci_image.py", root, tarball, folder], **run)  # type: ignore[call-overload]
    return folder / "millrace-0.1.0-oci-amd64.tar"


class Image:
    """A reader of the layout, which checks each digest and size on its way from the index."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as archive:
            self.files = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
        assert json.loads(self.files["oci-layout"])["imageLayoutVersion"] == "1.0.0"
        (described,) = json.loads(self.files["index.json"])["manifests"]
        self.manifest = json.loads(self.blob(described))
        self.config: dict[str, Any] = json.loads(self.blob(self.manifest["config"]))
        layers = [gzip.decompress(self.blob(layer)) for layer in self.manifest["layers"]]
        assert self.config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
        self.layers = [tarfile.open(fileobj=io.BytesIO(layer)) for layer in layers]

    def blob(self, described: dict[str, Any]) -> bytes:
        content = self.files["blobs/" + described["digest"].replace(":", "/")]
        assert len(content) == described["size"]
        assert described["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
        return content


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("image") / "first", 20000)


def test_the_same_bytes_on_another_day(path: Path, tmp_path: Path) -> None:
    assert make(tmp_path / "second", 20001).read_bytes() == path.read_bytes()


def test_the_base_system(path: Path) -> None:
    base = Image(path).layers[0]
    names = base.getnames()
    assert {"bin", "usr/bin/sh", "usr/bin/zsh", "etc/shadow", "var/log"} <= set(names)
    assert not {"etc/hostname", "etc/apt/sources.list.d/0000mirror.list", "etc/shadow-", "var/log/bootstrap.log"} & set(
        names
    )
    assert base.getmember("usr/bin/sh").mode == 0o4755 and base.getmember("usr/bin/zsh").linkname == "usr/bin/sh"
    assert base.getmember("bin").issym()
    shadow = base.extractfile("etc/shadow")
    assert shadow is not None and shadow.read() == b"root:*:19675:0:99999:7:::\n"
    assert {entry.mtime for layer in Image(path).layers for entry in layer} == {1700000000}


def test_the_command_runs_as_another_than_root(path: Path, tmp_path: Path) -> None:
    image = Image(path)
    user, group = image.config["config"]["User"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert image.config["architecture"] == "amd64" and image.config["config"]["Entrypoint"] == ["millrace"]
    home = image.layers[1].getmember("home/millrace")
    assert (home.uid, home.gid) == (int(user), int(group))
    link = image.layers[1].getmember("usr/local/bin/millrace")
    image.layers[1].extractall(tmp_path)
    # The small wheel's command lists the libraries that it finds.
    program = tmp_path / link.linkname.lstrip("/")
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert said.split() == [Path(small_wheel.LIBRARY).name]
