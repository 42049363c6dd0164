#!/usr/bin/env python3
"""One system that saves and loads a state of tensors, in a process of its own, for run.py: prints one JSON object.

    task.py NAME URI --bytes 1GiB --runs 5

The state is that of a model and its optimizer with two moments: tensors of 16 MiB and a few small ones, in memory that was touched. Each save is of
another step; each load makes new memory, but for `ceiling` and `millrace into`, which fill memory that was touched before. Exits 3 if the system is not
installed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import io
import json
import os
import pathlib
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

MISSING = 3
PIECE = 8 << 20
AT_ONCE = 8
TENSOR_BYTES = 16 << 20

State = dict[str, Any]


def make_state(size: int) -> State:
    count = max(1, size // 3 // TENSOR_BYTES)
    torch.manual_seed(1)

    def tensors() -> State:
        made = {f"layer{number}.weight": torch.rand(1024, TENSOR_BYTES // 4096) for number in range(count)}
        return {**made, **{f"layer{number}.bias": torch.rand(1024) for number in range(count)}}

    return {"model": tensors(), "first": tensors(), "second": tensors()}


def flat(state: State) -> dict[str, torch.Tensor]:
    return {f"{group}.{name}": tensor for group, tensors in state.items() for name, tensor in tensors.items()}


def bytes_of(state: State) -> int:
    return sum(tensor.nbytes for tensor in flat(state).values())


class System:
    """Saves and loads. ``stall`` is how long an asynchronous save keeps the training waiting."""

    def __init__(self, uri: str, state: State) -> None:
        self.uri = uri.rstrip("/")
        self.state = state

    def save(self, step: int) -> None:
        raise NotImplementedError

    def load(self, step: int) -> Any:
        raise NotImplementedError

    stall: Callable[[int], float] | None = None
    only_loads = False  # it saves once, so that there is something to load

    @property
    def is_s3(self) -> bool:
        return self.uri.startswith("s3://")


class Millrace(System):
    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        import millrace

        self.checkpoints = millrace.Checkpoints(self.uri, keep=2)
        self.stall = self._stall

    def save(self, step: int) -> None:
        self.checkpoints.save(step, self.state)

    def load(self, step: int) -> Any:
        return self.checkpoints.load(step)

    def _stall(self, step: int) -> float:
        began = time.perf_counter()
        self.checkpoints.save(step, self.state, asynchronous=True)
        seconds = time.perf_counter() - began
        self.checkpoints.wait()
        return seconds


class MillraceInto(Millrace):
    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        self.into = {
            group: {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
            for group, tensors in state.items()
        }
        self.stall = None

    def load(self, step: int) -> Any:
        return self.checkpoints.load(step, into=self.into)


class MillraceDcp(System):
    def save(self, step: int) -> None:
        import millrace.torch
        import torch.distributed.checkpoint as dcp

        dcp.save(
            flat(self.state), storage_writer=millrace.torch.StorageWriter(self.uri, step=step, keep=2), no_dist=True
        )

    def load(self, step: int) -> Any:
        import millrace.torch
        import torch.distributed.checkpoint as dcp

        made = {name: torch.empty_like(tensor) for name, tensor in flat(self.state).items()}
        dcp.load(made, storage_reader=millrace.torch.StorageReader(self.uri, step=step), no_dist=True)
        return made


class TorchSave(System):
    """torch.save and torch.load: to a file, and through S3 Connector for PyTorch."""

    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        if self.is_s3:
            from s3torchconnector import S3Checkpoint, S3ClientConfig

            config = S3ClientConfig(force_path_style=True, part_size=PIECE)
            self.checkpoint = S3Checkpoint(
                region=os.environ["AWS_REGION"], endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config
            )

    def save(self, step: int) -> None:
        if self.is_s3:
            with self.checkpoint.writer(f"{self.uri}/{step}.pt") as file:
                torch.save(self.state, file)
            return
        pathlib.Path(self.uri).mkdir(parents=True, exist_ok=True)
        with open(f"{self.uri}/{step}.pt", "wb") as file:
            torch.save(self.state, file)
            file.flush()
            os.fsync(file.fileno())

    def load(self, step: int) -> Any:
        if self.is_s3:
            with self.checkpoint.reader(f"{self.uri}/{step}.pt") as file:
                return torch.load(file, weights_only=True)
        return torch.load(f"{self.uri}/{step}.pt", weights_only=True)


class Dcp(System):
    """DCP with its own writer for folders, and with that of S3 Connector."""

    def _storage(self, step: int) -> tuple[Any, Any]:
        import torch.distributed.checkpoint as dcp

        if self.is_s3:
            from s3torchconnector import S3ClientConfig
            from s3torchconnector.dcp import S3StorageReader, S3StorageWriter

            config = S3ClientConfig(force_path_style=True, part_size=PIECE)
            region = os.environ["AWS_REGION"]
            return tuple(
                kind(region, f"{self.uri}/{step}/", s3client_config=config)
                for kind in (S3StorageWriter, S3StorageReader)
            )  # type: ignore[return-value]
        return dcp.FileSystemWriter(f"{self.uri}/{step}"), dcp.FileSystemReader(f"{self.uri}/{step}")

    def save(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(flat(self.state), storage_writer=self._storage(step)[0], no_dist=True)

    def load(self, step: int) -> Any:
        import torch.distributed.checkpoint as dcp

        made = {name: torch.empty_like(tensor) for name, tensor in flat(self.state).items()}
        dcp.load(made, storage_reader=self._storage(step)[1], no_dist=True)
        return made


class Safetensors(System):
    """safetensors, to a file; to S3 by boto3 as its documentation advises for large objects."""

    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        import safetensors.torch  # noqa: F401

        if self.is_s3:
            import boto3
            import boto3.s3.transfer
            import botocore.config

            config = botocore.config.Config(max_pool_connections=AT_ONCE, s3={"addressing_style": "path"})
            self.client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=config)
            self.transfer = boto3.s3.transfer.TransferConfig(max_concurrency=AT_ONCE, multipart_chunksize=PIECE)
            self.bucket, _, self.prefix = self.uri.removeprefix("s3://").partition("/")

    def save(self, step: int) -> None:
        import safetensors.torch

        if self.is_s3:
            data = io.BytesIO(safetensors.torch.save(flat(self.state)))
            self.client.upload_fileobj(data, self.bucket, f"{self.prefix}/{step}.safetensors", Config=self.transfer)
            return
        pathlib.Path(self.uri).mkdir(parents=True, exist_ok=True)
        path = f"{self.uri}/{step}.safetensors"
        safetensors.torch.save_file(flat(self.state), path)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())

    def load(self, step: int) -> Any:
        import safetensors.torch

        if self.is_s3:
            data = io.BytesIO()
            self.client.download_fileobj(self.bucket, f"{self.prefix}/{step}.safetensors", data, Config=self.transfer)
            return safetensors.torch.load(data.getvalue())
        # Its tensors are views of the mapped file, which are read when they are used.
        return {
            name: tensor.clone()
            for name, tensor in safetensors.torch.load_file(f"{self.uri}/{step}.safetensors").items()
        }


class RunAi(Safetensors):
    """Run:ai Model Streamer, which reads safetensors. Its tensors lie in a buffer of its own, and are copied from there, as its documentation says."""

    only_loads = True

    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        os.environ["RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING"] = "0"
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        if self.is_s3:
            import runai_model_streamer_s3  # noqa: F401
        from runai_model_streamer import SafetensorsStreamer

        self.streamer = SafetensorsStreamer

    def load(self, step: int) -> Any:
        with self.streamer() as streamer:
            streamer.stream_file(f"{self.uri}/{step}.safetensors")
            return {name: tensor.clone() for name, tensor in streamer.get_tensors()}


class Ceiling(System):
    """The same bytes without a format, checksum or protocol: PUTs and GETs of 8 MiB by eight threads; one file, written and read by eight threads.

    The memory that is read into was touched before. Stall: a memcpy into such memory.
    """

    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        self.data = np.concatenate([tensor.reshape(-1).view(torch.uint8).numpy() for tensor in flat(state).values()])
        self.into = np.zeros_like(self.data)
        self.local = threading.local()
        self.pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self.stall = self._stall

    def _each(self, do: Callable[[int], None]) -> None:
        list(self.pool.map(do, range(0, self.data.size, PIECE)))

    def _exchange(self, method: str, key: str, body: Any, into: Any) -> None:
        if not hasattr(self.local, "connection"):
            url = urlsplit(os.environ["AWS_ENDPOINT_URL"])
            self.local.connection = http.client.HTTPConnection(url.hostname or "", url.port)
        connection = self.local.connection
        connection.putrequest(method, key, skip_accept_encoding=True)
        connection.putheader("Content-Length", str(0 if body is None else len(body)))
        connection.endheaders()
        if body is not None:
            connection.sock.sendall(body)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{method} {key}: {response.status} {response.read()[:300]!r}")
        done = 0
        while into is not None and done < len(into):
            done += response.readinto(into[done:])
        response.read()

    def save(self, step: int) -> None:
        data = memoryview(self.data)
        if self.is_s3:
            path = self.uri.removeprefix("s3:/")
            self._each(lambda at: self._exchange("PUT", f"{path}/{step}/{at}", data[at : at + PIECE], None))
            return
        pathlib.Path(self.uri).mkdir(parents=True, exist_ok=True)
        file = os.open(f"{self.uri}/{step}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._each(lambda at: _write(file, data[at : at + PIECE], at))
        os.fsync(file)
        os.close(file)

    def load(self, step: int) -> Any:
        into = memoryview(self.into)
        if self.is_s3:
            path = self.uri.removeprefix("s3:/")
            self._each(lambda at: self._exchange("GET", f"{path}/{step}/{at}", None, into[at : at + PIECE]))
        else:
            file = os.open(f"{self.uri}/{step}", os.O_RDONLY)
            self._each(lambda at: _read(file, into[at : at + PIECE], at))
            os.close(file)
        return self.into

    def _stall(self, step: int) -> float:
        began = time.perf_counter()
        np.copyto(self.into, self.data)
        return time.perf_counter() - began


class CeilingNew(Ceiling):
    """Loads the same into memory that is new with each load, which is what all systems do that return tensors."""

    only_loads = True

    def __init__(self, uri: str, state: State) -> None:
        super().__init__(uri, state)
        self.stall = None

    def load(self, step: int) -> Any:
        self.into = np.empty(0, np.uint8)  # the old memory goes first
        self.into = np.empty_like(self.data)
        return super().load(step)


def _write(file: int, data: memoryview, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)


def _read(file: int, into: memoryview, at: int) -> None:
    done = 0
    while done < len(into):
        done += os.preadv(file, [into[done:]], at + done)


SYSTEMS: dict[str, type[System]] = {
    "ceiling": Ceiling,
    "ceiling new": CeilingNew,
    "millrace": Millrace,
    "millrace into": MillraceInto,
    "millrace dcp": MillraceDcp,
    "torch.save": TorchSave,
    "dcp": Dcp,
    "safetensors": Safetensors,
    "runai": RunAi,
}


def equal(found: Any, state: State) -> bool:
    if isinstance(found, np.ndarray):
        return bool(
            np.array_equal(found[:1000], flat(state)["model.layer0.weight"].reshape(-1)[:250].view(torch.uint8).numpy())
        )
    loaded = flat(found) if "model" in found else found
    return all(torch.equal(tensor, loaded[name]) for name, tensor in flat(state).items())


def timed(call: Callable[[int], Any], step: int) -> float:
    began = time.perf_counter()
    kept = call(step)
    taken = time.perf_counter() - began
    del kept  # not within the measurement
    return taken


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SYSTEMS)
    parser.add_argument("uri")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    state = make_state(options.bytes)
    try:
        system = SYSTEMS[options.name](options.uri, state)
        system.save(0)  # connections, pools and caches are there before the clock starts
    except ImportError as error:
        print(f"task.py: {options.name} is not installed: {error}", file=sys.stderr)
        return MISSING
    at_rest = peak_bytes()
    result: dict[str, Any] = {
        "bytes": bytes_of(state),
        "save": [],
        "save_cpu": [],
        "load": [],
        "load_cpu": [],
        "stall": [],
    }
    newest = 0
    for run in range(1, 1 if system.only_loads else options.runs + 1):
        cpu = time.process_time()
        result["save"].append(timed(system.save, run))
        result["save_cpu"].append(time.process_time() - cpu)
        newest = run
    result["save_extra_bytes"] = peak_bytes() - at_rest
    if not equal(system.load(newest), state):
        raise SystemExit(f"{options.name}: what was loaded is not what was saved")
    for _ in range(options.runs):
        cpu = time.process_time()
        result["load"].append(timed(system.load, newest))
        result["load_cpu"].append(time.process_time() - cpu)
    if system.stall is not None:
        system.stall(options.runs + 1)  # touches the memory
        result["stall"] = [system.stall(options.runs + 2 + run) for run in range(options.runs)]
    print(json.dumps(result), flush=True)
    os._exit(0)  # threads of the rivals may be in the midst of something


if __name__ == "__main__":
    sys.exit(main())
