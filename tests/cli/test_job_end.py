"""The end of a job as SageMaker has it: model and output are saved, checkpoints are kept, failures are reported, and statuses are those of the program."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, contents

WRITE = 'echo weights > "$SM_MODEL_DIR/model.bin"; mkdir "$SM_MODEL_DIR/code"; echo x > "$SM_MODEL_DIR/code/a b"; echo log > "$SM_OUTPUT_DATA_DIR/-log";'


def archive(bucket: Bucket, key: str) -> dict[str, bytes]:
    """The files of an archive, by name."""
    with tarfile.open(fileobj=io.BytesIO(bucket.objects()[key]), mode="r:gz") as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


MODEL = {"model.bin": b"weights\n", "code/a b": b"x\n"}


@pytest.mark.parametrize("status", [0, 7])
def test_model_and_output(millrace: Millrace, bucket: Bucket, tmp_path: Path, status: int) -> None:
    job = ["run", "--root", tmp_path / "ml", "--output", "s3://bkt/out/"]
    done = millrace(*job, "--", "sh", "-c", f"{WRITE} exit {status}", code=status, env=bucket.env)
    assert archive(bucket, "out/output.tar.gz") == {"-log": b"log\n"}
    if status == 0:
        assert archive(bucket, "out/model.tar.gz") == MODEL
        assert b"ml/model is in s3://bkt/out/model.tar.gz" in done.stderr
    else:
        assert bucket.keys() == ["out/output.tar.gz"]
        assert "exited with status 7" in (tmp_path / "ml/output/failure").read_text()


def test_the_hook_comes_after_it(millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    job = ["run", "--root", tmp_path / "ml", "--output", "s3://bkt/out"]
    hook = f"{millrace_bin} ls s3://bkt/out/ > {tmp_path / 'seen'}"
    millrace(*job, "--on-end", hook, "--", "sh", "-c", WRITE, env=bucket.env)
    seen = (tmp_path / "seen").read_text()
    assert "model.tar.gz" in seen and "output.tar.gz" in seen


def test_a_request_says_where(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"old/step-1": b"1"})
    request = {
        "TrainingJobName": "job-7",
        "OutputDataConfig": {"S3OutputPath": "s3://bkt/out/", "CompressionType": "NONE"},
        "CheckpointConfig": {"S3Uri": "s3://bkt/old", "LocalPath": str(tmp_path / "kept")},
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
    }
    (tmp_path / "job.json").write_text(json.dumps(request))
    body = WRITE + f"cat {tmp_path / 'kept'}/*; echo 2 > {tmp_path / 'kept'}/step-2"
    for host in ("algo-1", "algo-2"):
        job = ["run", "--job", tmp_path / "job.json", "--root", tmp_path / host, "--current-host", host]
        assert millrace(*job, "--", "sh", "-c", body, env=bucket.env).stdout == (b"1" if host == "algo-1" else b"12\n")
    folder = "out/job-7/output"
    names = [
        f"{folder}/{name}" for name in ("model", "model-algo-2") for name in (f"{name}/code/a b", f"{name}/model.bin")
    ]
    assert bucket.keys() == [
        "old/step-1",
        "old/step-2",
        *sorted(names),
        f"{folder}/output-algo-2/-log",
        f"{folder}/output/-log",
    ]
    assert bucket.objects()["old/step-2"] == b"2\n"


def test_nothing_to_save_and_nowhere_to_save_it(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    millrace("run", "--root", tmp_path / "a", "--output", "s3://bkt/out", "--", "true", env=bucket.env)
    assert bucket.keys() == []
    done = millrace(
        "run",
        "--root",
        tmp_path / "b",
        "--output",
        "s3://nobucket/out",
        "--",
        "sh",
        "-c",
        WRITE,
        code=1,
        env=bucket.env,
    )
    assert b"ml/model" not in done.stderr and b"b/model is not saved" in done.stderr and b"nobucket" in done.stderr
    assert "is not saved" in (tmp_path / "b/output/failure").read_text()
    millrace("run", "--root", tmp_path / "c", "--output", "ftp://x", "--", "true", code=2)


def test_links_of_checkpoints_survive_the_machine(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    """Each job replaces the link, as training programs do."""
    program = (
        'cd "$ROOT/checkpoints"; mkdir step-{0}; echo {0} > step-{0}/model; ln -s step-{0} new; mv -T new latest; '
        "cat latest/model; readlink latest"
    )
    for number in (1, 2):
        root = tmp_path / f"machine-{number}"
        job = ["run", "--root", root, "--sync-checkpoints", "s3://bkt/ckpt", "--", "sh", "-ec", program.format(number)]
        done = millrace(*job, env=bucket.env | {"ROOT": str(root)})
        assert done.stdout == f"{number}\nstep-{number}\n".encode()
    assert bucket.objects() == {
        "ckpt/latest.millrace-link": b"step-2",
        "ckpt/step-1/model": b"1\n",
        "ckpt/step-2/model": b"2\n",
    }
    assert os.readlink(root / "checkpoints" / "latest") == "step-2" and (root / "checkpoints/step-1/model").exists()


def test_checkpoints_survive_the_machine(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path
) -> None:
    job = ["--sync-checkpoints", "s3://bkt/ckpt", "--", "sh", "-c"]
    program = 'cd "$ROOT/checkpoints"; trap "echo 2 > step-2; exit 0" TERM; echo 1 > step-1; echo ready; while :; do sleep 0.05; done'
    env = os.environ | bucket.env | {"ROOT": str(tmp_path / "a")}
    with subprocess.Popen(
        [millrace_bin, "run", "--root", tmp_path / "a", *job, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    assert bucket.objects() == {"ckpt/step-1": b"1\n", "ckpt/step-2": b"2\n"}
    # On another machine; a failed job keeps its checkpoints, too.
    done = millrace(
        "run",
        "--root",
        tmp_path / "b",
        *job,
        'cd "$ROOT/checkpoints"; cat *; echo 3 > step-3; exit 4',
        code=4,
        env=bucket.env | {"ROOT": str(tmp_path / "b")},
    )
    assert done.stdout == b"1\n2\n" and b"checkpoints: 2 files from s3://bkt/ckpt" in done.stderr
    assert bucket.keys() == ["ckpt/step-1", "ckpt/step-2", "ckpt/step-3"]
    assert contents(tmp_path / "b/checkpoints") == {"step-1": b"1\n", "step-2": b"2\n", "step-3": b"3\n"}


def test_links_are_saved_as_the_files_behind_them(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    """Links of any kind are followed; a link to nothing is reported."""
    (tmp_path / "base/deep").mkdir(parents=True)
    (tmp_path / "base/deep/tokens").write_text("tokens")
    body = f"""cd "$SM_MODEL_DIR"; echo weights > step-7; ln -s step-7 latest; ln step-7 hard; ln -s {tmp_path}/base/deep/tokens tokens
ln -s {tmp_path}/base base; mkdir sub; ln -s ../step-7 sub/up; ln -s nowhere sub/gone; ln -s ../sub sub/loop; ln -s a b; ln -s b a"""
    done = millrace(
        "run", "--root", tmp_path / "ml", "--output", "s3://bkt/out", "--", "sh", "-c", body, env=bucket.env
    )
    weights = b"weights\n"
    files = {"step-7": weights, "latest": weights, "hard": weights, "sub/up": weights}
    assert archive(bucket, "out/model.tar.gz") == files | {"tokens": b"tokens", "base/deep/tokens": b"tokens"}
    with tarfile.open(fileobj=io.BytesIO(bucket.objects()["out/model.tar.gz"])) as tar:
        assert all(member.isfile() or member.isdir() for member in tar)
    for name in ("sub/gone", "a", "b"):
        assert f"model/{name} is a link to nothing".encode() in done.stderr


GROWS = {"OutputDataConfig": {"S3OutputPath": "s3://bkt/out", "CompressionType": "NONE"}}


@pytest.mark.parametrize("compressed", [True, False])
def test_a_file_that_grows_meanwhile_costs_nothing_else(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, compressed: bool
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(GROWS))
    where = ["--output", "s3://bkt/out"] if compressed else ["--job", tmp_path / "job.json"]
    weights = os.urandom(1 << 20)
    (tmp_path / "weights").write_bytes(weights)
    over = threading.Event()
    log = tmp_path / "ml/model/log"
    pause = 0.001

    def write() -> None:
        while not log.exists() and not over.wait(pause):
            pass
        with log.open("ab") as file:
            file.write(bytes(40 << 20))
            file.flush()
            while not over.wait(pause):
                if file.tell() < 60 << 20:
                    file.write(bytes(1000))
                    file.flush()
                else:
                    os.utime(log)  # for tar it changes all the same

    thread = threading.Thread(target=write)
    thread.start()
    try:
        body = f'cp {tmp_path}/weights "$SM_MODEL_DIR"/weights; : > "$SM_MODEL_DIR"/log; until [ -s {log} ]; do sleep 0.05; done'
        done = millrace("run", "--root", tmp_path / "ml", *where, "--", "sh", "-c", body, env=bucket.env)
    finally:
        over.set()
        thread.join()
    saved = archive(bucket, "out/model.tar.gz") if compressed else bucket.objects()
    folder = "" if compressed else "out/output/model/"
    assert saved.keys() == {folder + "weights", folder + "log"} and saved[folder + "weights"] == weights
    assert len(saved[folder + "log"]) > 0
    if compressed:
        assert b"files changed meanwhile" in done.stderr


def test_a_file_that_is_removed_meanwhile_is_no_failure(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    """It was listed, and is gone when tar comes to it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tar").write_text(f'#!/bin/sh\nrm -f "{tmp_path}/ml/model/gone"\nexec {shutil.which("tar")} "$@"\n')
    (tools / "tar").chmod(0o755)
    job = ["run", "--root", tmp_path / "ml", "--output", "s3://bkt/out", "--", "sh", "-c"]
    env = bucket.env | {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = millrace(*job, WRITE + 'echo x > "$SM_MODEL_DIR/gone"', env=env)
    assert archive(bucket, "out/model.tar.gz") == MODEL
    assert b"files changed meanwhile" in done.stderr


def test_the_model_of_a_second_run_replaces_that_of_the_first(
    millrace: Millrace, bucket: Bucket, tmp_path: Path
) -> None:
    """File by file, too, where it has the size of the older one."""
    (tmp_path / "job.json").write_text(json.dumps(GROWS))
    for text in ("older", "newer"):
        job = ["run", "--root", tmp_path / text, "--job", tmp_path / "job.json", "--", "sh", "-c"]
        millrace(*job, f'printf {text} > "$SM_MODEL_DIR/x"; ln -s x "$SM_MODEL_DIR/y"', env=bucket.env)
        assert bucket.objects() == {f"out/output/model/{name}": text.encode() for name in "xy"}


@pytest.mark.parametrize("tar", [None, "head -c 9000 /dev/zero; kill -9 $$", "exit 3", '{tar} "$@"; exit 2'])
def test_without_a_tar_that_works_the_files_are_saved(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, tar: str | None
) -> None:
    """A tar that passes over a file has the others; without one they are saved file by file."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "head", "gzip", "mkdir"):
        (tools / name).symlink_to(shutil.which(name) or name)
    if tar is not None:
        (tools / "tar").write_text("#!/bin/sh\n" + tar.format(tar=shutil.which("tar")))
        (tools / "tar").chmod(0o755)
    job = ["run", "--root", tmp_path / "ml", "--output", "s3://bkt/out", "--", "sh", "-c", WRITE]
    done = millrace(*job, code=1, env=bucket.env | {"PATH": str(tools)})
    if tar is not None and tar.startswith("{"):
        assert archive(bucket, "out/model.tar.gz") == MODEL
    else:
        files = {f"out/model/{name}": body for name, body in MODEL.items()} | {"out/output/-log": b"log\n"}
        assert bucket.objects() == files
    assert b"is not saved as it should be" in done.stderr
