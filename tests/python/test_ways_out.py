"""Tests data that are not images: files that are not read name the way out, and examples/video.py decodes video and
audio."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
import wave
from collections.abc import Callable
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image
from support import binary

VIDEO = pathlib.Path(__file__).resolve().parents[2] / "examples/video.py"


def photo(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8))


def run(*arguments: object, path: str) -> str:
    done = subprocess.run(
        [sys.executable, str(VIDEO), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TORCHCODEC = '''
import io, types, wave
import numpy, torch


class VideoDecoder:
    """Of the frames of an animated GIF."""

    def __init__(self, data, seek_mode):
        from PIL import Image, ImageSequence
        frames = [numpy.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(Image.open(io.BytesIO(data)))]
        self.frames = torch.tensor(numpy.stack(frames)).permute(0, 3, 1, 2)
        self.metadata = types.SimpleNamespace(num_frames=len(frames))

    def get_frames_at(self, indices):
        return types.SimpleNamespace(data=self.frames[indices])


class AudioDecoder:
    def __init__(self, data, sample_rate, num_channels):
        with wave.open(io.BytesIO(data)) as file:
            assert file.getframerate() == sample_rate and file.getnchannels() == num_channels
            samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2")
        self.samples = torch.tensor(samples / 32768, dtype=torch.float32)[None]

    def get_all_samples(self):
        return types.SimpleNamespace(data=self.samples)
'''


@pytest.fixture
def torchcodec(tmp_path: pathlib.Path) -> str:
    """Makes a stand-in for the package, and returns a PYTHONPATH that has it."""
    folder = tmp_path / "stand-in/torchcodec"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "decoders.py").write_text(TORCHCODEC)
    return f"{folder.parent}{os.pathsep}{os.environ['PYTHONPATH']}"


def test_video_and_audio(torchcodec: str, tmp_path: pathlib.Path) -> None:
    for number in range(6):
        for kind in ("clips", "speech"):
            (tmp_path / kind / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        frames = [photo(100 * number + frame) for frame in range(5)]
        clip = io.BytesIO()
        frames[0].save(clip, "gif", save_all=True, append_images=frames[1:])
        (tmp_path / f"clips/class{number % 2}/{number}.mp4").write_bytes(clip.getvalue())
        with wave.open(str(tmp_path / f"speech/class{number % 2}/{number}.wav"), "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(16_000)
            file.writeframes(np.random.default_rng(number).integers(-999, 999, 8000, dtype="<i2").tobytes())
    output = run(tmp_path / "clips", "--frames", 4, "--batch", 3, path=torchcodec)
    assert output.count("(3, 4, 3, 112, 112) loss") == 2
    output = run(tmp_path / "speech", "--field", "wav", "--audio", "--batch", 3, path=torchcodec)
    assert output.count("(3, 32000) loss") == 2


def test_video_and_audio_by_torchcodec_itself(tmp_path: pathlib.Path) -> None:
    """The package needs the libraries of FFmpeg, which few machines of developers have."""
    try:
        from torchcodec.encoders import AudioEncoder, VideoEncoder  # type: ignore[import-not-found,unused-ignore]
    except Exception as error:
        pytest.skip(f"torchcodec: {str(error).splitlines()[0]}")
    import torch
    import torchcodec  # type: ignore[import-not-found,unused-ignore]

    for number in range(6):
        for kind in ("clips", "speech"):
            (tmp_path / kind / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        frames = torch.full((10, 3, 64, 64), 20 * number, dtype=torch.uint8)
        VideoEncoder(frames, frame_rate=10).to_file(str(tmp_path / f"clips/class{number % 2}/{number}.mp4"))
        wave = torch.sin(torch.arange(8000.0) * number / 10)[None]
        AudioEncoder(wave, sample_rate=16_000).to_file(str(tmp_path / f"speech/class{number % 2}/{number}.wav"))
    here = f"{pathlib.Path(torchcodec.__file__).parents[1]}{os.pathsep}{os.environ['PYTHONPATH']}"
    output = run(tmp_path / "clips", "--frames", 4, "--batch", 3, path=here)
    assert output.count("(3, 4, 3, 112, 112) loss") == 2
    output = run(tmp_path / "speech", "--field", "wav", "--audio", "--batch", 3, path=here)
    assert output.count("(3, 32000) loss") == 2


def test_what_is_no_image_names_the_way(tmp_path: pathlib.Path) -> None:
    for name, why in (
        ("mp4", r"millrace.Bytes\('mp4'\)\} and decode them in `transform`, as examples/video.py does"),
        ("npy", r"millrace.Array\('npy'\)"),
        ("pt", "io.BytesIO"),
        ("zip", "unpack the files first"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"1.{name}").write_bytes(b"x" * 100)
        with pytest.raises(millrace.MismatchError, match=why):
            millrace.Loader(folder, batch_size=1)
    (tmp_path / "lmdb").mkdir()
    (tmp_path / "lmdb/data.mdb").write_bytes(b"x" * 100)
    with pytest.raises(
        millrace.InvalidArgumentError, match="LMDB database, which is not read; write its samples as shards"
    ):
        millrace.Dataset(tmp_path / "lmdb")


OTHER_STORES = {
    "gs://bucket/x": "https://storage.googleapis.com",
    "az://box/x": "azcopy",
    "hf://datasets/user/name": "hf download NAME --repo-type dataset",
    "https://host/x.tar": "curl",
}


@pytest.mark.parametrize("uri", OTHER_STORES)
def test_stores_that_are_not_read_name_the_way_out(uri: str, tmp_path: pathlib.Path) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "Dataset": lambda: millrace.Dataset(uri),
        "Dataset of a list": lambda: millrace.Dataset([f"{uri}/1.tar", f"{uri}/2.tar"]),
        "Dataset with join": lambda: millrace.Dataset(uri, join={"image": "a/{}.jpg", "mask": "b/{}.png"}),
        "Dataset with labels": lambda: millrace.Dataset(tmp_path, labels=f"{uri}/labels.csv"),
        "Loader": lambda: millrace.Loader(uri, batch_size=1),
        "pack from there": lambda: millrace.pack(uri, tmp_path / "out"),
        "pack to there": lambda: millrace.pack(tmp_path, uri),
        "index": lambda: millrace.index(uri),
        "inspect": lambda: millrace.inspect(uri),
        "sync": lambda: millrace.sync(uri, tmp_path / "out"),
        "ShardWriter": lambda: millrace.ShardWriter(uri),
        "TokenWriter": lambda: millrace.TokenWriter(uri, dtype="uint16"),
        "Checkpoints": lambda: millrace.Checkpoints(uri),
        "open": lambda: millrace.open(uri),
    }
    (tmp_path / "1.jpg").write_bytes(b"x")
    for name, call in calls.items():
        with pytest.raises(millrace.InvalidArgumentError) as refused:
            call()
        assert OTHER_STORES[uri] in str(refused.value), name


def test_commands_name_the_way_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"x")
    out = tmp_path / "out"
    commands: list[list[Any]] = [
        *([name] for name in ("ls", "cat", "rm", "index", "inspect", "feed", "bench", "advise", "doctor")),
        *([name, out] for name in ("cp", "sync", "pack", "mount")),
        *([name, tmp_path] for name in ("cp", "sync", "pack")),
        ["checkpoint", "ls"],
    ]
    for number, command in enumerate(commands):
        uri, why = list(OTHER_STORES.items())[number % len(OTHER_STORES)]
        name, *places = command
        words = [name, places[0], uri] if places and places[0] in (tmp_path, "ls") else [name, uri, *places]
        done = subprocess.run([binary(), *words], capture_output=True, text=True, timeout=300)
        assert done.returncode != 0 and why in done.stderr + done.stdout, (words, done)
        assert len(done.stderr.splitlines()) <= 2, done.stderr


FILES = {
    "train.h5": "h5py",
    "train.hdf5": "h5py",
    "data.mdb": "LMDB database",
    "train.lmdb": "LMDB database",
    "a.arrow": "Parquet",
    "a.beton": "FFCV",
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_kinds_name_the_way_out(name: str, tmp_path: pathlib.Path) -> None:
    """They do so as a folder, and as the file itself; in Python and in commands."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_bytes(b"\0" * 4096)
    for uri in (tmp_path / "data", tmp_path / "data" / name):
        for call in (
            millrace.Dataset,
            millrace.index,
            millrace.inspect,
            lambda place: millrace.Loader(place, batch_size=1),
            lambda place: millrace.pack(place, tmp_path / "out"),
        ):
            with pytest.raises(millrace.InvalidArgumentError, match=FILES[name]):
                call(uri)
