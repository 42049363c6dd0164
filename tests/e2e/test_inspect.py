"""The findings of `inspect` in data sets with known faults, and the contact sheet that it draws, with Pillow as the oracle."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from PIL import Image

from . import corpus
from .conftest import Photos
from .harness import Sandbox, Server, devstore
from .oracle import Sample

COLOURS = {"red": (200, 30, 30), "green": (20, 160, 40), "blue": (30, 40, 190)}


def flat_jpeg(colour: tuple[int, int, int], width: int = 120, height: int = 90) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, "JPEG", quality=95)
    return out.getvalue()


def usual(count: int, first: int = 0) -> list[Sample]:
    return [
        Sample(f"s{n:04d}", {"jpg": corpus.jpeg(n, 32, 32), "cls": b"%d" % (n * 7 % 5)})
        for n in range(first, first + count)
    ]


def inspect(sandbox: Sandbox, *args: object, **how) -> dict:
    return sandbox.ok("inspect", *args, "--json", **how).json()


@contextlib.contextmanager
def spoilt_after_indexing(
    sandbox: Sandbox, folder: Path, samples: list[Sample], member: str, data: bytes
) -> Iterator[Server]:
    """A devstore with s3://b/d, a shard of these samples, in which the beginning of a member differs from the indexed one."""
    root = folder / "root"
    (root / "b").mkdir(parents=True)
    path = corpus.write_tar(folder / "d" / "a.tar", samples)
    with tarfile.open(path) as tar:
        at = tar.getmember(member).offset_data
    with devstore(sandbox, root) as server:
        sandbox.ok("cp", "--recursive", folder / "d", "s3://b/d", env=server.env())
        sandbox.ok("index", "s3://b/d", env=server.env())
        corpus.rot(root, "b/d/a.tar", at, data)
        yield server


def places(examples: list[dict]) -> list[tuple[str, str]]:
    return [(one["object"], one["key"]) for one in examples]


class TestSuspicious:
    def test_nothing_to_report(self, photos: Photos, sandbox: Sandbox) -> None:
        found = inspect(sandbox, photos.tar)
        suspicious = found["suspicious"]
        assert suspicious["empty"] == {"samples": 0, "examples": []}
        assert suspicious["empty_fields"] == suspicious["lacking_fields"] == []
        assert suspicious["huge"]["samples"] == 0 and suspicious["huge"]["above"] == 64 << 20
        assert suspicious["duplicate_keys"] == {"samples": 0, "compared": 1005, "examples": []}
        assert found["decode"] is None and found["preview"] is None and found["advice"] == []
        assert "no suspicious samples" in sandbox.ok("inspect", photos.tar).out

    def test_duplicate_keys(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Not next to each other in one shard, and in two shards."""
        samples = usual(20)
        corpus.write_tar(tmp_path / "d" / "a.tar", [*samples[:10], samples[3]])
        corpus.write_tar(tmp_path / "d" / "b.tar", [*samples[10:], samples[0], samples[3]])
        found = inspect(sandbox, tmp_path / "d")["suspicious"]["duplicate_keys"]
        assert found["samples"] == 3 and found["compared"] == 23
        pairs = [
            (one["key"], *(one[which][what] for which in ("first", "again") for what in ("object", "sample")))
            for one in found["examples"]
        ]
        assert pairs == [
            ("s0003", "a.tar", 3, "a.tar", 10),
            ("s0000", "a.tar", 0, "b.tar", 21),
            ("s0003", "a.tar", 3, "b.tar", 22),
        ]
        said = sandbox.ok("inspect", tmp_path / "d").out
        assert (
            "with the key of a sample before them: 3" in said
            and "'s0000': a.tar (sample 0) and b.tar (sample 21)" in said
        )

    def test_raw_objects_whose_endings_differ_in_case_have_one_key(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for name in ("a/0.jpg", "a/1.JPG", "a/1.jpg", "a/1.txt", "a/2.png"):
            corpus.write(tmp_path / "d" / name, b"x")
        found = inspect(sandbox, tmp_path / "d")["suspicious"]
        assert found["duplicate_keys"]["samples"] == 1
        example = found["duplicate_keys"]["examples"][0]
        assert example["first"]["object"] == "a/1.{JPG,txt}", "its two objects, by names that exist"
        assert example["again"]["object"] == "a/1.jpg"
        assert found["lacking_fields"] == [], "a PNG stands in for a JPEG"

    def test_empty(self, sandbox: Sandbox, tmp_path: Path) -> None:
        samples = usual(12)
        samples[4].fields["cls"] = b""
        for n in (5, 7):
            samples[n].fields["jpg"] = samples[n].fields["cls"] = b""
        corpus.write_tar(tmp_path / "d" / "a.tar", samples)
        found = inspect(sandbox, tmp_path / "d")["suspicious"]
        assert found["empty"]["samples"] == 2
        assert places(found["empty"]["examples"]) == [("a.tar", "s0005"), ("a.tar", "s0007")]
        assert [(f["field"], f["samples"], places(f["examples"])) for f in found["empty_fields"]] == [
            ("cls", 1, [("a.tar", "s0004")])
        ]
        said = sandbox.ok("inspect", tmp_path / "d").out
        assert "empty: 2" in said and "with an empty 'cls': 1" in said and "a.tar, 's0007'" in said

    def test_empty_raw_objects(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n in range(9):
            corpus.write(tmp_path / "d" / "c" / f"{n}.jpg", b"" if n % 4 == 1 else b"x")
        found = inspect(sandbox, tmp_path / "d")["suspicious"]["empty"]
        assert found["samples"] == 2 and places(found["examples"]) == [("c/1.jpg", "c/1"), ("c/5.jpg", "c/5")]

    def test_a_field_that_nearly_all_have(self, sandbox: Sandbox, tmp_path: Path) -> None:
        samples = usual(40)
        del samples[33].fields["cls"]
        corpus.write_tar(tmp_path / "d" / "a.tar", samples)
        (lacking,) = inspect(sandbox, tmp_path / "d")["suspicious"]["lacking_fields"]
        assert lacking["fields"] == ["cls"] and lacking["samples"] == 1
        assert places(lacking["examples"]) == [("a.tar", "s0033")]
        assert "without 'cls', which nearly all others have: 1" in sandbox.ok("inspect", tmp_path / "d").out

    def test_huge(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n in range(20):
            corpus.write(tmp_path / "d" / "c" / f"{n:02d}.jpg", b"x" * 1000)
        os.truncate(tmp_path / "d" / "c" / "13.jpg", 65 << 20)
        found = inspect(sandbox, tmp_path / "d")["suspicious"]["huge"]
        assert (
            found["samples"] == 1
            and found["examples"][0]["key"] == "c/13"
            and found["examples"][0]["bytes"] == 65 << 20
        )

    def test_no_more_than_five_examples(self, sandbox: Sandbox, tmp_path: Path) -> None:
        samples = usual(30)
        for sample in samples[10:]:
            sample.fields["cls"] = b""
        corpus.write_tar(tmp_path / "d" / "a.tar", samples)
        (found,) = inspect(sandbox, tmp_path / "d")["suspicious"]["empty_fields"]
        assert found["samples"] == 20
        assert [key for _, key in places(found["examples"])] == [f"s{n:04d}" for n in range(10, 15)]


class TestDecode:
    @pytest.fixture
    def spoilt(self, tmp_path: Path) -> Path:
        """Every fourth of 40 is cut in half; they lie in two shards."""
        samples = usual(40)
        for sample in samples[2::4]:
            sample.fields["jpg"] = sample.fields["jpg"][: len(sample.fields["jpg"]) // 2]
        corpus.write_tar(tmp_path / "d" / "a.tar", samples[:15])
        corpus.write_tar(tmp_path / "d" / "b.tar", samples[15:])
        return tmp_path / "d"

    @pytest.mark.parametrize(
        "how", [("--decode",), ("--decode", "all"), ("--decode=all",), ("--decode", "40"), ("--decode", 999)]
    )
    def test_truncated_images(self, sandbox: Sandbox, spoilt: Path, how: tuple) -> None:
        found = inspect(sandbox, spoilt, *how)["decode"]
        assert (found["samples"], found["failed"], found["images"]) == (40, 10, 30)
        bad = [("a.tar", f"s{n:04d}") for n in (2, 6, 10, 14)] + [("b.tar", "s0018")]
        assert places(found["examples"]) == bad
        assert all("field 'jpg'" in one["why"] for one in found["examples"])

    def test_text(self, sandbox: Sandbox, spoilt: Path) -> None:
        said = sandbox.ok("inspect", "--decode", spoilt).out
        assert "read 40 of 40 samples, and decoded 30 images: 10 of the samples failed" in said
        assert "a.tar, 's0002': field 'jpg': " in said

    def test_some(self, sandbox: Sandbox, spoilt: Path) -> None:
        """The middle ones of eight parts of five: 2, 7, 12 ... 37, of which 2, 22, 42 ... fail."""
        found = inspect(sandbox, spoilt, "--decode", 8)["decode"]
        assert (found["samples"], found["failed"]) == (8, 2)
        assert places(found["examples"]) == [("a.tar", "s0002"), ("b.tar", "s0022")]

    def test_all_is_sound(self, photos: Photos, sandbox: Sandbox, server: Server) -> None:
        for uri in (photos.tar, photos.raw, "s3://b/tar"):
            found = inspect(sandbox, uri, "--decode", "all", env=server.env())["decode"]
            assert found == {"samples": 1005, "images": 1005, "failed": 0, "too_large": 0, "odd": 0, "examples": []}
        assert "decoded 50 images: all are sound" in sandbox.ok("inspect", photos.raw, "--decode", 50).out

    def test_bytes_that_are_not_those_of_the_index(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """A flipped bit where no decoder would notice: in the class, of one sample of many that are read at once."""
        with spoilt_after_indexing(sandbox, tmp_path, usual(40), "s0017.cls", b"9") as server:
            found = inspect(sandbox, "s3://b/d", "--decode", "all", env=server.env())["decode"]
        assert (found["samples"], found["failed"]) == (40, 1)
        assert places(found["examples"]) == [("a.tar", "s0017")]
        assert "not those that were indexed" in found["examples"][0]["why"]

    def test_data_without_images(self, sandbox: Sandbox, tmp_path: Path) -> None:
        corpus.write_tar(tmp_path / "d" / "a.tar", [Sample(f"s{n}", {"txt": b"hello"}) for n in range(5)])
        found = inspect(sandbox, tmp_path / "d", "--decode")["decode"]
        assert (found["samples"], found["images"], found["failed"]) == (5, 0, 0)

    @pytest.mark.parametrize("value", ["0", "-1", "some", "1.5", "99999999999999999999"])
    def test_values_that_make_no_sense(self, sandbox: Sandbox, spoilt: Path, value: str) -> None:
        sandbox.run("inspect", spoilt, f"--decode={value}").failed(2, "--decode", "all")


class TestAdvice:
    def test_sorted_by_class_and_mixed_by_windows(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for n in range(80):
            path = tmp_path / "d" / f"{n // 20}" / f"{n:04}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.truncate(path, 4 << 20)
        found = inspect(sandbox, tmp_path / "d")
        assert found["class_sorted"] is True and found["advice"] == []

    def test_many_small_objects(self, sandbox: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        for n in range(10_000):
            (tmp_path / "d" / f"{n:05d}.jpg").write_bytes(b"x" * 10)
        (advice,) = inspect(sandbox, tmp_path / "d")["advice"]
        assert "10000 objects" in advice and "millrace pack" in advice and "--shard-size 64MiB" in advice
        assert advice in sandbox.ok("inspect", tmp_path / "d").out

    def test_few_shards(self, sandbox: Sandbox, tmp_path: Path) -> None:
        size = 530_000_000
        corpus.write_tar(tmp_path / "d" / "a.tar", [])
        info = tarfile.TarInfo("s.bin")
        info.size = size
        with (tmp_path / "d" / "a.tar").open("wb") as file:
            file.write(info.tobuf())
            file.truncate((512 + size + 511) // 512 * 512 + 1024)
        (advice,) = inspect(sandbox, tmp_path / "d", timeout=300)["advice"]
        assert "only one shard" in advice and "--shard-size 64MiB" in advice


class TestPreview:
    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        """Twelve flat pictures, of three colours in turn."""
        samples = []
        for n in range(12):
            name = list(COLOURS)[n % 3]
            samples.append(Sample(f"s{n:04d}", {"jpg": flat_jpeg(COLOURS[name]), "cls": name.encode()}))
        corpus.write_tar(tmp_path / "d" / "a.tar", samples)
        return tmp_path / "d"

    @staticmethod
    def sheet(sandbox: Sandbox, data: object, out: Path, *more: object, **how) -> tuple[dict, numpy.ndarray]:
        found = inspect(sandbox, data, "--preview", out, *more, **how)["preview"]
        image = Image.open(out)
        assert image.format == "PNG" and image.mode == "RGB"
        assert image.size == (found["width"], found["height"])
        return found, numpy.asarray(image).astype(int)

    @staticmethod
    def box(pixels: numpy.ndarray, sample: dict) -> numpy.ndarray:
        x, y, width, height = sample["box"]
        return pixels[y : y + height, x : x + width]

    @staticmethod
    def caption(pixels: numpy.ndarray, sample: dict) -> numpy.ndarray:
        """Below the box of 160 x 160 in which the picture is centred: the line of the label."""
        x, y, width, height = sample["box"]
        left, top = x - (160 - width) // 2, y - (160 - height) // 2
        return pixels[top + 160 : top + 178, left : left + 160]

    def test_every_picture_is_in_its_place(self, sandbox: Sandbox, data: Path, tmp_path: Path) -> None:
        found, pixels = self.sheet(sandbox, data, tmp_path / "out.png")
        assert [s["key"] for s in found["samples"]] == [f"s{n:04d}" for n in range(12)]
        assert [s["label"] for s in found["samples"]] == [list(COLOURS)[n % 3] for n in range(12)]
        for sample in found["samples"]:
            assert sample["box"][2:] == [160, 120]
            mean = self.box(pixels, sample).mean(axis=(0, 1))
            assert numpy.abs(mean - COLOURS[sample["label"]]).max() < 4, sample
        assert (pixels[:12] == 255).all() and (pixels[:, :12] == 255).all(), "the margin is white"

    def test_pictures_look_as_pillow_shows_them(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        found, pixels = self.sheet(sandbox, photos.raw, tmp_path / "out.png", "--samples", 7)
        assert [s["sample"] for s in found["samples"]] == [(2 * i + 1) * 1005 // 14 for i in range(7)]
        for sample in found["samples"]:
            shown = self.box(pixels, sample)
            with Image.open(photos.raw / sample["object"]) as image:
                expected = image.convert("RGB").resize((shown.shape[1], shown.shape[0]), Image.Resampling.BILINEAR)
            assert numpy.abs(shown - numpy.asarray(expected).astype(int)).mean() < 3
            assert sample["label"] == sample["key"].split("/")[0]

    def test_labels_are_drawn(self, sandbox: Sandbox, data: Path, tmp_path: Path) -> None:
        found, pixels = self.sheet(sandbox, data, tmp_path / "out.png")
        red, green, blue, again = (self.caption(pixels, sample) for sample in found["samples"][:4])
        assert (red < 128).any(), "dark on white"
        assert not numpy.array_equal(red, green) and not numpy.array_equal(green, blue)
        assert numpy.array_equal(red, again), "one label, one picture of it"

    def test_no_more_samples_than_there_are_and_as_many_as_asked_for(
        self, photos: Photos, sandbox: Sandbox, data: Path, tmp_path: Path
    ) -> None:
        assert len(self.sheet(sandbox, data, tmp_path / "a.png", "--samples", 100)[0]["samples"]) == 12
        found, _ = self.sheet(sandbox, photos.tar, tmp_path / "b.png")
        assert len(found["samples"]) == 24
        numbers = [s["sample"] for s in found["samples"]]
        assert numbers == sorted(numbers) and max(numpy.diff(numbers)) <= 42, "evenly spread"

    def test_the_same_data_give_the_same_sheet(self, photos: Photos, sandbox: Sandbox, tmp_path: Path) -> None:
        for name in ("a.png", "b.png"):
            self.sheet(sandbox, photos.tar, tmp_path / name)
        assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()

    def test_undecodable_samples_are_crossed_out(self, sandbox: Sandbox, data: Path, tmp_path: Path) -> None:
        corpus.write_tar(data / "b.tar", [Sample("z", {"jpg": flat_jpeg((0, 0, 0))[:200], "cls": b"red"})])
        found, pixels = self.sheet(sandbox, data, tmp_path / "out.png")
        bad = found["samples"][-1]
        assert bad["why"] and all("why" not in sample for sample in found["samples"][:-1])
        diagonal = self.box(pixels, bad)[range(100, 150), range(100, 150)]
        assert (diagonal[:, 0] > diagonal[:, 1] + 50).mean() > 0.9, "a red line"
        assert (self.caption(pixels, bad) < 128).any(), "with its label"

    def test_samples_without_images_are_text(self, sandbox: Sandbox, tmp_path: Path) -> None:
        samples = [
            Sample("a", {"json": b'{"caption": "a short one"}', "txt": b"hello"}),
            Sample("b", {"json": b'{"caption": "another"}', "txt": b"w" * 5000}),
            Sample("c", {"npy": bytes(range(256)) * 10}),
        ]
        corpus.write_tar(tmp_path / "d" / "a.tar", samples)
        found, pixels = self.sheet(sandbox, tmp_path / "d", tmp_path / "out.png")
        shown = [self.box(pixels, sample) for sample in found["samples"]]
        assert all(box.shape == (160, 160, 3) and (box < 128).any() for box in shown)
        assert (shown[1] < 128).sum() > 2 * (shown[0] < 128).sum(), "long text fills its box"
        x, y, width, height = found["samples"][1]["box"]
        assert (pixels[y : y + height, x + width + 1 : x + width + 11] == 255).all(), "and stays in it"

    def test_names_and_labels_may_be_any_bytes(self, sandbox: Sandbox, tmp_path: Path) -> None:
        image = flat_jpeg((1, 2, 3))
        labels = [b"\xff\xfe\x00", "größe\n".encode(), b"\xef\xbf\xbf", b"\xed\xa0\x80", b"x" * 3000, b"\x1b[31m"]
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
            for n, label in enumerate(labels):
                for field, data in (("jpg", image), ("cls", label)):
                    info = tarfile.TarInfo(f"k\udcff\udcfe{n}{'y' * 60}.{field}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        (tmp_path / "d").mkdir()
        (tmp_path / "a.tar").rename(tmp_path / "d" / "a.tar")
        found, pixels = self.sheet(sandbox, tmp_path / "d", tmp_path / "out.png")
        assert len(found["samples"]) == len(labels)
        assert all((self.caption(pixels, sample) < 128).any() for sample in found["samples"])

    def test_other_formats(self, sandbox: Sandbox, photos: Photos, tmp_path: Path) -> None:
        for kind in ("tfrecord", "mds", "recordio"):
            sandbox.ok("pack", photos.raw, tmp_path / kind, "--format", kind)
            found, _ = self.sheet(sandbox, tmp_path / kind, tmp_path / f"{kind}.png", "--samples", 5)
            for one in found["samples"]:
                assert float(one["label"]) == float(photos.samples[one["sample"]].fields["cls"])
            assert inspect(sandbox, tmp_path / kind, "--decode", 20)["decode"]["images"] == 20

    def test_manifests(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Labels are those of the manifest, other than the folders; nothing that it lists is written over."""
        rows = []
        for n in range(6):
            corpus.write(tmp_path / "d" / "folder" / f"{n}.jpg", flat_jpeg(COLOURS[list(COLOURS)[n % 3]]))
            rows.append((f"folder/{n}.jpg", list(COLOURS)[n % 3], n % 2))
        names, numbers, none = (tmp_path / "d" / name for name in ("names.csv", "numbers.csv", "none.csv"))
        names.write_text("path,label\n" + "".join(f"{path},{name}\n" for path, name, _ in rows))
        numbers.write_text("path,cls\n" + "".join(f"{path},{number}\n" for path, _, number in rows))
        none.write_text("path,caption\n" + "".join(f"{path},a {name} one\n" for path, name, _ in rows))
        for uri, labels in (
            (names, [name for _, name, _ in rows]),
            (numbers, [str(number) for *_, number in rows]),
            (none, ["folder"] * 6),
        ):
            found, pixels = self.sheet(sandbox, uri, tmp_path / "d" / "out.png", "--decode")
            assert [s["label"] for s in found["samples"]] == labels
            for n, sample in enumerate(found["samples"]):
                assert numpy.abs(self.box(pixels, sample).mean(axis=(0, 1)) - list(COLOURS.values())[n % 3]).max() < 4
        assert inspect(sandbox, names)["objects"] == 6, "the manifest itself holds no samples"
        before = {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()}
        for where in (names, tmp_path / "d" / "folder" / "3.jpg", tmp_path / "d" / ".millrace" / "names.csv.index"):
            sandbox.run("inspect", names, "--preview", where).failed(2, "--preview", "is to be a PNG; .* ends in .png")
        assert {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()} == before
        picture, one = tmp_path / "d" / "folder" / "one.png", tmp_path / "d" / "one.csv"
        picture.write_bytes(b"a picture")
        one.write_text("path\nfolder/one.png\n")
        sandbox.run("inspect", one, "--preview", picture).failed(2, "--preview", "is a part of the data set")
        assert picture.read_bytes() == b"a picture"

    def test_labels_of_shards_are_those_of_the_index(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Damaged samples have them, too, although their bytes cannot be believed."""
        samples = [Sample(f"s{n}", {"jpg": flat_jpeg((9, 9, 9)), "cls": b"%d\n" % n}) for n in range(4)]
        with spoilt_after_indexing(sandbox, tmp_path, samples, "s2.cls", b"7") as server:
            found, _ = self.sheet(sandbox, "s3://b/d", tmp_path / "out.png", env=server.env())
        assert [s["label"] for s in found["samples"]] == ["0", "1", "2", "3"]
        assert [s["key"] for s in found["samples"] if "why" in s] == ["s2"]

    def test_where_it_is_written(self, sandbox: Sandbox, data: Path, server: Server, tmp_path: Path) -> None:
        (tmp_path / "out.png").write_text("an older one")
        self.sheet(sandbox, data, tmp_path / "out.png")
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".millrace")], "nothing else is left"
        sandbox.ok("inspect", data, "--preview", "s3://b/sheets/out.png", env=server.env())
        got = server.client().get_object(Bucket="b", Key="sheets/out.png")
        assert got["Body"].read() == (tmp_path / "out.png").read_bytes() and got["ContentType"] == "image/png"
        sandbox.ok("rm", "s3://b/sheets/out.png", env=server.env())
        said = sandbox.ok("inspect", data, "--preview", "here.png").out
        assert (sandbox.home / "here.png").read_bytes() == (tmp_path / "out.png").read_bytes()
        assert f"preview of 12 samples: {sandbox.home}/here.png (1044 x 420 pixels)" in said

    def test_never_into_the_data(self, sandbox: Sandbox, data: Path) -> None:
        before = sorted(data.rglob("*"))
        for where in ("out.png", "new/out.png"):
            sandbox.run("inspect", data, "--preview", data / where).failed(2, "--preview", "within the data set")
        assert sorted(data.rglob("*")) == before

    def test_places_that_cannot_be_written(self, sandbox: Sandbox, data: Path, tmp_path: Path) -> None:
        (tmp_path / "folder.png").mkdir()
        sandbox.run("inspect", data, "--preview", tmp_path / "folder.png").failed(1, "folder")
        sandbox.run("inspect", data, "--preview", "gs://b/x.png").failed(2, "gs")

    @pytest.mark.parametrize("value", ["0", "1001", "x"])
    def test_numbers_of_samples_that_make_no_sense(
        self, sandbox: Sandbox, data: Path, tmp_path: Path, value: str
    ) -> None:
        sandbox.run("inspect", data, "--preview", tmp_path / "o.png", "--samples", value).failed(
            2, "--samples", "1 to 1000"
        )

    def test_samples_without_a_preview(self, sandbox: Sandbox, data: Path) -> None:
        sandbox.run("inspect", data, "--samples", 5).failed(2, "--samples", "--preview")
