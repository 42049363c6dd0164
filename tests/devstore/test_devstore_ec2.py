"""The fake EC2 of devstore, by boto3: states, zones, ClientToken, filters and tags, and the codes by which EC2 refuses."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

ZONE = {"AvailabilityZone": "us-east-1a"}


def client(server: Any, *, secret: str = "millrace-secret", region: str = "us-east-1") -> Any:
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    config = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "millrace", "aws_secret_access_key": secret}
    return boto3.client("ec2", endpoint_url=server.url, region_name=region, config=config, **keys)


@pytest.fixture
def server(devstore: Callable[..., Any], tmp_path: Path) -> Any:
    return devstore("mem:", "--ec2", str(tmp_path / "ec2"))


@pytest.fixture
def ec2(server: Any) -> Any:
    return client(server)


def refused(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    code: str = error.value.response["Error"]["Code"]
    return code


def launch(ec2: Any, zone: str = "us-east-1a") -> str:
    instance: str = ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, Placement={"AvailabilityZone": zone})[
        "Instances"
    ][0]["InstanceId"]
    return instance


def state(ec2: Any, volume: str) -> str:
    found: str = ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["State"]
    return found


def settled(ec2: Any, volume: str) -> str:
    while state(ec2, volume) == "creating":
        pass
    return volume


def test_states_pass_one_after_the_other(ec2: Any, tmp_path: Path) -> None:
    made = ec2.create_volume(Size=1, **ZONE)
    volume = made["VolumeId"]
    assert made["State"] == "creating" and refused(ec2.delete_volume, VolumeId=volume) == "IncorrectState"
    assert [state(ec2, volume) for _ in range(3)] == ["creating", "available", "available"]
    instance = launch(ec2)
    ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")
    seen = [ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0] for _ in range(2)]
    assert [(one["State"], one["Attachments"][0]["State"]) for one in seen] == [
        ("in-use", "attaching"),
        ("in-use", "attached"),
    ]
    link = (
        tmp_path
        / "ec2"
        / "instances"
        / instance
        / "disk"
        / "by-id"
        / f"nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    )
    (link / "file").write_text("data")
    snapshot = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    (link / "file").write_text("later")
    assert refused(ec2.create_volume, SnapshotId=snapshot, **ZONE) == "IncorrectState"
    states = [ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]["State"] for _ in range(2)]
    assert states == ["pending", "completed"]
    copy = ec2.create_volume(SnapshotId=snapshot, AvailabilityZone="us-east-1b")
    assert copy["Size"] == 1 and (tmp_path / "ec2" / "volumes" / copy["VolumeId"] / "file").read_text() == "data"
    assert refused(ec2.delete_volume, VolumeId=volume) == "VolumeInUse"
    ec2.detach_volume(VolumeId=volume)
    assert not link.exists() or state(ec2, volume) == "in-use"
    while state(ec2, volume) == "in-use":
        pass
    assert not link.exists()
    ec2.delete_volume(VolumeId=volume)
    assert state(ec2, volume) == "deleting"
    assert refused(ec2.describe_volumes, VolumeIds=[volume]) == "InvalidVolume.NotFound"
    ec2.delete_snapshot(SnapshotId=snapshot)
    assert refused(ec2.delete_snapshot, SnapshotId=snapshot) == "InvalidSnapshot.NotFound"


def test_volumes_stay_in_their_zone_and_with_their_instance(ec2: Any) -> None:
    volume = settled(ec2, ec2.create_volume(Size=1, **ZONE)["VolumeId"])
    here, there = launch(ec2), launch(ec2, "us-east-1b")
    assert (
        refused(ec2.attach_volume, VolumeId=volume, InstanceId=there, Device="/dev/sdf") == "InvalidVolume.ZoneMismatch"
    )
    assert refused(ec2.attach_volume, VolumeId=volume, InstanceId=here, Device="sdf") == "InvalidParameterValue"
    ec2.attach_volume(VolumeId=volume, InstanceId=here, Device="/dev/sdf")
    assert refused(ec2.attach_volume, VolumeId=volume, InstanceId=here, Device="/dev/sdg") == "VolumeInUse"
    other = settled(ec2, ec2.create_volume(Size=1, **ZONE)["VolumeId"])
    assert refused(ec2.attach_volume, VolumeId=other, InstanceId=here, Device="/dev/sdf") == "InvalidParameterValue"
    assert refused(ec2.detach_volume, VolumeId=volume, InstanceId=there) == "InvalidAttachment.NotFound"
    ec2.terminate_instances(InstanceIds=[here])
    for _ in range(3):
        instance = ec2.describe_instances(InstanceIds=[here])["Reservations"][0]["Instances"][0]
    assert instance["State"]["Name"] == "terminated" and state(ec2, volume) == "available"
    assert refused(ec2.attach_volume, VolumeId=volume, InstanceId=here, Device="/dev/sdf") == "IncorrectState"


def test_a_client_token_makes_one_volume(ec2: Any) -> None:
    first = ec2.create_volume(Size=1, ClientToken="once", **ZONE)["VolumeId"]
    assert ec2.create_volume(Size=1, ClientToken="once", **ZONE)["VolumeId"] == first
    assert refused(ec2.create_volume, Size=2, ClientToken="once", **ZONE) == "IdempotentParameterMismatch"
    assert ec2.create_volume(Size=1, ClientToken="twice", **ZONE)["VolumeId"] != first
    assert refused(ec2.create_volume, Size=1, ClientToken="x" * 65, **ZONE) == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"AvailabilityZone": "us-east-1z", "Size": 1}, "InvalidParameterValue"),
        (ZONE, "MissingParameter"),
        ({**ZONE, "Size": 0}, "InvalidParameterValue"),
        ({**ZONE, "SnapshotId": "snap-none"}, "InvalidSnapshot.NotFound"),
        ({**ZONE, "Size": 1, "VolumeType": "fast"}, "InvalidParameterValue"),
        ({**ZONE, "Size": 1, "VolumeType": "io2"}, "MissingParameter"),
        ({**ZONE, "Size": 1, "VolumeType": "gp2", "Iops": 100}, "InvalidParameterCombination"),
        ({**ZONE, "Size": 1, "VolumeType": "gp2", "Throughput": 200}, "InvalidParameterCombination"),
        ({**ZONE, "Size": 1, "MultiAttachEnabled": True}, "UnknownParameter"),
        (
            {
                **ZONE,
                "Size": 1,
                "TagSpecifications": [{"ResourceType": "snapshot", "Tags": [{"Key": "a", "Value": "b"}]}],
            },
            "InvalidParameterValue",
        ),
        (
            {
                **ZONE,
                "Size": 1,
                "TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "aws:a", "Value": "b"}]}],
            },
            "InvalidParameterValue",
        ),
    ],
)
def test_what_makes_no_volume(ec2: Any, arguments: dict[str, Any], code: str) -> None:
    assert refused(ec2.create_volume, **arguments) == code
    assert ec2.describe_volumes()["Volumes"] == []


def test_filters_and_tags(ec2: Any) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "job", "Value": "run & 7"}]}]
    first = ec2.create_volume(Size=1, TagSpecifications=tags, **ZONE)["VolumeId"]
    second = ec2.create_volume(Size=1, **ZONE)["VolumeId"]

    def found(name: str, *values: str) -> list[str]:
        return [
            one["VolumeId"] for one in ec2.describe_volumes(Filters=[{"Name": name, "Values": list(values)}])["Volumes"]
        ]

    assert (
        found("tag:job", "run & 7", "x") == [first]
        and found("tag:job", "run*") == [first]
        and found("tag:job", "run") == []
    )
    assert found("volume-id", second) == [second] and found("availability-zone", "us-east-1*") == [first, second]
    ec2.create_tags(Resources=[first, second], Tags=[{"Key": "job", "Value": "2"}])
    assert found("tag:job", "2") == [first, second] and found("tag-key", "job") == [first, second]
    assert refused(ec2.describe_volumes, Filters=[{"Name": "colour", "Values": ["red"]}]) == "InvalidParameterValue"
    assert refused(ec2.create_tags, Resources=["vol-none"], Tags=[{"Key": "a", "Value": "b"}]) == "InvalidID"


def test_signatures_are_checked(server: Any) -> None:
    assert refused(client(server, secret="wrong").describe_volumes) == "AuthFailure"
    assert refused(client(server, region="eu-west-1").describe_volumes) == "AuthFailure"
    assert refused(client(server).describe_vpcs) == "InvalidAction"
    unsigned = urllib.request.Request(f"{server.url}/", data=b"Action=DescribeVolumes&Version=2016-11-15")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(unsigned)
    assert error.value.code == 401 and b"AuthFailure" in error.value.read()
    # S3 is there as ever.
    server.client().create_bucket(Bucket="bucket")


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        url, method=method, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_the_metadata_service_is_version_2_alone(server: Any, ec2: Any) -> None:
    instance, other = launch(ec2, "us-east-1b"), launch(ec2)
    imds = f"{server.url}/imds/{instance}"
    documents = f"{imds}/latest/meta-data"
    assert ask(f"{documents}/instance-id")[0] == 401
    assert ask(f"{imds}/latest/api/token", "PUT")[0] == 400
    assert ask(f"{imds}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="21601")[0] == 400
    assert (
        ask(f"{imds}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60", X_Forwarded_For="::1")[0]
        == 403
    )
    status, token = ask(f"{imds}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
    assert status == 200 and token

    def read(name: str) -> tuple[int, str]:
        return ask(f"{documents}/{name}", X_aws_ec2_metadata_token=token)

    assert read("instance-id") == (200, instance) and read("placement/availability-zone") == (200, "us-east-1b")
    assert read("placement/region") == (200, "us-east-1") and read("nothing")[0] == 404
    assert ask(f"{server.url}/imds/{other}/latest/meta-data/instance-id", X_aws_ec2_metadata_token=token)[0] == 401
    assert read("spot/instance-action")[0] == 404
    assert ask(f"{imds}/interrupt?seconds=120", "POST")[0] == 200
    status, document = read("spot/instance-action")
    assert status == 200 and '"action": "terminate"' in document
    assert ask(f"{server.url}/imds/i-none/interrupt?seconds=120", "POST")[0] == 404


def test_faults_of_calls(devstore: Callable[..., Any], tmp_path: Path) -> None:
    rules = (
        "--fault",
        "POST ec2/CreateVolume error=503:RequestLimitExceeded count=1",
        "--fault",
        "POST ec2/CreateVolume cut=head count=1",
    )
    server = devstore("mem:", "--ec2", str(tmp_path / "ec2"), *rules)
    ec2 = client(server)
    assert refused(ec2.create_volume, Size=1, **ZONE) == "RequestLimitExceeded"
    assert ec2.describe_volumes()["Volumes"] == []
    with pytest.raises(Exception, match="closed|reset"):
        ec2.create_volume(Size=1, **ZONE)
    assert len(ec2.describe_volumes()["Volumes"]) == 1  # only the answer was lost
