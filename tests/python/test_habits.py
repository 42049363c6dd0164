"""Tests what people do with a data set or loader because other libraries let them: look at samples, print reports,
write what torch calls things."""

from __future__ import annotations

import base64
import copy
import inspect
import io
import pathlib
import pickle
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree
from typing import Any

import millrace
import numpy as np
import PIL.Image
import pytest
from millrace import _dataloader_names
from support import HEIGHT, WIDTH, Samples, png
from token_corpus import write_corpus


def test_samples_by_number_and_slice(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri)
    keys = sorted(tar.pixels)
    assert dataset[7]["key"] == keys[7] and dataset[np.int64(-1)]["png"] == png(tar.pixels[keys[-1]])
    assert [sample["key"] for sample in dataset.head(3)] == keys[:3] and len(dataset.head(1000)) == len(tar)
    assert [sample["key"] for sample in dataset] == keys
    for part in (slice(5, 20), slice(-4, None), slice(None, None, 7), slice(40, 10)):
        assert [sample["key"] for sample in dataset[part]] == keys[part]
    part = dataset[10:30]
    assert part[0]["key"] == keys[10] and [sample["key"] for sample in part[2:4]] == keys[12:14]
    with pytest.raises(IndexError, match="there is no sample 50"):
        dataset[50]
    with pytest.raises(millrace.InvalidArgumentError, match="take the slice forwards"):
        dataset[::-1]
    with pytest.raises(TypeError, match="index must be a number or a slice, not 'a'"):
        dataset["a"]  # type: ignore[call-overload]


def test_a_report_prints_as_a_table(tar: Samples) -> None:
    loader = millrace.Loader(tar.uri, batch_size=8, size=(HEIGHT, WIDTH), epochs=1, digest="raw")
    for _ in loader:
        pass
    report = loader.report()
    rows = dict(line.split("  ", 1) for line in str(report).splitlines() if not line.startswith(" "))
    assert rows["samples"].strip().startswith("50 in ") and rows["position"].strip() == report["position"]
    assert rows["digest"].strip() == report["digest"] and "limited by" in rows
    assert isinstance(report, dict) and report["samples"] == 50


def test_epochs_are_chosen(tar: Samples) -> None:
    def keys(loader: millrace.Loader) -> list[str]:
        return [key for batch in loader for key in batch["key"] if key]

    loader = millrace.Loader(tar.uri, batch_size=8, size=(HEIGHT, WIDTH), seed=5)
    assert loader.batch_size == 8
    epochs = [keys(loader) for _ in range(3)]
    assert epochs[0] != epochs[1]
    loader.set_epoch(1)
    assert loader.epoch == 1 and keys(loader) == epochs[1]
    next(iter(loader))
    loader.set_epoch(2)
    assert keys(loader) == epochs[2]
    loader.reset()
    assert keys(loader) == epochs[0]
    # Callers set the epoch before each loop, as for samplers of torch, which changes nothing.
    loader.set_epoch(1)
    assert loader.report()["samples"] == 50
    with pytest.raises(millrace.InvalidArgumentError, match="epoch is -1"):
        loader.set_epoch(-1)


def test_words_of_torch_and_numpy(tar: Samples) -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", torch.float32, np.float32, np.dtype("float32")):
        loader = millrace.Loader(
            tar.uri, size=32, image=millrace.Image(dtype=dtype, layout="NCHW"), shuffle=True, output="numpy", epochs=1
        )
        batch = next(iter(loader))
        assert batch["image"].dtype == np.float32 and batch["image"].shape[1:] == (3, 32, 32)
    with pytest.raises(TypeError, match="dtype must be one of 'u8', 'f32', 'f16', 'bf16'"):
        millrace.Loader(tar.uri, image=millrace.Image(dtype=torch.float64))


def rows(loader: millrace.Loader) -> list[int]:
    return [len(batch["label"]) for batch in loader]


@pytest.mark.parametrize("given, last", [(True, "drop"), (False, "short"), (None, "short")])
def test_drop_last(tar: Samples, given: bool | None, last: Any) -> None:
    def make(**options: Any) -> millrace.Loader:
        return millrace.Loader(tar.uri, batch_size=8, size=8, shuffle=False, epochs=1, output="numpy", **options)

    assert rows(make(drop_last=given)) == rows(make(last=last))
    assert len(make(drop_last=given)) == (6 if given else 7)
    assert make(drop_last=given).drop_last is make(last=last).drop_last is (given is True)
    with pytest.raises(millrace.InvalidArgumentError, match="drop_last=.* and last=.*leave one out"):
        make(drop_last=given is not False, last="wrap" if given is not False else "drop")


def test_drop_last_of_rows_of_tokens(tmp_path: pathlib.Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [5, 30, 17])
    options: dict[str, Any] = {
        "tokens": millrace.Tokens(16),
        "batch_size": 2,
        "shuffle": False,
        "epochs": 1,
        "output": "numpy",
    }
    assert {len(batch["tokens"]) for batch in millrace.Loader(corpus.uri, drop_last=False, **options)} == {2}


def test_collate_fn(tar: Samples) -> None:
    def keys(samples: list[Any]) -> list[str]:
        return [sample["key"] for sample in samples]

    loader = millrace.Loader(tar.uri, batch_size=8, size=8, shuffle=False, epochs=1, collate_fn=keys)
    assert [key for batch in loader for key in batch] == sorted(tar.pixels)
    with pytest.raises(TypeError, match="takes no collate; write collate_fn="):
        millrace.Loader(tar.uri, collate=keys)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name, value, remedy",
    [
        ("num_workers", 4, "no worker processes"),
        ("persistent_workers", True, "no worker processes"),
        ("prefetch_factor", 2, "memory="),
        ("pin_memory", True, "device='cuda'"),
        ("pin_memory_device", "cuda", "device="),
        ("in_order", False, "in order"),
    ],
)
def test_arguments_without_effect_are_noted_once(
    tar: Samples, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, remedy: str
) -> None:
    monkeypatch.setattr(_dataloader_names, "_told", set())
    options: dict[str, Any] = {"batch_size": 8, "size": 8, "shuffle": False, "epochs": 1}
    with pytest.warns(UserWarning, match=f"{name} has no effect.*{remedy}") as noted:
        loader = millrace.Loader(tar.uri, **options, **{name: value})
    assert noted[0].filename == __file__, "the warning is at the program's line"
    assert rows(loader) == rows(millrace.Loader(tar.uri, **options))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        millrace.Loader(tar.uri, **options, **{name: value})


@pytest.mark.parametrize(
    "name, remedy",
    [
        ("sampler", "shuffle=.*where.*weighted"),
        ("batch_sampler", "weighted"),
        ("generator", "seed="),
        ("timeout", "outage_limit"),
        ("worker_init_fn", "rng"),
    ],
)
def test_arguments_that_are_refused_name_the_remedy(tar: Samples, name: str, remedy: str) -> None:
    wrong: list[Any] = [object(), [3, 1]] if name != "timeout" else [30, 0.5]
    for value in wrong:
        with pytest.raises(millrace.InvalidArgumentError, match=f"takes no {name}: .*{remedy}"):
            millrace.Loader(tar.uri, size=8, **{name: value})


def test_samplers_name_their_own_remedy(tar: Samples) -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    numbers = range(50)
    for sampler, remedy in (
        (data.SubsetRandomSampler([1, 2]), r"where\(samples=dataset.samples\[indices\]\), shuffle=True"),
        (data.WeightedRandomSampler([1.0] * 50, 20), r"weighted\(weights, epoch_samples=num_samples"),
        (data.SequentialSampler(numbers), "shuffle=False"),
        (data.RandomSampler(numbers), "shuffle=True"),
        (data.distributed.DistributedSampler(numbers, 2, 0), r"leave it out.*set_epoch\(\)"),
    ):
        with pytest.raises(millrace.InvalidArgumentError, match=f"takes no sampler: .*{remedy}"):
            millrace.Loader(tar.uri, size=8, sampler=sampler)
    batches = data.BatchSampler(data.SequentialSampler(numbers), 8, False)
    with pytest.raises(millrace.InvalidArgumentError, match="takes no batch_sampler: write batch_size="):
        millrace.Loader(tar.uri, size=8, batch_sampler=batches)


def test_the_remedies_for_samplers_do_it(tar: Samples) -> None:
    def numbers(data: Any, **options: Any) -> list[int]:
        loader = millrace.Loader(data, batch_size=8, size=8, output="numpy", **options)
        return sorted(int(number) for batch in loader for number in batch["sample"])

    whole = millrace.Dataset(tar.uri)
    dataset = whole[10:30]
    assert numbers(dataset.where(samples=dataset.samples[[3, 1, 4]]), shuffle=True) == [11, 13, 14]
    weights = [0.0] * 49 + [1.0]
    assert numbers(whole.weighted(weights, epoch_samples=20, draws="independent")) == [49] * 20


@pytest.mark.parametrize(
    "make, remedy",
    [
        (lambda torch, uri: torch.utils.data.TensorDataset(torch.zeros(9, 3)), "the folder, the bucket or the shards"),
        (lambda torch, uri: [(torch.zeros(3), 1)] * 9, "stay with torch's DataLoader"),
        (
            lambda torch, uri: torch.utils.data.random_split(millrace.Dataset(uri), [0.8, 0.2])[0],
            r"dataset.split\(train=0.8",
        ),
        (
            lambda torch, uri: torch.utils.data.Subset(millrace.Dataset(uri), [1, 2]),
            r"where\(samples=dataset.samples\[",
        ),
        (lambda torch, uri: torch.utils.data.ConcatDataset([millrace.Dataset(uri)] * 2), "a list of their URIs"),
        (lambda torch, uri: [millrace.Dataset(uri), millrace.Dataset(uri)], r"a list of their URIs, or millrace.Mix\("),
        (lambda torch, uri: millrace.torch.MapDataset(uri), "the URI or the Dataset that this one was made with"),
        (lambda torch, uri: millrace.Loader(uri), "the URI or the Dataset that this one was made with"),
    ],
)
def test_data_sets_of_torch_name_the_remedy(tar: Samples, make: Any, remedy: str) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=f"data must be a Dataset, a Mix or a URI, not .*{remedy}"):
        millrace.Loader(make(torch, tar.uri), batch_size=8)


def test_the_root_of_a_data_set_is_named(tar: Samples) -> None:
    class ImageFolder:
        root = "/data/train"

        def __getitem__(self, number: int) -> Any:
            raise IndexError(number)

    with pytest.raises(TypeError, match="such as '/data/train'"):
        millrace.Loader(ImageFolder())  # type: ignore[arg-type]


def test_data_sets_are_not_added(tar: Samples) -> None:
    dataset = millrace.Dataset(tar.uri)
    with pytest.raises(millrace.UnsupportedError, match=r"millrace.Dataset\(\[one.uri, other.uri\]\)"):
        dataset + dataset
    for name in ("transform", "target_transform", "root"):
        with pytest.raises(TypeError, match=f"millrace.Dataset takes no {name}; write "):
            millrace.Dataset(tar.uri, **{name: None})  # type: ignore[call-overload]


def test_batch_size_and_shuffle_by_place(tar: Samples) -> None:
    loader = millrace.Loader(tar.uri, 8, False, size=8, epochs=1)
    assert (loader.batch_size, len(loader)) == (8, 7) and "none" in repr(loader)
    first = loader.peek()
    assert first is not None and list(first["sample"]) == list(range(8)), "peek has the same options"
    with pytest.raises(TypeError, match="takes no dataset; write the data set as the first argument"):
        millrace.Loader(dataset=tar.uri)  # type: ignore[call-arg]
    with pytest.raises(millrace.InvalidArgumentError, match="batch_size is None.*batch_size=1"):
        millrace.Loader(tar.uri, batch_size=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not 1; True is 'window', and False is 'none'"):
        millrace.Loader(tar.uri, shuffle=1)
    assert "window" in repr(millrace.Loader(tar.uri, shuffle=np.bool_(True), size=8))  # type: ignore[arg-type]


def test_attributes_of_a_dataloader(tar: Samples) -> None:
    """A Loader has what it was given, as torch's DataLoader; what it has not names the remedy."""

    def collate(samples: list[Any]) -> list[Any]:
        return samples

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader: Any = millrace.Loader(tar.uri, batch_size=8, size=8, num_workers=4, collate_fn=collate)
    assert (loader.num_workers, loader.pin_memory, loader.timeout, loader.in_order) == (4, False, 0, True)
    assert loader.collate_fn is collate and loader.generator is loader.worker_init_fn is None
    with pytest.raises(AttributeError, match=r"has no sampler: set_epoch\(\).*skip_first_batches"):
        loader.sampler.set_epoch(3)
    with pytest.raises(AttributeError, match="has no batch_sampler: batch_size"):
        _ = loader.batch_sampler.batch_size
    assert getattr(loader, "sampler", None) is None and not hasattr(loader, "batch_sampler")
    with pytest.raises(AttributeError, match="'Loader' object has no attribute 'nothing'"):
        _ = loader.nothing


def test_copies_are_refused(tar: Samples) -> None:
    loader = millrace.Loader(tar.uri, batch_size=8, size=8)
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(millrace.UnsupportedError, match="a Loader cannot be copied or sent to another process"):
            use(loader)
    dataset = millrace.Dataset(tar.uri)
    assert copy.deepcopy(dataset).keys() == copy.copy(dataset).keys() == dataset.keys()


@pytest.mark.parametrize("function", [lambda image: image * 2, lambda image: image.float()])
def test_a_function_of_an_image_is_no_transform(tar: Samples, function: Any) -> None:
    loader = millrace.Loader(tar.uri, batch_size=8, size=8, transform=function)
    with pytest.raises(millrace.TransformError, match=r"gets a sample as a dict: write lambda sample: .*\['image'\]"):
        next(iter(loader))


def test_arguments_as_dataloader_has_them_by_default_pass(tar: Samples) -> None:
    pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    usual = {
        name: parameter.default
        for name, parameter in inspect.signature(DataLoader.__init__).parameters.items()
        if name not in ("self", "dataset", "batch_size", "shuffle") and parameter.default is not inspect.Parameter.empty
    }
    assert {"num_workers", "sampler", "in_order", "timeout"} <= usual.keys()
    taken = {
        name: value for name, value in usual.items() if name in inspect.signature(millrace.Loader.__init__).parameters
    }
    assert usual.keys() - taken.keys() == set(), "every argument of DataLoader is known"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        millrace.Loader(tar.uri, batch_size=8, size=8, **taken)


def test_parts_of_the_package_come_by_themselves() -> None:
    program = (
        "import sys, millrace\n"
        "assert 'millrace.checkpoint_import' not in sys.modules\n"
        "assert callable(millrace.checkpoint_import.import_checkpoint)\n"
        "assert not hasattr(millrace, 'nothing')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "imports",
    [
        "import fsspec, millrace",
        "import millrace, fsspec",
        "import millrace\nfrom fsspec.core import url_to_fs\nimport fsspec",
        "import millrace, importlib\nimportlib.reload(millrace)\nimport fsspec",
    ],
)
def test_fsspec_knows_the_protocol_once_the_package_is_imported(imports: str) -> None:
    pytest.importorskip("fsspec")
    program = (
        f"{imports}\nimport sys\nassert fsspec.get_filesystem_class('millrace').__module__ == 'millrace.filesystem'\n"
        "assert not any(type(finder).__module__ == 'millrace._file_protocol' for finder in sys.meta_path)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_fsspec_is_not_imported_with_the_package() -> None:
    program = "import sys, millrace\nassert 'fsspec' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_fsspec_that_is_missing_stays_missing() -> None:
    program = (
        "import sys, millrace\nsys.path[:] = []\n"
        "try:\n    import fsspec\nexcept ModuleNotFoundError as error:\n    assert error.name == 'fsspec'\nelse:\n    raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def check_html(page: str) -> list[np.ndarray]:
    """The page is well-formed and refers to nothing outside itself; gives its pictures."""
    root = xml.etree.ElementTree.fromstring(re.sub(r"<(img [^>]*|br)>", r"<\1/>", page))
    assert "<script" not in page and not re.search(r"(src|href)=\"(?!data:image/png;base64,)", page)
    sources = [image.attrib["src"].partition(",")[2] for image in root.iter("img")]
    return [np.array(PIL.Image.open(io.BytesIO(base64.b64decode(source)))) for source in sources]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transform": lambda sample: sample},
        {"image": millrace.Image(dtype="f32", layout="nchw"), "output": "torch"},
    ],
)
def test_peek_moves_nothing(tar: Samples, options: dict[str, Any]) -> None:
    def make() -> millrace.Loader:
        return millrace.Loader(
            tar.uri, batch_size=8, size=(HEIGHT, WIDTH), epochs=2, digest="raw", seed=7, augment=True, **options
        )

    expected = [batch["key"] for loader in [make()] for _ in range(2) for batch in loader]
    loader, seen = make(), []
    for _ in range(2):
        for batch in loader:
            seen.append(batch["key"])
            report, position = loader.report(), loader.state_dict()
            following = loader.peek()
            if len(seen) < len(expected):
                assert following is not None and following["key"] == expected[len(seen)]
            else:
                assert following is None
            assert loader.state_dict() == position and loader.report()["samples"] == report["samples"]
    assert seen == expected
    loader.reset()
    first = loader.peek()
    assert first is not None and np.array_equal(first["image"], next(iter(loader))["image"]), "crops and all"


def test_notebooks_show_contact_sheets(raw: Samples, tar: Samples, tmp_path: pathlib.Path) -> None:
    loader = millrace.Loader(tar.uri, batch_size=5, size=(HEIGHT, WIDTH), shuffle="none", epochs=1, output="numpy")
    pictures = check_html(loader._repr_html_())
    assert len(pictures) == 5 and all(np.array_equal(pictures[n], tar.pixels[f"{n:04}"]) for n in range(5))
    batches = list(loader)
    assert np.array_equal(check_html(millrace.ContactSheet(batches[1])._repr_html_())[0], tar.pixels["0005"])
    assert check_html(loader._repr_html_()) == []  # there is no next batch
    assert len(check_html(millrace.Dataset(raw.uri)._repr_html_())) == 12
    page = millrace.Dataset(tar.uri)[:3]._repr_html_()
    assert len(check_html(page)) == 3 and "3 of 50 samples, fields cls, json, png, txt" in page and len(page) < 300_000
    # A page shows whatever a batch holds: names and texts are text, and what is no image is recognized by its shape.
    strange = {
        "key": ["<b>&\"'"],
        "caption": ["<script>alert(1)</script>" * 9],
        "label": np.array([3]),
        "emb": np.zeros((1, 4)),
        "meta": [{"<i>": 1}],
        "image": np.full((1, 3, 900, 300), np.nan, np.float32),
        "mask": np.ones((1, 9, 7), np.uint8),
        "valid": np.ones(1, np.bool_),
    }
    assert [picture.shape for picture in check_html(millrace.ContactSheet(strange, "<title>").html)] == [
        (75, 25, 3),
        (9, 7),
    ]
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("<text>")
    assert check_html(millrace.Dataset(tmp_path)._repr_html_()) == []
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "1.png").write_bytes(png(raw.pixels["cat/0000"])[:-100])
    assert check_html(millrace.Dataset(tmp_path / "damaged")._repr_html_()) == []


def test_tqdm_knows_the_length(tar: Samples) -> None:
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(millrace.Loader(tar.uri, batch_size=8, size=8, epochs=1), file=io.StringIO())
    assert bar.total == 7 and sum(1 for _ in bar) == 7


def test_data_may_be_given_by_name(tar: Samples) -> None:
    loader = millrace.Loader(data=tar.uri, batch_size=8, size=8, output="numpy")
    assert loader.peek()["key"] == next(iter(millrace.Loader(tar.uri, batch_size=8, size=8, output="numpy")))["key"]  # type: ignore[index]
    assert "<svg" in loader._repr_html_() or "<img" in loader._repr_html_()
