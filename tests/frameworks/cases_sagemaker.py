"""Runs SageMaker's own toolkit, and scripts whose reading loops are in the manner of AWS's public examples, below `millrace run`, unchanged, in the three
modes. The toolkit runs a user's script in SageMaker's containers. The data that it reads are compared with the model of the contract."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))

from channel_model import Channel

# As in the PyTorch examples: arguments from SM_*, a data set over the files of a folder, a model in SM_MODEL_DIR.
IMAGES = """
import argparse, hashlib, json, logging, os, sys
logger = logging.getLogger(__name__)
logger.addHandler(logging.StreamHandler(sys.stdout))

class ImageFolder:
    def __init__(self, root):
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = []
        for target, name in enumerate(self.classes):
            for base, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                self.samples += [(os.path.join(base, file), target) for file in sorted(files)]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, index):
        path, target = self.samples[index]
        with open(path, "rb") as f:
            return f.read(), target

def train(args):
    logger.warning("train on %d hosts, this is %s" % (len(args.hosts), args.current_host))
    data = ImageFolder(args.data_dir)
    digest = hashlib.sha256()
    for epoch in range(1, args.epochs + 1):
        for i in range(len(data)):
            image, target = data[i]
            digest.update(image + bytes([target]))
    with open(os.path.join(args.model_dir, "model.json"), "w") as f:
        json.dump({"digest": digest.hexdigest(), "samples": len(data), "classes": data.classes, "lr": args.lr}, f)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--backend", type=str, default=None)
    parser.add_argument("--hosts", type=list, default=json.loads(os.environ["SM_HOSTS"]))
    parser.add_argument("--current-host", type=str, default=os.environ["SM_CURRENT_HOST"])
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--data-dir", type=str, default=os.environ["SM_CHANNEL_TRAINING"])
    parser.add_argument("--num-gpus", type=int, default=os.environ["SM_NUM_GPUS"])
    train(parser.parse_args())
"""

# As in the scikit-learn examples: all files of the channel are tables.
TABLES = """
import argparse, csv, json, os
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_leaf_nodes", type=int, default=-1)
    parser.add_argument("--output-data-dir", type=str, default=os.environ["SM_OUTPUT_DATA_DIR"])
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--train", type=str, default=os.environ["SM_CHANNEL_TRAIN"])
    args = parser.parse_args()
    input_files = [os.path.join(args.train, file) for file in os.listdir(args.train)]
    if len(input_files) == 0:
        raise ValueError(("There are no files in {}.").format(args.train))
    rows = []
    for file in sorted(input_files):
        with open(file, newline="") as f:
            rows += [[float(cell) for cell in row] for row in csv.reader(f)]
    with open(os.path.join(args.model_dir, "model.json"), "w") as f:
        json.dump({"rows": len(rows), "sum": sum(map(sum, rows)), "max_leaf_nodes": args.max_leaf_nodes}, f)
"""

# As in the example that reads pipes in an algorithm of one's own, and the reader of RecordIO in SageMaker's Python SDK.
PIPES = """
import argparse, hashlib, json, os, struct, time

def read_recordio(f):
    while True:
        try:
            read_kmagic, = struct.unpack("I", f.read(4))
        except struct.error:
            return
        assert read_kmagic == 0xced7230a
        len_record, = struct.unpack("I", f.read(4))
        pad = (((len_record + 3) >> 2) << 2) - len_record
        yield f.read(len_record)
        if pad:
            f.read(pad)

def wait_till_fifo_exists(fname):
    print("Wait till FIFO available: {}".format(fname))
    while not os.path.exists(fname):
        time.sleep(0.1)

if __name__ == "__main__":
    with open(os.path.join(os.environ["SM_INPUT_CONFIG_DIR"], "hyperparameters.json")) as f:
        num_epochs = int(json.load(f)["epochs"])
    with open(os.path.join(os.environ["SM_INPUT_CONFIG_DIR"], "inputdataconfig.json")) as f:
        config = json.load(f)
    model = {}
    for channel in sorted(config):
        assert config[channel]["TrainingInputMode"] == "Pipe"
        fifo_base = os.environ["SM_CHANNEL_" + channel.upper()]
        model[channel] = []
        for epoch in range(num_epochs):
            fifo_path = "{}_{}".format(fifo_base, epoch)
            wait_till_fifo_exists(fifo_path)
            with open(fifo_path, "rb") as fifo:
                if config[channel]["RecordWrapperType"] == "RecordIO":
                    records = list(read_recordio(fifo))
                else:
                    records = [fifo.read()]
            model[channel].append([record.hex() for record in records])
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.json"), "w") as f:
        json.dump(model, f)
"""


def can_mount() -> bool:
    return os.access("/dev/fuse", os.W_OK) and shutil.which("fusermount3") is not None


class Job:
    def __init__(self, server: Any, binary: pathlib.Path, root: pathlib.Path) -> None:
        self.server, self.binary, self.root = server, binary, root
        self.s3 = server.client()
        self.s3.create_bucket(Bucket="bkt")

    def put(self, objects: dict[str, bytes]) -> None:
        for key, body in objects.items():
            self.s3.put_object(Bucket="bkt", Key=key, Body=body)

    def run(self, script: str, *options: str, **hyperparameters: object) -> Any:
        """Runs a script by the toolkit's `train`, and returns the model that it wrote."""
        code = self.root / "code"
        code.mkdir(parents=True, exist_ok=True)
        (code / "train.py").write_text(script)
        told = {"sagemaker_program": "train.py", "sagemaker_submit_directory": str(code), **hyperparameters}
        command = [str(self.binary), "run", "--root", str(self.root), *options]
        # The toolkit waits until the names of all hosts can be resolved.
        command += [] if "--hosts" in options else ["--hosts", "localhost"]
        command += [word for name, value in told.items() for word in ("--hyperparameter", f"{name}={value}")]
        toolkit = "from sagemaker_training.cli.train import main; main()"
        # The toolkit puts its own Python's folder in front of PATH for the script.
        done = subprocess.run(
            [*command, "--", sys.executable, "-c", toolkit],
            env=os.environ | self.server.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout.decode()
        return json.loads((self.root / "model" / "model.json").read_text())


@pytest.fixture
def job(devstore: Any, millrace_bin: pathlib.Path, tmp_path: pathlib.Path) -> Job:
    return Job(devstore("mem:"), millrace_bin, tmp_path / "ml")


MODES = [
    "File",
    pytest.param("FastFile", marks=pytest.mark.skipif(not can_mount(), reason="no file systems in user space")),
]


@pytest.mark.parametrize("mode", MODES)
def test_images_in_a_folder(job: Job, mode: str) -> None:
    objects = {f"img/{name}/{i:02}.jpg": bytes([i]) * (100 + i) for name in ("cat", "dog", "eel") for i in range(9)}
    job.put(objects)
    model = job.run(
        IMAGES,
        "--channel",
        f"training=s3://bkt/img,mode={mode}",
        "--hosts",
        "127.0.0.1,127.0.0.2",
        "--current-host",
        "127.0.0.2",
        epochs=2,
        lr=0.5,
    )
    digest = hashlib.sha256()
    for _ in range(2):
        for key in sorted(objects):
            digest.update(objects[key] + bytes([["cat", "dog", "eel"].index(key.split("/")[1])]))
    assert model == {"digest": digest.hexdigest(), "samples": 27, "classes": ["cat", "dog", "eel"], "lr": 0.5}


@pytest.mark.parametrize("mode", MODES)
def test_tables(job: Job, mode: str) -> None:
    job.put(
        {f"csv/{i}.csv": f"{i},1.5\n2,{i}\n".encode() for i in range(6)}
        | {"m": json.dumps([{"prefix": "s3://bkt/csv/"}, "1.csv", "4.csv"]).encode()}
    )
    model = job.run(TABLES, "--channel", f"train=s3://bkt/csv,mode={mode}", max_leaf_nodes=30)
    assert model == {"rows": 12, "sum": 6 * 3.5 + 2 * 15, "max_leaf_nodes": 30}
    model = job.run(TABLES, "--channel", f"train=s3://bkt/m,type=ManifestFile,mode={mode}")
    assert model == {"rows": 4, "sum": 2 * 3.5 + 2 * 5, "max_leaf_nodes": -1}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_share_tables(job: Job, tmp_path: pathlib.Path, mode: str, hosts: int) -> None:
    tables = {f"csv/{i}.csv": f"{i},1.5\n2,{i}\n".encode() for i in range(6)}
    job.put(tables)
    names = [f"127.0.0.{i + 1}" for i in range(hosts)]
    for number, host in enumerate(names):
        job.root = tmp_path / host
        channel = f"train=s3://bkt/csv,mode={mode},distribution=ShardedByS3Key"
        model = job.run(TABLES, "--channel", channel, "--hosts", ",".join(names), "--current-host", host)
        own = range(number, len(tables), hosts)
        assert model == {"rows": 2 * len(own), "sum": sum(2 * i + 3.5 for i in own), "max_leaf_nodes": -1}


def test_pipes(job: Job) -> None:
    objects = {f"p/{i:02}": bytes([i]) * (i * 7 % 50) for i in range(40)}
    zipped = {f"z/{i}": gzip.compress(b"row %d\n" % i, mtime=0) for i in range(5)}
    augmented = "".join(
        json.dumps({"source-ref": f"s3://bkt/p/{i:02}", "label": i % 3}) + "\n" for i in range(30, 10, -1)
    )
    job.put(objects | zipped | {"a.manifest": augmented.encode()})
    channels = {
        "train": (
            "s3://bkt/p,shuffle-seed=12,wrapper=RecordIO",
            Channel.of_prefix(objects, "p/", seed=12, wrapped=True),
        ),
        "text": ("s3://bkt/z,compression=Gzip", Channel.of_prefix(zipped, "z/", unzip=True)),
        "labelled": (
            "s3://bkt/a.manifest,type=AugmentedManifestFile,attributes=source-ref+label,wrapper=RecordIO,shuffle-seed=1",
            Channel.of_augmented(objects, augmented, ["source-ref", "label"], seed=1, wrapped=True),
        ),
    }
    for hosts in (1, 2, 4):
        names = [f"127.0.0.{i + 1}" for i in range(hosts)]
        for host in names:
            options = [
                word
                for name, (uri, _) in channels.items()
                for word in ("--channel", f"{name}={uri},mode=Pipe,distribution=ShardedByS3Key")
            ]
            model = job.run(PIPES, *options, "--hosts", ",".join(names), "--current-host", host, epochs=3)
            for name, (_, contract) in channels.items():
                contract.hosts = names
                streams = [
                    b"".join(record_of(contract, bytes.fromhex(record)) for record in records)
                    for records in model[name]
                ]
                assert streams == [contract.epoch(epoch, host) for epoch in range(3)], (name, host)


def record_of(contract: Channel, data: bytes) -> bytes:
    from channel_model import record

    return record(data) if contract.wrapped else data
