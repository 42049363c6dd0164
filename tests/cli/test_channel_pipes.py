"""`millrace run --channel NAME=URI,mode=Pipe`: FIFOs an epoch each, held against the model of the contract."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from channel_model import Channel, records
from cli_support import Bucket, Millrace, lines

# The reading loop of AWS's example for algorithms of one's own: waits for the FIFO of an epoch, reads it to its end, or closes it early.
READER = """
import hashlib, json, os, sys, time
def wait_till_fifo_exists(fname):
    while not os.path.exists(fname):
        time.sleep(0.01)
def read(channel, epoch, limit=None):
    fifo_path = os.environ["SM_CHANNEL_" + channel.upper()] + "_" + str(epoch)
    wait_till_fifo_exists(fifo_path)
    data = b""
    with open(fifo_path, "rb", buffering=0) as fifo:
        while limit is None or len(data) < limit:
            chunk = fifo.read(1 << 16 if limit is None else min(1 << 16, limit - len(data)))
            if not chunk:
                break
            data += chunk
    return data
def tell(**facts):
    print(json.dumps(facts), flush=True)
"""


def job(root: Path, *channels: str) -> list[str | Path]:
    return ["run", "--root", root, *(word for channel in channels for word in ("--channel", channel))]


def script(body: str) -> list[str]:
    return ["--", sys.executable, "-c", READER + body]


def told(done: subprocess.CompletedProcess[bytes]) -> list[Any]:
    return [json.loads(line) for line in lines(done)]


EPOCHS = script("for e in range(4): tell(data=read('train', e).hex())")


def epochs_of(done: subprocess.CompletedProcess[bytes]) -> list[bytes]:
    return [bytes.fromhex(facts["data"]) for facts in told(done)]


@pytest.fixture
def objects(bucket: Bucket) -> dict[str, bytes]:
    found = {f"p/{i:02}": bytes([i]) * (i * i) for i in range(30)} | {"p/sub/x": b"deep", "pq": b"not of it"}
    found |= {f"z/{i:02}": gzip.compress(bytes([i]) * i, mtime=0) for i in range(10)}
    bucket.put(**found, **{"p/": b"", "p/.millrace/index": b"ours", "p/sub/.millrace/index": b"ours"})
    return found


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_a_prefix(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, objects: dict[str, bytes], wrapped: bool, seed: int | None
) -> None:
    options = (",wrapper=RecordIO" if wrapped else "") + (f",shuffle-seed={seed}" if seed is not None else "")
    model = Channel.of_prefix(objects, "p/", wrapped=wrapped, seed=seed)
    done = millrace(*job(tmp_path / "ml", f"train=s3://bkt/p,mode=Pipe{options}"), *EPOCHS, env=bucket.env)
    epochs = epochs_of(done)
    assert epochs == [model.epoch(e) for e in range(4)]
    assert len(set(epochs)) == (1 if seed is None else 4)
    if wrapped:
        assert sorted(records(epochs[3])) == sorted(item[0] for item in model.items)
    assert done.stderr.count(f"31 objects, {len(epochs[0]) / 1024:.1f} KiB".encode()) == 4, done.stderr
    assert not list((tmp_path / "ml/input/data").iterdir())
    config = json.loads((tmp_path / "ml/input/config/inputdataconfig.json").read_text())["train"]
    assert config["TrainingInputMode"] == "Pipe" and config["RecordWrapperType"] == ("RecordIO" if wrapped else "None")


def test_gzip_and_manifests(millrace: Millrace, bucket: Bucket, tmp_path: Path, objects: dict[str, bytes]) -> None:
    manifest = json.dumps([{"prefix": "s3://bkt/p/"}, "07", "sub/x", "03", "07"])
    labels = [
        {"source-ref": f"s3://bkt/p/{i:02}", "label": i, "box": {"b": [i, 0.5], "a": None}, "name": f"n{i}"}
        for i in (9, 2, 5)
    ]
    augmented = "\n".join(map(json.dumps, labels)) + "\n\n"
    bucket.put(**{"m.json": manifest.encode(), "a.manifest": augmented.encode()})
    names = ["label", "source-ref", "box", "name"]
    cases: dict[str, Channel] = {
        "z=s3://bkt/z,compression=Gzip": Channel.of_prefix(objects, "z/", unzip=True),
        "zr=s3://bkt/z,compression=Gzip,wrapper=RecordIO": Channel.of_prefix(objects, "z/", unzip=True, wrapped=True),
        "m=s3://bkt/m.json,type=ManifestFile": Channel.of_manifest(objects, manifest),
        "ms=s3://bkt/m.json,type=ManifestFile,shuffle-seed=3": Channel.of_manifest(objects, manifest, seed=3),
        "a=s3://bkt/a.manifest,type=AugmentedManifestFile,attributes=label+source-ref+box+name": Channel.of_augmented(
            objects, augmented, names
        ),
        "ar=s3://bkt/a.manifest,type=AugmentedManifestFile,wrapper=RecordIO,shuffle-seed=1,attributes=source-ref+label": Channel.of_augmented(
            objects, augmented, ["source-ref", "label"], wrapped=True, seed=1
        ),
        "one=s3://bkt/p/05": Channel([[objects["p/05"]]]),
    }
    body = script(
        "for name in json.loads(os.environ['SM_CHANNELS']): tell(**{name: [read(name, e).hex() for e in range(2)]})"
    )
    done = millrace(*job(tmp_path / "ml", *(f"{channel},mode=Pipe" for channel in cases)), *body, env=bucket.env)
    got = {name: epochs for facts in told(done) for name, epochs in facts.items()}
    for channel, model in cases.items():
        name = channel.partition("=")[0]
        assert [bytes.fromhex(epoch) for epoch in got[name]] == [model.epoch(0), model.epoch(1)], channel
    assert b"epoch 1: 3 lines" in done.stderr


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_have_parts_that_change(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, objects: dict[str, bytes], hosts: int
) -> None:
    names = [f"algo-{i + 1}" for i in range(hosts)]
    for seed in (None, 11):
        model = Channel.of_prefix(objects, "p/", seed=seed, hosts=names, wrapped=True)
        options = "mode=Pipe,distribution=ShardedByS3Key,wrapper=RecordIO" + (f",shuffle-seed={seed}" if seed else "")
        seen: list[list[bytes]] = [[] for _ in range(4)]
        for host in names:
            command = job(tmp_path / host, f"train=s3://bkt/p,{options}")
            done = millrace(
                *command, "--hosts", ",".join(reversed(names)), "--current-host", host, *EPOCHS, env=bucket.env
            )
            epochs = epochs_of(done)
            assert epochs == [model.epoch(e, host) for e in range(4)]
            for e, epoch in enumerate(epochs):
                seen[e] += records(epoch)
        assert all(sorted(epoch) == sorted(item[0] for item in model.items) for epoch in seen)


def test_programs_that_do_not_read_to_the_end(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{f"p/{i}": bytes([i]) * 3_000_000 for i in range(4)})
    channels = ["train=s3://bkt/p,mode=Pipe", "never=s3://bkt/p,mode=Pipe"]
    nothing = millrace(
        *job(tmp_path / "ml", *channels), "--", "sh", "-c", 'ls "$SM_INPUT_DIR/data"; exit 3', code=3, env=bucket.env
    )
    assert lines(nothing) == ["never_0", "train_0"]
    body = script("tell(sizes=[len(read('train', e, limit)) for e, limit in enumerate([10, 4_000_000, None, 1])])")
    done = millrace(*job(tmp_path / "ml", *channels), *body, env=bucket.env)
    assert told(done) == [{"sizes": [10, 4_000_000, 12_000_000, 1]}]
    assert b"epoch 1: closed by the program after" in done.stderr and b"epoch 2: 4 objects" in done.stderr
    # One that holds a pipe open and does not read it.
    stuck = script("f = open(os.environ['SM_CHANNEL_TRAIN'] + '_0', 'rb', buffering=0); f.read(1); tell(ok=1)")
    assert told(millrace(*job(tmp_path / "ml", *channels), *stuck, env=bucket.env)) == [{"ok": 1}]
    assert not list((tmp_path / "ml/input/data").iterdir())


def test_twenty_channels_in_turns(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bodies = {f"c{i:02}": os.urandom(2_000_000) for i in range(20)}
    bucket.put(**{f"{name}/x": body for name, body in bodies.items()})
    body = script(
        "names = json.loads(os.environ['SM_CHANNELS'])\n"
        "for e in range(2):\n"
        "  pipes = {name: open(os.environ['SM_CHANNEL_' + name.upper()] + f'_{e}', 'rb') for name in names}\n"
        "  sums = {name: hashlib.sha256() for name in names}\n"
        "  while any([sums[n].update(chunk) or chunk for n in names for chunk in [pipes[n].read(100_000)]]): pass\n"
        "  tell(**{n: sums[n].hexdigest() for n in names})\n"
    )
    done = millrace(
        *job(tmp_path / "ml", *(f"{name}=s3://bkt/{name},mode=Pipe" for name in bodies)), *body, env=bucket.env
    )
    assert told(done) == [{name: hashlib.sha256(data).hexdigest() for name, data in bodies.items()}] * 2


def test_a_restart_finds_the_epoch_at_which_it_stopped(
    millrace: Millrace, bucket: Bucket, tmp_path: Path, objects: dict[str, bytes]
) -> None:
    model = Channel.of_prefix(objects, "p/", seed=5)
    body = script(
        "attempt = int(os.environ['MILLRACE_ATTEMPT'])\n"
        "if attempt == 1:\n"
        "  for e in range(3): tell(data=read('train', e).hex())\n"
        "  tell(data=read('train', 3, 100).hex()); os.kill(os.getpid(), 9)\n"
        "for e in range(3, 5): tell(data=read('train', e).hex())\n"
    )
    command = job(tmp_path / "ml", "train=s3://bkt/p,mode=Pipe,shuffle-seed=5")
    done = millrace(*command, "--retries", "1", "--delay", "0", *body, env=bucket.env)
    assert epochs_of(done) == [
        *(model.epoch(e) for e in range(3)),
        model.epoch(3)[:100],
        model.epoch(3),
        model.epoch(4),
    ]
    # The same in another job on this disk, and on one that knows nothing.
    resumed = script("for e in (4, 5): tell(data=read('train', e).hex())")
    assert epochs_of(millrace(*command, *resumed, env=bucket.env)) == [model.epoch(4), model.epoch(5)]
    assert epochs_of(millrace(*command, *EPOCHS, env=bucket.env)) == [model.epoch(e) for e in range(4)]
    fresh = job(tmp_path / "other", "train=s3://bkt/p,mode=Pipe,shuffle-seed=5,epochs=10")
    assert epochs_of(millrace(*fresh, *resumed, env=bucket.env)) == [model.epoch(4), model.epoch(5)]


def test_a_channel_that_cannot_be_read_ends_the_job(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"p/a": b"1" * 3_000_000, "p/b": b"not gzip", "z/a": gzip.compress(b"fine"), "z/b": b"not gzip"})
    command = job(tmp_path / "ml", "train=s3://bkt/z,mode=Pipe,compression=Gzip")
    body = script("data = read('train', 0); tell(read=len(data))")
    done = millrace(*command, "--retries", "5", "--delay", "0", *body, code=1, env=bucket.env)
    assert done.stdout == b"" and b"s3://bkt/z/b" in done.stderr and done.stderr.count(b"attempt 1") >= 1
    assert b"attempt 2" not in done.stderr
    assert "s3://bkt/z/b" in (tmp_path / "ml/output/failure").read_text()
    nothing = millrace(
        *job(tmp_path / "ml", "train=s3://bkt/nothing,mode=Pipe"), "--", "echo", "must not run", code=1, env=bucket.env
    )
    assert b"has no objects" in nothing.stderr and nothing.stdout == b""


def test_signals_and_what_a_killed_job_leaves(
    millrace: Millrace, millrace_bin: Path, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put(**{"p/a": b"1" * 3_000_000})
    data = tmp_path / "ml/input/data"
    for number, status in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
        command = [
            millrace_bin,
            *job(tmp_path / "ml", "train=s3://bkt/p,mode=Pipe"),
            *script("tell(ready=1); time.sleep(600)"),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | bucket.env
        ) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {"ready": 1}
            process.send_signal(number)
            assert process.wait(300) == status
            assert process.stdout.read() == b""  # the program is gone, too: its end of the pipe is closed
        assert [path.name for path in data.iterdir()] == ([] if number == signal.SIGTERM else ["train_0"])
    (data / ".train-pipe_mode-state").write_text("3")
    done = millrace(
        *job(tmp_path / "ml", "train=s3://bkt/p,mode=Pipe"), *script("tell(size=len(read('train', 0)))"), env=bucket.env
    )
    assert told(done) == [{"size": 3_000_000}] and not list(data.iterdir())
    os.mkfifo(data / "train_0")  # the next job may have the channel in another mode
    millrace(*job(tmp_path / "ml", "train=s3://bkt/p"), "--", "true", env=bucket.env)
    assert [path.name for path in data.iterdir()] == ["train"]
    (data / "train_0").write_text("mine")
    refused = millrace(*job(tmp_path / "ml", "train=s3://bkt/p,mode=Pipe"), "--", "echo", "no", code=1, env=bucket.env)
    assert b"is in the place of a pipe" in refused.stderr and refused.stdout == b""


def test_if_millrace_is_killed_the_program_may_save(millrace_bin: Path, bucket: Bucket, tmp_path: Path) -> None:
    """It dies thread by thread, and the kernel reports each of them: that is one SIGTERM to the program, which has its time."""
    bucket.put(**{"p/a": b"1" * 3_000_000})
    body = script(
        "import signal\n"
        "def save(*_):\n"
        "  tell(saving=1); time.sleep(1); tell(saved=1); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "tell(ready=1); time.sleep(600)"
    )
    for _ in range(3):
        command = [millrace_bin, *job(tmp_path / "ml", "train=s3://bkt/p,mode=Pipe"), *body]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | bucket.env
        ) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {"ready": 1}
            process.kill()
            assert [json.loads(line) for line in process.stdout] == [{"saving": 1}, {"saved": 1}]


def test_memory_is_bounded(millrace: Millrace, devstore: Any, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    server = devstore(tmp_path / "store")
    server.client().create_bucket(Bucket="bkt")
    with open(tmp_path / "store/bkt/large", "wb") as file:
        file.truncate(600 << 20)
    # The process that feeds is the parent of the supervisor, which is the program's.
    body = script(
        "size, f = 0, open(os.environ['SM_CHANNEL_TRAIN'] + '_0', 'rb', buffering=0)\n"
        "f.read(1); time.sleep(1)\n"
        "while True:\n"
        "  chunk = f.read(1 << 20)\n"
        "  if not chunk: break\n"
        "  size += len(chunk)\n"
        "stat = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()\n"
        "peak = [line.split()[1] for line in open(f'/proc/{stat[1]}/status') if line.startswith('VmHWM')]\n"
        "tell(size=size + 1, peak=int(peak[0]) << 10)\n"
    )
    [facts] = told(
        millrace(*job(tmp_path / "ml", "train=s3://bkt/large,mode=Pipe,wrapper=RecordIO"), *body, env=server.env())
    )
    assert facts["size"] == (600 << 20) + 16  # in two parts, since a part has less than 512 MiB
    assert facts["peak"] < 200 << 20, facts
