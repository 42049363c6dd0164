"""Tests examples/: each runs on a little data, and does what it is there to show."""

from __future__ import annotations

import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import millrace
import numpy as np
import pytest
from PIL import Image
from token_corpus import write_corpus

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str | pathlib.Path, ranks: int = 0) -> str:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"] if ranks else []
    command = [sys.executable, *launcher, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"loss (\S+)", output)]


def photo(seed: int, size: int = 40) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)).save(out, "jpeg")
    return out.getvalue()


def kill_all(argument: str) -> None:
    """Kills all processes with that argument: torchrun gives each rank a session of its own."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and argument in (entry / "cmdline").read_text().split("\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # it has ended
            pass


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "photos"
    for number in range(64):
        (folder / ("cat", "dog")[number % 2]).mkdir(parents=True, exist_ok=True)
        (folder / ("cat", "dog")[number % 2] / f"{number:03}.jpg").write_bytes(photo(number))
    return folder


def test_classify_on_two_ranks_goes_on_where_it_was(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    arguments = [photos, "--save", tmp_path / "run", "--epochs", "40", "--batch", "8", "--size", "16", "--every", "2"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        str(EXAMPLES / "classify.py"),
    ]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*command, *map(str, arguments)], stdout=log, stderr=log)
    try:
        while len(list((tmp_path / "run").glob("*/*/MANIFEST.json"))) < 2:  # then the first is committed
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.02)
    finally:
        kill_all(str(tmp_path / "run"))
        process.wait()
    output = run("classify.py", *arguments, ranks=1)
    resumed = re.search(r"resumed after step (\d+)", output)
    assert resumed and int(resumed[1]) % 2 == 0
    assert "done after 320 steps" in output, "64 samples 40 times, in eights"


def coloured(folder: pathlib.Path, count: int) -> pathlib.Path:
    """Makes red and blue images, which a small model distinguishes after some steps."""
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 100, (20, 20, 3), dtype=np.uint8)
        pixels[..., 2 * (number % 2)] += 150
        (folder / ("blue", "red")[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / ("blue", "red")[number % 2] / f"{number:03}.jpg")
    return folder


def test_inference_from_a_checkpoint_and_two_runs_compared(tmp_path: pathlib.Path) -> None:
    data, held_out = coloured(tmp_path / "train", 64), coloured(tmp_path / "held-out", 30)
    small = ["--size", "16", "--batch", "16"]
    run(
        "classify.py",
        data,
        "--save",
        tmp_path / "a",
        "--epochs",
        "6",
        "--every",
        "8",
        "--log-every",
        "1",
        *small,
        ranks=1,
    )
    run("embed.py", held_out, tmp_path / "logits", "--checkpoint", tmp_path / "a", "--step", "24", *small)
    named = {sample["key"]: int(sample["npy"].argmax()) for sample in millrace.Dataset(tmp_path / "logits")}
    right = sum(("blue", "red")[label] in key for key, label in named.items())
    assert len(named) == 30 and right >= 25, named

    # A run that is as good and took twice as long, and one that takes each class for the other.
    state = millrace.Checkpoints(tmp_path / "a").load()
    slow = [(step, 2 * seconds, loss) for step, seconds, loss in state["history"]]
    millrace.Checkpoints(tmp_path / "b").save(24, {**state, "history": slow})
    output = run("compare_runs.py", tmp_path / "a", tmp_path / "b", "--data", held_out, "--prices", "4", "1", *small)
    assert f"right {100 * right / 30:.3f} %" in output and "differs by 0.000 percent points: parity" in output
    assert "costs 0.500 of the first" in output
    last = list(state["model"])[-2:]
    wrong = {name: value.flip(0) if name in last else value for name, value in state["model"].items()}
    millrace.Checkpoints(tmp_path / "c").save(24, {**state, "model": wrong})
    command = [
        sys.executable,
        EXAMPLES / "compare_runs.py",
        tmp_path / "a",
        tmp_path / "c",
        "--data",
        held_out,
        "--target-loss",
        "0",
        *small,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "no parity" in done.stdout and "not reached" in done.stdout, (
        done.stdout + done.stderr
    )


def test_image_text(photos: pathlib.Path) -> None:
    for image in photos.rglob("*.jpg"):
        image.with_suffix(".txt").write_text(f"A {image.parent.name}, number {image.stem}.")
    found = losses(run("image_text.py", photos, "--epochs", "40", "--batch", "16", "--size", "32"))
    assert len(found) == 40 and found[-1] < found[0] - 0.1


def test_segment(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "scenes"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.jpg").write_bytes(photo(number))
        Image.fromarray(np.repeat(np.arange(40, dtype=np.uint8)[:, None] // 20, 40, axis=1)).save(
            folder / f"{number}.mask.png"
        )
    output = run("segment.py", folder, "--classes", "2", "--batch", "4", "--size", "32", "--epochs", "2")
    assert losses(output)[-1] < losses(output)[0] and "of the pixels are right" in output


def test_two_views(photos: pathlib.Path) -> None:
    assert len(losses(run("two_views.py", photos, "--batch", "16", "--size", "32", "--epochs", "2"))) == 2


def test_embed_on_two_ranks_leaves_one_data_set(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    output = run(
        "embed.py", photos, tmp_path / "vectors", "--batch", "8", "--size", "16", "--shard-size", "4KiB", ranks=2
    )
    assert sum(int(count) for count in re.findall(r"(\d+) vectors", output)) == 64
    vectors = millrace.Dataset(tmp_path / "vectors")
    assert sorted(sample["key"] for sample in vectors) == sorted(sample["key"] for sample in millrace.Dataset(photos))
    assert all(sample["npy"].shape == (48,) for sample in vectors)
    assert "complete already" in run("embed.py", photos, tmp_path / "vectors", ranks=2)


def test_language_model(tmp_path: pathlib.Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [5, 30, 17, 9, 28, 12] * 5)
    output = run(
        "language_model.py", corpus.uri, "--vocabulary", "150000", "--length", "32", "--batch", "4", "--epochs", "2"
    )
    assert len(losses(output)) == 2 and re.search(r"tokens in", output)
