"""Tests millrace.huggingface: transformers' Trainer and datasets' IterableDataset get the samples of a plain Loader,
and continue exactly where they were."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("HF_HOME", "/nonexistent")

import datasets
import datasets.distributed
import millrace
import millrace.huggingface
import numpy as np
import page
import pytest
import torch
import transformers
from support import AT_SIZE, Samples, add_digests

OPTIONS: dict[str, Any] = {
    "batch_size": 4,
    "image": millrace.Image(dtype="f32", layout="nhwc"),
    "seed": 3,
    "shuffle": millrace.Shuffle(window=128, extent=2),
    "digest": "raw",
    **AT_SIZE,
}


class Killed(Exception):
    pass


class Model(torch.nn.Module):
    """Notes the keys that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 10)
        self.trained: list[list[str]] = []
        self.evaluated: list[list[str]] = []
        self.columns: set[str] = set()
        self.labels: list[int] = []

    def forward(self, image: Any, label: Any = None, key: Any = None) -> dict[str, torch.Tensor]:
        (self.trained if self.training else self.evaluated).append([name for name in key if name])
        self.labels += label.tolist()
        logits = self.layer(image.mean((1, 2)))
        return {"loss": torch.nn.functional.cross_entropy(logits, label), "logits": logits}


class Kill(transformers.TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        if state.global_step + 1 >= self.step:
            raise Killed


def arguments(folder: pathlib.Path, **options: Any) -> transformers.TrainingArguments:
    usual: dict[str, Any] = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "num_train_epochs": 3,
        "per_device_train_batch_size": 4,
    }
    usual.update(save_strategy="steps", save_steps=1, logging_steps=1000, label_names=["label"])
    return transformers.TrainingArguments(output_dir=str(folder), **{**usual, **options})


def trainer(
    model: Model, loader: Any, options: transformers.TrainingArguments, **more: Any
) -> millrace.huggingface.Trainer:
    return millrace.huggingface.Trainer(model=model, args=options, train_dataset=loader, **more)


def plain(data: str, epochs: int = 3, **options: Any) -> tuple[list[list[str]], str]:
    with millrace.Loader(data, **{**OPTIONS, **options}) as loader:
        batches = [[key for key in batch["key"] if key] for _ in range(epochs) for batch in loader]
        return batches, str(loader.report()["digest"])


@pytest.mark.parametrize("last", ["short", "pad"])
def test_a_trainer_gets_what_a_plain_loader_yields(raw: Samples, tmp_path: pathlib.Path, last: str) -> None:
    model, loader = Model(), millrace.Loader(raw.uri, **OPTIONS, last=last)  # type: ignore[arg-type]
    run = trainer(model, loader, arguments(tmp_path, save_strategy="no"))
    done = run.train()
    batches, digest = plain(raw.uri)
    assert model.trained == batches and done.global_step == len(batches)
    assert loader.report()["digest"] == digest
    assert set(model.labels) - {0, 1, 2} == ({-100} if last == "pad" else set()), "padding has Hugging Face's label"


@pytest.mark.parametrize("accumulate", [1, 5])  # 12 batches an epoch: 12 updates, or 2 of five and one of two
@pytest.mark.parametrize("kill_at", [2, 3, 6, 7])
def test_a_trainer_goes_on_with_the_next_sample(
    kill_at: int, accumulate: int, raw: Samples, tmp_path: pathlib.Path
) -> None:
    model = Model()
    options = arguments(tmp_path, gradient_accumulation_steps=accumulate)
    with pytest.raises(Killed):
        trainer(model, millrace.Loader(raw.uri, **OPTIONS), options, callbacks=[Kill(kill_at)]).train()
    newest = tmp_path / f"checkpoint-{kill_at - 1}"
    saved = json.loads((newest / "trainer_state.json").read_text())["stateful_callbacks"]["PositionCallback"][
        "attributes"
    ]["position"]
    resumed, loader = Model(), millrace.Loader(raw.uri, **OPTIONS)
    run = trainer(resumed, loader, options)
    done = run.train(resume_from_checkpoint=True)
    batches, digest = plain(raw.uri)
    before = sum(model.trained, [])
    assert len(before) == saved["samples"]
    assert before + sum(resumed.trained, []) == sum(batches, [])
    assert add_digests(saved["digest"], loader.report()["digest"]) == digest
    assert done.global_step == 3 * -(-12 // accumulate) and run.state.epoch == 3


def test_callbacks_that_the_trainer_restores(raw: Samples, tmp_path: pathlib.Path) -> None:
    options = arguments(tmp_path, restore_callback_states_from_checkpoint=True, num_train_epochs=1)
    model = Model()
    with pytest.raises(Killed):
        trainer(model, millrace.Loader(raw.uri, **OPTIONS), options, callbacks=[Kill(4)]).train()
    resumed = Model()
    trainer(resumed, millrace.Loader(raw.uri, **OPTIONS), options).train(resume_from_checkpoint=True)
    assert model.trained + resumed.trained == plain(raw.uri, 1)[0]


def test_data_are_not_skipped_if_the_program_says_so(raw: Samples, tmp_path: pathlib.Path) -> None:
    with pytest.raises(Killed):
        trainer(Model(), millrace.Loader(raw.uri, **OPTIONS), arguments(tmp_path), callbacks=[Kill(4)]).train()
    resumed = Model()
    trainer(resumed, millrace.Loader(raw.uri, **OPTIONS), arguments(tmp_path, ignore_data_skip=True)).train(
        resume_from_checkpoint=True
    )
    assert resumed.trained == plain(raw.uri)[0][3:]


def test_checkpoints_of_a_trainer_without_positions(raw: Samples, tmp_path: pathlib.Path) -> None:
    with pytest.raises(Killed):
        trainer(Model(), millrace.Loader(raw.uri, **OPTIONS), arguments(tmp_path), callbacks=[Kill(16)]).train()
    state = tmp_path / "checkpoint-15" / "trainer_state.json"
    saved = json.loads(state.read_text())
    del saved["stateful_callbacks"]["PositionCallback"]
    state.write_text(json.dumps(saved))
    resumed = Model()
    trainer(resumed, millrace.Loader(raw.uri, **OPTIONS), arguments(tmp_path)).train(resume_from_checkpoint=True)
    assert resumed.trained == plain(raw.uri)[0][15:]


def test_evaluation_begins_at_the_first_sample(raw: Samples, tmp_path: pathlib.Path) -> None:
    model = Model()
    evaluated = millrace.Loader(
        raw.uri, batch_size=10, image=millrace.Image(dtype="f32", layout="nhwc"), shuffle=False, epochs=1, **AT_SIZE
    )
    options = arguments(tmp_path, eval_strategy="steps", eval_steps=6, per_device_eval_batch_size=10)
    run = trainer(model, millrace.Loader(raw.uri, **OPTIONS), options, eval_dataset={"a": evaluated})
    run.train()
    assert sum(model.evaluated, []) == 6 * sorted(raw.pixels)
    assert model.trained == plain(raw.uri)[0]
    predictions = run.predict(evaluated)
    assert predictions.predictions.shape == (45, 10), "without the rows of padding"


class Judge(torch.nn.Module):
    """Is always the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[9.0, -5, 1], [-7, 8, 2], [1, 2, -3]]))
            self.layer.bias.zero_()

    def forward(self, image: Any, labels: Any = None) -> dict[str, torch.Tensor]:
        logits = self.layer(image.mean((1, 2)))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Scores:
    """Computes metrics of all rows at once, and batch by batch."""

    def __init__(self) -> None:
        self.count = self.right = 0

    def __call__(self, judged: Any, compute_result: bool = True) -> dict[str, float]:
        self.count += len(judged.label_ids)
        self.right += int((np.asarray(judged.predictions).argmax(-1) == np.asarray(judged.label_ids)).sum())
        return {"count": self.count, "accuracy": self.right / self.count} if compute_result else {}


def evaluate(folder: pathlib.Path, data: Any, batch_size: int, by: Any, **options: Any) -> dict[str, Any]:
    """Returns the results of evaluate() and predict() on the data."""
    chosen = arguments(folder, per_device_eval_batch_size=batch_size, label_names=None, **options)
    made = [by(model=Judge(), args=chosen, eval_dataset=data, compute_metrics=Scores()) for _ in range(2)]
    predicted = made[1].predict(data)
    metrics = {**made[0].evaluate(), **predicted.metrics}
    found = {
        f"{part}_{name}": metrics[f"{part}_{name}"]
        for part in ("eval", "test")
        for name in ("loss", "count", "accuracy")
    }
    if not options.get("batch_eval_metrics"):
        found |= {"predictions": predicted.predictions.tolist(), "labels": predicted.label_ids.tolist()}
    return found


def check_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys() and wanted["eval_count"] == 45 and 0.2 < wanted["eval_accuracy"] < 0.8
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


def rows(raw: Samples) -> list[dict[str, Any]]:
    return [{"image": raw.pixels[key].astype(np.float32) / 255, "label": raw.labels[key]} for key in sorted(raw.pixels)]


EVALUATED: dict[str, Any] = {"shuffle": False, **AT_SIZE}
EVALUATED["fields"] = {"image": millrace.Image(dtype="f32", layout="nhwc"), "labels": millrace.Label()}


def columns(batch: Any) -> Any:
    return {"image": batch["image"], "labels": batch["labels"]}


@pytest.mark.parametrize("batch_size", [8, 45, 64])  # the last batch: 5 of 8, full, 45 of 64
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_transform": columns},
        {"collate_fn": torch.utils.data.default_collate},
        {"last": "short"},
        {"last": "short", "batch_transform": columns},
    ],
    ids=str,
)
def test_evaluation_is_that_of_a_plain_trainer(
    options: dict[str, Any], batch_size: int, raw: Samples, tmp_path: pathlib.Path
) -> None:
    wanted = evaluate(tmp_path, rows(raw), batch_size, transformers.Trainer)
    loader = millrace.Loader(raw.uri, batch_size=batch_size, **EVALUATED, **options)
    check_same(evaluate(tmp_path, loader, batch_size, millrace.huggingface.Trainer), wanted)
    check_same(evaluate(tmp_path, loader, 16, millrace.huggingface.Trainer), wanted)


class Mean(torch.nn.Module):
    """Has no loss, and predictions of one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, image: Any) -> dict[str, torch.Tensor]:
        return {"logits": self.weight * image.mean((1, 2, 3))}


def test_predictions_of_one_axis_are_no_loss(raw: Samples, tmp_path: pathlib.Path) -> None:
    chosen = arguments(tmp_path, per_device_eval_batch_size=9, label_names=None)
    loader = millrace.Loader(raw.uri, batch_size=9, **EVALUATED)
    found = millrace.huggingface.Trainer(model=Mean(), args=chosen).predict(loader).predictions
    np.testing.assert_allclose(found, [row["image"].mean() for row in rows(raw)], rtol=1e-4)


def test_metrics_that_are_computed_batch_by_batch(raw: Samples, tmp_path: pathlib.Path) -> None:
    loader = millrace.Loader(raw.uri, batch_size=8, **EVALUATED)
    wanted = evaluate(tmp_path, rows(raw), 8, transformers.Trainer, batch_eval_metrics=True)
    check_same(evaluate(tmp_path, loader, 8, millrace.huggingface.Trainer, batch_eval_metrics=True), wanted)


def test_masked_samples_are_not_evaluated(raw: Samples, tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(raw.uri, data, ignore=shutil.ignore_patterns(".millrace"))
    for bad in ("cat/0000.png", "cat/0003.png", "dog/0010.png"):
        (data / bad).write_bytes(b"\x89PNG\r\n\x1a\n" + b"damaged" * 9)
    loader = millrace.Loader(data, batch_size=2, bad_samples="mask", **EVALUATED)
    found = evaluate(tmp_path, loader, 2, millrace.huggingface.Trainer)
    good = [row for key, row in zip(sorted(raw.pixels), rows(raw)) if key not in ("cat/0000", "cat/0003", "dog/0010")]
    wanted = evaluate(tmp_path, good, 2, transformers.Trainer)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


EVALUATION_ON_TWO_RANKS = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[3])
from cases_huggingface import *

folder = pathlib.Path(sys.argv[1])
for batch_size in 4, 22:  # the last batches of the ranks have 3 and 2 samples; 1 and 0
    for last in "pad", "short":
        loader = millrace.Loader(sys.argv[2], batch_size=batch_size, last=last, **EVALUATED)
        found = evaluate(folder, loader, batch_size, millrace.huggingface.Trainer)
        (folder / f"{batch_size}-{last}-{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
"""


def test_evaluation_on_two_ranks_is_that_of_one(raw: Samples, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EVALUATION_ON_TWO_RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*launcher, str(script), str(tmp_path), raw.uri, str(pathlib.Path(__file__).parent)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    wanted = evaluate(tmp_path, rows(raw), 8, transformers.Trainer)
    for batch_size in (4, 22):
        for last, rank in itertools.product(("pad", "short"), range(2)):
            check_same(json.loads((tmp_path / f"{batch_size}-{last}-{rank}.json").read_text()), wanted)


def test_columns(raw: Samples, tmp_path: pathlib.Path) -> None:
    class Other(Model):
        def forward(self, pixels: Any) -> Any:
            raise AssertionError

    with pytest.raises(millrace.InvalidArgumentError, match="takes label, pixels.*have only image"):
        run = trainer(
            Other(),
            millrace.Loader(raw.uri, batch_size=4, fields={"image": millrace.Image()}),
            arguments(tmp_path),
        )
        run.train()
    with pytest.raises(TypeError, match="unexpected keyword argument 'image'"):
        trainer(
            Other(), millrace.Loader(raw.uri, batch_size=4), arguments(tmp_path, remove_unused_columns=False)
        ).train()


def test_other_data_go_the_usual_way(tmp_path: pathlib.Path) -> None:
    rows = [{"image": np.zeros((2, 2, 3), np.float32), "label": n % 3} for n in range(8)]

    class Plain(Model):
        def forward(self, image: Any, labels: Any = None) -> dict[str, torch.Tensor]:
            self.labels += labels.tolist()
            return {"loss": torch.nn.functional.cross_entropy(self.layer(image.mean((1, 2))), labels)}

    model = Plain()
    trainer(model, rows, arguments(tmp_path, num_train_epochs=1, save_strategy="no", label_names=None)).train()
    assert sorted(model.labels) == [0, 0, 0, 1, 1, 1, 2, 2]


ON_TWO_RANKS = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[4])
from cases_huggingface import *

folder, data, resume = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
options = arguments(folder, num_train_epochs=2, per_device_train_batch_size=2)
loader = millrace.Loader(data, **{**OPTIONS, "batch_size": 2})
model = Model()
try:
    trainer(model, loader, options, callbacks=[] if resume else [Kill(5)]).train(resume_from_checkpoint=bool(resume))
except Killed:
    pass
(folder / f"{'resumed' if resume else 'killed'}-{options.process_index}.json").write_text(json.dumps(model.trained))
"""


def test_two_ranks(raw: Samples, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ON_TWO_RANKS)
    for resume in ("", "resume"):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
        command = [*launcher, str(script), str(tmp_path), raw.uri, resume, str(pathlib.Path(__file__).parent)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr
    for rank in range(2):
        killed, resumed = (json.loads((tmp_path / f"{part}-{rank}.json").read_text()) for part in ("killed", "resumed"))
        assert len(killed) == 4
        assert killed + resumed == plain(raw.uri, 2, batch_size=2, rank=rank, world=2)[0]


@pytest.fixture
def numbers(tar: Samples) -> millrace.Dataset:
    return millrace.Dataset(tar.uri)


def keys(examples: Any) -> list[str]:
    return [example["key"] for example in examples]


def test_examples_are_the_samples(numbers: millrace.Dataset, tar: Samples) -> None:
    made = millrace.huggingface.to_datasets(numbers, num_shards=5)
    assert isinstance(made, datasets.IterableDataset) and made.num_shards == 5
    examples = list(made)
    assert examples == list(numbers) and keys(examples) == sorted(tar.pixels)
    in_order = millrace.huggingface.to_datasets(tar.uri, shuffle="window", seed=7, epoch=2)
    plan = millrace.Plan(numbers, seed=7, epoch=2)
    assert keys(in_order) == [numbers[int(at)]["key"] for at in plan[range(len(plan))]]
    part = numbers.split(a=0.5, b=0.5)["a"]
    assert 0 < len(part) < 50 and keys(millrace.huggingface.to_datasets(part, num_shards=3)) == keys(part)


def test_features_decode_images(numbers: millrace.Dataset, tar: Samples) -> None:
    features = datasets.Features(
        {"png": datasets.Image(), "cls": datasets.Value("int64"), "key": datasets.Value("string")}
    )
    for example in millrace.huggingface.to_datasets(numbers, features=features).take(3):
        assert (
            np.array_equal(np.asarray(example["png"]), tar.pixels[example["key"]])
            and example["cls"] == tar.labels[example["key"]]
        )


@pytest.mark.parametrize("taken", [0, 1, 9, 10, 11, 49, 50])
def test_examples_resume(taken: int, numbers: millrace.Dataset) -> None:
    made = millrace.huggingface.to_datasets(numbers, num_shards=5)
    iterator = iter(made)
    before = [next(iterator)["key"] for _ in range(taken)]
    state = json.loads(json.dumps(made.state_dict()))
    other = millrace.huggingface.to_datasets(numbers, num_shards=5)
    other.load_state_dict(state)
    assert before + keys(other) == keys(numbers)


def test_nodes_and_workers_share_the_shards(numbers: millrace.Dataset) -> None:
    made = millrace.huggingface.to_datasets(numbers, num_shards=4)
    nodes = [datasets.distributed.split_dataset_by_node(made, rank=rank, world_size=2) for rank in range(2)]
    shares = []
    for node in nodes:
        columns = node.select_columns(["key"])
        shares.append(
            [key for batch in torch.utils.data.DataLoader(columns, batch_size=5, num_workers=2) for key in batch["key"]]
        )
    assert sorted(shares[0] + shares[1]) == sorted(keys(numbers)) and [len(share) for share in shares] == [24, 26]
    assert keys(pickle.loads(pickle.dumps(made))) == keys(numbers)


def test_impossible_numbers_of_shards_are_refused(numbers: millrace.Dataset) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="num_shards"):
        millrace.huggingface.to_datasets(numbers, num_shards=51)


def test_the_page(tmp_path: pathlib.Path) -> None:
    page.make_bucket(tmp_path)

    class Classifier(torch.nn.Module):
        rows = 0

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, pixel_values: Any, labels: Any = None) -> dict[str, torch.Tensor]:
            self.rows += len(labels)
            return {"loss": torch.nn.functional.cross_entropy(self.layer(pixel_values.mean((2, 3))), labels)}

    of_trainer, of_datasets = page.pieces("huggingface")
    model = Classifier()
    page.run(of_trainer, tmp_path, model=model)
    assert model.rows == 2 * 256, "batches of 64; the second train() finds nothing left"
    seen = []
    page.run(of_datasets, tmp_path, train=lambda image, label: seen.append((image.size, label)))
    assert len(seen) == 60 and {label for _, label in seen} == {0, 1, 2} and seen[0][0] == (40, 32)


def test_the_job_of_the_examples(tmp_path: pathlib.Path) -> None:
    page.make_bucket(tmp_path)
    shutil.rmtree(tmp_path / "val/class0")  # classes keep their numbers
    program = pathlib.Path(__file__).resolve().parents[2] / "examples/jobs/huggingface.py"
    command = [sys.executable, str(program), str(tmp_path / "train"), str(tmp_path / "val"), str(tmp_path / "runs")]
    for _ in range(2):  # the second time there is nothing left to train
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "'eval_n': 40" in done.stdout, done.stdout


def test_a_corpus_by_the_package_tokenizers(tmp_path: pathlib.Path) -> None:
    import tokenizers

    words = "the quick brown fox jumps over the lazy dog and goes home".split()
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, size)) for size in rng.integers(1, 60, 200)]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=200, special_tokens=["<|endoftext|>"])
    made.train_from_iterator(texts, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    end = made.token_to_id("<|endoftext|>")
    wanted = [[*made.encode(text).ids, end] for text in texts]
    report = millrace.pack(
        tmp_path / "corpus.jsonl", tmp_path / "out", tokenizer=tmp_path / "tokenizer.json", eos="<|endoftext|>"
    )
    assert report["documents"] == 200 and report["tokens"] == sum(map(len, wanted))
    assert [sample["tokens"].tolist() for sample in millrace.Dataset(tmp_path / "out")] == wanted
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    tokens = millrace.Tokens(64, "pack", tokenizer=fast, eos="<|endoftext|>")
    with millrace.Loader(tmp_path / "corpus.jsonl", tokens=tokens, batch_size=4, epochs=1) as loader:
        assert sum(int(batch["token_mask"].sum()) for batch in loader) == report["tokens"]
