"""`millrace run --channel`: File mode of manifests and of several hosts, and FastFile mode, whose folders are file systems."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, contents, lines, needs_fuse

# A reading loop in the manner of AWS's examples: all files of a channel, by name, once an epoch.
READER = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
def read(): return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}
"""
TELL = ["--", sys.executable, "-c", READER + "print(json.dumps(read()))"]
OBJECTS = {f"p/{i:02}": str(i) for i in range(11)} | {"p/deep/er/x": "deep", "pq": "not of it"}
MODES = ["File", pytest.param("FastFile", marks=needs_fuse)]


@pytest.fixture(autouse=True)
def no_mount_stays(tmp_path: Path) -> Iterator[None]:
    yield
    left = [folder for folder in mounts() if folder.startswith(str(tmp_path))]
    for folder in left:
        subprocess.run(["umount", "-l", folder])
    assert not left


def put(bucket: Bucket, objects: dict[str, str]) -> None:
    bucket.put(**{key: text.encode() for key, text in objects.items()})


def below(prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): text for key, text in sorted(OBJECTS.items()) if key.startswith(prefix)}


def job(root: Path, channel: str, *more: str) -> list[str | Path]:
    return ["run", "--root", root, "--channel", f"train={channel}", *more]


def mounts() -> list[str]:
    return [
        line.split()[1]
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if line.split()[2] == "fuse.millrace"
    ]


@pytest.mark.parametrize("mode", MODES)
def test_what_the_uri_names(millrace: Millrace, bucket: Bucket, tmp_path: Path, mode: str) -> None:
    put(
        bucket,
        OBJECTS | {f"p/{folder}.millrace/index": "that of Millrace, which is no data" for folder in ("", "deep/")},
    )
    put(bucket, {"m.json": json.dumps([{"prefix": "s3://bkt/p/"}, "07", "deep/er/x", "07", "03"])})
    shared = tmp_path / "mnt" / "efs" / "x"  # as EFS or FSx are mounted
    shared.mkdir(parents=True)
    (shared / "a").write_text("1")
    cases = {
        "s3://bkt/p": below("p/"),
        "s3://bkt/p/deep/": {"er/x": "deep"},
        "s3://bkt/p/05": {"05": "5"},
        "s3://bkt/m.json,type=ManifestFile": {"07": "7", "deep/er/x": "deep", "03": "3"},
        f"file://{shared}": {"a": "1"},
    }
    for i, (channel, expected) in enumerate(cases.items()):
        root = tmp_path / str(i)
        tell = READER + "assert '.millrace' not in os.listdir(folder); print(json.dumps(read()))"
        done = millrace(*job(root, f"{channel},mode={mode}"), "--", sys.executable, "-c", tell, env=bucket.env)
        assert json.loads(done.stdout) == expected, channel
        config = json.loads((root / "input/config/inputdataconfig.json").read_text())["train"]
        assert config["TrainingInputMode"] == mode
        kept = {name: body.decode() for name, body in contents(root / "input/data/train").items()}
        assert kept == (expected if mode == "File" else {})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_have_parts(millrace: Millrace, bucket: Bucket, tmp_path: Path, mode: str, hosts: int) -> None:
    put(bucket, OBJECTS)
    names = [f"algo-{i + 1}" for i in range(hosts)]
    whole = below("p/")
    for i, host in enumerate(names):
        more = ["--hosts", ",".join(names), "--current-host", host]
        command = job(tmp_path / host, f"s3://bkt/p,distribution=ShardedByS3Key,mode={mode}", *more)
        part = dict(list(whole.items())[i::hosts])
        assert json.loads(millrace(*command, *TELL, env=bucket.env).stdout) == part
        if mode == "File":
            assert b"of which 0 copied now" in millrace(*command, *TELL, env=bucket.env).stderr


def test_groups_have_channels_of_their_own(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, OBJECTS)
    groups = ["--instance-group", "data=algo-1", "--instance-group", "dnn=algo-3+algo-2"]
    body = READER.replace("folder =", "folder = 'SM_CHANNEL_TRAIN' in os.environ and").replace(
        "return {", "return folder and {"
    )
    whole = below("p/")
    expected = {"algo-1": False, "algo-2": dict(list(whole.items())[0::2]), "algo-3": dict(list(whole.items())[1::2])}
    for host, part in expected.items():
        command = job(
            tmp_path / host, "s3://bkt/p,distribution=ShardedByS3Key,groups=dnn", *groups, "--current-host", host
        )
        done = millrace(
            *command,
            "--channel",
            "eval=s3://bkt/p/deep",
            "--",
            sys.executable,
            "-c",
            body + "print(json.dumps(read()))",
            env=bucket.env,
        )
        assert json.loads(done.stdout) == part
        assert contents(tmp_path / host / "input/data/eval") == {"er/x": b"deep"}
    for wrong in (
        ["--current-host", "algo-4"],
        ["--hosts", "algo-1,algo-2", "--current-host", "algo-1"],
        ["--instance-group", "data=algo-4", "--current-host", "algo-4"],
    ):
        millrace(*job(tmp_path / "no", "s3://bkt/p"), *groups, *wrong, "--", "true", code=2)
    assert (
        b"no instance group 'gpu'"
        in millrace(*job(tmp_path / "no", "s3://bkt/p,groups=gpu"), "--", "true", code=2).stderr
    )


def test_a_manifest_that_changes(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, OBJECTS | {f"q/{i:02}": str(i + 1)[:1] for i in range(9)})
    command = job(tmp_path / "ml", "s3://bkt/m.json,type=ManifestFile")
    for names, copied in ((["01", "02", "deep/er/x"], 3), (["01", "02", "deep/er/x"], 0), (["02", "03"], 1)):
        put(bucket, {"m.json": json.dumps([{"prefix": "s3://bkt/p/"}, *names])})
        done = millrace(*command, *TELL, env=bucket.env)
        assert json.loads(done.stdout) == {name: OBJECTS["p/" + name] for name in sorted(names)}
        assert f"of which {copied} copied now".encode() in done.stderr
    # Files of one name and size, and of other contents.
    put(bucket, {"m.json": json.dumps([{"prefix": "s3://bkt/q/"}, "02", "03"])})
    assert json.loads(millrace(*command, *TELL, env=bucket.env).stdout) == {"02": "3", "03": "4"}
    put(bucket, {"m.json": json.dumps([{"prefix": "s3://bkt/q/"}, "02", "none"])})
    missing = millrace(*command, "--", "echo", "must not run", code=1, env=bucket.env)
    assert b"s3://bkt/q/none" in missing.stderr and missing.stdout == b""


@needs_fuse
def test_a_mount_of_every_channel_and_attempt(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, {f"c{i}/x": str(i) for i in range(5)})
    channels = [
        word for i in range(5) for word in ("--channel", f"c{i}=s3://bkt/c{i},mode={'FastFile' if i else 'Pipe'}")
    ]
    body = 'cat "$SM_INPUT_DIR"/data/c[1-4]/x "$SM_CHANNEL_C0"_0; [ $MILLRACE_ATTEMPT = 3 ]'
    done = millrace(
        "run",
        "--root",
        tmp_path / "ml",
        *channels,
        "--retries",
        "2",
        "--delay",
        "0",
        "--",
        "sh",
        "-c",
        body,
        env=bucket.env,
    )
    assert done.stdout == b"12340" * 3
    failed = millrace("run", "--root", tmp_path / "ml", *channels, "--", "sh", "-c", "exit 9", code=9, env=bucket.env)
    assert b"c4 is mounted on" in failed.stderr.replace(b"s3://bkt/", b"")


@needs_fuse
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_is_killed_leaves_no_mount(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path, number: signal.Signals
) -> None:
    put(bucket, OBJECTS)
    folder = tmp_path / "ml/input/data/train"
    command = job(tmp_path / "ml", "s3://bkt/p,mode=FastFile")
    program = ["--", sys.executable, "-c", READER + "print(len(read()), flush=True); time.sleep(600)"]
    with subprocess.Popen(
        [millrace_bin, *command, *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | bucket.env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"12\n"
        assert str(folder) in mounts()
        process.send_signal(number)
        assert process.wait(300) == (128 + number if number == signal.SIGTERM else -number)
    if number == signal.SIGKILL:
        # The next job need not wait for that itself.
        assert json.loads(millrace(*command, *TELL, env=bucket.env).stdout) == below("p/")
    assert str(folder) not in mounts()


@needs_fuse
def test_a_dead_mount_is_removed_and_a_dying_one_ends_the_job(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path
) -> None:
    put(bucket, OBJECTS)
    folder = tmp_path / "ml/input/data/train"
    command = job(tmp_path / "ml", "s3://bkt/p,mode=FastFile")
    # The program kills the process of its mount, which is a child of `millrace run`, as its supervisor is.
    kill = (
        "main = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1]\n"
        "mates = open(f'/proc/{main}/task/{main}/children').read().split()\n"
        "mates.remove(str(os.getppid()))\n"
        "assert len(read()) == 12 and len(mates) == 1\n"
        "os.kill(int(mates[0]), 9)\n"
        "time.sleep(600)\n"
    )
    done = millrace(*command, "--retries", "3", "--", sys.executable, "-c", READER + kill, code=1, env=bucket.env)
    assert b"channel train: its file system" in done.stderr and b"attempt 2" not in done.stderr
    assert "its file system" in (tmp_path / "ml/output/failure").read_text()
    assert str(folder) not in mounts()
    # As a machine leaves it whose processes were all killed at once.
    words: list[str | Path] = [millrace_bin, "mount", "s3://bkt/p", folder, "--foreground"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, env=os.environ | bucket.env) as mount:
        end = time.monotonic() + 300
        while str(folder) not in mounts():
            assert mount.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        mount.kill()
    assert str(folder) in mounts()
    with pytest.raises(OSError):
        os.listdir(folder)
    assert json.loads(millrace(*command, *TELL, env=bucket.env).stdout) == below("p/")
    assert str(folder) not in mounts()


@needs_fuse
def test_what_cannot_be_mounted(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, OBJECTS)
    folder = tmp_path / "ml/input/data/train"
    folder.mkdir(parents=True)
    (folder / "mine").write_text("precious")
    done = millrace(*job(tmp_path / "ml", "s3://bkt/p,mode=FastFile"), "--", "echo", "no", code=1, env=bucket.env)
    assert b"files that Millrace did not copy there" in done.stderr and done.stdout == b""
    assert done.stderr.count(b"channel train") == 1
    assert contents(folder) == {"mine": b"precious"}
    for options in ("compression=Gzip", "type=AugmentedManifestFile,attributes=a"):
        millrace(*job(tmp_path / "ml2", f"s3://bkt/p,mode=FastFile,{options}"), "--", "true", code=2)
    nowhere = millrace(
        *job(tmp_path / "ml2", "s3://nobucket/p,mode=FastFile"), "--", "echo", "no", code=1, env=bucket.env
    )
    assert b"channel train" in nowhere.stderr and nowhere.stdout == b"" and lines(nowhere) == []
