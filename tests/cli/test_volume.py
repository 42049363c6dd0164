"""`millrace volume` on the fake EC2 of devstore: from zone to zone, killed at each call, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import thoroughness
from cli_support import Millrace
from ec2_hosts import Cloud, Host, killing_proxy, make_tools

FILES = {"checkpoint": "step 500", "log": "epoch 3"}
CHANGES = {
    "CreateTags",
    "CreateSnapshot",
    "CreateVolume",
    "AttachVolume",
    "DeleteVolume",
    "DeleteSnapshot",
    "DetachVolume",
}


@pytest.fixture
def cloud(devstore: Callable[..., Any], millrace_bin: Path, tmp_path: Path) -> Callable[..., Cloud]:
    def start(*options: str) -> Cloud:
        folder = tmp_path / "cloud"
        server = devstore("mem:", "--ec2", str(folder), *options)
        return Cloud(server, folder, make_tools(tmp_path / "tools"), millrace_bin)

    return start


def test_a_volume_follows_its_job(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    first = ec2.add_volume("us-east-1a", "run-7", FILES, Iops=4000, Throughput=250)
    host = ec2.launch("us-east-1b")
    done = host.move("run-7", "--json")
    ec2.check_served("run-7", host, "us-east-1b", FILES)
    volume = ec2.volumes("run-7")[0]
    assert json.loads(done.stdout) == {
        "schema": "millrace.volume.move/1",
        "volume": volume["VolumeId"],
        "zone": "us-east-1b",
        "device": str((ec2.folder / "volumes" / volume["VolumeId"]).resolve()),
        "path": str(host.data),
    }
    # It is as fast as the first one was, and counted to the same team.
    assert volume["VolumeId"] != first and (volume["Iops"], volume["Throughput"], volume["VolumeType"]) == (
        4000,
        250,
        "gp3",
    )
    assert {"Key": "team", "Value": "speech"} in volume["Tags"]
    steps = [line.split(" ")[2] for line in done.stderr.splitlines() if "waiting" not in line]
    assert steps[:7] == ["claims", "makes", "makes", "attaches", "mounts", volume["VolumeId"], "deletes"]

    # Written files move with the volume, also to a third zone, and back.
    for zone in ("us-east-1c", "us-east-1a"):
        (host.data / zone).write_text("was here")
        files = {path.name: path.read_text() for path in host.data.iterdir() if path.name != ".filesystem"}
        ec2.terminate(host)
        host = ec2.launch(zone)
        host.move("run-7")
        ec2.check_served("run-7", host, zone, files)
    assert len(list((ec2.folder / "volumes").iterdir())) == 1 and not list((ec2.folder / "snapshots").iterdir())


def test_the_first_instance_makes_the_volume(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    host = ec2.launch("us-east-1a")
    assert "no volume has the tag millrace:volume=run-7" in host.move("run-7", code=1).stderr
    host.move("run-7", "--create", "9.5GiB")
    ec2.check_served("run-7", host, "us-east-1a", {})
    assert ec2.volumes("run-7")[0]["Size"] == 10
    (host.data / "x").write_text("1")
    host.move("run-7", "--create", "9.5GiB")  # it is there
    ec2.check_served("run-7", host, "us-east-1a", {"x": "1"})
    assert (host.folder / "said").read_text().count("mkfs.ext4") == 1


def test_within_a_zone_it_is_only_attached(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    volume = ec2.add_volume("us-east-1a", "run-7", FILES)
    for _ in range(2):
        host = ec2.launch("us-east-1a")
        said = host.move("run-7").stderr
        assert "snapshot" not in said
        ec2.check_served("run-7", host, "us-east-1a", FILES)
        assert ec2.volumes("run-7")[0]["VolumeId"] == volume
        ec2.terminate(host)


# The killed job continues on the same instance, or on a new one in that zone, in a third one, or in the first one again.
THEN = [None, "us-east-1b", "us-east-1c", "us-east-1a"]


def finish(ec2: Cloud, name: str, host: Host, then: str | None) -> None:
    if then is not None:
        ec2.terminate(host)
        host = ec2.launch(then)
    host.move(name)
    ec2.check_served(name, host, then or "us-east-1b", FILES)
    ec2.terminate(host)


@pytest.fixture
def proxy_of() -> Iterator[Any]:
    yield killing_proxy


def test_it_is_killed_at_each_call_of_ec2(cloud: Callable[..., Cloud], proxy_of: Any) -> None:
    """Before and after the effect of each; nothing is lost, and nothing is left over. Some calls that change nothing are among them."""
    ec2 = cloud("--ec2-looks", "0")
    with proxy_of(ec2.server.url) as (url, at, watch, calls):
        ec2.add_volume("us-east-1a", "plain", FILES)
        host = ec2.launch("us-east-1b")
        at(-1, False)
        host.env["AWS_ENDPOINT_URL_EC2"] = url
        host.move("plain")
        actions = list(calls)
        assert actions.count("CreateVolume") == 1 and CHANGES - {"DetachVolume"} <= set(actions)
        others = [number for number, action in enumerate(actions) if action not in CHANGES]
        numbers = [number for number, action in enumerate(actions) if action in CHANGES]
        numbers += others if thoroughness.ALL else others[1 :: len(others) // 2]
        trial = 0
        for number in numbers:
            for after in (False, True):
                for then in THEN if thoroughness.ALL else [THEN[trial % len(THEN)]]:
                    name = f"job-{trial}"
                    trial += 1
                    ec2.add_volume("us-east-1a", name, FILES)
                    host = ec2.launch("us-east-1b")
                    at(number, after)
                    env = os.environ | host.env | {"AWS_ENDPOINT_URL_EC2": url}
                    command = host.command("move", name, str(host.data), "--dev", host.env["MILLRACE_TEST_DEV"])
                    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
                        watch(process)
                        process.communicate(timeout=300)
                    assert process.returncode == -9, (number, after, calls)
                    assert calls[number] == actions[number]
                    finish(ec2, name, host, then)
        assert trial >= 16


def test_it_is_killed_at_each_program(cloud: Callable[..., Cloud]) -> None:
    """The same for the programs of the host."""
    ec2 = cloud("--ec2-looks", "0")
    ec2.add_volume("us-east-1a", "plain", FILES)
    host = ec2.launch("us-east-1b")
    host.move("plain")
    said = (host.folder / "said").read_text().splitlines()
    numbers = [number for number, line in enumerate(said, 1) if line.startswith("mount ")]
    assert numbers
    others = [number for number in range(1, len(said) + 1) if number not in numbers]
    numbers += others if thoroughness.ALL else others[:: len(others) // 2]
    trial = 0
    for number in numbers:
        for moment in ("before", "after"):
            for then in THEN if thoroughness.ALL else [THEN[trial % len(THEN)]]:
                name = f"job-{trial}"
                trial += 1
                ec2.add_volume("us-east-1a", name, FILES)
                host = ec2.launch("us-east-1b")
                host.move(name, kill=f"{number} {moment}", code=-9)
                finish(ec2, name, host, then)


def test_ec2_that_is_busy_or_loses_answers(cloud: Callable[..., Cloud]) -> None:
    faults = (
        "POST ec2/CreateVolume error=503:RequestLimitExceeded count=2 after=1",
        "POST ec2/DescribeInstances status=500 count=1 after=1",
    )
    # The first call of CreateVolume is that of this test.
    lost = tuple(
        f"POST ec2/{action} cut=head count=1 after={int(action == 'CreateVolume')}" for action in sorted(CHANGES)
    )
    ec2 = cloud(*(word for fault in (*faults, *lost) for word in ("--fault", fault)))
    ec2.add_volume("us-east-1a", "run-7", FILES)
    host = ec2.launch("us-east-1b")
    said = host.move("run-7").stderr
    assert "it is tried again" in said
    ec2.check_served("run-7", host, "us-east-1b", FILES)


def test_what_ec2_refuses_is_said(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud("--fault", "POST ec2/CreateSnapshot error=403:UnauthorizedOperation")
    ec2.add_volume("us-east-1a", "run-7", FILES)
    host = ec2.launch("us-east-1b")
    assert "allow ec2:CreateSnapshot in the policy of the role" in host.move("run-7", code=1).stderr
    host.env["AWS_SECRET_ACCESS_KEY"] = "wrong"
    said = host.move("run-7", code=1).stderr
    assert "AuthFailure" in said and "wrong" not in said
    host.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"{ec2.server.url}/imds/i-none"
    assert "run this on an EC2 instance" in host.move("run-7", code=1).stderr


def test_a_volume_that_another_instance_has_is_left_to_it(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    ec2.add_volume("us-east-1a", "run-7", FILES)
    holder, other = ec2.launch("us-east-1a"), ec2.launch("us-east-1b")
    holder.move("run-7")
    said = other.move("run-7", "--wait", "1s", code=1).stderr
    assert f"is attached to {holder.instance}, which is running" in said and "nothing has changed" in said
    ec2.check_served("run-7", holder, "us-east-1a", FILES)
    assert "is attached to" in holder.run("rm", "run-7", code=1).stderr
    # A bind mount of it is in the kernel's table before the mount that was made first.
    device, _ = (holder.folder / "mounts").read_text().split()
    (holder.folder / "mounts").write_text(f"{device} {holder.folder / 'bind'}\n{device} {holder.data}\n")
    (holder.folder / "bind").symlink_to(device)
    # If it releases it, the other one need not wait for its end.
    holder.run("detach", "run-7", "--dev", holder.env["MILLRACE_TEST_DEV"])
    assert list(holder.data.iterdir()) == [] and (holder.folder / "mounts").read_text() == ""
    holder.run("detach", "run-7", "--dev", holder.env["MILLRACE_TEST_DEV"])  # nothing is left to do
    other.move("run-7", "--wait", "1s")
    ec2.check_served("run-7", other, "us-east-1b", FILES)


def snapshot_of(ec2: Cloud, volume: str, tags: dict[str, str]) -> str:
    specification = [
        {"ResourceType": "snapshot", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    ]
    snapshot: str = ec2.ec2.create_snapshot(VolumeId=volume, TagSpecifications=specification)["SnapshotId"]
    return snapshot


def test_a_backup_with_the_tags_of_the_volume_is_not_used(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    volume = ec2.add_volume("us-east-1a", "run-7", {"checkpoint": "step 1"})
    tags = {"millrace:volume": "run-7", "team": "speech"}
    others = [snapshot_of(ec2, volume, tags)]
    own = snapshot_of(ec2, volume, tags | {"millrace:snapshot": "i-gone 1"})  # of an earlier move
    (ec2.folder / "volumes" / volume / "checkpoint").write_text("step 500")
    host = ec2.launch("us-east-1b")
    assert f"deletes {own}" in host.move("run-7").stderr
    assert (host.data / "checkpoint").read_text() == "step 500"
    assert [one["SnapshotId"] for one in ec2.snapshots("run-7")] == others

    # A volume that is restored from one, with all tags: neither is deleted.
    served = ec2.volumes("run-7")[0]
    assert {"Key": "millrace:id", "Value": served["VolumeId"]} in served["Tags"]
    specification = [{"ResourceType": "volume", "Tags": served["Tags"]}]
    restored = ec2.ec2.create_volume(
        AvailabilityZone="us-east-1b", SnapshotId=others[0], TagSpecifications=specification
    )["VolumeId"]
    said = host.move("run-7", code=1).stderr
    assert f"{restored} (us-east-1b) has the tags of {served['VolumeId']}" in said
    assert len(ec2.volumes("run-7")) == 2


def test_a_volume_that_was_never_moved_is_not_deleted_beside_one_that_was(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    ec2.add_volume("us-east-1a", "run-7", FILES)
    host = ec2.launch("us-east-1b")
    host.move("run-7")
    added = ec2.add_volume("us-east-1b", "run-7", FILES)
    assert (
        f"{added} (us-east-1b) has the tag millrace:volume=run-7, but was never moved"
        in host.move("run-7", code=1).stderr
    )
    assert len(ec2.volumes("run-7")) == 2


def test_ls_and_rm(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    volume = ec2.add_volume("us-east-1a", "run-7", FILES)
    ec2.add_volume("us-east-1a", "run-8", FILES)
    host = ec2.launch("us-east-1b")
    backup = snapshot_of(ec2, volume, {"millrace:volume": "run-7"})
    snapshot = snapshot_of(ec2, volume, {"millrace:volume": "run-7", "millrace:snapshot": "i-gone 1"})
    found = [json.loads(line) for line in host.run("ls", "--json").stdout.splitlines()]
    assert [one["name"] for one in found] == ["run-7", "run-8", "run-7", "run-7"]
    assert [one["snapshot"] for one in found[2:]] == [backup, snapshot]
    shown = host.run("ls", "run-7").stdout.splitlines()
    assert len(shown) == 3 and shown[0] == f"run-7  {volume}  us-east-1a  8 GiB  available"
    # A volume of the user that was never moved, and one that an instance is about to move, stay as they are.
    for claim, reason in ((None, "was never moved"), (f"{host.instance} 1", f"is being moved by {host.instance}")):
        if claim is not None:
            ec2.ec2.create_tags(Resources=[volume], Tags=[{"Key": "millrace:claim", "Value": claim}])
        for options in ([], ["--dry-run"]):
            refused = host.run("rm", "run-7", *options, code=1)
            assert reason in refused.stderr and not refused.stdout
        assert ec2.volumes("run-7") and len(ec2.snapshots("run-7")) == 2
    host.run("detach", "run-7")
    assert host.run("rm", "run-7", "--dry-run").stdout == f"would delete {volume}\nwould delete {snapshot}\n"
    assert ec2.volumes("run-7")
    for _ in range(2):
        assert "1 snapshot that `millrace volume move` did not make" in host.run("rm", "run-7").stderr
    assert ec2.volumes("run-7") == [] and ec2.volumes("run-8")
    assert [one["SnapshotId"] for one in ec2.snapshots("run-7")] == [backup]
    assert [path.name for path in (ec2.folder / "volumes").iterdir()] == [ec2.volumes("run-8")[0]["VolumeId"]]


def test_run_brings_the_volume(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    ec2.add_volume("us-east-1a", "run-7", FILES)
    host = ec2.launch("us-east-1b")
    volume = f"run-7={host.data},wait=1m,dev={host.env['MILLRACE_TEST_DEV']}"
    command = [str(host.binary), "run", "--volume", volume, "--", "cat", str(host.data / "checkpoint")]
    done = subprocess.run(command, env=os.environ | host.env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, FILES["checkpoint"]), done.stderr


def test_run_lets_go_of_the_volume_if_the_job_leaves(cloud: Callable[..., Cloud]) -> None:
    ec2 = cloud()
    ec2.add_volume("us-east-1a", "run-7", FILES)
    host = ec2.launch("us-east-1a")
    volume = f"run-7={host.data},dev={host.env['MILLRACE_TEST_DEV']}"
    script = f"echo saved > {host.data}/log; exit 75"
    command = [str(host.binary), "run", "--volume", volume, "--", "sh", "-c", script]
    done = subprocess.run(command, env=os.environ | host.env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 75, done.stderr
    assert ec2.volumes("run-7")[0]["State"] == "available" and not (host.folder / "mounts").read_text()
    other = ec2.launch("us-east-1b")
    other.move("run-7", "--wait", "0s")
    ec2.check_served("run-7", other, "us-east-1b", FILES | {"log": "saved\n"})


def test_run_closes_its_files_before_it_lets_go_of_the_volume(cloud: Callable[..., Cloud], tmp_path: Path) -> None:
    ec2 = cloud()
    ec2.add_volume("us-east-1a", "run-7", FILES)
    host = ec2.launch("us-east-1a")
    host.move("run-7")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "x").write_text("1")
    volume = f"run-7={host.data},dev={host.env['MILLRACE_TEST_DEV']}"
    records = [
        "--journal",
        str(host.data / "run.jsonl"),
        "--lineage",
        str(host.data / "lineage.jsonl"),
        "--log-dir",
        str(host.data),
    ]
    job = ["--root", str(tmp_path / "ml"), "--channel", f"train={tmp_path / 'train'}"]
    command = [str(host.binary), "run", "--volume", volume, *records, *job, "--", "sh", "-c", "exit 75"]
    done = subprocess.run(command, env=os.environ | host.env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 75 and "busy" not in done.stderr, done.stderr
    assert ec2.volumes("run-7")[0]["State"] == "available" and not (host.folder / "mounts").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("volume", "move", "a*", "/x"), "'a*' is no name of a volume"),
        (("volume", "move", "a", "/x", "--create", "big"), "--create"),
        (("volume", "move", "a", "/x", "--wait", "long"), "--wait"),
        (("run", "--volume", "x", "--", "true"), "--volume takes NAME=PATH"),
        (("run", "--volume", "x=/y,size=3", "--", "true"), "--volume takes NAME=PATH"),
    ],
)
def test_wrong_usage(millrace: Millrace, arguments: tuple[str, ...], message: str) -> None:
    assert message in millrace(*arguments, code=2).stderr.decode()


def test_outside_of_ec2(millrace: Millrace) -> None:
    assert "AWS_EC2_METADATA_DISABLED is set" in millrace("volume", "move", "a", "/x", code=1).stderr.decode()
    said = millrace("volume", "ls", code=2).stderr.decode()
    assert "no AWS region is set" in said
