"""moto, a model of EC2 in Python that others wrote: a volume follows its job on it, too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ec2_hosts import make_tools
from imds import fake_imds

KEYS = {"AWS_ACCESS_KEY_ID": "moto-key", "AWS_SECRET_ACCESS_KEY": "moto-secret", "AWS_REGION": "us-east-1"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", "0"], stdout=out, stderr=out, cwd=tmp_path
        )
    try:
        deadline = time.monotonic() + 300
        while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(120)
        finally:
            process.kill()
            process.wait()


def test_a_volume_follows_its_job(url: str, millrace_bin: Path, tmp_path: Path) -> None:
    import boto3  # type: ignore[import-untyped]

    ec2: Any = boto3.client(
        "ec2", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tools = make_tools(tmp_path / "tools")
    previous = None
    for zone in ("us-east-1a", "us-east-1b", "us-east-1b", "us-east-1a"):
        placed = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, Placement={"AvailabilityZone": zone})
        instance = placed["Instances"][0]["InstanceId"]
        host = tmp_path / instance
        # moto has no disks: there is one under each name that an instance without udev's links may have.
        for letter in "fghijklmnop":
            (host / "dev" / f"xvd{letter}").mkdir(parents=True)
            if previous is not None:
                (host / "dev" / f"xvd{letter}" / ".filesystem").touch()
        (host / "mounts").touch()
        if previous is not None:
            ec2.terminate_instances(InstanceIds=[previous])
        with fake_imds() as (imds, metadata):
            documents = {"instance-id": instance, "placement/availability-zone": zone, "placement/region": "us-east-1"}
            imds.documents |= {f"/latest/meta-data/{name}": text for name, text in documents.items()}
            env = os.environ | KEYS | {"AWS_ENDPOINT_URL_EC2": url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}
            env |= {
                "AWS_EC2_METADATA_DISABLED": "false",
                "PATH": f"{tools}:{os.environ['PATH']}",
                "FAKE_HOST": str(host),
            }
            command = [
                str(millrace_bin),
                "volume",
                "move",
                "run-7",
                str(host / "data"),
                "--create",
                "5GiB",
                "--dev",
                str(host / "dev"),
            ]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            assert imds.unauthorized == 0
        ours = ec2.describe_volumes(Filters=[{"Name": "tag:millrace:volume", "Values": ["run-7"]}])["Volumes"]
        assert [(one["AvailabilityZone"], one["State"], one["Size"]) for one in ours] == [(zone, "in-use", 5)]
        assert ours[0]["Attachments"][0]["InstanceId"] == instance
        assert ec2.describe_snapshots(Filters=[{"Name": "tag:millrace:volume", "Values": ["run-7"]}])["Snapshots"] == []
        previous = instance
