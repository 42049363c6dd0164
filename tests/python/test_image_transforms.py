"""Tests millrace.transforms against Pillow and NumPy: pixels if nothing is drawn, distributions if something is."""

from __future__ import annotations

import collections
import io
import json
import math
import pathlib
import tarfile
from typing import Any, Callable

import millrace
import numpy as np
import pytest
import torch
from millrace import transforms as T
from PIL import Image, ImageEnhance, ImageOps
from support import png

HEIGHT, WIDTH = 48, 64
WHOLE = T.Resize((HEIGHT, WIDTH))  # leaves the images of these tests as they are


def write(folder: pathlib.Path, samples: list[dict[str, bytes]]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "shard-000.tar", "w") as archive:
        for number, fields in enumerate(samples):
            for name, data in fields.items():
                member = tarfile.TarInfo(f"{number:05}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return str(folder)


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Makes a smooth picture, with edges, in all colors."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack(
        [
            127 + 90 * np.sin(x * rng.uniform(0.02, 0.3) + y * rng.uniform(0.02, 0.3) + rng.uniform(0, 6))
            for _ in range(3)
        ],
        axis=2,
    )
    top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
    pixels[top : top + 15, left : left + 20] = rng.integers(0, 256, 3)
    return np.clip(pixels + rng.normal(0, 6, pixels.shape), 0, 255).astype(np.uint8)


def sample(number: int) -> dict[str, bytes]:
    return {"png": png(picture(number)), "cls": str(number % 10).encode()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("pictures"), [sample(number) for number in range(60)])


@pytest.fixture(scope="module")
def constant(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes many samples of one color: what is drawn shows in the value."""
    one = png(np.full((16, 16, 3), 100, np.uint8))
    return write(tmp_path_factory.mktemp("constant"), [{"png": one} for _ in range(3000)])


def rows(
    data: str,
    transforms: list[Any],
    image: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> dict[int, Any]:
    """Returns the images of an epoch, or rows of several entries, by number."""
    fields = {"image": millrace.Image("png", transforms=transforms, **(image or {})), **(more or {})}
    usual = {"batch_size": 50, "output": "numpy", "epochs": 1}
    found = {}
    for batch in millrace.Loader(data, fields=fields, **{**usual, **options}):
        for row in np.flatnonzero(batch["valid"]):
            entries = {name: batch[name][row] for name in fields}
            found[int(batch["key"][row])] = entries if more else entries["image"]
    return found


def same(got: dict[int, np.ndarray], wanted: Callable[[Image.Image], Any], most: int = 0) -> None:
    assert got
    for number, pixels in got.items():
        expected = np.asarray(wanted(Image.fromarray(picture(number)))).astype(int)
        assert np.abs(pixels.astype(int) - expected).max() <= most, number


def test_the_usual_pair_is_augment(data: str) -> None:
    got = rows(data, [T.RandomResizedCrop((20, 24)), T.RandomHorizontalFlip()], seed=5)
    batches = list(
        millrace.Loader(
            data,
            image=millrace.Image("png"),
            size=(20, 24),
            augment=True,
            seed=5,
            batch_size=50,
            output="numpy",
            epochs=1,
        )
    )
    for batch in batches:
        for row in np.flatnonzero(batch["valid"]):
            np.testing.assert_array_equal(got[int(batch["key"][row])], batch["image"][row])


@pytest.mark.parametrize(
    ("name", "mode"), [("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC), ("box", Image.BOX)]
)
@pytest.mark.parametrize("size", [30, 70])
def test_evaluation_pipelines(data: str, name: str, mode: Any, size: int) -> None:
    def expected(image: Image.Image) -> Image.Image:
        image = image.resize((int(size * WIDTH / HEIGHT), size), mode)
        left, top = round((image.width - 25) / 2.0), round((image.height - 21) / 2.0)
        return image.crop((left, top, left + 25, top + 21))

    # Pillow rounds to bytes after a pass, too.
    same(rows(data, [T.Resize(size, name), T.CenterCrop((21, 25))]), expected, 1)


@pytest.mark.parametrize("size", [30, 70])
def test_nearest_takes_the_pixel_of_the_centre(data: str, size: int) -> None:
    def places(source: int, resized: int, cut: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns which pixel each one is, and whether that is certain: the center is not on a border."""
        at = (2 * (round((resized - cut) / 2.0) + np.arange(cut)) + 1) * source
        return at // (2 * resized), at % (2 * resized) != 0

    lines, certain_lines = places(HEIGHT, size, 21)
    columns, certain_columns = places(WIDTH, int(size * WIDTH / HEIGHT), 25)
    certain = np.ix_(certain_lines, certain_columns)
    assert certain_lines.sum() > 15 and certain_columns.sum() > 15
    for number, pixels in rows(data, [T.Resize(size, "nearest"), T.CenterCrop((21, 25))]).items():
        np.testing.assert_array_equal(pixels[certain], picture(number)[np.ix_(lines, columns)][certain])


def test_crops_and_mirrors_alone(data: str) -> None:
    same(rows(data, [T.CenterCrop((20, 33))]), lambda image: image.crop((16, 14, 49, 34)))  # round(15.5) is 16
    same(rows(data, [WHOLE, T.RandomVerticalFlip(1.0)]), ImageOps.flip)
    same(rows(data, [WHOLE, T.RandomHorizontalFlip(1.0)]), ImageOps.mirror)
    same(
        rows(data, [WHOLE, T.RandomVerticalFlip(1.0), T.RandomGrayscale(0), T.RandomHorizontalFlip(1.0)]),
        lambda image: ImageOps.mirror(ImageOps.flip(image)),
    )
    same(
        rows(data, [T.RandomVerticalFlip(1.0), T.CenterCrop((15, 20))]),
        lambda image: ImageOps.flip(image).crop((22, 16, 42, 31)),
    )


def shifted_hue(image: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    numbers = (np.asarray(hue).astype(int) + int(turn * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(numbers.astype(np.uint8)), saturation, value)).convert("RGB")


@pytest.mark.parametrize("factor", [0.0, 0.35, 1.0, 1.8])
@pytest.mark.parametrize(
    ("name", "change"),
    [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)],
)
def test_colours_are_pillows_to_the_bit(data: str, name: str, change: Any, factor: float) -> None:
    same(rows(data, [WHOLE, T.ColorJitter(**{name: (factor, factor)})]), lambda image: change(image).enhance(factor))


@pytest.mark.parametrize("turn", [-0.5, -0.2, 0.1, 0.5])
def test_hue_is_pillows_to_the_bit(data: str, turn: float) -> None:
    same(rows(data, [WHOLE, T.ColorJitter(hue=(turn, turn))]), lambda image: shifted_hue(image, turn))


def test_grey(data: str) -> None:
    same(rows(data, [WHOLE, T.RandomGrayscale(1.0)]), lambda image: image.convert("L").convert("RGB"))
    got = rows(
        data, [WHOLE, T.ColorJitter(brightness=(1.4, 1.4), saturation=(0.1, 0.1), hue=(0.3, 0.3))], {"channels": 1}
    )
    same(
        {number: pixels[..., 0] for number, pixels in got.items()},
        lambda image: ImageEnhance.Brightness(image.convert("L")).enhance(1.4),
    )


def blurred(pixels: np.ndarray, width: int, height: int, sigma: float) -> np.ndarray:
    def kernel(side: int) -> np.ndarray:
        weights = np.exp(-0.5 * (np.linspace(-(side - 1) * 0.5, (side - 1) * 0.5, side) / sigma) ** 2)
        return weights / weights.sum()

    padded = np.pad(pixels.astype(float), ((height // 2,) * 2, (width // 2,) * 2, (0, 0)), "reflect")
    weights = np.outer(kernel(height), kernel(width))
    total = np.zeros(pixels.shape)
    for y in range(height):
        for x in range(width):
            total += weights[y, x] * padded[y : y + pixels.shape[0], x : x + pixels.shape[1]]
    return np.rint(total)


@pytest.mark.parametrize(("kernel", "sigma"), [(3, 0.4), (9, 1.7), ((5, 11), 3.0)])
def test_blur_is_the_formula(data: str, kernel: Any, sigma: float) -> None:
    width, height = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    same(
        rows(data, [WHOLE, T.GaussianBlur(kernel, sigma)]),
        lambda image: blurred(np.asarray(image), width, height, sigma),
        1,
    )


def test_normalise(data: str) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    got = rows(data, [WHOLE, T.Normalize(mean, std)], {"layout": "nchw"})
    for number, pixels in got.items():
        assert pixels.dtype == np.float32
        np.testing.assert_allclose(
            pixels, ((picture(number) / 255 - mean) / std).transpose(2, 0, 1), rtol=1e-6, atol=1e-6
        )


def affine(image: Image.Image, inverse: tuple[float, ...], mode: Any, fill: Any) -> Image.Image:
    return image.transform(image.size, Image.AFFINE, inverse, mode, fillcolor=fill)


def operations(
    magnitude: float,
    bits: int,
    threshold: float,
    rotation: float,
    shift: tuple[float, float],
    enhance: float,
    mode: Any,
    fill: Any,
) -> dict[str, Any]:
    """Returns the 14 operations of RandAugment and TrivialAugment as torchvision applies them to PIL images, by names
    with signs."""
    made: dict[str, Any] = {
        "Identity": lambda image: image,
        "Posterize": lambda image: ImageOps.posterize(image, bits),
        "Solarize": lambda image: ImageOps.solarize(image, threshold),
        "AutoContrast": ImageOps.autocontrast,
        "Equalize": ImageOps.equalize,
    }
    for sign in (1, -1):
        name = "+-"[sign < 0]
        made["ShearX" + name] = lambda image, s=sign: affine(image, (1, s * magnitude, 0, 0, 1, 0), mode, fill)
        made["ShearY" + name] = lambda image, s=sign: affine(image, (1, 0, 0, s * magnitude, 1, 0), mode, fill)
        made["TranslateX" + name] = lambda image, s=sign: affine(image, (1, 0, -s * int(shift[0]), 0, 1, 0), mode, fill)
        made["TranslateY" + name] = lambda image, s=sign: affine(image, (1, 0, 0, 0, 1, -s * int(shift[1])), mode, fill)
        made["Rotate" + name] = lambda image, s=sign: image.rotate(s * rotation, mode, fillcolor=fill)
        for op in ("Brightness", "Color", "Contrast", "Sharpness"):
            made[op + name] = lambda image, s=sign, op=op: getattr(ImageEnhance, op)(image).enhance(1 + s * enhance)
    return made


GEOMETRIC = ("Shear", "Translate", "Rotate")


def matching(got: dict[int, np.ndarray], candidates: dict[str, Any]) -> dict[int, str]:
    """Finds which operation was applied to each picture: to the bit, except for single pixels that are between two."""
    found = {}
    for number, pixels in got.items():
        image = Image.fromarray(picture(number))
        wrong = {name: np.mean(np.asarray(operation(image)) != pixels) for name, operation in candidates.items()}
        best = min(wrong, key=lambda name: wrong[name])
        assert wrong[best] < 0.002, (number, best, wrong[best])
        found[number] = best
    return found


@pytest.mark.parametrize(("name", "mode"), [("nearest", Image.NEAREST), ("bilinear", Image.BILINEAR)])
def test_rand_augment_is_one_of_fourteen(tmp_path: pathlib.Path, name: str, mode: Any) -> None:
    many = write(tmp_path, [sample(number) for number in range(400)])
    fill = (10, 200, 90)
    got = rows(many, [WHOLE, T.RandAugment(1, 20, 31, name, fill)])
    shift = (150 / 331 * WIDTH * 20 / 30, 150 / 331 * HEIGHT * 20 / 30)
    bits = 8 - round(20 / (30 / 4))
    found = collections.Counter(
        matching(
            got, operations(0.3 * 20 / 30, bits, 255 - 255 * 20 / 30, 20, shift, 0.9 * 20 / 30, mode, fill)
        ).values()
    )
    by_name = collections.Counter()
    for operation, count in found.items():
        by_name[operation.rstrip("+-")] += count
    assert len(by_name) == 14 and sum(found.values()) == 400
    assert all(10 <= count <= 52 for count in by_name.values()), by_name  # 28.6 of 400 each, 4.5 standard deviations
    signed = [(found[op + "+"], found[op + "-"]) for op in by_name if op + "+" in found or op + "-" in found]
    assert all(plus and minus for plus, minus in signed) and len(signed) == 9
    assert abs(sum(plus for plus, _ in signed) - sum(minus for _, minus in signed)) < 4.5 * math.sqrt(257)


def test_operations_follow_each_other(data: str) -> None:
    assert rows(data, [WHOLE, T.RandAugment(0, 5)])  # nothing
    same(rows(data, [WHOLE, T.RandAugment(0, 5)]), lambda image: image)
    once, thrice = (rows(data, [WHOLE, T.RandAugment(count, 15)]) for count in (1, 3))
    assert sum(np.array_equal(once[number], thrice[number]) for number in once) < 5


def test_trivial_augment_draws_its_magnitude(constant: str) -> None:
    """Brightness of a constant picture tells the magnitude; other operations leave the centre as it is, or do what is no brightness."""
    whole = T.Resize((16, 16))
    got = rows(constant, [whole, T.TrivialAugmentWide()])
    centres = [int(pixels[8, 8, 0]) for pixels in got.values()]
    brightness = {
        int(np.float32(1 + sign * 0.99 * bin / 30) * np.float32(100)) for bin in range(1, 31) for sign in (1, -1)
    }
    seen = set(centres) & brightness
    assert len(seen) > 45  # of 60
    unchanged = sum(np.array_equal(pixels, np.full((16, 16, 3), 100)) for pixels in got.values())
    assert 0.25 < unchanged / 3000 < 0.6


def test_masks_and_boxes_are_sheared_and_turned_alike(tmp_path: pathlib.Path) -> None:
    """A bright rectangle, its map and its box go the same way; what changes colours leaves map and box alone."""
    samples = []
    places = []
    for number in range(300):
        rng = np.random.default_rng(number)
        top, left = int(rng.integers(12, 22)), int(rng.integers(16, 30))
        bottom, right = top + int(rng.integers(8, 14)), left + int(rng.integers(8, 16))
        places.append((left, top, right, bottom))
        pixels = np.full((HEIGHT, WIDTH, 3), 60, np.uint8)
        pixels[top:bottom, left:right] = 220
        indices = np.zeros((HEIGHT, WIDTH), np.uint8)
        indices[top:bottom, left:right] = 7
        mask = Image.fromarray(indices, "L")
        mask.putpalette([0] * 768)
        out = io.BytesIO()
        mask.save(out, "png")
        samples.append(
            {"png": png(pixels), "seg.png": out.getvalue(), "json": json.dumps([[left, top, right, bottom]]).encode()}
        )
    data = write(tmp_path, samples)
    more = {
        "mask": millrace.Image("seg.png", like="image", interpolation="nearest"),
        "boxes": millrace.Boxes("json"),
    }
    chain = [
        WHOLE,
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(),
        T.RandAugment(1, 12, fill=60),
        T.RandomHorizontalFlip(),
    ]
    moved = 0
    for number, row in rows(data, chain, None, more).items():
        shown = np.argwhere(row["mask"] == 7)
        assert set(np.unique(row["mask"])) <= {0, 7}
        if len(shown) == 0:  # shifted away
            continue
        (top, left), (bottom, right) = shown.min(axis=0), shown.max(axis=0) + 1
        np.testing.assert_allclose(row["boxes"][0], (left, top, right, bottom), atol=2.01)
        moved += (left, top, right, bottom) != places[number]
        bright = row["image"].astype(int).sum(axis=2)
        inside = row["mask"] == 7
        if bright[inside].std() < 1 and bright[~inside].std() < 1:  # else a colour operation blurred its border
            assert abs(bright[inside].mean() - bright[~inside].mean()) > 0 or bright.std() < 1
            moved_image = np.argwhere(bright != np.median(bright[~inside]))
            if len(moved_image):
                np.testing.assert_array_equal(moved_image.min(axis=0), (top, left))
    assert moved > 150


def test_parameters_follow_the_formulas(constant: str) -> None:
    whole = T.Resize((16, 16))

    def values(*transforms: Any, **options: Any) -> np.ndarray:
        return np.array([pixels[8, 8] for pixels in rows(constant, [whole, *transforms], **options).values()]).astype(
            float
        )

    drawn = values(T.ColorJitter(brightness=0.5))[:, 0] / 100
    assert 0.49 <= drawn.min() < 0.52 and 1.48 < drawn.max() <= 1.5
    assert abs(drawn.mean() - 0.995) < 0.021  # cut off to whole numbers: half of 1 % less
    assert abs(drawn.std() - 1 / math.sqrt(12)) < 0.015
    assert abs((drawn < 0.75).mean() - 0.25) < 0.036
    again = values(T.ColorJitter(brightness=0.5))[:, 0] / 100
    np.testing.assert_array_equal(drawn, again)
    other = values(T.ColorJitter(brightness=0.5), seed=1)[:, 0] / 100
    assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.075
    # Two transforms of one kind draw each its own.
    twice = values(T.ColorJitter(brightness=0.2), T.ColorJitter(brightness=0.2))[:, 0] / 100
    assert abs(twice.std() - 0.2 / math.sqrt(3) * math.sqrt(2)) < 0.012


def test_probabilities(tmp_path: pathlib.Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4, :4] = (200, 100, 0)
    data = write(tmp_path, [{"png": png(pixels)}] * 2000)
    whole = T.Resize((8, 8))

    def share(transform: Any, changed: Callable[[np.ndarray], bool]) -> float:
        return float(np.mean([changed(got) for got in rows(data, [whole, transform]).values()]))

    assert abs(share(T.RandomVerticalFlip(0.3), lambda got: got[0, 0, 0] == 0) - 0.3) < 0.046
    assert abs(share(T.RandomHorizontalFlip(0.7), lambda got: got[0, 0, 0] == 0) - 0.7) < 0.046
    assert abs(share(T.RandomGrayscale(0.2), lambda got: got[0, 0, 0] == got[0, 0, 2]) - 0.2) < 0.041
    assert abs(share(T.RandomApply([T.ColorJitter(brightness=(0, 0))], 0.6), lambda got: not got.any()) - 0.6) < 0.05
    assert abs(share(T.RandomErasing(0.25, value=1), lambda got: bool((got == 255).all(axis=2).any())) - 0.25) < 0.044


def test_orders_of_jitter(tmp_path: pathlib.Path) -> None:
    """Brightness and contrast do not commute: both orders come equally often."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, 8:] = 200
    data = write(tmp_path, [{"png": png(pixels)}] * 1000)
    image = Image.fromarray(pixels)
    one = np.asarray(ImageEnhance.Contrast(ImageEnhance.Brightness(image).enhance(2)).enhance(0.5))
    other = np.asarray(ImageEnhance.Brightness(ImageEnhance.Contrast(image).enhance(0.5)).enhance(2))
    assert not np.array_equal(one, other)
    got = rows(data, [T.Resize((16, 16)), T.ColorJitter(brightness=(2, 2), contrast=(0.5, 0.5))])
    first = sum(np.array_equal(pixels, one) for pixels in got.values())
    assert first + sum(np.array_equal(pixels, other) for pixels in got.values()) == 1000
    assert abs(first - 500) < 72


def test_erasing(data: str) -> None:
    plain = rows(data, [WHOLE])
    for value, byte in ((0, 0), (0.5, 128), ((1, 0, 0.2), (255, 0, 51))):
        got = rows(data, [WHOLE, T.RandomErasing(1.0, scale=(0.1, 0.3), value=value)])
        for number, pixels in got.items():
            changed = np.argwhere((pixels != plain[number]).any(axis=2))
            (top, left), (bottom, right) = changed.min(axis=0), changed.max(axis=0) + 1
            assert (pixels[top:bottom, left:right] == np.array(byte)).all()
            assert 0.06 < (bottom - top) * (right - left) / (HEIGHT * WIDTH) < 0.33
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    base = rows(data, [WHOLE, T.Normalize(mean, std)])
    before = rows(data, [WHOLE, T.RandomErasing(1.0, value=0.25), T.Normalize(mean, std)])
    after = rows(data, [WHOLE, T.Normalize(mean, std), T.RandomErasing(1.0, value=0.25)])
    random = rows(
        data,
        [WHOLE, T.Normalize(mean, std), T.RandomErasing(1.0, scale=(0.2, 0.3), value="random")],
        {"layout": "nchw"},
    )
    noise = []
    for number, pixels in base.items():
        erased = (before[number] != pixels).any(axis=2)
        np.testing.assert_allclose(
            before[number][erased],
            np.broadcast_to((0.25 - np.array(mean)) / std, (erased.sum(), 3)),
            rtol=1e-5,
            atol=1e-6,
        )
        erased = (after[number] != pixels).any(axis=2)
        assert erased.any() and (after[number][erased] == np.float32(0.25)).all()
        noise.append(random[number].transpose(1, 2, 0)[random[number].transpose(1, 2, 0) != pixels])
    numbers = np.concatenate(noise)
    assert len(numbers) > 50_000 and abs(numbers.mean()) < 0.02 and abs(numbers.std() - 1) < 0.02
    assert abs((numbers > 1.96).mean() - 0.025) < 0.004


def test_exact_is_the_whole_image(tmp_path: pathlib.Path) -> None:
    image = Image.fromarray(picture(1, 480, 640))
    out = io.BytesIO()
    image.save(out, "jpeg", quality=90)
    data = write(tmp_path, [{"jpg": out.getvalue()}])
    whole = Image.open(io.BytesIO(out.getvalue())).convert("RGB")
    expected = np.asarray(whole.resize((80, 60), Image.BILINEAR)).astype(int)

    def error(**options: Any) -> int:
        fields = {"image": millrace.Image(transforms=[T.Resize((60, 80))], **options)}
        (batch,) = millrace.Loader(data, fields=fields, batch_size=1, epochs=1, output="numpy")
        return int(np.abs(batch["image"][0].astype(int) - expected).max())

    assert error(exact=True) <= 1 < error()


def test_ranks_and_batches_change_nothing(data: str) -> None:
    chain = [
        T.RandomResizedCrop(24),
        T.RandomHorizontalFlip(),
        T.RandAugment(),
        T.GaussianBlur(5),
        T.Normalize(0.5, 0.5),
        T.RandomErasing(),
    ]
    whole = rows(data, chain, seed=9)
    parts = [rows(data, chain, seed=9, rank=rank, world=3, batch_size=7) for rank in range(3)]
    assert sum(map(len, parts)) >= len(whole)
    for part in parts:
        for number, pixels in part.items():
            np.testing.assert_array_equal(pixels, whole[number])
    other = rows(data, chain, seed=10)
    assert all(not np.array_equal(other[number], whole[number]) for number in whole)


@pytest.mark.parametrize(
    ("chain", "options", "why"),
    [
        ([T.Resize(20)], {}, "leave the size of the output open"),
        ([T.RandomHorizontalFlip()], {}, "say nothing of the size"),
        ([T.ColorJitter(0.1), T.RandomResizedCrop(8)], {}, "RandomResizedCrop: it comes after ColorJitter"),
        ([WHOLE, T.Normalize(0, 1), T.RandomGrayscale()], {}, "RandomGrayscale comes after Normalize"),
        ([WHOLE, T.Normalize(0, 1)], {"dtype": "u8"}, "Normalize makes floats"),
        ([WHOLE], {"size": 8}, "size is given by transforms"),
        ([WHOLE], {"crop": "random"}, "crop is given by transforms"),
        ([WHOLE, T.RandomErasing(value="random")], {}, "needs f32"),
        ([WHOLE, T.RandomErasing(value="mean")], {}, "'random'"),
        ([WHOLE, T.GaussianBlur(4)], {}, "odd numbers"),
        ([WHOLE, T.ColorJitter(hue=0.7)], {}, "hue must rise within"),
        ([WHOLE, T.RandomApply([WHOLE])], {}, "RandomApply takes"),
        ([WHOLE, T.Resize(8)], {}, "resize it once"),
        ([WHOLE, T.RandAugment(magnitude=31)], {}, "magnitude must be"),
        ([WHOLE, T.RandomVerticalFlip(2)], {}, "probability 2"),
    ],
)
def test_what_makes_no_sense_is_refused(data: str, chain: list[Any], options: dict[str, Any], why: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=why):
        rows(data, chain, options)


def test_other_refusals(data: str) -> None:
    with pytest.raises(TypeError, match="one of millrace.transforms"):
        rows(data, ["RandomHorizontalFlip"])
    with pytest.raises(millrace.InvalidArgumentError, match="transforms say how to crop, and so does like"):
        rows(data, [WHOLE], more={"other": millrace.Image("png", like="image", transforms=[WHOLE])})
    with pytest.raises(millrace.DamagedDataError, match="99 x 99 pixels out of 64 x 48"):
        rows(data, [T.CenterCrop(99)])


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_mixup_and_cutmix(data: str, output: str, layout: str) -> None:
    fields = {"image": millrace.Image("png", transforms=[WHOLE], dtype="f32", layout=layout), "label": millrace.Label()}

    def batches(transform: Any, seed: int = 0) -> list[Any]:
        return list(
            millrace.Loader(
                data,
                fields=fields,
                batch_size=25,
                epochs=1,
                output=output,
                seed=seed,
                last="pad",
                batch_transform=transform,
            )
        )

    plain = batches(None)
    parts = []
    for transform in (T.MixUp(10, 0.4), T.CutMix(10)):
        made = batches(transform)
        for before, after in zip(plain, made, strict=True):
            valid = np.flatnonzero(np.asarray(before["valid"]))
            other = np.roll(valid, 1)
            labels = np.asarray(after["label"])
            assert labels.shape == (25, 10) and labels.dtype == np.float32
            np.testing.assert_allclose(labels[valid].sum(axis=1), 1, rtol=1e-5)
            assert not labels[~np.asarray(before["valid"])].any()
            numbers = np.asarray(before["label"])
            differ = [row for row, partner in zip(valid, other) if numbers[row] != numbers[partner]]
            part = float(labels[differ[0], numbers[differ[0]]])
            parts.append(part)
            old, new = np.asarray(before["image"]), np.asarray(after["image"])
            if isinstance(transform, T.MixUp):
                np.testing.assert_allclose(new[valid], part * old[valid] + (1 - part) * old[other], atol=1e-5)
                continue
            kept, taken = new[valid] == old[valid], new[valid] == old[other]
            assert (kept | taken).all()
            axis = 3 if layout == "nhwc" else 1
            pasted = ~kept.all(axis=(0, axis))  # one rectangle for all
            assert abs((1 - pasted.mean()) - part) < 0.03
        if output == "torch":
            assert all(
                isinstance(batch["label"], torch.Tensor) and isinstance(batch["image"], torch.Tensor) for batch in made
            )
    assert len(set(parts)) > 4
    again = batches(T.MixUp(10, 0.4))
    np.testing.assert_array_equal(np.asarray(again[0]["image"]), np.asarray(batches(T.MixUp(10, 0.4))[0]["image"]))
    with pytest.raises(millrace.TransformError, match="not one of 3 classes"):
        batches(T.MixUp(3))


def test_beta_of_mixup() -> None:
    rng = np.random.default_rng(1)
    parts = []
    for _ in range(4000):
        batch = {
            "image": np.array([0.0, 1.0], np.float32).reshape(2, 1, 1, 1),
            "label": np.array([0, 1]),
            "valid": np.array([True, True]),
        }
        parts.append(float(T.MixUp(2, 0.5)(batch, rng)["label"][0, 0]))
    assert abs(np.mean(parts) - 0.5) < 0.027
    assert abs(np.var(parts) - 0.25 / 2) < 0.006  # of Beta(a, a): 1 / (4 (2 a + 1))
