#!/usr/bin/env python3
"""A CSI plugin whose volumes are mounts by `millrace mount`: its gRPC services, and the registration at the kubelet.

server.py --endpoint /csi/csi.sock --node-id NAME --registration /registration --kubelet-endpoint /var/lib/kubelet/plugins/mount.millrace.csi/csi.sock

With --controller in place of --node-id, it makes volumes for claims, beside Kubernetes' external-provisioner, and mounts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import controller
import grpc
from node import Node, Refused, Settings, Volume, bytes_of, volume_of

NAME = "mount.millrace.csi"
csi, csi_services = grpc.protos_and_services("csi.proto")
registration, registration_services = grpc.protos_and_services("registration.proto")

Mode = csi.VolumeCapability.AccessMode
READERS = {Mode.SINGLE_NODE_READER_ONLY, Mode.MULTI_NODE_READER_ONLY}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def answers(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Returns a method of a service. A refusal becomes a status of gRPC, and a line of the log. Neither has secrets."""

    def answer(self: Any, request: Any, context: Any) -> Any:
        try:
            return call(self, request)
        except Refused as refused:
            say(f"{call.__name__}: {refused.code}: {refused}")
            context.abort(getattr(grpc.StatusCode, refused.code), str(refused))

    return answer


def need(request: Any, *names: str) -> None:
    for name in names:
        if not getattr(request, name):
            raise Refused("INVALID_ARGUMENT", f"{name} is missing")


def check_capability(volume_id: str, capability: Any) -> None:
    """Refuses all capabilities except file systems, as INVALID_ARGUMENT."""
    if capability.WhichOneof("access_type") != "mount":
        raise Refused("INVALID_ARGUMENT", f"volume {volume_id}: it is a file system, volumeMode must be Filesystem")
    if capability.access_mode.mode == Mode.UNKNOWN:
        raise Refused("INVALID_ARGUMENT", f"volume {volume_id}: the access mode is not known")


def volume_of_request(request: Any, folders: bool) -> Volume:
    if not request.HasField("volume_capability"):
        raise Refused("INVALID_ARGUMENT", "volume_capability is missing")
    capability = request.volume_capability
    check_capability(request.volume_id, capability)
    writable = capability.access_mode.mode not in READERS
    return volume_of(request.volume_id, request.volume_context, list(capability.mount.mount_flags), writable, folders)


class IdentityService(csi_services.IdentityServicer):  # type: ignore[misc,name-defined]
    def __init__(self, settings: Settings, version: str, mounts: bool) -> None:
        """With `mounts`, this process is the plugin of a node. Otherwise it is the controller."""
        self._settings = settings
        self._version = version
        self._mounts = mounts

    @answers
    def GetPluginInfo(self, request: Any) -> Any:
        return csi.GetPluginInfoResponse(name=NAME, vendor_version=self._version)

    @answers
    def GetPluginCapabilities(self, request: Any) -> Any:
        if self._mounts:
            return csi.GetPluginCapabilitiesResponse()
        service = csi.PluginCapability.Service(type=csi.PluginCapability.Service.CONTROLLER_SERVICE)
        return csi.GetPluginCapabilitiesResponse(capabilities=[csi.PluginCapability(service=service)])

    @answers
    def Probe(self, request: Any) -> Any:
        if not self._mounts:
            return csi.ProbeResponse(ready=csi.Truth(value=True))
        if shutil.which(self._settings.millrace) is None:
            raise Refused("FAILED_PRECONDITION", f"{self._settings.millrace} is not there")
        if not os.path.exists("/dev/fuse"):
            raise Refused(
                "FAILED_PRECONDITION",
                "/dev/fuse is not there: the kernel needs its module fuse, and the container must be privileged",
            )
        return csi.ProbeResponse(ready=csi.Truth(value=True))


class ControllerService(csi_services.ControllerServicer):  # type: ignore[misc,name-defined]
    def __init__(self, folders: bool) -> None:
        self._folders = folders

    @answers
    def CreateVolume(self, request: Any) -> Any:
        need(request, "name", "volume_capabilities")
        for capability in request.volume_capabilities:
            check_capability(request.name, capability)
        if request.HasField("volume_content_source"):
            raise Refused("INVALID_ARGUMENT", f"volume {request.name}: there are no snapshots and no clones")
        context = controller.attributes_of(request.name, request.parameters, self._folders)
        say(f"{request.name}: shows {context['uri']}")
        volume = csi.Volume(
            capacity_bytes=request.capacity_range.required_bytes, volume_id=request.name, volume_context=context
        )
        return csi.CreateVolumeResponse(volume=volume)

    @answers
    def DeleteVolume(self, request: Any) -> Any:
        need(request, "volume_id")
        say(f"{request.volume_id}: is gone; its objects stay in the store")
        return csi.DeleteVolumeResponse()

    @answers
    def ValidateVolumeCapabilities(self, request: Any) -> Any:
        need(request, "volume_id", "volume_capabilities")
        for capability in request.volume_capabilities:
            check_capability(request.volume_id, capability)
        confirmed = csi.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context,
            volume_capabilities=request.volume_capabilities,
            parameters=request.parameters,
        )
        return csi.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    @answers
    def ControllerGetCapabilities(self, request: Any) -> Any:
        capability = csi.ControllerServiceCapability(
            rpc=csi.ControllerServiceCapability.RPC(type=csi.ControllerServiceCapability.RPC.CREATE_DELETE_VOLUME)
        )
        return csi.ControllerGetCapabilitiesResponse(capabilities=[capability])


class NodeService(csi_services.NodeServicer):  # type: ignore[misc,name-defined]
    def __init__(self, node: Node, node_id: str, folders: bool) -> None:
        self._node = node
        self._folders = folders
        self._node_id = node_id

    @answers
    def NodeStageVolume(self, request: Any) -> Any:
        need(request, "volume_id", "staging_target_path")
        volume = volume_of_request(request, self._folders)
        self._node.stage(volume, request.staging_target_path, dict(request.secrets))
        say(f"{volume.id}: {volume.uri} is on {request.staging_target_path}")
        return csi.NodeStageVolumeResponse()

    @answers
    def NodeUnstageVolume(self, request: Any) -> Any:
        need(request, "volume_id", "staging_target_path")
        self._node.unstage(request.volume_id, request.staging_target_path)
        say(f"{request.volume_id}: nothing is on {request.staging_target_path}")
        return csi.NodeUnstageVolumeResponse()

    @answers
    def NodePublishVolume(self, request: Any) -> Any:
        need(request, "volume_id", "target_path", "staging_target_path")
        volume = volume_of_request(request, self._folders)
        self._node.publish(volume, request.staging_target_path, request.target_path, request.readonly)
        say(f"{volume.id}: is on {request.target_path}")
        return csi.NodePublishVolumeResponse()

    @answers
    def NodeUnpublishVolume(self, request: Any) -> Any:
        need(request, "volume_id", "target_path")
        self._node.unpublish(request.volume_id, request.target_path)
        say(f"{request.volume_id}: {request.target_path} is gone")
        return csi.NodeUnpublishVolumeResponse()

    @answers
    def NodeGetCapabilities(self, request: Any) -> Any:
        capability = csi.NodeServiceCapability(
            rpc=csi.NodeServiceCapability.RPC(type=csi.NodeServiceCapability.RPC.STAGE_UNSTAGE_VOLUME)
        )
        return csi.NodeGetCapabilitiesResponse(capabilities=[capability])

    @answers
    def NodeGetInfo(self, request: Any) -> Any:
        return csi.NodeGetInfoResponse(node_id=self._node_id)


class RegistrationService(registration_services.RegistrationServicer):  # type: ignore[misc,name-defined]
    """The service that answers the kubelet which plugin the socket in its folder belongs to."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    @answers
    def GetInfo(self, request: Any) -> Any:
        return registration.PluginInfo(
            type="CSIPlugin", name=NAME, endpoint=self._endpoint, supported_versions=["1.0.0"]
        )

    @answers
    def NotifyRegistrationStatus(self, request: Any) -> Any:
        say(
            "registered at the kubelet"
            if request.plugin_registered
            else f"the kubelet refuses the registration: {request.error}"
        )
        return registration.RegistrationStatusResponse()


def listening(socket: Path) -> grpc.Server:
    with contextlib.suppress(FileNotFoundError):
        socket.unlink()  # of a plugin that was killed
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_insecure_port(f"unix:{socket}")
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--endpoint", type=Path, required=True, metavar="SOCKET", help="where the services of CSI listen"
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--node-id", metavar="NAME", help="mount volumes on this node, which Kubernetes calls NAME")
    kind.add_argument("--controller", action="store_true", help="make volumes for claims; mount nothing")
    parser.add_argument("--registration", type=Path, metavar="DIR", help="the kubelet's folder of registrations")
    parser.add_argument(
        "--kubelet-endpoint", metavar="SOCKET", help="the path of --endpoint on the node itself (default: the same)"
    )
    parser.add_argument("--millrace", default="millrace", metavar="PROGRAM", help="(default: millrace)")
    parser.add_argument(
        "--cache", default="", metavar="DIR", help="keep what is read in this folder, for all volumes of the node"
    )
    parser.add_argument(
        "--cache-size", default="", metavar="SIZE", help="what the cache may take of the disk (default: all but 5 %%)"
    )
    parser.add_argument(
        "--memory",
        default="1GiB",
        metavar="SIZE",
        help="budget of each volume for what is read ahead and written (default: 1GiB)",
    )
    parser.add_argument(
        "--allow-folders",
        action="store_true",
        help="let volumes be folders of the node; anyone who may make a PersistentVolume can then read all files that the plugin sees",
    )
    parser.add_argument(
        "--staging",
        default="",
        metavar="DIR",
        help="where the bytes of files lie that are being written (default: that of --cache, else ~/.cache/millrace)",
    )
    parser.add_argument(
        "--max-memory", default="", metavar="SIZE", help="that a volume's memory= may say (default: any)"
    )
    parser.add_argument(
        "--max-staging-size",
        default="",
        metavar="SIZE",
        help="that a volume's staging-size= may say, and what a volume has that says none (default: any)",
    )
    parser.add_argument("--version", default="0", help="that the plugin tells (default: 0)")
    options = parser.parse_args()
    for size in (options.max_memory, options.max_staging_size):
        try:
            bytes_of(size or "1")
        except ValueError as error:
            parser.error(str(error))

    settings = Settings(
        options.millrace,
        options.cache,
        options.cache_size,
        options.memory,
        options.allow_folders,
        options.staging,
        options.max_memory,
        options.max_staging_size,
    )
    services = listening(options.endpoint)
    identity = IdentityService(settings, options.version, mounts=not options.controller)
    csi_services.add_IdentityServicer_to_server(identity, services)
    if options.controller:
        csi_services.add_ControllerServicer_to_server(ControllerService(settings.folders), services)
    else:
        node = NodeService(Node(settings), options.node_id, settings.folders)
        csi_services.add_NodeServicer_to_server(node, services)
    servers = [services]
    services.start()
    if options.registration:
        register = listening(options.registration / f"{NAME}-reg.sock")
        registration_services.add_RegistrationServicer_to_server(
            RegistrationService(options.kubelet_endpoint or str(options.endpoint)), register
        )
        servers.append(register)
        register.start()
    say(f"{NAME} listens on {options.endpoint}")

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    for server in reversed(servers):
        server.stop(grace=5).wait()


if __name__ == "__main__":
    main()
