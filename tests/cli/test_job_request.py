"""`millrace run --job FILE`: a CreateTrainingJob request of SageMaker, run elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from cli_support import Bucket, Millrace, contents

SHOW = """
import json, os, pathlib
folders = {n: os.environ["SM_CHANNEL_" + n.upper()] for n in json.loads(os.environ["SM_CHANNELS"])}
read = lambda folder: {str(p.relative_to(folder)): p.read_text() for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()}
names = ("SM_HPS", "SM_HOSTS", "SM_CURRENT_HOST", "SM_CURRENT_INSTANCE_GROUP", "SM_CURRENT_INSTANCE_TYPE", "MY_OWN", "TRAINING_JOB_NAME", "MILLRACE_ATTEMPTS")
print(json.dumps({"data": {n: read(f) for n, f in folders.items()}, "env": {n: os.environ.get(n) for n in names}}))
"""


def request_shape() -> Any:
    return botocore.session.Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape


def s3_source(uri: str, **more: object) -> dict[str, object]:
    return {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri, **more}}


def a_request() -> dict[str, Any]:
    return {
        "TrainingJobName": "job-7",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/role",
        "HyperParameters": {"lr": "0.1", "epochs": "3"},
        "Environment": {"MY_OWN": "value"},
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": s3_source(
                    "s3://bkt/p/", S3DataDistributionType="ShardedByS3Key", InstanceGroupNames=["dnn"]
                ),
            },
            {"ChannelName": "eval", "DataSource": s3_source("s3://bkt/e"), "ContentType": "text/csv"},
            {"ChannelName": "other", "DataSource": s3_source("s3://bkt/none", InstanceGroupNames=["data"])},
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bkt/out"},
        "ResourceConfig": {
            "VolumeSizeInGB": 30,
            "InstanceGroups": [
                {"InstanceGroupName": "data", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
                {"InstanceGroupName": "dnn", "InstanceType": "ml.m4.xlarge", "InstanceCount": 2},
            ],
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "RetryStrategy": {"MaximumRetryAttempts": 2},
    }


def write(tmp_path: Path, request: object) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(request))
    return path


def test_a_request_describes_a_job(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    assert not ParamValidator().validate(a_request(), request_shape()).has_errors()
    bucket.put(**{f"p/{i}": b"%d" % i for i in range(5)}, **{"e/x": b"x"})
    job = ["run", "--job", write(tmp_path, a_request()), "--root", tmp_path / "ml", "--current-host", "algo-3"]
    done = millrace(*job, "--hyperparameter", "lr=0.5", "--", sys.executable, "-c", SHOW, env=bucket.env)
    assert json.loads(done.stdout) == {
        "data": {"train": {"1": "1", "3": "3"}, "eval": {"x": "x"}},
        "env": {
            "SM_HPS": '{"epochs":3,"lr":0.5}',
            "SM_HOSTS": '["algo-1","algo-2","algo-3"]',
            "SM_CURRENT_HOST": "algo-3",
            "SM_CURRENT_INSTANCE_GROUP": "dnn",
            "SM_CURRENT_INSTANCE_TYPE": "ml.m4.xlarge",
            "MY_OWN": "value",
            "TRAINING_JOB_NAME": "job-7",
            "MILLRACE_ATTEMPTS": "3",
        },
    }
    assert (
        b"without effect here: RoleArn, AlgorithmSpecification.TrainingImage, ResourceConfig.VolumeSizeInGB"
        in done.stderr
    )
    # A flag replaces a channel of the request.
    other = millrace(
        *job, "--channel", "eval=s3://bkt/p/4", "--retries", "0", "--", sys.executable, "-c", SHOW, env=bucket.env
    )
    assert (
        json.loads(other.stdout)["data"]["eval"] == {"4": "4"}
        and json.loads(other.stdout)["env"]["MILLRACE_ATTEMPTS"] == "1"
    )
    assert contents(tmp_path / "ml/input/data/eval") == {"4": b"4"}


def test_every_member_of_the_model_is_known(millrace: Millrace, tmp_path: Path) -> None:
    """Whatever botocore's model of the request names is no unknown member, and everything else is."""
    shape = request_shape()
    channel = shape.members["InputDataConfig"].member
    source = channel.members["DataSource"]
    paths = {
        "": shape,
        **{
            name: shape.members[name]
            for name in (
                "AlgorithmSpecification",
                "OutputDataConfig",
                "ResourceConfig",
                "StoppingCondition",
                "CheckpointConfig",
                "RetryStrategy",
            )
        },
    }
    for path, structure in paths.items():
        members: dict[str, object] = dict.fromkeys(structure.members)
        known = {path: members} if path else members
        refused = millrace("run", "--job", write(tmp_path, known), "--", "true", code=2)
        assert b"no such members" not in refused.stderr, refused.stderr
        members["Surprise"] = 1
        refused = millrace("run", "--job", write(tmp_path, known), "--", "true", code=2)
        assert f'"{path + "." if path else ""}Surprise"'.encode() in refused.stderr
    nested = {
        "S3DataSource": source.members["S3DataSource"],
        "FileSystemDataSource": source.members["FileSystemDataSource"],
    }
    for name, structure in nested.items():
        members = dict.fromkeys(structure.members)
        for entry in (dict.fromkeys(channel.members), {"ChannelName": "a", "DataSource": {name: members}}):
            refused = millrace("run", "--job", write(tmp_path, {"InputDataConfig": [entry]}), "--", "true", code=2)
            assert b"no such members" not in refused.stderr, refused.stderr
        members["Surprise"] = 1
        request = {"InputDataConfig": [{"ChannelName": "a", "DataSource": {name: members}}]}
        refused = millrace("run", "--job", write(tmp_path, request), "--", "true", code=2)
        assert f'"InputDataConfig[0].DataSource.{name}.Surprise"'.encode() in refused.stderr


@pytest.mark.parametrize("flag", [False, True])
def test_the_longest_time(millrace: Millrace, bucket: Bucket, tmp_path: Path, flag: bool) -> None:
    bucket.put(**{"p/a": b"1"})
    limits = {} if flag else {"StoppingCondition": {"MaxRuntimeInSeconds": 4}}
    request = {"InputDataConfig": [{"ChannelName": "train", "DataSource": s3_source("s3://bkt/p")}], **limits}
    job = ["run", "--job", write(tmp_path, request), "--root", tmp_path / "ml", "--retries", "3"]
    limit = ["--max-runtime", "4s"] if flag else []
    body = "trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done"
    done = millrace(*job, *limit, "--", "sh", "-c", body, code=0, env=bucket.env)
    assert done.stdout == b"saved\n" and b"has run for 4 seconds" in done.stderr and b"attempt 2" not in done.stderr
    assert millrace(*job, "--max-runtime", "1000s", "--", "echo", "done", env=bucket.env).stdout == b"done\n"


def test_a_file_system_of_aws(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "efs/sets/train").mkdir(parents=True)
    (tmp_path / "efs/sets/train/a").write_text("1")
    source = {
        "FileSystemId": "fs-01234567",
        "FileSystemAccessMode": "ro",
        "FileSystemType": "EFS",
        "DirectoryPath": "/sets/train",
    }
    request = {
        "InputDataConfig": [
            {"ChannelName": "train", "InputMode": "Pipe", "DataSource": {"FileSystemDataSource": source}}
        ]
    }
    job = ["run", "--job", write(tmp_path, request), "--root", tmp_path / "ml"]
    assert b"--file-system fs-01234567=DIR" in millrace(*job, "--", "true", code=2).stderr
    mapped = ["--file-system", f"fs-01234567={tmp_path / 'efs'}"]
    assert millrace(*job, *mapped, "--", "sh", "-c", 'cat "$SM_CHANNEL_TRAIN"_0').stdout == b"1"
    assert b"cannot be read" in millrace("run", "--job", tmp_path / "none", "--", "true", code=2).stderr
