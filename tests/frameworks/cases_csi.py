"""Calls the CSI plugin by its gRPC, as the kubelet does. The checks are those of Kubernetes' own sanity tests for identity and node services, on real mounts. The
manifests are compared with the schemas of Kubernetes. tests/mount/test_csi_node.py tests the plugin's work on a node."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import grpc
import kubernetes_validate
import pytest
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CSI = REPOSITORY / "deploy" / "csi"
sys.path[:0] = [str(REPOSITORY / "tests"), str(CSI / "plugin")]

from e2e.harness import Sandbox, binary, devstore  # noqa: E402
from e2e.mounting import is_mounted, needs_fuse, wait_until  # noqa: E402

csi, services = grpc.protos_and_services("csi.proto")
registration, registration_services = grpc.protos_and_services("registration.proto")
Mode = csi.VolumeCapability.AccessMode
pytestmark = [needs_fuse, pytest.mark.skipif(os.geteuid() != 0, reason="bind mounts need root")]


def capability(mode: int = Mode.MULTI_NODE_READER_ONLY, **access: Any) -> Any:
    access = access or {"mount": csi.VolumeCapability.MountVolume()}
    return csi.VolumeCapability(access_mode=Mode(mode=mode), **access)


class Plugin:
    """Is a plugin with a store behind it, and a folder such as the kubelet's."""

    def __init__(self, folder: pathlib.Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.staging, self.target = folder / "staging", folder / "pods" / "p1" / "mount"
        self.socket, self.registrations = folder / "csi.sock", folder / "registrations"
        self.registrations.mkdir()
        command = [
            sys.executable,
            CSI / "plugin" / "server.py",
            "--endpoint",
            self.socket,
            "--node-id",
            "node-1",
            "--millrace",
            binary(),
        ]
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*command, "--registration", self.registrations, "--cache", folder / "cache", "--version", "1.2.3"],
                env=environment,
                stderr=log,
            )
        wait_until(lambda: "listens" in self.log() or self.process.poll() is not None, "the plugin")
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.identity, self.node = services.IdentityStub(self.channel), services.NodeStub(self.channel)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stage(self, **other: Any) -> None:
        asked = {
            "volume_id": "v1",
            "staging_target_path": str(self.staging),
            "volume_capability": capability(),
            "volume_context": {"uri": "s3://b"},
        }
        self.node.NodeStageVolume(csi.NodeStageVolumeRequest(**(asked | other)))

    def publish(self, **other: Any) -> None:
        asked = {
            "volume_id": "v1",
            "staging_target_path": str(self.staging),
            "target_path": str(self.target),
            "volume_capability": capability(),
            "volume_context": {"uri": "s3://b"},
        }
        self.node.NodePublishVolume(csi.NodePublishVolumeRequest(**(asked | other)))

    def unpublish(self, **other: Any) -> None:
        self.node.NodeUnpublishVolume(
            csi.NodeUnpublishVolumeRequest(**({"volume_id": "v1", "target_path": str(self.target)} | other))
        )

    def unstage(self, **other: Any) -> None:
        self.node.NodeUnstageVolume(
            csi.NodeUnstageVolumeRequest(**({"volume_id": "v1", "staging_target_path": str(self.staging)} | other))
        )

    def close(self) -> None:
        self.channel.close()
        self.process.terminate()
        try:
            assert self.process.wait(60) == 0, self.log()
        finally:
            self.process.kill()
            for line in reversed(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()):
                if line.split(" ")[4].startswith(str(self.folder)):
                    subprocess.run(["umount", "-l", line.split(" ")[4]], check=False)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    folder = tmp_path_factory.mktemp("csi")
    (folder / "home").mkdir()
    (folder / "root" / "b").mkdir(parents=True)
    (folder / "root" / "b" / "object").write_bytes(b"text")
    sandbox = Sandbox(folder / "home")
    with devstore(sandbox, folder / "root") as store:
        running = Plugin(folder, sandbox.env(store.env()))
        try:
            yield running
        finally:
            running.close()


@pytest.fixture(autouse=True)
def nothing_stays(plugin: Plugin) -> Iterator[None]:
    yield
    for target in [plugin.target, plugin.folder / "pods" / "p2" / "mount"]:
        plugin.unpublish(target_path=str(target))
    plugin.unstage()
    assert not is_mounted(plugin.staging) and not is_mounted(plugin.target)


def fails(code: grpc.StatusCode, call: Any, **arguments: Any) -> str:
    with pytest.raises(grpc.RpcError) as error:
        call(**arguments)
    assert error.value.code() == code, error.value
    return str(error.value.details())


# ---- Identity


def test_identity_tells_name_and_version(plugin: Plugin) -> None:
    info = plugin.identity.GetPluginInfo(csi.GetPluginInfoRequest())
    assert re.fullmatch(r"[a-zA-Z0-9][-a-zA-Z0-9.]{0,61}[a-zA-Z0-9]", info.name) and info.vendor_version == "1.2.3"
    plugin.identity.GetPluginCapabilities(csi.GetPluginCapabilitiesRequest())


def test_identity_is_ready(plugin: Plugin) -> None:
    assert plugin.identity.Probe(csi.ProbeRequest()).ready.value


def test_the_kubelet_finds_the_plugin(plugin: Plugin) -> None:
    (socket,) = plugin.registrations.iterdir()
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = registration_services.RegistrationStub(channel)
        info = stub.GetInfo(registration.InfoRequest())
        assert (info.type, info.endpoint, list(info.supported_versions)) == ("CSIPlugin", str(plugin.socket), ["1.0.0"])
        assert info.name == plugin.identity.GetPluginInfo(csi.GetPluginInfoRequest()).name
        stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True))
    wait_until(lambda: "registered at the kubelet" in plugin.log(), "a line of the log")


# ---- Node


def test_node_tells_its_name_and_what_it_can(plugin: Plugin) -> None:
    assert plugin.node.NodeGetInfo(csi.NodeGetInfoRequest()).node_id == "node-1"
    (only,) = plugin.node.NodeGetCapabilities(csi.NodeGetCapabilitiesRequest()).capabilities
    assert only.rpc.type == csi.NodeServiceCapability.RPC.STAGE_UNSTAGE_VOLUME


def test_calls_without_what_they_need_are_refused(plugin: Plugin) -> None:
    wrong = grpc.StatusCode.INVALID_ARGUMENT
    assert "volume_id" in fails(wrong, plugin.stage, volume_id="")
    assert "staging_target_path" in fails(wrong, plugin.stage, staging_target_path="")
    assert "volume_capability" in fails(wrong, plugin.stage, volume_capability=None)
    assert "uri" in fails(wrong, plugin.stage, volume_context={})
    assert "volume_id" in fails(wrong, plugin.publish, volume_id="")
    assert "target_path" in fails(wrong, plugin.publish, target_path="")
    assert "staging_target_path" in fails(wrong, plugin.publish, staging_target_path="")
    assert "volume_capability" in fails(wrong, plugin.publish, volume_capability=None)
    assert "volume_id" in fails(wrong, plugin.unpublish, volume_id="")
    assert "target_path" in fails(wrong, plugin.unpublish, target_path="")
    assert "volume_id" in fails(wrong, plugin.unstage, volume_id="")
    assert "staging_target_path" in fails(wrong, plugin.unstage, staging_target_path="")
    block = capability(block=csi.VolumeCapability.BlockVolume())
    assert "Filesystem" in fails(wrong, plugin.stage, volume_capability=block)
    assert "access mode" in fails(wrong, plugin.stage, volume_capability=capability(Mode.UNKNOWN))


def test_publishing_before_staging_is_refused(plugin: Plugin) -> None:
    fails(grpc.StatusCode.FAILED_PRECONDITION, plugin.publish)


def test_the_life_of_a_volume(plugin: Plugin) -> None:
    other = plugin.folder / "pods" / "p2" / "mount"
    for _ in range(2):
        plugin.stage()
    for _ in range(2):
        plugin.publish()
        plugin.publish(target_path=str(other))
    for target in (plugin.target, other):
        assert (target / "object").read_bytes() == b"text"
    for _ in range(2):
        plugin.unpublish()
    assert not plugin.target.exists() and (other / "object").read_bytes() == b"text"
    plugin.unpublish(target_path=str(other))
    for _ in range(2):
        plugin.unstage()
    assert not is_mounted(plugin.staging)


def test_what_was_never_there_can_be_taken_away(plugin: Plugin) -> None:
    plugin.unpublish(volume_id="none", target_path=str(plugin.folder / "none"))
    plugin.unstage(volume_id="none", staging_target_path=str(plugin.folder / "none"))


def test_a_volume_that_is_staged_otherwise_is_in_the_way(plugin: Plugin) -> None:
    plugin.stage()
    fails(grpc.StatusCode.ALREADY_EXISTS, plugin.stage, volume_capability=capability(Mode.MULTI_NODE_MULTI_WRITER))


def test_writing(plugin: Plugin) -> None:
    writes = capability(Mode.MULTI_NODE_MULTI_WRITER)
    plugin.stage(volume_capability=writes)
    plugin.publish(volume_capability=writes)
    (plugin.target / "written").write_bytes(b"by a pod")
    assert (plugin.folder / "root" / "b" / "written").read_bytes() == b"by a pod"
    fails(grpc.StatusCode.ALREADY_EXISTS, plugin.publish, volume_capability=writes, readonly=True)


def test_secrets_are_in_no_log_and_no_answer(plugin: Plugin) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a-key-of-somebody", "AWS_SECRET_ACCESS_KEY": "a-secret-of-somebody"}
    said = fails(grpc.StatusCode.INTERNAL, plugin.stage, secrets=keys)
    assert "s3://b" in said and "a-secret-of-somebody" not in said + plugin.log()


def test_a_killed_mount_is_staged_again(plugin: Plugin) -> None:
    plugin.stage()
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(plugin.staging).encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
    deadline = time.monotonic() + 60
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            os.statvfs(plugin.staging)
    plugin.stage()
    plugin.publish()
    assert (plugin.target / "object").read_bytes() == b"text"


def test_a_node_is_no_controller(plugin: Plugin) -> None:
    assert not plugin.identity.GetPluginCapabilities(csi.GetPluginCapabilitiesRequest()).capabilities
    stub = services.ControllerStub(plugin.channel)
    fails(grpc.StatusCode.UNIMPLEMENTED, lambda: stub.CreateVolume(csi.CreateVolumeRequest(name="v")))


# ---- Controller


@pytest.fixture(scope="module")
def controller() -> Iterator[Any]:
    """Opens a channel to a controller. It runs without a right of root; its user stays, who may enter the folder of the
    tests."""
    with tempfile.TemporaryDirectory() as name:
        socket, log = pathlib.Path(name) / "csi.sock", pathlib.Path(name) / "log"
        command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", sys.executable]
        command += [str(CSI / "plugin" / "server.py"), "--endpoint", str(socket), "--controller", "--version", "1.2.3"]
        with open(log, "wb") as said:
            process = subprocess.Popen(command, stderr=said)
        try:
            wait_until(lambda: "listens" in log.read_text() or process.poll() is not None, "the controller")
            assert process.poll() is None, log.read_text()
            with grpc.insecure_channel(f"unix:{socket}") as channel:
                yield channel
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


CLAIM = {"csi.storage.k8s.io/pvc/name": "train", "csi.storage.k8s.io/pvc/namespace": "vision"}


def create(channel: Any, **other: Any) -> Any:
    asked = {
        "name": "pvc-1",
        "capacity_range": csi.CapacityRange(required_bytes=1 << 40),
        "volume_capabilities": [capability()],
        "parameters": {**CLAIM, "uri": "s3://b/${pvc.namespace}/${pvc.name}"},
    }
    return services.ControllerStub(channel).CreateVolume(csi.CreateVolumeRequest(**(asked | other))).volume


def test_the_controller_tells_what_it_can(controller: Any) -> None:
    identity = services.IdentityStub(controller)
    assert identity.GetPluginInfo(csi.GetPluginInfoRequest()).name == "mount.millrace.csi"
    assert identity.Probe(csi.ProbeRequest()).ready.value
    (service,) = identity.GetPluginCapabilities(csi.GetPluginCapabilitiesRequest()).capabilities
    assert service.service.type == csi.PluginCapability.Service.CONTROLLER_SERVICE
    stub = services.ControllerStub(controller)
    (only,) = stub.ControllerGetCapabilities(csi.ControllerGetCapabilitiesRequest()).capabilities
    assert only.rpc.type == csi.ControllerServiceCapability.RPC.CREATE_DELETE_VOLUME


def test_a_volume_of_a_claim(controller: Any, plugin: Plugin) -> None:
    """The controller makes it twice, then the node mounts it as it was made, and it is removed twice."""
    made = [create(controller) for _ in range(2)]
    assert made[0] == made[1] and made[0].volume_id == "pvc-1" and made[0].capacity_bytes == 1 << 40
    assert dict(made[0].volume_context) == {"uri": "s3://b/vision/train"}
    (plugin.folder / "root/b/vision/train").mkdir(parents=True)
    (plugin.folder / "root/b/vision/train/one").write_bytes(b"1")
    plugin.stage(volume_context=made[0].volume_context)
    plugin.publish(volume_context=made[0].volume_context)
    assert [path.name for path in plugin.target.iterdir()] == ["one"]
    stub = services.ControllerStub(controller)
    for _ in range(2):
        stub.DeleteVolume(csi.DeleteVolumeRequest(volume_id="pvc-1"))
    assert (plugin.folder / "root/b/vision/train/one").read_bytes() == b"1"


def test_calls_of_the_controller_without_what_they_need_are_refused(controller: Any) -> None:
    wrong = grpc.StatusCode.INVALID_ARGUMENT
    stub = services.ControllerStub(controller)
    assert "name" in fails(wrong, create, channel=controller, name="")
    assert "volume_capabilities" in fails(wrong, create, channel=controller, volume_capabilities=[])
    assert "uri" in fails(wrong, create, channel=controller, parameters=CLAIM)
    assert "'bucket'" in fails(wrong, create, channel=controller, parameters={"uri": "s3://b", "bucket": "b"})
    block = capability(block=csi.VolumeCapability.BlockVolume())
    assert "Filesystem" in fails(wrong, create, channel=controller, volume_capabilities=[capability(), block])
    source = csi.VolumeContentSource()
    assert "snapshots" in fails(wrong, create, channel=controller, volume_content_source=source)
    assert "volume_id" in fails(wrong, lambda: stub.DeleteVolume(csi.DeleteVolumeRequest()))

    def validate(**asked: Any) -> Any:
        return stub.ValidateVolumeCapabilities(csi.ValidateVolumeCapabilitiesRequest(**asked))

    assert "volume_id" in fails(wrong, validate, volume_capabilities=[capability()])
    assert "volume_capabilities" in fails(wrong, validate, volume_id="pvc-1")
    assert len(validate(volume_id="pvc-1", volume_capabilities=[capability()]).confirmed.volume_capabilities) == 1


# ---- Manifests


@pytest.mark.parametrize(
    "path",
    sorted((CSI / "base").glob("*.yaml")) + sorted((CSI / "example").glob("*.yaml")),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_manifests_fit_the_schemas(path: pathlib.Path) -> None:
    if path.stem == "kustomization":
        return  # no object of the API; `kubectl kustomize` reads it in tests/mount/test_csi_node.py
    for document in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_the_schemas_refuse_what_is_wrong() -> None:
    (document,) = yaml.safe_load_all((CSI / "base" / "daemonset.yaml").read_text())
    document["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, "1.31", strict=True)
