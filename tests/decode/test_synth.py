"""`millrace synth`: names, sizes, the same bytes for the same seed on any number of CPUs, and errors."""

import hashlib
import io
import json
import os
import pathlib
import subprocess

import pytest
from PIL import Image


@pytest.fixture(scope="module")
def millrace():
    folder = os.environ.get("MILLRACE_BINARY_DIR")
    assert folder, "set MILLRACE_BINARY_DIR to the build folder (ctest does)"
    program = pathlib.Path(folder) / "bin" / "millrace"
    assert program.exists(), f"{program} is not built: ninja millrace"

    def run(*arguments, cpus=None):
        set_cpus = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
        command = [program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=set_cpus, timeout=300)

    return run


def tree(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_names_classes_and_sizes(millrace, tmp_path):
    result = millrace("synth", tmp_path / "a", "--count", 25, "--kb", 30, "--classes", 4, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    names = list(tree(tmp_path / "a"))
    assert names == sorted(f"class-{n % 4:03}/{n:08}.jpg" for n in range(25))
    sizes = [(tmp_path / "a" / name).stat().st_size for name in names]
    assert all(27_000 <= size <= 33_000 for size in sizes)
    assert report["objects"] == 25 and report["bytes"] == sum(sizes) and report["classes"] == 4
    for name in names:
        with Image.open(tmp_path / "a" / name) as image:
            assert image.format == "JPEG" and image.mode == "RGB" and image.size == (640, 480)
            assert "progressive" not in image.info
            assert [layer[1:3] for layer in image.layer] == [(2, 2), (1, 1), (1, 1)], "not 4:2:0"
            image.load()


def test_the_seed_decides_the_bytes_not_the_cpus(millrace, tmp_path):
    one_cpu = {min(os.sched_getaffinity(0))}
    assert millrace("synth", tmp_path / "a", "--count", 40, "--kb", 20, "--seed", 7).returncode == 0
    assert millrace("synth", tmp_path / "b", "--count", 40, "--kb", 20, "--seed", 7, cpus=one_cpu).returncode == 0
    assert millrace("synth", tmp_path / "c", "--count", 40, "--kb", 20, "--seed", 8).returncode == 0
    a, b, c = (tree(tmp_path / name) for name in "abc")
    assert a == b
    assert len(set(a.values())) == 40, "two images are equal"
    assert not set(a.values()) & set(c.values())


def test_small_files_are_small_pictures(millrace, tmp_path):
    assert millrace("synth", tmp_path, "--count", 3, "--kb", 2).returncode == 0
    for path in tmp_path.rglob("*.jpg"):
        data = path.read_bytes()
        assert 1_800 <= len(data) <= 2_200
        assert Image.open(io.BytesIO(data)).width < 640


@pytest.mark.parametrize("arguments", ["", "--count 0", "--count x", "--count 3 --kb 0", "--count 3 --kb 100000"])
def test_wrong_usage(millrace, tmp_path, arguments):
    result = millrace("synth", tmp_path / "a", *arguments.split())
    assert result.returncode == 2
    assert "--count" in result.stderr or "--kb" in result.stderr
    assert not (tmp_path / "a").exists()


def test_a_place_that_cannot_be_written_fails(millrace, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = millrace("synth", tmp_path / "file", "--count", 3, "--kb", 5)
    assert result.returncode == 1
    assert str(tmp_path / "file") in result.stderr
    assert (tmp_path / "file").read_text() == "in the way"
