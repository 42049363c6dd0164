"""The work of the CSI plugin on a node, on real mounts (deploy/csi/plugin/node.py), and its manifests. Its gRPC is in tests/frameworks/cases_csi.py."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.harness import REPOSITORY, Sandbox, Server, binary
from e2e.mounting import is_mounted, needs_fuse, wait_until

CSI = REPOSITORY / "deploy" / "csi"
sys.path[:0] = [str(CSI / "plugin"), str(CSI)]

import node as plugin  # noqa: E402
import try_image  # noqa: E402

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="bind mounts need root")
ATTRIBUTES = {"uri": "s3://b"}


def processes_on(folder: Path) -> list[int]:
    """Returns the processes of mounts on that folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def refused(code: str, call: Any, *arguments: Any) -> str:
    with pytest.raises(plugin.Refused) as error:
        call(*arguments)
    assert error.value.code == code, error.value
    return str(error.value)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where volumes are staged and published; nothing stays mounted."""
    place = tmp_path / "kubelet"
    place.mkdir()
    yield place
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if line.split(" ")[4].startswith(str(place)):
            subprocess.run(["umount", "-l", line.split(" ")[4]], check=False)
    wait_until(lambda: not processes_on(place / "staging"), "the end of the mounts")


@pytest.fixture
def node(sandbox: Sandbox, store: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [*os.environ]:
        if name.startswith(("AWS_", "MILLRACE_")) and name not in ("MILLRACE_BIN", "MILLRACE_TEST_ALL"):
            monkeypatch.delenv(name)
    for name, value in sandbox.env(store.env()).items():
        monkeypatch.setenv(name, value)
    return plugin.Node(plugin.Settings(millrace=str(binary()), cache=str(tmp_path / "cache")))


def volume(writable: bool = False, flags: tuple[str, ...] = (), **attributes: str) -> Any:
    return plugin.volume_of("v1", ATTRIBUTES | attributes, list(flags), writable)


@needs_fuse
@as_root
def test_a_volume_is_staged_once_and_published_to_pods(node: Any, folder: Path, bucket: Path, tmp_path: Path) -> None:
    staging, pods = folder / "staging", [folder / "pod1" / "mount", folder / "pod2" / "mount"]
    node.stage(volume(flags=("uid=1234", "umask=077")), str(staging), {})
    first = processes_on(staging)
    node.stage(volume(flags=("uid=1234", "umask=077")), str(staging), {})  # again
    assert len(first) == 1 and processes_on(staging) == first
    for pod in [*pods, *pods]:
        node.publish(volume(), str(staging), str(pod), False)
        assert (pod / "large").read_bytes() == (bucket / "large").read_bytes()
        assert (pod / "large").stat().st_uid == 1234 and (pod / "large").stat().st_mode & 0o777 == 0o400
    with pytest.raises(OSError) as error:
        (pods[0] / "new").write_bytes(b"x")
    assert error.value.errno == errno.EROFS
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))  # of all volumes of the node
    node.unpublish("v1", str(pods[0]))
    node.unpublish("v1", str(pods[0]))
    assert not pods[0].exists() and (pods[1] / "z").read_bytes() == (bucket / "z").read_bytes()
    node.unpublish("v1", str(pods[1]))
    for _ in range(2):
        node.unstage("v1", str(staging))
    assert not is_mounted(staging) and not pods[1].exists()
    wait_until(lambda: not processes_on(staging), "the end of the mount")


@needs_fuse
@as_root
def test_writers_and_readers(node: Any, folder: Path, bucket: Path) -> None:
    staging, writer, reader = folder / "staging", folder / "writer", folder / "reader"
    node.stage(volume(writable=True), str(staging), {})
    node.publish(volume(writable=True), str(staging), str(writer), False)
    node.publish(volume(writable=True), str(staging), str(reader), True)
    node.publish(volume(writable=True), str(staging), str(reader), True)
    (writer / "new").write_bytes(b"text")
    assert (reader / "new").read_bytes() == b"text" and (bucket / "new").read_bytes() == b"text"
    with pytest.raises(OSError) as error:
        (reader / "other").write_bytes(b"x")
    assert error.value.errno == errno.EROFS
    # The same places, but in another way.
    refused("ALREADY_EXISTS", node.publish, volume(writable=True), str(staging), str(reader), False)
    refused("ALREADY_EXISTS", node.stage, volume(writable=False), str(staging), {})
    refused("ALREADY_EXISTS", node.stage, volume(writable=True, uri="s3://b/a"), str(staging), {})


@needs_fuse
@as_root
@pytest.mark.parametrize(
    "flags", [(), ("metadata-ttl=indefinite",)], ids=["default", "indefinite"]
)  # the kernel goes on to answer from its cache
def test_a_mount_that_died_is_made_again(node: Any, folder: Path, bucket: Path, flags: tuple[str, ...]) -> None:
    staging, pod, later = folder / "staging", folder / "pod", folder / "later"
    node.stage(volume(flags=flags), str(staging), {})
    node.publish(volume(), str(staging), str(pod), False)
    for again in (lambda: node.stage(volume(flags=flags), str(staging), {}), lambda: None):
        os.kill(processes_on(staging)[0], signal.SIGKILL)
        wait_until(lambda: not plugin.is_alive(str(staging)), "its end")
        again()
        # Also without another stage: the kubelet takes the volume for staged as long as a pod uses it.
        node.publish(volume(), str(staging), str(later), False)
        assert (later / "z").read_bytes() == (bucket / "z").read_bytes()
        node.publish(volume(), str(staging), str(pod), False)
        assert (pod / "z").read_bytes() == (bucket / "z").read_bytes()
    os.kill(processes_on(staging)[0], signal.SIGKILL)
    wait_until(lambda: not plugin.is_alive(str(staging)), "its end")
    # Another plugin does not know how it was staged, and takes away what is dead.
    other = plugin.Node(plugin.Settings(millrace=str(binary())))
    assert "not staged" in refused("FAILED_PRECONDITION", other.publish, volume(), str(staging), str(pod), False)
    other.unpublish("v1", str(pod))
    other.unpublish("v1", str(later))
    other.unstage("v1", str(staging))
    assert not any(is_mounted(place) for place in (staging, pod, later))


@needs_fuse
@as_root
def test_another_plugin_takes_over_what_lives(node: Any, folder: Path) -> None:
    staging, pod = folder / "staging", folder / "pod"
    node.stage(volume(), str(staging), {})
    before = processes_on(staging)
    other = plugin.Node(plugin.Settings(millrace=str(binary())))
    other.stage(volume(), str(staging), {})
    other.publish(volume(), str(staging), str(pod), False)
    assert processes_on(staging) == before and (pod / "z").stat().st_size == 1


@needs_fuse
@as_root
def test_keys_and_places_of_a_volume(node: Any, folder: Path, store: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {name: store.env()[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    there = volume(endpoint=store.url, region="us-east-1")
    wrong = keys | {"AWS_SECRET_ACCESS_KEY": "wrong-secret-of-a-user"}
    said = refused("INTERNAL", node.stage, there, str(folder / "staging"), wrong)
    assert "s3://b" in said and "wrong-secret-of-a-user" not in said and not is_mounted(folder / "staging")
    assert "AWS_KEY" in refused(
        "INVALID_ARGUMENT", node.stage, there, str(folder / "staging"), {"AWS_KEY": "secret-of-a-user"}
    )
    node.stage(there, str(folder / "staging"), keys)
    assert (folder / "staging" / "z").stat().st_size == 1
    command = Path(f"/proc/{processes_on(folder / 'staging')[0]}/cmdline").read_bytes().decode()
    assert not any(key in command for key in keys.values())  # everybody may read it


@needs_fuse
@as_root
def test_what_cannot_be_mounted_is_told(node: Any, folder: Path) -> None:
    assert "none-there" in refused("INTERNAL", node.stage, volume(uri="s3://none-there"), str(folder / "staging"), {})
    refused("INVALID_ARGUMENT", node.stage, volume(flags=("umask=nine",)), str(folder / "staging"), {})
    refused("FAILED_PRECONDITION", node.publish, volume(), str(folder / "staging"), str(folder / "pod"), False)
    assert not is_mounted(folder / "staging") and not (folder / "pod").exists()
    # Mounts of others are left alone.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder / "staging"], check=True)
    refused("ALREADY_EXISTS", node.stage, volume(), str(folder / "staging"), {})
    refused("INTERNAL", node.unstage, "v1", str(folder / "staging"))
    assert is_mounted(folder / "staging")


@needs_fuse
@as_root
def test_a_mount_that_does_not_answer_stops_no_other_call(
    node: Any, folder: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "ANSWER_SECONDS", 2.0)
    staging, pod, other = folder / "staging", folder / "pod", folder / "staging2"
    node.stage(volume(), str(staging), {})
    node.publish(volume(), str(staging), str(pod), False)
    (stopped,) = processes_on(staging)
    os.kill(stopped, signal.SIGSTOP)
    try:
        refused("DEADLINE_EXCEEDED", node.stage, volume(), str(staging), {})
        refused("DEADLINE_EXCEEDED", node.publish, volume(), str(staging), str(folder / "pod2"), False)
        node.stage(plugin.volume_of("v2", ATTRIBUTES, [], False), str(other), {})
        assert (other / "z").read_bytes() == (bucket / "z").read_bytes()
        with subprocess.Popen(["stat", "--file-system", pod], stderr=subprocess.DEVNULL) as waiting:
            node.unpublish("v1", str(pod))
            node.unstage("v1", str(staging))
            assert not is_mounted(staging) and not is_mounted(pod)
            assert waiting.wait(300) != 0  # the kernel has ended its call
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: not processes_on(staging), "the end of the mount")
    node.unstage("v2", str(other))


def test_attributes_and_mount_options() -> None:
    assert volume(flags=("ro",), writable=True) == volume()
    assert volume(flags=("uid=1", "metadata-ttl=1h"), writable=True, region="r").options == ("uid=1", "metadata-ttl=1h")
    assert plugin.volume_of("v", ATTRIBUTES | {"csi.storage.k8s.io/pod.name": "p"}, [], False).uri == "s3://b"
    assert volume(flags=("links",), writable=False).options == ("links",)
    assert volume(flags=("no-links",), writable=True).options == ("no-links",)
    for attributes in ({}, {"uri": ""}, {"uri": "--help"}, ATTRIBUTES | {"bucket": "b"}):
        refused("INVALID_ARGUMENT", plugin.volume_of, "v", attributes, [], True)
    # No flag may name a file of the node.
    for flag in (
        "cache=/",
        "cache-tenant=of-another",
        "log=/etc/passwd",
        "order=/x",
        "uid=1,log=/x",
        "uid",
        "uid=",
        "suid",
        "allow_other,log=/x",
    ):
        refused("INVALID_ARGUMENT", plugin.volume_of, "v", ATTRIBUTES, [flag], True)
    for flag in ("no-overwrite", "no-links"):
        refused("INVALID_ARGUMENT", plugin.volume_of, "v", ATTRIBUTES, [flag], False)


def test_a_volume_takes_no_more_of_the_node_than_its_operator_allows(tmp_path: Path) -> None:
    limited = plugin.Settings(millrace=str(tmp_path / "none"), max_memory="2GiB", max_staging="10GB")
    node = plugin.Node(limited)
    for option in ("memory=2049MiB", "memory=3GB", "memory=much", "staging-size=11GB", "staging-size=1TiB"):
        said = refused("INVALID_ARGUMENT", node.stage, volume(True, (option,)), str(tmp_path / "s"), {})
        assert option.partition("=")[2] in said
    for option in ("memory=2GiB", "memory=2000MB", "staging-size=10GB", "uid=1"):
        plugin.check_limits(volume(True, (option,)), limited)
        plugin.check_limits(volume(True, ("memory=1TiB",)), plugin.Settings())
    words = node._command(volume(writable=True), "/mnt")
    assert words[words.index("--staging-size") + 1] == "10GB"
    assert "--staging-size" not in node._command(volume(True, ("staging-size=1GB",)), "/mnt")
    assert "--staging-size" not in node._command(volume(), "/mnt")


FOLDERS = ("/var/lib/kubelet", "file:///var/lib/kubelet", "/cache", "//s3://b", "/s3://b", "S3://b/../..")


def test_a_volume_is_no_folder_of_the_node_unless_the_plugin_allows_it() -> None:
    for uri in (*FOLDERS, "var/lib", "./s3://b", "mem://x", "{s3://b,/etc}", " s3://b", "-s3://b"):
        said = refused("INVALID_ARGUMENT", plugin.volume_of, "v", {"uri": uri}, [], False)
        assert f"'{uri}'" in said and "--allow-folders" in said
    assert plugin.volume_of("v", {"uri": "/data"}, [], False, folders=True).uri == "/data"
    for uri in ("", "data", "mem://x", "-/x"):
        with pytest.raises(plugin.Refused):
            plugin.volume_of("v", {"uri": uri}, [], False, folders=True)


def mount_that_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Any:
    """A node whose `millrace` writes its environment to a file and ends, and that file."""
    program = tmp_path / "millrace"
    program.write_text(f"#!/bin/sh\nenv -0 >'{tmp_path}/environment'\necho told >&2\nexit 1\n")
    program.chmod(0o755)
    for name in [*os.environ]:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def environment_of(volume: Any, secrets: dict[str, str]) -> dict[str, str]:
        node = plugin.Node(plugin.Settings(millrace=str(program)))
        assert "told" in refused("INTERNAL", node.stage, volume, str(tmp_path / "staging"), secrets)
        told = (tmp_path / "environment").read_text().split("\0")
        return dict(line.split("=", 1) for line in told if line.startswith("AWS_"))

    return environment_of


KEYS_OF_VOLUME = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own-secret"}


def test_the_endpoint_of_a_volume_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b", "AWS_USE_FIPS_ENDPOINT": "true"}
    environment_of = mount_that_tells(tmp_path, monkeypatch, node | {"AWS_SESSION_TOKEN": "node's", "AWS_REGION": "r"})
    with_own = KEYS_OF_VOLUME | {"AWS_REGION": "r"}
    assert environment_of(volume(), KEYS_OF_VOLUME) == node | with_own
    assert environment_of(volume(endpoint="http://c"), KEYS_OF_VOLUME) == with_own | {"AWS_ENDPOINT_URL_S3": "http://c"}


def test_keys_of_the_node_go_to_no_endpoint_of_a_volume(tmp_path: Path) -> None:
    node = plugin.Node(plugin.Settings(millrace=str(tmp_path / "none")))
    halves = [{name: value} for name, value in KEYS_OF_VOLUME.items()]
    for secrets in ({}, {"AWS_SESSION_TOKEN": "t"}, KEYS_OF_VOLUME | {"AWS_ACCESS_KEY_ID": ""}, *halves):
        for there in (volume(endpoint="http://c"), volume()) if secrets else (volume(endpoint="http://c"),):
            said = refused("INVALID_ARGUMENT", node.stage, there, str(tmp_path / "staging"), secrets)
            assert "own-secret" not in said and "AWS_" in said


def documents(folder: str) -> list[dict[str, Any]]:
    listed = yaml.safe_load((CSI / folder / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in (CSI / folder).iterdir()}
    return [document for name in listed for document in yaml.safe_load_all((CSI / folder / name).read_text())]


def test_manifests_fit_the_plugin() -> None:
    base = {document["kind"]: document for document in documents("base")}
    pod = base["DaemonSet"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    server = (CSI / "plugin" / "server.py").read_text()
    for argument in container["args"]:
        assert f'"{argument.partition("=")[0]}"' in server, argument
    # Else all writers in pods look like one process, which is never killed.
    assert pod["hostPID"] is True
    name = base["CSIDriver"]["metadata"]["name"]
    assert f'NAME = "{name}"' in server
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert f"--kubelet-endpoint={paths['plugin']}/csi.sock" in container["args"] and paths["plugin"].endswith(
        f"/{name}"
    )
    example = {document["kind"]: document for document in documents("example")}
    source = example["PersistentVolume"]["spec"]["csi"]
    assert source["driver"] == name
    plugin.volume_of("v", source["volumeAttributes"], example["PersistentVolume"]["spec"]["mountOptions"], False)
    assert set(example["Secret"]["stringData"]) <= set(plugin.KEYS)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["base", "example"])
def test_kustomize_builds_the_manifests(folder: str) -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", CSI / folder], check=True, capture_output=True, text=True, timeout=120
    ).stdout
    kinds = [document["kind"] for document in yaml.safe_load_all(built)]
    assert sorted(kinds) == sorted(document["kind"] for document in documents(folder))
    if folder == "base":
        assert "image: millrace-csi:latest" in built


def test_the_image_takes_what_is_there() -> None:
    steps = try_image.steps_of((CSI / "Containerfile").read_text())
    assert [step.word for step in steps] == ["FROM", "RUN", "COPY", "COPY", "RUN", "COPY", "ENV", "ENTRYPOINT"]
    assert try_image.suite_of(steps[0].rest) == "bookworm"
    assert "python3-venv" in steps[1].rest and "\\" not in steps[1].rest
    for step in steps:
        if step.word == "COPY":
            source = step.rest.split()[0]
            assert source == "dist/*.whl" or (REPOSITORY / source).exists(), source
    rest = try_image.without_wheel(steps)
    assert not any(".whl" in step.rest for step in rest) and any(
        "requirements.txt" in step.rest for step in rest if step.word == "RUN"
    )


def test_a_folder_and_files_are_copied_as_into_an_image(tmp_path: Path) -> None:
    try_image.copy(tmp_path, ["deploy/csi/plugin/"], "/opt/plugin/")
    try_image.copy(tmp_path, ["deploy/csi/requirements.txt"], "/opt/")
    assert (tmp_path / "opt/plugin/server.py").read_bytes() == (CSI / "plugin" / "server.py").read_bytes()
    assert (tmp_path / "opt/requirements.txt").exists()
    with pytest.raises(SystemExit, match="make wheel"):
        try_image.copy(tmp_path, ["dist/none-there-*.whl"], "/opt/")
