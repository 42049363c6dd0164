"""examples/spot: two instances in a row, on fakes of the metadata service, of S3, and of the AWS command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from cli_support import Bucket
from imds import fake_imds
from test_run import wait_until

SPOT = Path(__file__).resolve().parents[2] / "examples" / "spot"

# Writes down what it is asked, and knows one fleet.
FAKE_AWS = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$2" in describe-spot-instance-requests) echo sfr-1;; esac
"""

# Saves when it is asked to, and has no work left on the second instance.
PROGRAM = """
if [ -e {state} ]; then echo resumed; exit 0; fi
trap 'touch {state}; echo saved; exit 0' TERM
touch {ready}
while :; do sleep 0.05; done
"""


def test_an_interrupted_job_goes_on_and_ends_its_fleet(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    bucket.s3.create_bucket(Bucket="my-bucket")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "aws").write_text(FAKE_AWS)
    (tools / "aws").chmod(0o755)
    (tools / "millrace").symlink_to(millrace_bin)
    program, state, ready = tmp_path / "program", tmp_path / "state", tmp_path / "ready"
    program.write_text(PROGRAM.format(state=state, ready=ready))
    lines = (SPOT / "user-data.sh").read_text().splitlines()
    changed = [f"COMMAND=(sh {program})" if line.startswith("COMMAND=") else line for line in lines]
    assert changed != lines
    script = tmp_path / "user-data.sh"
    script.write_text("\n".join(changed) + "\n")

    def start(instance: str, url: str) -> subprocess.Popen[bytes]:
        settings = {"PATH": f"{tools}:{os.environ['PATH']}", "WORK": str(tmp_path / instance), "AWS_EC2_METADATA_SERVICE_ENDPOINT": url}
        settings["AWS_EC2_METADATA_DISABLED"] = "false"
        return subprocess.Popen(["bash", str(script)], env=os.environ | bucket.env | settings)

    with fake_imds() as (imds, url):
        imds.documents |= {"/latest/meta-data/instance-id": "i-1", "/latest/meta-data/placement/region": "us-east-1"}
        with start("i-1", url) as process:
            wait_until(ready.exists, "the program does not begin")
            imds.announce()
            assert process.wait(60) == 75
        assert not (tools / "calls").exists() and state.exists()
    with fake_imds() as (imds, url):
        imds.documents |= {"/latest/meta-data/instance-id": "i-2", "/latest/meta-data/placement/region": "us-east-1"}
        with start("i-2", url) as process:
            assert process.wait(60) == 0
        assert imds.unauthorized == 0
    calls = (tools / "calls").read_text().splitlines()
    assert len(calls) == 2 and "Values=i-2" in calls[0]
    assert calls[1] == "ec2 cancel-spot-fleet-requests --spot-fleet-request-ids sfr-1 --terminate-instances"
    kept = {item["Key"]: item for item in bucket.s3.list_objects_v2(Bucket="my-bucket")["Contents"]}
    assert {"run-7/logs/i-1/run.jsonl", "run-7/logs/i-2/run.jsonl", "run-7/logs/i-2/user-data.log"} <= kept.keys()
    logs = [key for key in kept if "/attempt-" in key]
    texts = [bucket.s3.get_object(Bucket="my-bucket", Key=key)["Body"].read() for key in logs]
    # The shell may add that its `sleep` was terminated.
    assert sorted(word for text in texts for word in text.split() if word in (b"saved", b"resumed")) == [b"resumed", b"saved"]


def test_the_fleet_is_what_ec2_takes() -> None:
    import botocore.session  # type: ignore[import-untyped]
    from botocore.validate import ParamValidator  # type: ignore[import-untyped]

    fleet: dict[str, Any] = json.loads((SPOT / "spot-fleet.json").read_text())
    shape = botocore.session.get_session().get_service_model("ec2").operation_model("RequestSpotFleet").input_shape
    assert not ParamValidator().validate({"SpotFleetRequestConfig": fleet}, shape).has_errors()
    assert ParamValidator().validate({"SpotFleetRequestConfig": fleet | {"Typ": 1}}, shape).has_errors()
    config = shape.members["SpotFleetRequestConfig"].members
    for name in ("Type", "AllocationStrategy", "InstanceInterruptionBehavior"):
        assert fleet[name] in config[name].enum


def test_the_policy_allows_what_the_script_does() -> None:
    policy = json.loads((SPOT / "iam-policy.json").read_text())
    allowed = {action for statement in policy["Statement"] for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])}
    script = (SPOT / "user-data.sh").read_text()
    for action in ("DescribeSpotInstanceRequests", "CancelSpotFleetRequests"):
        call = "".join(f"-{c.lower()}" if c.isupper() else c for c in action)[1:]
        assert f"ec2:{action}" in allowed and f"aws ec2 {call} " in script
    assert {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"} <= allowed
