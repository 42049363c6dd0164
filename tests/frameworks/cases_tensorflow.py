"""Tests millrace.tf: a tf.data.Dataset has what a plain Loader yields, without a copy, and Keras continues exactly
where a kill has left it."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import millrace
import millrace.tf
import numpy as np
import page
import pytest
import tensorflow as tf
from support import AT_SIZE, Samples, add_digests, keys_of
from token_corpus import write_corpus

OPTIONS: dict[str, Any] = {
    "batch_size": 4,
    "image": millrace.Image(dtype="f32", layout="nhwc"),
    "seed": 3,
    "shuffle": millrace.Shuffle(window=128, extent=2),
    "digest": "raw",
    "output": "numpy",
    **AT_SIZE,
}


BUCKETS = millrace.Tokens(layout="bucket", lengths=[16, 32], batch_sizes=[4, 4])


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Models are cycles, which hold data sets and thereby the memory of loaders."""
    yield
    keras.backend.clear_session()
    gc.collect()


class Killed(Exception):
    pass


class Model(keras.Model):
    """Notes the numbers of the samples that it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(10)
        self.trained: list[list[int]] = []

    def call(self, image: Any) -> Any:
        return self.layer(tf.reduce_mean(image, (1, 2)))

    def train_step(self, batch: Any) -> dict[str, Any]:
        tf.numpy_function(self.note, [batch["sample"], batch["valid"]], [])
        return super().train_step((batch["image"], batch["label"], tf.cast(batch["valid"], tf.float32)))

    def note(self, sample: Any, valid: Any) -> None:
        self.trained.append(sample[valid].tolist())


class KillAt(keras.callbacks.Callback):
    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def model(build: bool = True, **options: Any) -> Model:
    made = Model()
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1), **options)
    if build:
        made(np.zeros((1, 24, 32, 3), np.float32))
    return made


def plain(data: str, epochs: int, **options: Any) -> tuple[list[list[int]], str]:
    with millrace.Loader(data, **{**OPTIONS, **options}) as loader:
        samples = [batch["sample"][batch["valid"]].tolist() for _ in range(epochs) for batch in loader]
        return samples, str(loader.report()["digest"])


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_images_of_16_bits(output: str, name: str, tar: Samples) -> None:
    options = {**OPTIONS, "output": output, "last": "pad"}
    loader = millrace.Loader(tar.uri, **{**options, "image": millrace.Image(dtype=name, layout="nhwc")})
    dataset = millrace.tf.dataset(loader)
    assert dataset.element_spec["image"].dtype.name == name
    with millrace.Loader(tar.uri, epochs=1, **options) as other:
        for element, batch in zip(dataset, other, strict=True):
            assert bool(tf.reduce_all(element["image"] == tf.cast(batch["image"], name)))


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_elements_are_batches(output: str, tar: Samples) -> None:
    options = {**OPTIONS, "last": "pad"}
    loader = millrace.Loader(tar.uri, **{**options, "output": output})
    dataset = millrace.tf.dataset(loader)
    assert int(dataset.cardinality()) == 13
    shapes = loader.shapes()[0]
    for name, spec in dataset.element_spec.items():
        assert spec.shape.is_fully_defined()
        assert name == "key" or (tuple(spec.shape), spec.dtype.name) == shapes[name]
    assert set(dataset.element_spec) == {"image", "label", "valid", "sample", "key"}
    with millrace.Loader(tar.uri, **options) as other:
        for _ in range(2):  # epochs
            count = 0
            for element, batch in zip(dataset, other, strict=True):
                for name in ("image", "label", "valid", "sample"):
                    assert np.array_equal(element[name].numpy(), batch[name])
                assert [key.decode() for key in element["key"].numpy() if key] == keys_of(batch)
                assert loader.state_dict() == other.state_dict()
                count += 1
            assert count == 13
    assert loader.report()["digest"] == plain(tar.uri, 2)[1]


def test_a_short_batch(raw: Samples) -> None:
    loader = millrace.Loader(raw.uri, batch_size=8, shuffle=False, epochs=1, output="numpy", last="short", **AT_SIZE)
    dataset = millrace.tf.dataset(loader)
    assert dataset.element_spec["image"].shape.as_list() == [None, 24, 32, 3]
    assert [len(element["image"]) for element in dataset] == [8] * 5 + [5]


def test_nothing_is_copied(raw: Samples) -> None:
    addresses = []

    class Noting(millrace.Loader):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                addresses.append(batch["image"].__array_interface__["data"][0])
                yield batch

    for element in millrace.tf.dataset(Noting(raw.uri, **OPTIONS)):
        seen = np.asarray(memoryview(element["image"])).__array_interface__["data"][0]
        assert seen == addresses[-1]
    assert len(addresses) == 12


def test_memory_comes_back(raw: Samples) -> None:
    loader = millrace.Loader(
        raw.uri, batch_size=9, size=256, normalize=(0, 1), output="numpy", memory="32MiB"
    )  # 7 MiB a batch
    dataset = millrace.tf.dataset(loader)
    assert (
        sum(int(tf.reduce_sum(tf.cast(element["valid"], tf.int32))) for _ in range(8) for element in dataset) == 8 * 45
    )


def test_an_epoch_that_is_resumed_is_shorter(raw: Samples) -> None:
    samples, _ = plain(raw.uri, 3)
    loader = millrace.Loader(raw.uri, **OPTIONS)
    for _, _batch in zip(range(5), loader):
        pass
    other = millrace.Loader(raw.uri, **OPTIONS, epochs=3)
    dataset = millrace.tf.dataset(other)
    other.load_state_dict(loader.state_dict())
    epochs = [[element["sample"].numpy()[element["valid"].numpy()].tolist() for element in dataset] for _ in range(5)]
    assert [len(epoch) for epoch in epochs] == [7, 12, 12, 0, 0]
    assert sum(epochs, []) == samples[5:]
    other.reset()
    assert len(list(dataset)) == 12


def test_iterations_that_restart(raw: Samples) -> None:
    loader = millrace.Loader(raw.uri, batch_size=10, shuffle=False, epochs=1, output="numpy", **AT_SIZE)
    dataset = millrace.tf.dataset(loader, restart=True)
    for taken in (1, 5, 3, 5):
        assert [int(element["sample"][0]) for element in dataset.take(taken)] == [0, 10, 20, 30, 40][:taken]


def test_texts_and_signatures(tar: Samples) -> None:
    fields = {
        "text": millrace.Text("txt"),
        "meta": millrace.Json("json"),
        "n": millrace.Label("json", path="meta.label"),
    }
    dataset = millrace.tf.dataset(millrace.Loader(tar.uri, batch_size=4, fields=fields, shuffle=False, output="numpy"))
    assert "meta" not in dataset.element_spec
    first = next(iter(dataset))
    assert first["text"].numpy()[3].decode() == "Nummer 3 – größer" and first["n"].numpy().tolist() == [
        0,
        1000,
        2000,
        3000,
    ]

    def halve(sample: dict[str, Any]) -> dict[str, Any]:
        return {"image": sample["image"][::2], "label": sample["label"]}

    ahead = millrace.Loader(
        tar.uri, batch_size=5, epochs=1, device=millrace.Transfer("cpu", ahead=3), output="numpy", **AT_SIZE
    )
    assert sum(int(element["valid"].numpy().sum()) for element in millrace.tf.dataset(ahead)) == 50
    transformed = millrace.Loader(tar.uri, batch_size=5, transform=halve, output="numpy", **AT_SIZE)
    with pytest.raises(millrace.UnsupportedError, match="signature="):
        millrace.tf.dataset(transformed)
    signature = {"image": tf.TensorSpec((5, 12, 32, 3), tf.uint8), "label": tf.TensorSpec((5,), tf.int64)}
    assert sum(len(element["image"]) for element in millrace.tf.dataset(transformed, signature=signature)) == 50
    with pytest.raises(tf.errors.InvalidArgumentError, match="names 'mine', and the Loader's batch has image"):
        list(millrace.tf.dataset(transformed, signature={"mine": tf.TensorSpec((5,), tf.int64)}))


def test_tokens(tmp_path: pathlib.Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [5, 30, 17, 9, 28, 12] * 5)
    for tokens, shape in ((millrace.Tokens(32, "pack"), (4, 32)), (BUCKETS, (4, None))):
        loader = millrace.Loader(corpus.uri, tokens=tokens, batch_size=4, output="numpy")
        dataset = millrace.tf.dataset(loader)
        assert tuple(dataset.element_spec["tokens"].shape) == shape
        with millrace.Loader(corpus.uri, tokens=tokens, batch_size=4, output="numpy") as other:
            assert all(
                np.array_equal(element["tokens"].numpy(), batch["tokens"])
                for element, batch in zip(dataset, other, strict=True)
            )


def test_what_cannot_be_read_is_an_error_and_no_end(tmp_path: pathlib.Path, raw: Samples) -> None:
    for key in sorted(raw.pixels)[:8]:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / f"{key}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    loader = millrace.Loader(tmp_path, batch_size=4, output="numpy", shuffle=False)
    with pytest.raises(tf.errors.OpError, match="DamagedDataError"):
        list(millrace.tf.dataset(loader))


@pytest.mark.parametrize("killed_at", [1, 5, 12, 14, 35])  # 12 batches an epoch
@pytest.mark.parametrize("way", ["plain", "prefetch", "steps_per_execution"])
def test_keras_goes_on_with_the_next_sample(way: str, killed_at: int, raw: Samples, tmp_path: pathlib.Path) -> None:
    def fit(kill: int) -> tuple[list[list[int]], millrace.Loader]:
        steps = 2 if way == "steps_per_execution" else 1
        made = model(steps_per_execution=steps)
        loader = millrace.Loader(raw.uri, **OPTIONS)
        dataset = millrace.tf.dataset(loader)
        positions = millrace.tf.PositionCallback(loader, tmp_path / "positions.json", save_freq=1)
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=1)
        callbacks = [positions, backup] + ([KillAt(kill)] if kill else [])
        made.fit(dataset.prefetch(3) if way == "prefetch" else dataset, epochs=3, callbacks=callbacks, verbose=0)
        assert positions.state_dict() == loader.state_dict()
        return made.trained, loader

    trained: list[list[int]] = []
    original, Model.note = Model.note, lambda self, sample, valid: trained.append(sample[valid].tolist())  # type: ignore[method-assign]
    try:
        with pytest.raises(Killed):
            fit(max(1, killed_at // 2) if way == "steps_per_execution" else killed_at)
        before = len(trained)
        state = json.loads((tmp_path / "positions.json").read_text())[-1]["state"]
        _, loader = fit(0)
    finally:
        Model.note = original  # type: ignore[method-assign]
    samples, digest = plain(raw.uri, 3)
    assert before < 36 and trained == samples
    assert add_digests(state["digest"], loader.report()["digest"]) == digest


def test_a_batch_that_keras_looks_at_is_not_lost(raw: Samples, tmp_path: pathlib.Path) -> None:
    with tf.distribute.MirroredStrategy(
        ["CPU:0"]
    ).scope():  # with which Keras takes a batch to build the model, and prefetches
        made = model(build=False)
    loader = millrace.Loader(raw.uri, **OPTIONS)
    positions = millrace.tf.PositionCallback(loader, tmp_path / "positions.json")
    dataset = millrace.tf.dataset(loader).map(lambda batch: (batch["image"], batch["label"], batch["sample"]))
    trained: list[list[int]] = []

    def train_step(data: Any) -> Any:
        image, label, sample = data
        tf.numpy_function(lambda sample: trained.append(sample.tolist()), [sample], [])
        return keras.Model.train_step(made, (image, label))

    made.train_step = train_step
    made.fit(dataset, epochs=2, callbacks=[positions], verbose=0)
    with millrace.Loader(raw.uri, **OPTIONS) as other:
        assert trained == [batch["sample"].tolist() for _ in range(2) for batch in other]
        assert positions.state_dict()["position"] == other.state_dict()["position"]


def test_a_saved_model_finds_its_position(raw: Samples, tmp_path: pathlib.Path) -> None:
    made, loader = model(), millrace.Loader(raw.uri, **OPTIONS)
    file = tmp_path / "positions.json"
    save = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "model-{batch}.weights.h5"), save_freq=5, save_weights_only=True
    )
    with pytest.raises(Killed):
        made.fit(
            millrace.tf.dataset(loader),
            epochs=2,
            callbacks=[millrace.tf.PositionCallback(loader, file, 5), save, KillAt(11)],
            verbose=0,
        )
    trained = made.trained
    made, loader = model(), millrace.Loader(raw.uri, **OPTIONS)
    made.optimizer.build(made.trainable_variables)
    made.load_weights(tmp_path / "model-5.weights.h5")
    positions = millrace.tf.PositionCallback(loader, file, 5)
    assert positions.restore(made) == 0
    made.fit(millrace.tf.dataset(loader), epochs=1, callbacks=[positions], verbose=0)
    samples, _ = plain(raw.uri, 1)
    assert trained == samples[:11] and made.trained == samples[5:]
    assert [entry["steps"] for entry in json.loads(file.read_text())] == [5, 10]

    made.optimizer.iterations.assign(7)
    with pytest.raises(
        millrace.MismatchError, match="no position for this model, which was trained for 7 steps.*5, 10"
    ):
        millrace.tf.PositionCallback(loader, file).restore(made)
    made.optimizer.iterations.assign(0)
    assert millrace.tf.PositionCallback(loader, file).restore(made) == loader.epoch, "a new model begins"


def test_steps_per_epoch(raw: Samples, tmp_path: pathlib.Path) -> None:
    made, loader = model(), millrace.Loader(raw.uri, **OPTIONS)
    positions = millrace.tf.PositionCallback(loader, tmp_path / "positions.json")
    made.fit(millrace.tf.dataset(loader).prefetch(2), epochs=3, steps_per_epoch=4, callbacks=[positions], verbose=0)
    assert made.trained == plain(raw.uri, 1)[0]
    with millrace.Loader(raw.uri, **OPTIONS) as other:
        for _ in other:
            pass
        assert positions.state_dict() == other.state_dict()


def test_validation_begins_at_the_first_sample(raw: Samples, tmp_path: pathlib.Path) -> None:
    loader, valid = (
        millrace.Loader(raw.uri, **OPTIONS),
        millrace.Loader(raw.uri, **{**OPTIONS, "batch_size": 10, "shuffle": False}),
    )
    seen: list[int] = []

    def test_step(batch: Any) -> Any:
        tf.numpy_function(lambda sample: seen.append(int(sample[0])), [batch["sample"]], [])
        return keras.Model.test_step(made, (batch["image"], batch["label"]))

    made = model()
    made.test_step = test_step
    positions = millrace.tf.PositionCallback(loader, tmp_path / "positions.json")
    validation = millrace.tf.dataset(valid, restart=True)
    made.fit(
        millrace.tf.dataset(loader),
        epochs=2,
        validation_data=validation,
        validation_steps=3,
        callbacks=[positions],
        verbose=0,
    )
    assert seen == 2 * [0, 10, 20] and made.trained == plain(raw.uri, 2)[0]
    made.evaluate(validation, verbose=0)
    assert seen[6:] == [0, 10, 20, 30, 40]


def test_arguments(raw: Samples) -> None:
    with pytest.raises(TypeError, match="loader"):
        millrace.tf.dataset(raw.uri)
    with pytest.raises(TypeError, match="signature"):
        millrace.tf.dataset(millrace.Loader(raw.uri), signature=3)
    with pytest.raises(TypeError, match="millrace.tf.dataset"):
        millrace.tf.PositionCallback(None, "file")


def test_loaders_end_with_their_data_sets(raw: Samples) -> None:
    seen = 0
    for _ in range(40):  # of 512 MiB each
        pairs = millrace.tf.dataset(millrace.Loader(raw.uri, **OPTIONS)).map(lambda batch: batch["sample"]).prefetch(2)
        seen += len(next(iter(pairs)))
        gc.collect()
    assert seen == 160


def test_the_page(tmp_path: pathlib.Path) -> None:
    page.make_bucket(tmp_path)
    layers = [keras.Input((32, 32, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)]
    classifier = keras.Sequential(layers)
    classifier.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1))
    (piece,) = page.pieces("tensorflow")
    names = page.run(piece, tmp_path, model=classifier)
    assert int(classifier.optimizer.iterations) == 4 and names["loader"].epoch == 2, "two epochs of two batches"


TO_BE_KILLED = """
import sys
sys.path.insert(0, sys.argv[3])
from cases_tensorflow import *

folder, data = pathlib.Path(sys.argv[1]), sys.argv[2]
log = open(folder / "log", "a", buffering=1)

class Logging(Model):
    def note(self, sample, valid):
        # TensorFlow runs a step after the one before has changed the optimizer.
        log.write(json.dumps([int(self.optimizer.iterations.numpy()), sample[valid].tolist()]) + "\\n")

made = Logging()
made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1), run_eagerly=True)
made(np.zeros((1, 24, 32, 3), np.float32))
loader = millrace.Loader(data, **OPTIONS)
positions = millrace.tf.PositionCallback(loader, folder / "positions.json", save_freq=1)
backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=1, double_checkpoint=True)
made.fit(millrace.tf.dataset(loader).prefetch(2), epochs=3, callbacks=[positions, backup], verbose=0)
"""


def test_kills_at_any_moment(raw: Samples, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", TO_BE_KILLED, str(tmp_path), raw.uri, str(pathlib.Path(__file__).parent)]
    log, errors = tmp_path / "log", tmp_path / "errors"
    random = np.random.default_rng(5)
    for lines in (4, 15, 24, 33):
        with open(errors, "wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            while not log.exists() or log.read_text().count("\n") < lines:
                assert process.poll() is None, errors.read_text()
                time.sleep(0.001)
            time.sleep(random.uniform(0, 0.05))  # somewhere in a step, or between the two files that are written
        finally:
            process.kill()
            process.wait()
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    steps: dict[int, list[int]] = {}
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for step, samples in entries:  # what was done after the last save is done again
        steps[step] = samples
    assert [steps[step] for step in range(36)] == plain(raw.uri, 3)[0] and len(steps) == 36 and len(entries) < 60
