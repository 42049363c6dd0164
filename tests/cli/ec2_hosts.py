"""Instances of the fake EC2 of `millrace devstore --ec2`, on which `millrace volume` finds disks to mount."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# The stand-ins for the programs of the host, of the demo, with a count. The N-th call is the last one of its caller if
# MILLRACE_TEST_KILL is "N before" or "N after" its effect. As in a kernel, a file that its caller has open keeps a file system mounted.
STAND_INS = Path(__file__).resolve().parents[2] / "examples" / "demo-spot" / "host_tool.sh"
TOOL = """#!/bin/sh
count=$(($(cat "$FAKE_HOST/count" 2>/dev/null || echo 0) + 1))
echo $count > "$FAKE_HOST/count"
echo "${0##*/} $*" >> "$FAKE_HOST/said"
[ "$MILLRACE_TEST_KILL" != "$count before" ] || { kill -9 $PPID; exit 1; }
if [ "${0##*/}" = umount ] && ls -l /proc/$PPID/fd | grep -qF "$(readlink -f "$1")/"; then
  echo "umount: $1: target is busy." >&2
  exit 32
fi
"${0%/*}/stand-ins/${0##*/}" "$@"
status=$?
[ "$MILLRACE_TEST_KILL" != "$count after" ] || kill -9 $PPID
exit $status
"""


def make_tools(folder: Path) -> Path:
    (folder / "stand-ins").mkdir(parents=True)
    for name in ("findmnt", "blkid", "mkfs.ext4", "mount", "umount"):
        (folder / name).write_text(TOOL)
        (folder / name).chmod(0o755)
        (folder / "stand-ins" / name).symlink_to(STAND_INS)
    return folder


@dataclass
class Host:
    """An instance, and the folder that holds what is on it."""

    instance: str
    folder: Path
    env: dict[str, str]
    binary: Path

    @property
    def data(self) -> Path:
        """Where the volume is mounted."""
        return self.folder / "data"

    def command(self, *arguments: str) -> list[str]:
        return [str(self.binary), "volume", *arguments]

    def run(self, *arguments: str, code: int | None = 0, kill: str = "") -> subprocess.CompletedProcess[str]:
        (self.folder / "count").unlink(missing_ok=True)
        env = os.environ | self.env | {"MILLRACE_TEST_KILL": kill}
        done = subprocess.run(self.command(*arguments), env=env, capture_output=True, text=True, timeout=300)
        assert code is None or done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def move(self, name: str, *options: str, code: int | None = 0, kill: str = "") -> subprocess.CompletedProcess[str]:
        return self.run(
            "move", name, str(self.data), "--dev", self.env["MILLRACE_TEST_DEV"], *options, code=code, kill=kill
        )


class Cloud:
    """EC2, its instances, and their disks."""

    def __init__(self, server: Any, folder: Path, tools: Path, binary: Path) -> None:
        import boto3  # type: ignore[import-untyped]

        self.server, self.folder, self.tools, self.binary = server, folder, tools, binary
        env = server.env()
        keys = {"aws_access_key_id": env["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": env["AWS_SECRET_ACCESS_KEY"]}
        self.ec2 = boto3.client("ec2", endpoint_url=server.url, region_name="us-east-1", **keys)

    def launch(self, zone: str) -> Host:
        placement = {"AvailabilityZone": zone}
        instance = self.ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, Placement=placement)["Instances"][0][
            "InstanceId"
        ]
        folder = self.folder / "hosts" / instance
        folder.mkdir(parents=True)
        (folder / "mounts").touch()
        env = self.server.env() | {
            "AWS_ENDPOINT_URL_EC2": self.server.url,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",  # of a store elsewhere, which is not asked (C18)
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "AWS_EC2_METADATA_DISABLED": "false",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.server.url}/imds/{instance}",
            "FAKE_HOST": str(folder),
            "MILLRACE_TEST_DEV": str(self.folder / "instances" / instance),
        }
        return Host(instance, folder, env, self.binary)

    def terminate(self, host: Host) -> None:
        self.ec2.terminate_instances(InstanceIds=[host.instance])

    def interrupt(self, host: Host, seconds: int = 120) -> None:
        url = f"{self.server.url}/imds/{host.instance}/interrupt?seconds={seconds}"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
            assert answer.status == 200

    def add_volume(self, zone: str, name: str, files: dict[str, str], **more: Any) -> str:
        """A volume of the user, with a file system and these files."""
        tags = [{"Key": "millrace:volume", "Value": name}, {"Key": "team", "Value": "speech"}]
        specification = [{"ResourceType": "volume", "Tags": tags}]
        settings = {"Size": 8, "VolumeType": "gp3"} | more
        volume: str = self.ec2.create_volume(AvailabilityZone=zone, TagSpecifications=specification, **settings)[
            "VolumeId"
        ]
        while self.ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["State"] == "creating":
            pass
        for file, text in ({".filesystem": ""} | files).items():
            (self.folder / "volumes" / volume / file).write_text(text)
        return volume

    def volumes(self, name: str) -> list[dict[str, Any]]:
        found = self.ec2.describe_volumes(Filters=[{"Name": "tag:millrace:volume", "Values": [name]}])["Volumes"]
        return [volume for volume in found if volume["State"] != "deleting"]

    def snapshots(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ec2.describe_snapshots(
            Filters=[{"Name": "tag:millrace:volume", "Values": [name]}]
        )["Snapshots"]
        return found

    def check_served(self, name: str, host: Host, zone: str, files: dict[str, str]) -> None:
        """The volume is mounted there with these files, and nothing else of it is left."""
        volumes = self.volumes(name)
        assert [(volume["AvailabilityZone"], volume["State"]) for volume in volumes] == [(zone, "in-use")]
        assert volumes[0]["Attachments"][0]["InstanceId"] == host.instance
        assert self.snapshots(name) == []
        assert {path.name: path.read_text() for path in host.data.iterdir() if path.name != ".filesystem"} == files


@contextlib.contextmanager
def killing_proxy(
    target: str,
) -> Iterator[tuple[str, Callable[[int, bool], None], Callable[[subprocess.Popen[str]], None], list[str]]]:
    """Passes calls of EC2 on to a server, and kills the caller at one of them.

    Gives its URL; `at(number, after)`, which says at which call, and whether before or after its effect; `watch(process)`; and the
    actions of the calls since `at`.
    """
    host, port = target.removeprefix("http://").split(":")
    state: dict[str, Any] = {"at": -1, "after": False, "process": None}
    calls: list[str] = []
    watched = threading.Event()

    def forward(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, int(port), timeout=300)
        with contextlib.closing(connection):
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def kill() -> None:
        assert watched.wait(300)
        state["process"].kill()
        state["process"].wait()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.append(body.decode().removeprefix("Action=").split("&")[0])
            last = len(calls) - 1 == state["at"]
            if last and not state["after"]:
                return kill()
            status, text = forward(self, body)
            if last:
                return kill()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def at(number: int, after: bool) -> None:
        state.update(at=number, after=after, process=None)
        watched.clear()
        calls.clear()

    def watch(process: subprocess.Popen[str]) -> None:
        state["process"] = process
        watched.set()

    try:
        yield f"http://127.0.0.1:{server.server_port}", at, watch, calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
