"""Data that are not images: files that are not read name the way out, and examples/video.py decodes video and audio."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
import wave

import millrace
import numpy as np
import pytest
from PIL import Image

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
    """A stand-in for the package, on PYTHONPATH."""
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
    for uri, why in (
        ("gs://bucket/x", "https://storage.googleapis.com"),
        ("az://box/x", "azcopy"),
        ("hf://datasets/user/name", "hf download NAME --repo-type dataset"),
        ("https://host/x.tar", "curl"),
    ):
        with pytest.raises(millrace.InvalidArgumentError, match=why):
            millrace.Dataset(uri)
