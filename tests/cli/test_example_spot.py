"""`millrace run --print` and examples/spot: two instances in a row, on fakes of the metadata service, of S3, and of the AWS command line."""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace
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


def test_an_interrupted_job_goes_on_and_ends_its_fleet(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.s3.create_bucket(Bucket="my-bucket")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "aws").write_text(FAKE_AWS)
    (tools / "aws").chmod(0o755)
    (tools / "millrace").symlink_to(millrace_bin)
    program, state, ready = tmp_path / "program", tmp_path / "state", tmp_path / "ready"
    program.write_text(PROGRAM.format(state=state, ready=ready))
    script = tmp_path / "user-data.sh"
    script.write_bytes(
        millrace(
            "run",
            "--print",
            "user-data",
            "--retries",
            "20",
            "--checkpoint",
            "s3://my-bucket/run-7",
            "--",
            "sh",
            program,
        ).stdout
    )

    def start(instance: str, url: str) -> subprocess.Popen[bytes]:
        settings = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "WORK": str(tmp_path / instance),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
        }
        settings["AWS_EC2_METADATA_DISABLED"] = "false"
        return subprocess.Popen(["bash", str(script)], env=os.environ | bucket.env | settings)

    with fake_imds() as (imds, url):
        imds.documents |= {"/latest/meta-data/instance-id": "i-1", "/latest/meta-data/placement/region": "us-east-1"}
        with start("i-1", url) as process:
            wait_until(ready.exists, "the program does not begin")
            imds.announce()
            assert process.wait(300) == 75
        assert not (tools / "calls").exists() and state.exists()
    with fake_imds() as (imds, url):
        imds.documents |= {"/latest/meta-data/instance-id": "i-2", "/latest/meta-data/placement/region": "us-east-1"}
        with start("i-2", url) as process:
            assert process.wait(300) == 0
        assert imds.unauthorized == 0
    calls = (tools / "calls").read_text().splitlines()
    assert len(calls) == 2 and "Values=i-2" in calls[0]
    assert calls[1] == "ec2 cancel-spot-fleet-requests --spot-fleet-request-ids sfr-1 --terminate-instances"
    kept = {item["Key"]: item for item in bucket.s3.list_objects_v2(Bucket="my-bucket")["Contents"]}
    assert {"run-7/logs/i-1/run.jsonl", "run-7/logs/i-2/run.jsonl", "run-7/logs/i-2/user-data.log"} <= kept.keys()
    logs = [key for key in kept if "/attempt-" in key]
    texts = [bucket.s3.get_object(Bucket="my-bucket", Key=key)["Body"].read() for key in logs]
    # The shell may add that its `sleep` was terminated.
    assert sorted(word for text in texts for word in text.split() if word in (b"saved", b"resumed")) == [
        b"resumed",
        b"saved",
    ]


@pytest.fixture
def example(millrace_bin: Path, tmp_path: Path) -> Path:
    """Returns the files that examples/spot/print writes."""
    tools, files = tmp_path / "bin", tmp_path / "files"
    tools.mkdir()
    files.mkdir()
    (tools / "millrace").symlink_to(millrace_bin)
    subprocess.run([SPOT / "print", files], env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}, check=True)
    return files


def test_the_user_data_are_the_run(example: Path) -> None:
    script = (example / "user-data.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert (
        subprocess.run(["bash", "-n"], input=script.replace("fi\n", ""), text=True).returncode == 0
    )  # the hook is text to it
    assert "CHECKPOINT=s3://my-bucket/run-7\n" in script and "--retries 20 --hang-after 30m" in script
    hook = script.split("<<'END_OF_HOOK'\n")[1].split("END_OF_HOOK\n")[0]
    assert subprocess.run(["sh", "-n"], input=hook, text=True).returncode == 0
    assert subprocess.run(["sh", "-n"], input=hook.replace("fi\n", ""), text=True).returncode != 0


def test_all_options_of_the_run_are_in_the_user_data(millrace: Millrace, tmp_path: Path) -> None:
    """Each comes back as it was given, through the shell."""
    values = {
        "--retries": "7",
        "--delay": "2s",
        "--grace": "90s",
        "--fast-failures": "0",
        "--on-exit": "code=2:exit",
        "--rules": "a b.json",
    }
    values |= {
        "--hang-after": "10m",
        "--on-notice": "SIGUSR1",
        "--requeue-exit": "76",
        "--log-size": "1MiB",
        "--failure-file": "it's",
    }
    values |= {
        "--on-success": 'echo "$HOME"',
        "--hook-limit": "5s",
        "--code": "https://host/x@y",
        "--code-dir": "c",
        "--volume": "run-7=/data,create=5GiB",
    }
    values |= {
        "--channel": "train=s3://bucket/train",
        "--hyperparameter": "lr=0.1",
        "--root": "/r",
        "--hosts": "a,b",
        "--current-host": "b",
    }
    values |= {
        "--instance-group": "cpu=a",
        "--file-system": "fs-1=/efs",
        "--max-runtime": "2h",
        "--metrics-port": "9400",
    }
    values |= {"--output": "s3://bucket/out", "--sync-checkpoints": "s3://bucket/state"}
    command = ["python", "train it.py", "$x", "'", "--flag=`y`"]
    words = [word for pair in values.items() for word in pair]
    script = millrace(
        "run", "--print", "user-data", *words, "--on-end", "echo bye", "--checkpoint", "s3://b/run 7/", "--", *command
    ).stdout.decode()
    assert "\necho bye\n" in script
    # The last line, with a program in place of `millrace` that tells its arguments.
    last = script[script.index("exec millrace run") :].replace("exec millrace", "tell")
    head = script[script.index("CHECKPOINT=") : script.index("\n(umask")]
    shown = subprocess.run(
        ["bash", "-c", f"tell() {{ printf '%s\\0' \"$@\"; }}\n{head}\n{last}"],
        env={"WORK": "/w"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")[:-1]
    given = shown[: shown.index("--journal")]
    assert given[:3] == ["run", "--checkpoint", "s3://b/run 7"] and dict(zip(given[3::2], given[4::2])) == values
    assert shown[shown.index("--journal") :] == [
        "--journal",
        "/w/logs/run.jsonl",
        "--log-dir",
        "/w/logs",
        "--on-end",
        "sh '/w/on-end.sh'",
        "--",
        *command,
    ]


def test_the_fleet_is_what_ec2_takes(example: Path) -> None:
    import botocore.session  # type: ignore[import-untyped]
    from botocore.validate import ParamValidator  # type: ignore[import-untyped]

    fleet: dict[str, Any] = json.loads((example / "spot-fleet.json").read_text())
    shape = botocore.session.get_session().get_service_model("ec2").operation_model("RequestSpotFleet").input_shape
    assert not ParamValidator().validate({"SpotFleetRequestConfig": fleet}, shape).has_errors()
    assert ParamValidator().validate({"SpotFleetRequestConfig": fleet | {"Typ": 1}}, shape).has_errors()
    config = shape.members["SpotFleetRequestConfig"].members
    for name in ("Type", "AllocationStrategy", "InstanceInterruptionBehavior"):
        assert fleet[name] in config[name].enum
    launches = fleet["LaunchSpecifications"]
    assert [launch["InstanceType"] for launch in launches] == ["g5.12xlarge", "g5.24xlarge"]
    for launch in launches:
        assert base64.b64decode(launch["UserData"]).decode() == (example / "user-data.sh").read_text()


def allows(policy: dict[str, Any], action: str, kind: str, request: dict[str, str], has: dict[str, str]) -> bool:
    """True if IAM allows an action on a resource with the tags `has`. Keys of `request` that are no keys of a condition are tags."""
    context = {f"aws:ResourceTag/{key}": value for key, value in has.items()}
    context |= {key if ":Create" in key else f"aws:RequestTag/{key}": value for key, value in request.items()}
    tag_keys = [key for key in request if ":Create" not in key]

    def holds(operator: str, key: str, wanted: Any) -> bool:
        values = wanted if isinstance(wanted, list) else [wanted]
        if operator == "ForAllValues:StringEquals":
            assert key == "aws:TagKeys"
            return all(each in values for each in tag_keys)
        assert operator == "StringEquals"
        return context.get(key) in values

    def applies(statement: dict[str, Any]) -> bool:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        arn = f"arn:aws:ec2:us-east-1:{'' if kind == 'snapshot' else '123456789012'}:{kind}/x-1"
        return action in statement["Action"] and any(fnmatch.fnmatchcase(arn, pattern) for pattern in resources)

    return any(
        all(holds(op, key, want) for op, keys in one.get("Condition", {}).items() for key, want in keys.items())
        for one in policy["Statement"]
        if applies(one)
    )


def actions_of(policy: dict[str, Any]) -> set[str]:
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def test_the_policy_allows_what_the_script_does(example: Path) -> None:
    policy = json.loads((example / "iam-policy.json").read_text())
    allowed = actions_of(policy)
    script = (example / "user-data.sh").read_text()
    for action in ("DescribeSpotInstanceRequests", "CancelSpotFleetRequests"):
        call = "".join(f"-{c.lower()}" if c.isupper() else c for c in action)[1:]
        assert f"ec2:{action}" in allowed and f"aws ec2 {call} " in script
    assert {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"} <= allowed
    resources = {statement["Sid"]: statement["Resource"] for statement in policy["Statement"]}
    index = ["arn:aws:s3:::my-bucket/.millrace/train.index*", "arn:aws:s3:::my-bucket/train/.millrace/*"]
    data = ["arn:aws:s3:::my-bucket/train", "arn:aws:s3:::my-bucket/train/*"]
    assert sorted(resources["ReadData"]) == sorted(data + index) and resources["KeepIndex"] == index
    assert resources["KeepCheckpointsAndLogs"] == "arn:aws:s3:::my-bucket/run-7/*"
    assert not {action for action in allowed if "Volume" in action}


def test_the_policy_of_volumes_and_channels(millrace: Millrace) -> None:
    words = (
        "--checkpoint",
        "s3://b/run-7",
        "--volume",
        "run-7=/data",
        "--channel",
        "train=s3://other/train,mode=File",
        "--",
        "true",
    )
    policy = json.loads(millrace("run", "--print", "iam-policy", *words).stdout)
    assert {
        "ec2:CreateVolume",
        "ec2:CreateSnapshot",
        "ec2:AttachVolume",
        "ec2:DeleteVolume",
        "ec2:DescribeInstances",
    } <= actions_of(policy)
    statements = {statement["Sid"]: statement for statement in policy["Statement"]}
    assert statements["DeleteWhatWasMoved"]["Condition"] == {
        "StringEquals": {"aws:ResourceTag/millrace:volume": ["run-7"]}
    }
    assert statements["List"]["Resource"] == ["arn:aws:s3:::b", "arn:aws:s3:::other"]


def test_the_policy_reaches_what_is_tagged_and_nothing_else(millrace: Millrace) -> None:
    words = ("--checkpoint", "s3://b/a$b/", "--volume", "run-7=/data", "--volume", "run-8=/more")
    policy = json.loads(millrace("run", "--print", "iam-policy", *words, "--", "true").stdout)
    ec2 = words + tuple(
        f"--ec2={one}" for one in ("image=ami-1", "type=t", "subnet=s", "profile=arn:p", "fleet-role=arn:r")
    )
    fleet = json.loads(millrace("run", "--print", "spot-fleet", *ec2, "--", "true").stdout)
    made = {
        one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        for one in (*fleet["TagSpecifications"], *fleet["LaunchSpecifications"][0]["TagSpecifications"])
    }
    # In a policy, "$" alone begins a variable.
    text = json.dumps(policy)
    assert "s3://b/a${$}b" in text
    policy = json.loads(text.replace("${$}", "$"))

    ours = {"millrace:volume": "run-8"}
    others: tuple[dict[str, str], ...] = ({}, {"millrace:volume": "run-9"}, {"millrace:job": "s3://b/a$b"})
    tags = {"millrace:claim": "c", "millrace:state": "s", "millrace:id": "v"}
    creating = {"ec2:CreateAction": "CreateVolume"}
    uses = [
        ("ec2:AttachVolume", "volume", {}),
        ("ec2:DetachVolume", "volume", {}),
        ("ec2:CreateSnapshot", "volume", ours),  # of which it is made
        ("ec2:CreateVolume", "snapshot", ours),
        ("ec2:CreateTags", "volume", tags),
        ("ec2:DeleteVolume", "volume", {}),
        ("ec2:DeleteSnapshot", "snapshot", {}),
    ]
    for action, kind, request in uses:
        assert allows(policy, action, kind, request, ours), action
        for has in others:
            assert not allows(policy, action, kind, request, has), (action, has)
    # A volume or snapshot gets the tag when it is made. Nothing else gets the tag, and nothing loses it.
    for action, kind in (("CreateVolume", "volume"), ("CreateSnapshot", "snapshot")):
        for request, expected in ((ours | {"team": "a"}, True), (others[1], False), ({}, False)):
            assert allows(policy, f"ec2:{action}", kind, request, {}) is expected
            creation = {"ec2:CreateAction": action} | request
            assert allows(policy, "ec2:CreateTags", kind, creation, {}) is expected
    for kind in ("volume", "snapshot", "instance", "spot-fleet-request"):
        for has in ({}, made["instance"]):
            for request in (
                ours,
                ours | tags,
                tags,
                {"millrace:job": "s3://b/a$b"},
                {"ec2:CreateAction": "RunInstances"} | ours,
            ):
                assert not allows(policy, "ec2:CreateTags", kind, request, has), (kind, request)
    assert not allows(policy, "ec2:CreateTags", "volume", ours, ours)
    assert not allows(policy, "ec2:CreateTags", "instance", creating | ours, {})
    # Only to instances of this job, and only its own fleet.
    for action, kind in (
        ("ec2:AttachVolume", "instance"),
        ("ec2:DetachVolume", "instance"),
        ("ec2:CancelSpotFleetRequests", "spot-fleet-request"),
    ):
        assert allows(policy, action, kind, {}, made[kind]), action
        for has in ({}, ours, {"millrace:job": "s3://b/a"}):
            assert not allows(policy, action, kind, {}, has), (action, has)
    for statement in policy["Statement"]:
        for action in statement["Action"]:
            assert "Condition" in statement or action.startswith(("s3:", "ec2:Describe")), action


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("user-data", "--", "true"), "--print needs --checkpoint s3://"),
        (("user-data", "--checkpoint", "/tmp/x", "--", "true"), "--print needs --checkpoint s3://"),
        (("spot-fleet", "--checkpoint", "s3://b/x", "--", "true"), "also needs --ec2 image="),
        (("spot-fleet", "--checkpoint", "s3://b/x", "--ec2", "color=red", "--", "true"), "not 'color=red'"),
        (("spot-fleet", "--checkpoint", "s3://b/x", "--ec2", "disk=big", "--", "true"), "takes a number of GiB"),
        (("spot-price", "--checkpoint", "s3://b/x", "true"), "--print: must be one of user-data"),
    ],
)
def test_what_is_lacking_is_said(millrace: Millrace, words: tuple[str, ...], message: str) -> None:
    assert message in millrace("run", "--print", *words, code=2).stderr.decode()
