"""`millrace run --channel`: a training program that was written for SageMaker's input channels, run elsewhere."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, contents, lines
from e2e.harness import small_disk

# The reading loop of a training script, in the manner of AWS's examples: arguments from SM_*, files from the channels.
SCRIPT = """
import argparse, json, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=json.loads(os.environ["SM_HPS"])["lr"])
parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
parser.add_argument("--test", default=os.environ["SM_CHANNEL_TEST"])
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--hosts", default=json.loads(os.environ["SM_HOSTS"]))
args = parser.parse_args()
def read(folder): return {str(p.relative_to(folder)): p.read_text() for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()}
model = {"lr": args.lr, "train": read(args.train), "test": read(args.test), "hosts": args.hosts}
(pathlib.Path(args.model_dir) / "model.json").write_text(json.dumps(model))
print(json.dumps(model))
"""

# Prints the variables that it finds, and those that SageMaker's own toolkit makes of the same files.
ORACLE = """
import json, os
from sagemaker_training import environment
names = json.dumps({name: value for name, value in os.environ.items() if name.startswith("SM_")})
print(names)
print(json.dumps(environment.Environment().to_env_vars()))
"""


def root(tmp_path: Path) -> Path:
    return tmp_path / "opt" / "ml"


def test_a_script_for_sagemaker_runs_unchanged(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"data/a": b"1", "data/deep/b": b"22", "data/": b"", "database": b"no"})
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "c").write_text("333")
    command = [
        "run",
        "--root",
        root(tmp_path),
        "--channel",
        "train=s3://bkt/data",
        "--channel",
        f"test={tmp_path / 'eval'}",
    ]
    done = millrace(*command, "--hyperparameter", "lr=0.5", "--", sys.executable, "-c", SCRIPT, env=bucket.env)
    model = {"lr": 0.5, "train": {"a": "1", "deep/b": "22"}, "test": {"c": "333"}, "hosts": ["algo-1"]}
    assert json.loads(done.stdout) == model
    assert json.loads((root(tmp_path) / "model" / "model.json").read_text()) == model
    assert b"channel train: 2 objects" in done.stderr and b"2 copied now" in done.stderr
    # Again, after a change: only that is copied.
    bucket.put(**{"data/a": b"4444"})
    again = millrace(*command, "--hyperparameter", "lr=0.5", "--", sys.executable, "-c", SCRIPT, env=bucket.env)
    assert json.loads(again.stdout)["train"] == {"a": "4444", "deep/b": "22"}
    assert b"2 objects" in again.stderr and b"1 copied now" in again.stderr


GROUPS = [
    "--instance-group",
    "data_group=algo-1",
    "--instance-group",
    "dnn_group=algo-3+algo-2",
    "--current-host",
    "algo-3",
]


@pytest.mark.parametrize("hosts", [[], ["--hosts", "algo-2,algo-1", "--current-host", "algo-2"], GROUPS])
def test_the_variables_are_those_of_the_toolkit(millrace: Millrace, tmp_path: Path, hosts: list[str]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    values = {
        "lr": "0.1",
        "epochs": "3",
        "name": "two words",
        "learning-rate": "1e-05",
        "flag": "true",
        "none": "null",
        "k": "v",
        "big": "12345678901",
        "layers": '[1, 2.5, "a", false]',
        "nested": '{"b": [1, null], "a": "x", "c": {"d": true}}',
        "text": '"quoted"',
        "umlaut": "\u00fc",
        "empty": "",
        "not_json": "[1,",
        "sagemaker_program": "main.py",
    }
    parameters = [word for name, value in values.items() for word in ("--hyperparameter", f"{name}={value}")]
    channels = [
        "--channel",
        f"train={tmp_path / 'data'},content-type=text/csv",
        "--channel",
        f"Eval.x-1={tmp_path / 'data'}",
    ]
    folder = root(tmp_path)
    done = millrace("run", "--root", folder, *hosts, *channels, *parameters, "--", sys.executable, "-c", ORACLE)
    ours, theirs = map(json.loads, lines(done))
    ours_env, theirs_env = json.loads(ours.pop("SM_TRAINING_ENV")), json.loads(theirs.pop("SM_TRAINING_ENV"))
    # Programs find out about the hardware in other ways; it need not be the same in a container.
    for name in ("SM_NUM_CPUS", "SM_NUM_GPUS", "SM_NUM_NEURONS"):
        assert int(ours.pop(name)) >= 0 <= int(theirs.pop(name))
    assert ours == theirs
    for name in ours_env.keys() - {"num_cpus", "num_gpus", "num_neurons"}:
        assert ours_env[name] == theirs_env[name], name
    # The toolkit's own switches are not ours to tell.
    assert {name for name in theirs_env.keys() - ours_env.keys() if not name.startswith("is_")} == set()
    config = json.loads((folder / "input/config/inputdataconfig.json").read_text())
    assert config["train"]["ContentType"] == "text/csv" and config["train"]["TrainingInputMode"] == "File"


def test_one_object_is_a_channel(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"data/train.csv": b"1,2\n", "data/train.csv.bak": b""})
    show = ["--", "sh", "-c", 'cd "$SM_CHANNEL_TRAIN" && ls -a && cat *']
    done = millrace(
        "run", "--root", root(tmp_path), "--channel", "train=s3://bkt/data/train.csv", *show, env=bucket.env
    )
    assert lines(done) == [".", "..", "train.csv", "1,2"]


def test_a_restart_copies_nothing_again(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{f"data/{i}": os.urandom(1000) for i in range(20)})
    fail_once = [
        "--retries",
        "1",
        "--delay",
        "0",
        "--",
        "sh",
        "-c",
        'ls "$SM_CHANNEL_TRAIN" | wc -l; [ $MILLRACE_ATTEMPT = 2 ]',
    ]
    command = ["run", "--root", root(tmp_path), "--channel", "train=s3://bkt/data"]
    done = millrace(*command, *fail_once, env=bucket.env)
    assert lines(done) == ["20", "20"] and done.stderr.count(b"channel train:") == 1
    # As after a spot interruption, on the same disk, in the middle of copying.
    (root(tmp_path) / "input/data/train/7").unlink()
    assert b"of which 1 copied now" in millrace(*command, "--", "true", env=bucket.env).stderr
    assert contents(root(tmp_path) / "input/data/train") == {str(i): bucket.objects()[f"data/{i}"] for i in range(20)}


def test_what_does_not_fit_is_refused_before_anything_is_copied(
    millrace: Millrace, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put(**{f"data/{i}": os.urandom(200_000) for i in range(20)})
    with small_disk(tmp_path / "disk", "2m") as disk:
        command = ["run", "--root", disk / "ml", "--channel", "train=s3://bkt/data"]
        done = millrace(*command, "--", "echo", "must not run", code=1, env=bucket.env)
        assert b"channel train" in done.stderr and b"has room for" in done.stderr and done.stdout == b""
        assert contents(disk / "ml" / "input" / "data") == {}
        for i in range(15):
            bucket.s3.delete_object(Bucket="bkt", Key=f"data/{i}")
        millrace(*command, "--", "true", env=bucket.env)
        assert contents(disk / "ml" / "input" / "data" / "train") == {
            str(i): bucket.objects()[f"data/{i}"] for i in range(15, 20)
        }


def test_what_cannot_be_a_channel(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    command = ["run", "--root", root(tmp_path), "--channel"]
    for text in ("train", "train=", "a b=s3://bkt/x", "train=s3://bkt/x,mode=Fast", "train=ftp://x"):
        millrace(*command, text, "--", "true", code=2, env=bucket.env)
    two = millrace(*command, "t=/x", "--channel", "t=/y", "--", "true", code=2)
    assert b"two channels are called t" in two.stderr
    assert b"several hosts" in millrace(*command, "t=/x", "--hosts", "a,b", "--", "true", code=2).stderr
    nothing = millrace(*command, "train=s3://bkt/nothing", "--", "echo", "must not run", code=1, env=bucket.env)
    assert b"has no objects" in nothing.stderr and nothing.stdout == b""
    pipe = millrace(*command, "train=s3://bkt/x,mode=Pipe", "--channel", "train_0=/x", "--", "true", code=2)
    assert b"channel train_0 has the name of a pipe of channel train" in pipe.stderr
    millrace(*command, "train=s3://bkt/x,wrapper=RecordIO", "--", "true", code=2)


def test_files_of_others_stay(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"data/a": b"1"})
    folder = root(tmp_path) / "input/data/train"
    folder.mkdir(parents=True)
    (folder / "mine").write_text("precious")
    done = millrace(
        "run", "--root", root(tmp_path), "--channel", "train=s3://bkt/data", "--", "true", code=1, env=bucket.env
    )
    assert b"files that Millrace did not copy there" in done.stderr
    assert contents(folder) == {"mine": b"precious"}
