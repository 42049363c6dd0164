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
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import demo_steps  # noqa: E402
from demo_steps import BUILD, MILLRACE, ROOT, DemoFailed, check, millrace, running, say  # noqa: E402

SHOWN_BUILD = (
    f"$PWD/{BUILD.relative_to(ROOT)}" if BUILD.is_relative_to(ROOT) else str(BUILD)
)  # for a shell in the clone
IDX_FILES = pathlib.Path("/usr/share/datasets/fashion-mnist")
CLASSES = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]

FIRST_BYTE_MS = 25
EPOCHS = 2
SEED = 7
CHECKPOINT_EVERY = 100
KILL_AT_STEP = 750  # in the second epoch of 469 steps, 50 steps after a checkpoint
LEAST_ACCURACY = 0.85


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
    """Writes a PNG for each image, in a folder for each class."""
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
    command: list[str | os.PathLike[str]] = [
        MILLRACE,
        "run",
        "--retries",
        "3",
        "--checkpoint",
        checkpoint,
        "--",
        sys.executable,
        HERE / "train.py",
    ]
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
    """Returns the step of the newest checkpoint."""
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
    with demo_steps.devstore(store_folder, "--first-byte-ms", str(FIRST_BYTE_MS)) as endpoint:
        say(
            f"An S3-compatible store runs at {endpoint}; its first byte takes {FIRST_BYTE_MS} ms (median), like a remote one."
        )

        say("Writing the images of Fashion-MNIST as PNG files, one folder a class ...")
        counts = {name: write_images(part, folder / name) for name, part in {"train": "train", "test": "t10k"}.items()}
        say("Packing them into tar shards on the store:")
        for name in counts:
            millrace("pack", folder / name, f"s3://fashion/{name}", "--shard-size", "16MiB")
        shards = [line for line in millrace("ls", "s3://fashion/train/").splitlines() if line.endswith(".tar")]

        say("What an uninterrupted run of these epochs delivers, without a model:")
        options = [
            "--size",
            "28",
            "--channels",
            "1",
            "--shuffle",
            "global",
            "--epochs",
            str(EPOCHS),
            "--seed",
            str(SEED),
        ]
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
        next((line for line in lines if line.startswith(start)), "")
        for start in ("resumed at step ", "waited ", "test accuracy ")
    )
    accuracy = float(tested.split()[-1])
    check(
        whole["samples"] == EPOCHS * epoch_samples,
        f"the uninterrupted run delivers {EPOCHS} x {epoch_samples:,} samples",
    )
    check(before["samples"] % epoch_samples != 0, "the checkpoint lies in mid-epoch")
    check(resumed.endswith(before["position"]), "`millrace run` started the trainer again, which began there")
    check(
        before["samples"] + after["samples"] == whole["samples"],
        f"{before['samples']:,} samples before it and {after['samples']:,} after it make {whole['samples']:,}",
    )
    check(total == whole["digest"], f"their digests add up to that of the uninterrupted run, {total}")
    check(after["position"] == whole["position"], f"both end at the position {after['position']}")
    check(
        accuracy >= LEAST_ACCURACY, f"the accuracy on the test images, {accuracy:.1%}, is at least {LEAST_ACCURACY:.0%}"
    )

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


def main() -> None:
    with work_folder() as folder:
        os.environ["MILLRACE_CACHE"] = str(folder / "cache")
        summary = demo(folder)
    print(f"{summary}\nThe whole demo took {time.monotonic() - demo_steps.started:.0f} s.", flush=True)


if __name__ == "__main__":
    sys.exit(demo_steps.run(main, (IDX_FILES, "scripts/setup")))
