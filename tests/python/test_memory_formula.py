"""Tests docs/tuning.md#how-much-memory-a-process-takes: the formula, and the resident memory of processes."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any, NamedTuple

import millrace
import numpy as np
import pytest
from PIL import Image
from support import check_script

MIB = 2**20
SAMPLES = 1000
THREADS = 2

PROGRAM = """
import itertools, json, sys, time
import numpy
setting = json.loads(sys.argv[1])
if setting["options"]["output"] == "torch":
    import torch
import millrace

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def at_rest():
    # Returns the resident memory and the reports once workers have filled the buffers that they took.
    readings = []
    while len(readings) < 3 or any(reading != readings[-1] for reading in readings[-3:]):
        reports = [loader.report()["memory"] for loader in loaders]
        readings.append((resident() >> 20, [report["items"] + report["batches"] for report in reports]))
        time.sleep(0.1)
    return resident(), reports

millrace.configure(cpu_threads=setting["threads"])
options = dict(setting["options"])
if "extent" in setting:
    options["shuffle"] = millrace.Shuffle(extent=setting["extent"], window=setting["window"], lanes=1)
if "cache" in setting:
    options["cache"] = millrace.Cache("memory", size=setting["cache"])
before = resident()
loaders = [millrace.Loader(uri, **options) for uri in setting["uris"]]
batches_of_epoch = min(len(loader) for loader in loaders)
for epoch in range(2):
    for number, batches in enumerate(loaders[0] if len(loaders) == 1 else itertools.zip_longest(*loaders), 1):
        if epoch == 1 and number == batches_of_epoch:
            after, reports = at_rest()
print(json.dumps({"before": before, "after": after, "reports": reports}))
"""


class Data(NamedTuple):
    raw: str
    tar: str
    bytes: int


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Makes JPEGs of about 40 KB, as raw objects and in four shards."""
    folder = tmp_path_factory.mktemp("memory")
    (folder / "raw" / "a").mkdir(parents=True)
    (folder / "tar").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (10, 176, 176, 3), dtype=np.uint8)
    images = []
    for pixels in noise:
        encoded = io.BytesIO()
        Image.fromarray(pixels).save(encoded, "jpeg", quality=90)
        images.append(encoded.getvalue())
    total = 0
    for shard in range(4):
        with tarfile.open(folder / "tar" / f"{shard}.tar", "w") as archive:
            for number in range(shard, SAMPLES, 4):
                image = images[number % len(images)]
                entry = tarfile.TarInfo(f"{number:06}.jpg")
                entry.size = len(image)
                archive.addfile(entry, io.BytesIO(image))
                (folder / "raw" / "a" / f"{number:06}.jpg").write_bytes(image)
                total += len(image)
    return Data(str(folder / "raw"), str(folder / "tar"), total)


def of_a_loader(data: Data, setting: dict[str, Any], is_raw: bool) -> float:
    """Returns I + L + N * S + f of the page."""
    options = setting["options"]
    rows, side = options["batch_size"], options["size"]
    budget = int(str(options.get("memory", "512MiB")).removesuffix("MiB")) * MIB
    share = budget if "memory" in options else budget / len(setting["uris"])
    batch = rows * side * side * 3
    number = min(5 + 8 * THREADS // rows, max(2, budget // 4 // batch))
    epoch = data.bytes + 288 * SAMPLES
    fetch = share * 3 / 4
    landing = 0 if is_raw else min(fetch / 3, max(8 * MIB, min(epoch / 4, 64 * MIB)))
    items = min(fetch - landing, 1.1 * epoch + min(max(epoch / 4, 8 * MIB), 32 * MIB))
    floats = 0 if options["output"] == "numpy" else (2 if len(setting["uris"]) == 1 else 3) * 4 * batch
    return items + landing + number * batch + floats


SETTINGS: dict[str, dict[str, Any]] = {
    "raw objects": {"of": "r", "options": {"batch_size": 64, "size": 64}},
    "shards": {"of": "t", "options": {"batch_size": 64, "size": 64}},
    "small budget": {"of": "t", "options": {"batch_size": 64, "size": 64, "memory": "24MiB"}},
    "small budget, raw objects": {"of": "r", "options": {"batch_size": 64, "size": 64, "memory": "32MiB"}},
    "large batches": {"of": "t", "options": {"batch_size": 128, "size": 128}},
    "large images": {"of": "t", "options": {"batch_size": 16, "size": 448}},
    "small window": {
        "of": "t",
        "extent": 16,
        "window": 8,
        "options": {"batch_size": 64, "size": 64, "memory": "48MiB"},
    },
    "cache in memory": {"of": "t", "cache": "64MiB", "options": {"batch_size": 64, "size": 64}},
    "floats": {"of": "t", "options": {"batch_size": 64, "size": 224, "output": "torch"}},
    "two loaders": {"of": "tr", "options": {"batch_size": 64, "size": 64}},
    "three loaders": {"of": "trt", "options": {"batch_size": 64, "size": 128}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_resident_memory_is_that_of_the_formula(data: Data, name: str) -> None:
    setting = dict(SETTINGS[name], threads=THREADS)
    kinds = setting.pop("of")
    setting["uris"] = [data.raw if kind == "r" else data.tar for kind in kinds]
    setting["options"] = {"output": "numpy", **setting["options"]}
    told = json.loads(check_script(PROGRAM, json.dumps(setting)))
    predicted = told["before"] + 5 * MIB + (16 * MIB if "cache" in setting else 0)
    predicted += sum(of_a_loader(data, setting, kind == "r") for kind in kinds)
    assert told["after"] == pytest.approx(predicted, rel=0.1), told
    for kind, memory in zip(kinds, told["reports"], strict=True):
        assert memory["items"] > 0 and memory["batches"] > 0 and memory["loaders"] == len(kinds)
        assert (memory["landing"] > 0) == (kind == "t")
    held = sum(memory[part] for memory in told["reports"] for part in ("items", "landing", "batches"))
    assert held <= told["after"] - told["before"]


def test_a_data_set_that_is_small_takes_little(data: Data) -> None:
    """One of 56 MB takes at most 300 MB, with the options that everybody has."""
    setting = {"uris": [data.tar], "threads": THREADS, "options": {"batch_size": 128, "size": 224, "output": "numpy"}}
    told = json.loads(check_script(PROGRAM, json.dumps(setting)))
    assert told["after"] < 300e6 - (56e6 - data.bytes) * 1.5, told


def test_a_loader_that_does_not_read_holds_nothing(data: Data) -> None:
    with millrace.Loader(data.tar, batch_size=64, size=16, output="numpy", shuffle="none", epochs=1) as loader:
        assert loader.report()["memory"]["items"] == 0
        for _ in loader:
            pass
        memory = loader.report()["memory"]
    assert memory["items"] == memory["landing"] == memory["batches"] == memory["kept"] == 0
    assert memory["process"] > 10 * MIB
