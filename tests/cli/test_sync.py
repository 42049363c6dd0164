"""`millrace sync` between folders and buckets."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, contents, lines

OLD, NEW = 1_000_000_000, 2_000_000_000  # 2001, 2033


@pytest.fixture
def sync(millrace: Millrace, bucket: Bucket) -> Callable[..., dict[str, Any]]:
    def run(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(
            millrace("sync", *arguments, "--json", code=code, env=bucket.env).stdout.splitlines()[-1]
        )
        return report

    return run


Sync = Callable[..., dict[str, Any]]


def counts(report: dict[str, Any]) -> tuple[int, int, int, int]:
    return report["copied"], report["removed"], report["unchanged"], report["failed"]


@pytest.mark.parametrize(("source", "target"), [("path", "path"), ("path", "s3"), ("s3", "path"), ("s3", "s3")])
def test_sync_makes_one_place_like_the_other(
    sync: Sync, millrace: Millrace, bucket: Bucket, tree: Path, tmp_path: Path, source: str, target: str
) -> None:
    wanted = contents(tree)
    for name in wanted:
        os.utime(tree / name, (OLD, OLD))
    place = {"path": [str(tree), str(tmp_path / "copy")], "s3": ["s3://bkt/from", "s3://bkt/to"]}
    a, b = place[source][0], place[target][1]
    if source == "s3":
        millrace("cp", "--recursive", tree, a, env=bucket.env)

    def look():
        return (
            contents(tmp_path / "copy")
            if target == "path"
            else {k[3:]: v for k, v in bucket.objects().items() if k.startswith("to/")}
        )

    assert counts(sync(a, b)) == (5, 0, 0, 0)
    assert look() == wanted
    assert counts(sync(a, b)) == (0, 0, 5, 0)  # so an interrupted one goes on with the rest
    # One more in the target, one less, one of another size.
    for name, data in {"extra": b"e", "a0": b"other size"}.items():
        if target == "path":
            (tmp_path / "copy" / name).write_bytes(data)
        else:
            bucket.put(**{f"to/{name}": data})
    millrace("rm", f"{b}/a-", env=bucket.env)
    assert counts(sync(a, b, "--dry-run", "--delete")) == (2, 1, 3, 0)
    assert "a-" not in look() and "extra" in look()
    assert counts(sync(a, b)) == (2, 0, 3, 0)
    assert look() == wanted | {"extra": b"e"}
    assert counts(sync(a, b, "--delete")) == (0, 1, 5, 0)
    assert look() == wanted


def test_sync_copies_what_is_newer_of_the_same_size(
    sync: Sync, millrace: Millrace, bucket: Bucket, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, time in {"older": OLD, "newer": NEW}.items():
        (source / name).write_bytes(b"new")
        os.utime(source / name, (time, time))
    bucket.put(older=b"was", newer=b"was")
    said = lines(millrace("sync", source, "s3://bkt", "--dry-run", env=bucket.env))
    assert said[0] == f"would copy {source}/newer to s3://bkt/newer (newer)"
    assert counts(sync(source, "s3://bkt")) == (1, 0, 1, 0)
    assert bucket.objects() == {"older": b"was", "newer": b"new"}


def test_sync_compares_whole_seconds_with_a_bucket(
    sync: Sync, millrace: Millrace, bucket: Bucket, tmp_path: Path
) -> None:
    """Its times are rounded down: a file made in the second of its upload looks newer than its copy."""
    source = tmp_path / "source"
    source.mkdir()
    file = source / "x"
    file.write_bytes(b"new")
    millrace("cp", file, "s3://bkt/x", env=bucket.env)
    uploaded = bucket.s3.head_object(Bucket="bkt", Key="x")["LastModified"].timestamp()
    assert uploaded == int(uploaded)
    for after, copied in ((0.999, 0), (1.001, 1)):
        os.utime(file, (uploaded + after, uploaded + after))
        assert sync(source, "s3://bkt", "--dry-run")["copied"] == copied
        # The other way round: a file that was written in the second of the object.
        os.utime(file, (uploaded + 1 - after, uploaded + 1 - after))
        assert sync("s3://bkt", source, "--dry-run")["copied"] == copied


def test_sync_of_folders_compares_what_they_know(sync: Sync, tmp_path: Path) -> None:
    for name, time in (("a", 500.002), ("b", 500.001)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"same size")
        os.utime(tmp_path / name / "x", (time, time))
    assert sync(tmp_path / "b", tmp_path / "a", "--dry-run")["copied"] == 0
    assert sync(tmp_path / "a", tmp_path / "b", "--dry-run")["copied"] == 1


def test_sync_agrees_with_a_model(sync: Sync, tmp_path: Path, bucket: Bucket) -> None:
    """Random places with keys that sort oddly, in several pages."""
    draw = random.Random(5)
    names = sorted(
        {
            "/".join(draw.choice(["a", "a-", "a0", "b"]) + str(draw.randrange(4)) for _ in range(draw.randint(1, 4)))
            for _ in range(1500)
        }
    )
    # A file of the folder cannot be a folder, too.
    names = [name for name in names if not any(other.startswith(name + "/") for other in names)]
    source = {name: draw.choice([b"1", b"22"]) for name in names if draw.random() < 0.6}
    target = {name: draw.choice([b"3", b"44"]) for name in names if draw.random() < 0.6}
    for root, files in {"s": source, "t": target}.items():
        for name, data in files.items():
            path = tmp_path / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if root == "s":
                os.utime(path, (OLD, OLD))
    changed = {name for name, data in source.items() if len(target.get(name, b"")) != len(data)}
    report = sync(tmp_path / "s", tmp_path / "t", "--delete")
    assert counts(report) == (len(changed), len(target.keys() - source.keys()), len(source) - len(changed), 0)
    assert contents(tmp_path / "t") == {name: source[name] if name in changed else target[name] for name in source}


def test_sync_of_several_pages(sync: Sync, bucket: Bucket, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(2500):
        (source / f"{i:04}").write_bytes(b"x")
    assert counts(sync(source, "s3://bkt/p")) == (2500, 0, 0, 0)
    for i in range(0, 2500, 2):
        (source / f"{i:04}").unlink()
    assert counts(sync(source, "s3://bkt/p", "--delete")) == (0, 1250, 1250, 0)
    assert len(bucket.keys()) == 1250


def test_sync_filters_in_order(sync: Sync, tree: Path, tmp_path: Path) -> None:
    def copied(*filters: str) -> list[str]:
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        sync(tree, tmp_path / "to", *filters)
        return sorted(contents(tmp_path / "to")) if (tmp_path / "to").exists() else []

    assert copied("--exclude", "a*") == ["big"]
    assert copied("--exclude", "a/*") == ["a-", "a0", "big"]
    assert copied("--exclude", "a/?/z") == ["a-", "a/x", "a0", "big"]
    assert copied("--exclude", "*", "--include", "*z") == ["a/y/z"]
    assert copied("--include", "*z", "--exclude", "*") == []
    assert copied("--exclude", "*", "--include", "z") == []  # the whole path counts
    assert copied("--exclude", "*", "--include", "a?", "--exclude", "?0") == ["a-"]


def test_sync_does_not_remove_what_is_excluded(sync: Sync, tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "to")
    (tmp_path / "to" / "keep.log").write_bytes(b"log")
    assert counts(sync(tree, tmp_path / "to", "--delete", "--exclude", "*.log")) == (0, 0, 5, 0)
    assert (tmp_path / "to" / "keep.log").exists()


def test_sync_does_not_empty_the_target_for_an_empty_source(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"to/a": b"1"})
    assert (
        b"would remove everything"
        in millrace("sync", "s3://bkt/typo", "s3://bkt/to", "--delete", code=1, env=bucket.env).stderr
    )
    assert (
        b"missing" in millrace("sync", tmp_path / "missing", "s3://bkt/to", "--delete", code=1, env=bucket.env).stderr
    )
    assert bucket.keys() == ["to/a"]


def test_sync_refuses_one_place_in_the_other(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    bucket.put(**{"a/b": b"1"})
    for source, target in (
        ("s3://bkt/a", "s3://bkt"),
        ("s3://bkt", "s3://bkt/a"),
        ("s3://bkt/a", "s3://bkt/a/"),
        (tree, tree / "a"),
        (tree / "a", tree),
    ):
        assert b"lies in the other" in millrace("sync", source, target, "--delete", code=2, env=bucket.env).stderr
    assert bucket.keys() == ["a/b"]
    assert len(contents(tree)) == 5


def test_sync_to_a_missing_bucket_or_a_wrong_uri_fails(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    assert b"NoSuchBucket" in millrace("sync", tree, "s3://nowhere", code=1, env=bucket.env).stderr
    forgotten = millrace("sync", "nowhere/x", tree / "a", code=1, cwd=tree).stderr
    assert forgotten.endswith(b"; for an object store write s3://nowhere/x\n")
    assert b"AWS_ENDPOINT_URL" in millrace("sync", tree, "http://host/x", code=2, env=bucket.env).stderr


def test_sync_goes_on_after_a_failure(sync: Sync, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "to" / "a0").mkdir(parents=True)  # in the way
    assert counts(sync(tree, tmp_path / "to", code=1)) == (4, 0, 0, 1)
    assert sorted(contents(tmp_path / "to")) == ["a-", "a/x", "a/y/z", "big"]


def test_help_of_new_commands_has_examples(millrace: Millrace) -> None:
    for command in (["rm"], ["sync"], ["doctor", "s3"]):
        text = millrace(*command, "--help").stdout
        assert b"Examples:" in text and b"s3://" in text
