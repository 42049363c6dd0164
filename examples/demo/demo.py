"""The demo: train a real model from an object store, kill it in mid-epoch, resume it, and prove that nothing was lost.

Run it with `make demo`. It needs the package dataset-fashion-mnist, the built `millrace` and the Python package next to it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Iterator

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("MILLRACE_BINARY_DIR", HERE.parent.parent / "build" / "release"))
MILLRACE = BUILD / "bin" / "millrace"
ROOT = HERE.parent.parent
SHOWN_BUILD = f"$PWD/{BUILD.relative_to(ROOT)}" if BUILD.is_relative_to(ROOT) else str(BUILD)  # for a shell in the clone
IDX_FILES = pathlib.Path("/usr/share/datasets/fashion-mnist")
CLASSES = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]

FIRST_BYTE_MS = 25
EPOCHS = 2
SEED = 7
CHECKPOINT_EVERY = 100
KILL_AT_STEP = 750  # in the second epoch of 469 steps, 50 steps after a checkpoint
LEAST_ACCURACY = 0.85

started = time.monotonic()


class DemoFailed(Exception):
    """Something does not hold, or a program failed; the message says what."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - started:5.1f} s] {text}", flush=True)


def check(holds: bool, claim: str) -> None:
    print(f"          {'ok  ' if holds else 'NOT '} {claim}", flush=True)
    if not holds:
        raise DemoFailed(f"this does not hold: {claim}")


def millrace(*arguments: str | os.PathLike[str]) -> str:
    """Runs a command of millrace to its end, shows what it prints, and returns it."""
    command = [str(MILLRACE), *map(str, arguments)]
    print(f"          $ millrace {shlex.join(command[1:])}", flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    for line in result.stdout.splitlines():
        for part in textwrap.wrap(line, 120, break_on_hyphens=False, replace_whitespace=False, drop_whitespace=False) or [""]:
            print(f"          | {part}", flush=True)
    if result.returncode != 0:
        raise DemoFailed(f"`{shlex.join(command)}` failed with status {result.returncode}; see its message above")
    return result.stdout


@contextlib.contextmanager
def running(command: list[str | os.PathLike[str]], stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A program with its output as a pipe, which does not outlive the block."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextlib.contextmanager
def object_store(folder: pathlib.Path) -> Iterator[str]:
    """An S3-compatible server on a free port that takes as long to answer as a remote one; the AWS variables name it."""
    keys = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo-secret", "AWS_REGION": "us-east-1"}
    command = [MILLRACE, "devstore", folder, "--port", "0", "--first-byte-ms", str(FIRST_BYTE_MS)]
    command += ["--access-key", keys["AWS_ACCESS_KEY_ID"], "--secret-key", keys["AWS_SECRET_ACCESS_KEY"]]
    with running(command) as server:
        assert server.stdout is not None
        found = None
        for line in server.stdout:
            found = re.match(r"listening on (\S+)", line)
            if found:
                break
        if not found:
            raise DemoFailed("devstore ended before it was ready; see its message above")
        os.environ.update(keys, AWS_ENDPOINT_URL=found[1])
        yield found[1]


def read_idx(path: pathlib.Path) -> np.ndarray:
    """The array in an IDX file: two zero bytes, type 8 (uint8), the number of dimensions, each as a big-endian u32, the data."""
    with gzip.open(path) as file:
        data = file.read()
    zeros, kind, dimensions = struct.unpack_from(">HBB", data)
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    if (zeros, kind) != (0, 8) or len(data) != 4 + 4 * dimensions + int(np.prod(shape)):
        raise DemoFailed(f"{path} is not a whole IDX file of bytes")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def write_images(part: str, folder: pathlib.Path) -> int:
    """One PNG an image, in a folder for each class."""
    images = read_idx(IDX_FILES / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(IDX_FILES / f"{part}-labels-idx1-ubyte.gz")
    folders = [folder / f"{number}_{name}" for number, name in enumerate(CLASSES)]
    for path in folders:
        path.mkdir(parents=True)
    for i, (image, label) in enumerate(zip(images, labels)):
        Image.fromarray(image).save(folders[label] / f"{i:05}.png", compress_level=1)
    return len(images)


def train(checkpoint: str, kill_at_step: int) -> tuple[list[str], dict[str, object]]:
    """Has `millrace run` run train.py, and shows what both print. SIGKILLs train.py when it first says that step.

    Returns what was printed, and the state of the loader in the checkpoint that there was at that moment.
    """
    command: list[str | os.PathLike[str]] = [MILLRACE, "run", "--retries", "3", "--checkpoint", checkpoint, "--", sys.executable, HERE / "train.py"]
    command += ["--train", "s3://fashion/train", "--test", "s3://fashion/test", "--checkpoint", checkpoint]
    command += ["--every", str(CHECKPOINT_EVERY), "--epochs", str(EPOCHS), "--seed", str(SEED)]
    lines: list[str] = []
    trainer = 0
    before: dict[str, object] | None = None
    with running(command, stderr=subprocess.STDOUT) as supervisor:
        assert supervisor.stdout is not None
        for line in supervisor.stdout:
            lines.append(line.rstrip())
            print(f"          | {textwrap.shorten(lines[-1], 120)}", flush=True)
            attempt = re.match(r"millrace run: attempt \d+ of \d+, process (\d+)", line)
            trainer = int(attempt[1]) if attempt else trainer
            step = re.match(r"step (\d+),", line)
            if step and before is None and int(step[1]) >= kill_at_step:
                os.kill(trainer, signal.SIGKILL)
                before = loader_state(checkpoint)
        if supervisor.wait() != 0:
            raise DemoFailed(f"millrace run failed with status {supervisor.returncode}; see its message above")
    if before is None:
        raise DemoFailed("train.py ended before it could be killed")
    return lines, before


def loader_state(checkpoint: str) -> dict[str, object]:
    """That of the newest checkpoint."""
    import millrace  # once the AWS variables name the store

    return millrace.Checkpoints(checkpoint).load()["loader"]


def add_digests(*digests: str) -> str:
    return f"{sum(int(digest, 16) for digest in digests) % 2**128:032x}"


@contextlib.contextmanager
def work_folder() -> Iterator[pathlib.Path]:
    """A temporary folder; removing the 70,000 images takes some seconds, so that is said."""
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as name:
        try:
            yield pathlib.Path(name)
        finally:
            say(f"Removing the work folder {name} ...")


def demo(folder: pathlib.Path) -> str:
    """Does it all, and returns what there is to say at the end."""
    store_folder = folder / "store"
    (store_folder / "fashion").mkdir(parents=True)
    with object_store(store_folder) as endpoint:
        say(f"An S3-compatible store runs at {endpoint}; its first byte takes {FIRST_BYTE_MS} ms (median), like a remote one.")

        say("Writing the images of Fashion-MNIST as PNG files, one folder a class ...")
        counts = {name: write_images(part, folder / name) for name, part in {"train": "train", "test": "t10k"}.items()}
        say("Packing them into tar shards on the store:")
        for name in counts:
            millrace("pack", folder / name, f"s3://fashion/{name}", "--shard-size", "16MiB")
        shards = [line for line in millrace("ls", "s3://fashion/train/").splitlines() if line.endswith(".tar")]

        say("What an uninterrupted run of these epochs delivers, without a model:")
        options = ["--size", "28", "--channels", "1", "--shuffle", "global", "--epochs", str(EPOCHS), "--seed", str(SEED)]
        whole = json.loads(millrace("feed", "s3://fashion/train", *options, "--json"))

        say(f"Training under `millrace run`; the trainer will be killed (SIGKILL) when it reports step {KILL_AT_STEP}:")
        checkpoint = "s3://fashion/run"
        lines, before = train(checkpoint, KILL_AT_STEP)
        after = loader_state(checkpoint)
        say("The checkpoints that it left:")
        millrace("checkpoint", "ls", checkpoint)
        millrace("checkpoint", "verify", checkpoint)

    say("Checking:")
    epoch_samples = counts["train"]
    total = add_digests(before["digest"], after["digest"])
    resumed, waited, tested = (
        next((line for line in lines if line.startswith(start)), "") for start in ("resumed at step ", "waited ", "test accuracy ")
    )
    accuracy = float(tested.split()[-1])
    check(whole["samples"] == EPOCHS * epoch_samples, f"the uninterrupted run delivers {EPOCHS} x {epoch_samples:,} samples")
    check(before["samples"] % epoch_samples != 0, "the checkpoint lies in mid-epoch")
    check(resumed.endswith(before["position"]), "`millrace run` started the trainer again, which began there")
    check(before["samples"] + after["samples"] == whole["samples"],
          f"{before['samples']:,} samples before it and {after['samples']:,} after it make {whole['samples']:,}")
    check(total == whole["digest"], f"their digests add up to that of the uninterrupted run, {total}")
    check(after["position"] == whole["position"], f"both end at the position {after['position']}")
    check(accuracy >= LEAST_ACCURACY, f"the accuracy on the test images, {accuracy:.1%}, is at least {LEAST_ACCURACY:.0%}")

    return f"""
What happened
  {counts["train"]:,} training and {counts["test"]:,} test images went into tar shards ({len(shards)} for training) on an S3 store.
  A PyTorch model was trained on them for {EPOCHS} epochs, streamed and shuffled by Millrace: {accuracy:.1%} of the test images are right.
  The trainer was killed in mid-epoch; `millrace run` started it again, and it resumed from its last checkpoint.
  The digests, sums over (position, name, bytes) of
  every sample, prove that the two runs together got each sample of each epoch exactly once, in the order of a run without a kill.
Rates
  Without a model the same stream ran at {whole["samples_per_second"]:,.0f} samples/s ({whole["bytes_read"] / whole["seconds"] / 1e6:.1f} MB/s, \
{whole["requests"]["GET"]:,} GET requests, bottleneck: {whole["bottleneck"]});
  in training, the second run {waited}.

Next steps, from this folder
  export PATH="{SHOWN_BUILD}/bin:$PATH" PYTHONPATH="{SHOWN_BUILD}/python"
                           lets this shell find `millrace`, and .venv/bin/python the package; `pip install .` installs both
  millrace pack SRC DST    puts your own class folders into shards; `millrace feed DST` shows how fast they stream
  examples/demo/train.py   the training script, 100 lines: copy it; docs/checkpoints.md says how it survives
  docs/python.md           the Python interface
"""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything below is cleaned up
    os.environ["PYTHONPATH"] = str(BUILD / "python")
    sys.path.insert(0, str(BUILD / "python"))
    os.environ["PYTHONUNBUFFERED"] = "1"
    for path, remedy in ((MILLRACE, "make build"), (BUILD / "python", "make build"), (IDX_FILES, "scripts/setup")):
        if not path.exists():
            print(f"demo: {path} is missing; run `{remedy}` first", file=sys.stderr)
            return 1
    try:
        with work_folder() as folder:
            os.environ["MILLRACE_CACHE"] = str(folder / "cache")
            summary = demo(folder)
        print(f"{summary}\nThe whole demo took {time.monotonic() - started:.0f} s.", flush=True)
    except DemoFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; servers and temporary files are gone", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
