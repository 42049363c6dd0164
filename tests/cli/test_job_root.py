"""One root for several jobs: one at a time, and none of them uses what another one has left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, contents, lines
from test_job_end import archive
from test_run import running
from test_run_group import StartHost, ends, said
from test_run_group import host as host  # a fixture


def test_a_root_in_use_is_refused_and_left_alone(millrace: Millrace, millrace_bin: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    job = ["run", "--root", tmp_path / "ml", "--failure-file", tmp_path / "failure"]
    waits = 'echo "mine" >"$SM_MODEL_DIR/../output/failure"; echo ready; read line; cat "$SM_CHANNEL_TRAIN/x"'
    command = [str(millrace_bin), *map(str, job), "--channel", f"train={tmp_path / 'one'}", "--", "sh", "-c", waits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "ready\n"
        for options in (
            ["--channel", f"train={tmp_path / 'two'}"],
            ["--hyperparameter", "a=1"],
            ["--output", tmp_path],
        ):
            second = ["run", "--root", tmp_path / "ml", *options, "--", "echo", "must not run"]
            done = millrace(*second, code=1)
            assert f"{tmp_path / 'ml'} is in use by another job (process {first.pid} on".encode() in done.stderr
            assert b"--root" in done.stderr and done.stdout == b""
        assert (tmp_path / "ml/output/failure").read_text() == "mine\n"
        out, _ = first.communicate("go on\n", timeout=300)
    assert out == "one" and first.returncode == 0
    millrace("run", "--root", tmp_path / "ml", "--hyperparameter", "a=1", "--", "true")


LEAVES = 'echo 1 >"$SM_MODEL_DIR/{0}"; echo 1 >"$SM_OUTPUT_DATA_DIR/{0}"; echo 1 >"$ROOT/checkpoints/{0}"; ls "$ROOT/checkpoints"'


def test_what_another_job_left_is_not_used(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    env = bucket.env | {"ROOT": str(tmp_path / "ml")}
    first = ["run", "--root", tmp_path / "ml", "--output", "s3://bkt/a", "--", "sh", "-c", LEAVES.format("first")]
    second = ["run", "--root", tmp_path / "ml", "--output", "s3://bkt/b", "--", "sh", "-c", LEAVES.format("second")]
    assert lines(millrace(*first, env=env)) == ["first"]
    done = millrace(*second, env=env)
    assert lines(done) == ["second"]
    for folder in ("model", "output/data", "checkpoints"):
        assert f"{tmp_path / 'ml' / folder} had files of another job".encode() in done.stderr
    for name in ("model", "output"):
        assert archive(bucket, f"b/{name}.tar.gz") == {"second": b"1\n"}
    # Nothing is lost, and a job that comes back finds what is its own.
    assert contents(tmp_path / "ml/model-of-earlier-job-1") == {"first": b"1\n"}
    (tmp_path / "ml/checkpoints/more").write_text("1")
    again = millrace(*second, env=env)
    assert lines(again) == ["more", "second"] and b"another job" not in again.stderr


@pytest.mark.parametrize(
    ("more", "same"),
    [
        (["--retries", "3", "--journal", "JOURNAL"], True),
        (["--hyperparameter", "lr=0.2"], False),
        (["--checkpoint", "s3://bkt/other"], False),
    ],
)
def test_what_makes_another_job(millrace: Millrace, tmp_path: Path, more: list[str], same: bool) -> None:
    more = [str(tmp_path / "journal") if word == "JOURNAL" else word for word in more]
    job = ["run", "--root", tmp_path / "ml", "--hyperparameter", "lr0=1", "--hyperparameter", "b=1"]
    program = ["--", "sh", "-c", 'cd "$SM_MODEL_DIR/../checkpoints"; ls; echo 1 >step']
    millrace(*job, *program)
    assert lines(millrace(*job, *more, *program)) == (["step"] if same else [])


def test_a_job_with_a_place_of_its_checkpoints_is_known_by_it(
    millrace: Millrace, bucket: Bucket, tmp_path: Path
) -> None:
    """Its command may change, as when a program that has failed is corrected."""
    job = ["run", "--root", tmp_path / "ml", "--sync-checkpoints", "s3://bkt/ckpt", "--", "sh", "-c"]
    millrace(*job, f"echo 1 >{tmp_path}/ml/checkpoints/step; exit 3", code=3, env=bucket.env)
    done = millrace(*job, f"cat {tmp_path}/ml/checkpoints/step", env=bucket.env)
    assert done.stdout == b"1\n" and b"another job" not in done.stderr


SLURM = {"SLURM_HET_SIZE": "1", "SLURM_JOB_NODELIST_HET_GROUP_0": "localhost", "SLURMD_NODENAME": "localhost"}


@pytest.mark.parametrize("record", [True, False])
def test_the_hosts_of_an_earlier_job_are_not_those_of_a_group(
    millrace: Millrace, host: StartHost, tmp_path: Path, record: bool
) -> None:
    """Also what earlier versions have left, which did not say that it was theirs."""
    millrace("run", "--root", tmp_path / "ml", "--hyperparameter", "a=1", "--", "true")
    config = tmp_path / "ml/input/config"
    assert (config / "resourceconfig.json").exists()
    if not record:
        (config / "millrace-run").unlink()
    env = {"SM_INPUT_CONFIG_DIR": str(config)}
    train = host(None, env=env | SLURM, train="true")
    assert ends(train) == [0], said(train)
    alone = host(None, env=env, train="true")
    assert ends(alone) == [2]
    assert ("nothing says which group" if record else "has no instance group") in said(alone)


def test_the_files_of_an_image_are_moved_aside(millrace_bin: Path, tmp_path: Path) -> None:
    """The first run in a container: a folder of a lower layer cannot be renamed."""
    script = """
        cd "$1" && mount -t tmpfs tmpfs . && cd "$1" && mkdir -p image/model/deep upper work root || exit 77
        echo 1 > image/model/deep/x && ln -s deep/x image/model/link
        mount -t overlay overlay -o lowerdir=image,upperdir=upper,workdir=work root || exit 77
        "$0" run --root root --hyperparameter a=1 -- sh -c 'ls "$SM_MODEL_DIR"' || exit 1
        cat root/model-of-earlier-job-1/deep/x
        readlink root/model-of-earlier-job-1/link
    """
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *rights, "--mount", "sh", "-c", script, str(millrace_bin), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"there is no overlay here: {done.stderr}")
    assert (done.returncode, done.stdout) == (0, "1\ndeep/x\n"), done.stderr
    assert "had files of another job" in done.stderr


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_folder_that_is_a_mount_is_not_moved_aside(millrace_bin: Path, tmp_path: Path, kind: str) -> None:
    """The next job in a container that has a volume for its model: the message says what to do."""
    mount = {"tmpfs": "mount -t tmpfs tmpfs root/model", "bind": "mount --bind volume root/model"}[kind]
    script = f"""
        cd "$1" && mkdir -p root/model volume && {mount} || exit 77
        job() {{ "$0" run --root root --hyperparameter a=$1 -- sh -c 'ls "$SM_MODEL_DIR"; echo 1 >"$SM_MODEL_DIR/x"'; }}
        job 1 || exit 1
        job 2 && exit 2
        rm root/model/x && job 2
    """
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *rights, "--mount", "sh", "-c", script, str(millrace_bin), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "root/model has files of another job, and it is a mount point" in done.stderr


def test_a_run_within_a_job_has_the_groups_of_that_job(millrace_bin: Path, host: StartHost, tmp_path: Path) -> None:
    groups = ["--instance-group", "train=localhost", "--hyperparameter", "a=1", "--root", str(tmp_path / "ml")]
    with running(millrace_bin, *groups, "--", "sh", "-c", 'echo "$SM_INPUT_CONFIG_DIR"; exec sleep 600') as outer:
        assert outer.stdout is not None
        folder = outer.stdout.readline().strip()
        inner = host(None, env={"SM_INPUT_CONFIG_DIR": folder}, train="true")
        assert ends(inner) == [0], said(inner)
