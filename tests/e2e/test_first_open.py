"""The first opening of a data set, where its index is built: by several at once, and at several endpoints."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from . import corpus
from .conftest import Photos
from .harness import ACCESS_KEY, SECRET_KEY, Sandbox, devstore, logged_devstore


@pytest.mark.parametrize("fault", ["", "PUT b/*/.millrace/* status=403"])
def test_of_several_processes_one_builds_the_index(
    photos: Photos, sandbox: Sandbox, tmp_path: Path, fault: str
) -> None:
    """The index is beside the data, or it stays in the cache folder."""
    corpus.copy_tree(photos.tar, tmp_path / "root" / "b" / "tar")
    shards = [f"/b/tar/{path.name}" for path in photos.tar.glob("*.tar")]
    log = tmp_path / "log"
    with logged_devstore(sandbox, tmp_path / "root", log, faults=(fault,) if fault else ()) as server:
        running = [
            sandbox.start("inspect", "s3://b/tar", "--json", env=server.env(), out=subprocess.PIPE, err=subprocess.PIPE)
            for _ in range(8)
        ]
        results = [(*process.communicate(timeout=300), process.returncode) for process in running]
    assert all(code == 0 for _, _, code in results), [err for _, err, _ in results]
    assert len({out for out, _, _ in results}) == 1
    # Shards of less than 8 MiB: each is read by one request, and on a busy machine a late one is sent again. Two that built would read each twice.
    read = re.findall(r"GET (/b/tar/[^ ?/]*\.tar)", log.read_text())
    assert set(read) == set(shards) and len(read) < 2 * len(shards), f"{len(read)} reads of {len(shards)} shards"


def test_an_outage_is_no_reason_to_read_everything_again(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    corpus.copy_tree(photos.tar, tmp_path / "root" / "b" / "tar")
    log = tmp_path / "log"
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.ok("index", "s3://b/tar", env=server.env())
    with logged_devstore(sandbox, tmp_path / "root", log, faults=("HEAD b/*/.millrace/* status=503",)) as server:
        # The limit: on a busy machine the attempts last so long that the store counts as away, which is waited for.
        index = ("index", "s3://b/tar", "--outage-limit", "0")
        sandbox.run(*index, env=server.env()).failed(1, "SlowDown|503|Service", r"\.millrace/index")
    assert not re.findall(r"GET (/b/tar/[^ ?/]*\.tar)", log.read_text())


def test_an_index_that_is_published_while_it_is_copied(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """The index is another one by the time it is read: the new one is copied."""
    corpus.copy_tree(photos.tar, tmp_path / "root" / "b" / "tar")
    with devstore(sandbox, tmp_path / "root") as server:
        sandbox.ok("index", "s3://b/tar", env=server.env())
    shutil.rmtree(sandbox.home / "cache", ignore_errors=True)
    log = tmp_path / "log"
    with logged_devstore(
        sandbox, tmp_path / "root", log, faults=("GET b/*/.millrace/index error=412:PreconditionFailed count=1",)
    ) as server:
        assert sandbox.feed("s3://b/tar", env=server.env())["digest"] == photos.digest()
    assert len(re.findall(r"HEAD /b/tar/\.millrace/index", log.read_text())) == 2


def test_endpoints_of_profiles_do_not_share_an_index(photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
    """One bucket's name means different data at different endpoints; their indexes lie in one cache folder."""
    corpus.raw_tree(tmp_path / "one" / "b" / "d", ["x"], 3)
    corpus.raw_tree(tmp_path / "two" / "b" / "d", ["y"], 5)
    refuse = ("PUT b/*/.millrace/* status=403",)
    with (
        devstore(sandbox, tmp_path / "one", faults=refuse) as one,
        devstore(sandbox, tmp_path / "two", faults=refuse) as two,
    ):
        (sandbox.home / ".aws").mkdir()
        (sandbox.home / ".aws" / "config").write_text(
            "".join(
                f"[profile {name}]\nendpoint_url = {server.url}\nregion = us-east-1\n"
                f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
                for name, server in (("one", one), ("two", two))
            )
        )
        for name, samples in (("one", 3), ("two", 5), ("one", 3)):
            report = sandbox.feed("s3://b/d", batch=2, env={"AWS_PROFILE": name})
            assert report["samples"] == samples
    assert len(list((sandbox.home / "cache").rglob("*.index"))) == 2


def samples_of(sandbox: Sandbox, uri: object, **how: object) -> int:
    return sandbox.ok("inspect", uri, "--json", **how).json()["samples"]


class TestTwoIndexes:
    """One beside the data, and one in the cache folder, which was built where that could not be replaced: the newer one counts."""

    def test_beside_files(self, tmp_path: Path, sandbox: Sandbox) -> None:
        data = tmp_path / "data"
        data.mkdir()
        (data / "tokens.bin").write_bytes(bytes(64))
        sandbox.ok("index", data, "--tokens", "4:uint8")
        assert samples_of(sandbox, data) == 16
        (data / ".millrace").chmod(0o555)
        data.chmod(0o555)
        try:
            built = sandbox.ok("index", data, "--tokens", "8:uint8", "--json", unprivileged=True).json()
            assert built["index"].startswith(str(sandbox.home))
            assert samples_of(sandbox, data, unprivileged=True) == 8, "the older index is used"
            sandbox.ok("index", data, "--tokens", "16:uint8", unprivileged=True)
            assert samples_of(sandbox, data, unprivileged=True) == 4, "the first index in the cache folder is used"
        finally:
            data.chmod(0o755)
            (data / ".millrace").chmod(0o755)
        sandbox.ok("index", data, "--tokens", "2:uint8", env={"MILLRACE_CACHE": str(tmp_path / "of-another")})
        assert samples_of(sandbox, data) == 32, "the index in the cache folder is used, which is older now"

    def test_on_s3(self, tmp_path: Path, sandbox: Sandbox) -> None:
        data = tmp_path / "root" / "b" / "data"
        data.mkdir(parents=True)
        (data / "tokens.bin").write_bytes(bytes(64))
        with devstore(sandbox, tmp_path / "root") as server:
            sandbox.ok("index", "s3://b/data", "--tokens", "4:uint8", env=server.env())
        with devstore(sandbox, tmp_path / "root", faults=("PUT b/data/.millrace/* status=403",)) as server:
            sandbox.ok("index", "s3://b/data", "--tokens", "8:uint8", env={**server.env()})
            assert samples_of(sandbox, "s3://b/data", env=server.env()) == 8, "the older index is used"
