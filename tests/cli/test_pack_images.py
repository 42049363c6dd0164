"""`millrace pack --resize` and `--jpeg-tiles` change images, as Pillow sees them, and nothing else."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from cli_support import Millrace, contents
from PIL import Image

EXIF = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"


def photo(width: int, height: int, seed: int) -> Image.Image:
    """Smooth shapes with fractal noise, so that JPEG meets what photographs have."""
    random = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for step in (64, 32, 16, 8, 4, 2, 1):
        coarse = random.normal(size=(height // step + 2, width // step + 2, 3))
        layer = Image.fromarray(np.uint8(np.clip(coarse * 40 + 128, 0, 255)))
        total += np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC), float) * step**0.8
    total -= total.min()
    return Image.fromarray(np.uint8(total * 255 / total.max()))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Images of many kinds in class folders."""
    files = {
        "c0/420.jpg": encoded(photo(500, 375, 1), quality=92),
        "c0/422.jpg": encoded(photo(333, 500, 2), quality=92, subsampling=1, exif=EXIF, icc_profile=b"p" * 200),
        "c0/444.jpg": encoded(photo(401, 300, 3), quality=95, subsampling=0),
        "c1/grey.jpg": encoded(photo(300, 301, 4).convert("L"), quality=90),
        "c1/progressive.jpg": encoded(photo(640, 480, 5), quality=92, progressive=True),
        "c1/restarts.jpg": encoded(photo(320, 240, 6), quality=92, restart_marker_rows=1),
        "c1/cmyk.jpg": encoded(photo(310, 290, 7).convert("CMYK"), quality=92),
        "c1/small.jpg": encoded(photo(50, 40, 8), quality=92),
        "c1/colour.png": encoded(photo(300, 200, 9), "PNG"),
    }
    for name, data in files.items():
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "raw"


def members(folder: Path) -> dict[str, bytes]:
    found = {}
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    return found


def digest(millrace: Millrace, folder: Path, *options: str) -> str:
    done = millrace(
        "feed", folder, "--batch", "2", "--last", "pad", "--size", "96", "--digest-of", "decoded", "--json", *options
    )
    return str(json.loads(done.stdout)["digest"])


def test_tiles_change_no_pixel(millrace: Millrace, raw: Path, tmp_path: Path) -> None:
    millrace("pack", raw, tmp_path / "plain")
    millrace("pack", raw, tmp_path / "tiled", "--jpeg-tiles")
    plain, tiled = members(tmp_path / "plain"), members(tmp_path / "tiled")
    assert plain.keys() == tiled.keys()
    for name, before in plain.items():
        after = tiled[name]
        if not name.endswith(".jpg"):
            assert before == after, name
            continue
        assert before != after, name
        first, second = Image.open(io.BytesIO(before)), Image.open(io.BytesIO(after))
        assert first.mode == second.mode
        assert np.array_equal(np.asarray(first), np.asarray(second)), name
        assert first.getexif() == second.getexif() and first.info.get("icc_profile") == second.info.get("icc_profile")
        if "progressive" not in name and "small" not in name:
            assert len(after) <= 1.02 * len(before), name
    for options in (["--augment"], ["--augment", "--epochs", "3"], []):
        assert digest(millrace, tmp_path / "plain", *options) == digest(millrace, tmp_path / "tiled", *options)
    inspected = json.loads(millrace("inspect", tmp_path / "tiled", "--decode", "all", "--json").stdout)
    assert inspected["decode"]["failed"] == 0 and inspected["decode"]["images"] == 9


def test_exact_feeds_shrink_nothing(millrace: Millrace, raw: Path, tmp_path: Path) -> None:
    millrace("pack", raw, tmp_path / "plain")
    millrace("pack", raw, tmp_path / "tiled", "--jpeg-tiles")
    fast, exact = digest(millrace, tmp_path / "plain"), digest(millrace, tmp_path / "plain", "--exact")
    assert fast != exact  # 640 x 480 is shrunk for 96 x 96
    assert exact == digest(millrace, tmp_path / "tiled", "--exact")


def test_resized_images_are_those_of_pillow(millrace: Millrace, raw: Path, tmp_path: Path) -> None:
    done = millrace("pack", raw, tmp_path / "out", "--resize", "96", "--quality", "95", "--json")
    assert json.loads(done.stdout)["samples"] == 9
    for name, after in members(tmp_path / "out").items():
        if name.endswith(".cls"):
            continue
        before = (raw / name).read_bytes()
        if "small" in name:
            assert after == before
            continue
        source, image = Image.open(io.BytesIO(before)), Image.open(io.BytesIO(after))
        assert (image.format, min(image.size)) == (source.format, 96)
        assert image.getexif().get(0x0112) == source.getexif().get(0x0112)
        assert ("L" if source.mode == "L" else "RGB") == image.mode
        wanted = source.convert("RGB").resize(image.size, Image.Resampling.BILINEAR)
        error = np.abs(np.asarray(image.convert("RGB"), float) - np.asarray(wanted, float)).mean()
        assert error < 4, (name, error)


def test_the_same_options_give_the_same_bytes_and_others_are_refused(
    millrace: Millrace, raw: Path, tmp_path: Path
) -> None:
    options = ["--shard-size", "100KiB", "--resize", "128", "--jpeg-tiles"]
    out, other = tmp_path / "out", tmp_path / "other"
    for part in ("1/2", "2/2"):
        millrace("pack", raw, other, *options, "--part", part)
    millrace("pack", raw, out, *options, "--part", "1/2")  # as if it had been killed
    refused = millrace("pack", raw, out, "--shard-size", "100KiB", code=1)
    assert b"resized to 128 at quality 90 and tiled there and kept as they are now" in refused.stderr, refused.stderr
    done = json.loads(millrace("pack", raw, out, *options, "--json").stdout)
    assert done["complete"] and 0 < done["kept_shards"] < done["shards"]
    assert members(out) == members(other)
    assert [p.read_bytes() for p in sorted(out.glob("*.tar"))] == [p.read_bytes() for p in sorted(other.glob("*.tar"))]
    before = contents(out)
    assert json.loads(millrace("pack", raw, out, *options, "--json").stdout)["already_packed"]
    assert contents(out) == before


def test_damaged_images_are_named(millrace: Millrace, raw: Path, tmp_path: Path) -> None:
    whole = (raw / "c0" / "420.jpg").read_bytes()
    (raw / "c0" / "bad.jpg").write_bytes(whole[: len(whole) // 2])
    for options in (["--resize", "64"], ["--jpeg-tiles"]):
        failed = millrace("pack", raw, tmp_path / f"out{options[0]}", *options, code=1)
        assert b"'c0/bad'" in failed.stderr and b"JPEG is damaged" in failed.stderr, failed.stderr
        done = json.loads(
            millrace("pack", raw, tmp_path / f"out{options[0]}", *options, "--skip-bad", "--force", "--json").stdout
        )
        assert done["samples"] == 9 and [skipped["key"] for skipped in done["skipped"]] == ["c0/bad"]


def test_masks_and_other_fields_stay(millrace: Millrace, tmp_path: Path) -> None:
    image = photo(300, 200, 1)
    mask = encoded(image.convert("P"), "PNG")
    data = {"s.jpg": encoded(image), "s.mask.png": mask, "s.txt": b"text", "s.json": b'{"a": 1}'}
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / "a.tar", "w") as tar:
        for name, value in data.items():
            info = tarfile.TarInfo(name)
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    for form in ("tar", "tfrecord", "mds"):
        millrace("pack", tmp_path / "in", tmp_path / form, "--resize", "100", "--jpeg-tiles", "--format", form)
        millrace("pack", tmp_path / form, tmp_path / f"{form}-tar")
        found = members(tmp_path / f"{form}-tar")
        assert {name: found[name] for name in data if name != "s.jpg"} == {
            name: data[name] for name in data if name != "s.jpg"
        }
        assert Image.open(io.BytesIO(found["s.jpg"])).size == (150, 100)


def test_options_that_mean_nothing_are_refused(millrace: Millrace, raw: Path, tmp_path: Path) -> None:
    for options in (["--quality", "80"], ["--resize", "0"], ["--resize", "9", "--quality", "101"]):
        assert options[-2].encode() in millrace("pack", raw, tmp_path / "out", *options, code=2).stderr
    assert not (tmp_path / "out").exists()
