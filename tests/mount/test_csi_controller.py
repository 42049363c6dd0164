"""Volumes that claims ask for by a StorageClass (deploy/csi/plugin/controller.py). Its gRPC is in tests/frameworks/cases_csi.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from e2e.harness import REPOSITORY, Sandbox, binary, devstore
from e2e.mounting import needs_fuse

sys.path[:0] = [str(REPOSITORY / "deploy" / "csi" / "plugin")]

import controller  # noqa: E402
import node as plugin  # noqa: E402

CLAIM = {
    "csi.storage.k8s.io/pvc/name": "train",
    "csi.storage.k8s.io/pvc/namespace": "vision",
    "csi.storage.k8s.io/pv/name": "pvc-1",
}


def attributes(folders: bool = False, **parameters: str) -> dict[str, str]:
    return controller.attributes_of("pvc-1", {**CLAIM, **parameters}, folders)


def refused(folders: bool = False, **parameters: str) -> str:
    with pytest.raises(plugin.Refused) as error:
        attributes(folders, **parameters)
    assert error.value.code == "INVALID_ARGUMENT" and "pvc-1" in str(error.value)
    return str(error.value)


def test_the_place_follows_from_the_claim() -> None:
    given = attributes(uri="s3://b/data/${pvc.namespace}/${pvc.name}", region="eu-central-1")
    assert given == {"uri": "s3://b/data/vision/train", "region": "eu-central-1"}
    assert attributes(uri="s3://b/${pv.name}")["uri"] == "s3://b/pvc-1"
    # One place for all claims.
    assert attributes(uri="s3://b/data")["uri"] == "s3://b/data"


def test_the_node_takes_what_the_controller_gives() -> None:
    given = attributes(uri="s3://b/${pvc.name}", region="r", endpoint="http://127.0.0.1:1")
    # Kubernetes adds one of its own.
    given["storage.kubernetes.io/csiProvisionerIdentity"] = "1-mount.millrace.csi"
    volume = plugin.volume_of("pvc-1", given, ["metadata-ttl=indefinite"], writable=False)
    assert (volume.uri, volume.region, volume.endpoint) == ("s3://b/train", "r", "http://127.0.0.1:1")


def test_classes_that_are_wrong_are_refused() -> None:
    assert "uri" in refused()
    assert "known are ${pvc.name}" in refused(uri="s3://b/${pvc.nam}")
    assert "'bucket'" in refused(uri="s3://b", bucket="b")
    assert "--allow-folders" in refused(uri="/data/${pvc.name}")
    assert attributes(True, uri="/data/${pvc.name}")["uri"] == "/data/train"


@pytest.mark.parametrize("name", ["", "..", "a..b", "a/b", "A", "${pv.name}", "-a", "a\n"])
def test_no_claim_leaves_the_place_of_its_class(name: str) -> None:
    """Kubernetes has no such names; a controller that believed them would give away other places."""
    assert "${pvc.name}" in refused(uri="s3://b/${pvc.name}", **{"csi.storage.k8s.io/pvc/name": name})


def test_a_controller_without_the_names_of_claims_says_what_it_needs() -> None:
    with pytest.raises(plugin.Refused, match="--extra-create-metadata"):
        controller.attributes_of("pvc-1", {"uri": "s3://b/${pvc.name}"}, False)


@needs_fuse
@pytest.mark.skipif(os.geteuid() != 0, reason="bind mounts need root")
def test_an_empty_place_is_mounted_and_written_to(tmp_path: Path) -> None:
    """As the first pod of a new claim finds it."""
    (tmp_path / "root" / "b").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    sandbox = Sandbox(tmp_path / "home")
    staging, target = tmp_path / "staging", tmp_path / "pod"
    with devstore(sandbox, tmp_path / "root") as store, pytest.MonkeyPatch.context() as patch:
        for name, value in sandbox.env(store.env()).items():
            patch.setenv(name, value)
        volume = plugin.volume_of("pvc-1", attributes(uri="s3://b/${pvc.namespace}/${pvc.name}"), [], writable=True)
        running = plugin.Node(plugin.Settings(millrace=str(binary())))
        try:
            running.stage(volume, str(staging), {})
            running.publish(volume, str(staging), str(target), readonly=False)
            assert list(target.iterdir()) == []
            (target / "first").write_bytes(b"text")
            assert (tmp_path / "root/b/vision/train/first").read_bytes() == b"text"
        finally:
            running.unpublish("pvc-1", str(target))
            running.unstage("pvc-1", str(staging))
