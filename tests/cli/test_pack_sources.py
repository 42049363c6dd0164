"""`millrace pack` with sources that are out of the ordinary: keys that look like paths, manifests beside the destination,
shards that are damaged."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace


def tar_of(*keys: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for key in keys:
            info = tarfile.TarInfo(f"{key}.txt")
            info.size = 1000
            tar.addfile(info, io.BytesIO(key.encode().ljust(1000)))
    return out.getvalue()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.tar").write_bytes(tar_of("1", "2", "3"))
    (data / "b.tar").write_bytes(tar_of("4", "5", "6")[:4000])
    return data


def test_keys_with_dots_and_slashes_are_samples_too(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    """To a bucket they are names as any others."""
    bodies = {
        "raw/../../evil.jpg": b"1",
        "raw//abs/1.jpg": b"2",
        "raw/x/ok.jpg": b"3",
        "raw/.hidden/4.jpg": b"4",
        "raw/..five/5.jpg": b"5",
    }
    bucket.put(**bodies)
    packed = json.loads(millrace("pack", "s3://bkt/raw", tmp_path / "out", "--json", env=bucket.env).stdout)
    assert packed["samples"] == 3
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar if member.name.endswith(".jpg")}  # type: ignore[union-attr]
    assert found == {"../../evil.jpg": b"1", "/abs/1.jpg": b"2", "x/ok.jpg": b"3"}
    millrace("pack", "s3://bkt/raw", "s3://bkt/tar", env=bucket.env)
    assert json.loads(millrace("inspect", "s3://bkt/tar", "--json", env=bucket.env).stdout)["samples"] == 3
    millrace("pack", "s3://bkt/tar", "s3://bkt/again", env=bucket.env)
    objects = bucket.objects()
    assert objects["again/shard-000000.tar"] == objects["tar/shard-000000.tar"]


@pytest.mark.parametrize("place", ["bucket", "folder"])
def test_a_manifest_beside_the_destination(millrace: Millrace, bucket: Bucket, tmp_path: Path, place: str) -> None:
    bodies = {"imgs/a/1.jpg": b"1", "imgs/b/2.jpg": b"2", "shards/x/3.jpg": b"3"}
    env: dict[str, str] = {}
    if place == "bucket":
        env, root = bucket.env, "s3://bkt"
        bucket.put(
            **bodies,
            **{"train.csv": b"file\nimgs/a/1.jpg\nimgs/b/2.jpg\n", "all.csv": "\n".join(["file", *bodies]).encode()},
        )
    else:
        root = str(tmp_path / "data")
        for name, body in bodies.items():
            (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / name).write_bytes(body)
        (tmp_path / "data" / "train.csv").write_text("file\nimgs/a/1.jpg\nimgs/b/2.jpg\n")
        (tmp_path / "data" / "all.csv").write_text("\n".join(["file", *bodies]))
    packed = json.loads(millrace("pack", f"{root}/train.csv", f"{root}/packed", "--json", env=env).stdout)
    assert packed["samples"] == 2
    # Neither the objects that it lists nor the manifest itself are overwritten.
    for manifest, destination in (("all.csv", "shards"), ("train.csv", "imgs"), ("train.csv", "")):
        said = millrace(
            "pack", f"{root}/{manifest}", f"{root}/{destination}", code=2 if not destination else 1, env=env
        ).stderr.decode()
        assert "lies within" in said


def test_a_damaged_shard_of_a_source_without_an_index(millrace: Millrace, damaged: Path, tmp_path: Path) -> None:
    said = millrace("pack", damaged, tmp_path / "out", code=1).stderr.decode()
    assert "b.tar: offset 4000: " in said and "--skip-bad" in said
    assert "--skip-bad" in millrace("index", damaged, code=1).stderr.decode()
    done = millrace("pack", damaged, tmp_path / "out", "--skip-bad", "--json")
    report = json.loads(done.stdout)
    assert report["samples"] == 5 and report["incomplete_objects"] == ["b.tar"] and report["skipped"] == []
    assert "1 shard of the source was damaged" in done.stderr.decode() and "  b.tar\n" in done.stderr.decode()
    (line,) = map(json.loads, (tmp_path / "out/.millrace/skipped").read_text().splitlines())
    assert line["object"] == "b.tar" and "damaged" in line["why"]


def test_an_index_that_lacks_samples(millrace: Millrace, damaged: Path, tmp_path: Path) -> None:
    millrace("index", damaged, "--skip-bad")
    said = millrace("pack", damaged, tmp_path / "out", code=1).stderr.decode()
    assert (
        f"{damaged}/b.tar: 1 shard of the source was damaged" in said
        and "--skip-bad" in said
        and "millrace index" in said
    )
    assert not (tmp_path / "out").exists()
    millrace("pack", damaged, tmp_path / "out", "--skip-bad")
    again = json.loads(millrace("pack", damaged, tmp_path / "out", "--skip-bad", "--json").stdout)
    assert again["already_packed"] is True and again["incomplete_objects"] == ["b.tar"]
