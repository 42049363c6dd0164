#!/usr/bin/env python3
"""Runs other clients over the objects of run.py: one rival in each process, and one JSON object with the keys of
get_bench.

    ```
    build/bench-venv/bin/python bench/s3/rivals.py awscrt s3://b/small/ --objects 2000 --count 10000 --size 115000 --calls 256
    build/bench-venv/bin/python bench/s3/rivals.py boto3 s3://b/large/ --objects 1 --count 4 --size 1GiB --part 8MiB --calls 16
    ```

Objects are named 000000, 000001, ... below the URI. The endpoint and keys come from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_CA_BUNDLE. The clock starts after imports, clients and worker processes are there. No
rival is made to copy its bytes once it has handed them out. Exits 3 when the rival is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rival_task import Record, Task, in_tasks, in_threads

MISSING = 3


def run_awscrt(task: Task, record: Record) -> None:
    """Meta requests of the AWS CRT, which splits large objects by itself. Chunks are counted and dropped: into memory of ours they
    would have to be copied once more."""
    from awscrt import auth, http, io, s3

    url = urlsplit(task.endpoint)
    tls = None
    if url.scheme == "https":
        settings = io.TlsContextOptions()
        if task.ca_file:
            settings.override_default_trust_store_from_path(None, task.ca_file)
        tls = io.TlsConnectionOptions(io.ClientTlsContext(settings))
        tls.set_server_name(url.hostname)
    provider = auth.AwsCredentialsProvider.new_static(task.access_key, task.secret_key)
    loops = io.EventLoopGroup(task.io_threads)
    client = s3.S3Client(
        bootstrap=io.ClientBootstrap(loops, io.DefaultHostResolver(loops)),
        region=task.region,
        tls_mode=s3.S3RequestTlsMode.ENABLED if tls else s3.S3RequestTlsMode.DISABLED,
        tls_connection_options=tls,
        signing_config=s3.create_default_s3_signing_config(region=task.region, credential_provider=provider),
        part_size=task.part or 8 << 20,
        throughput_target_gbps=100.0,
        max_active_connections_override=task.calls,
    )
    ended = threading.Semaphore(0)
    live: dict[int, Any] = {}

    def ask() -> bool:
        number = record.next()
        if number is None:
            ended.release()
            return False
        began, got = time.perf_counter(), 0

        def on_body(chunk: bytes, offset: int, **_: object) -> None:
            nonlocal got
            got += len(chunk)

        def on_done(error: Exception | None = None, **_: object) -> None:
            if error is None:
                record.done(began, got)
            else:
                record.failed(error)
            live.pop(number, None)
            ask()

        headers = http.HttpHeaders([("host", url.netloc), ("content-length", "0")])
        request = http.HttpRequest("GET", f"/{task.bucket}/{task.key(number)}", headers)
        made = client.make_request(type=s3.S3RequestType.GET_OBJECT, request=request, on_body=on_body, on_done=on_done)
        live[number] = made
        if made.finished_future.done():
            live.pop(number, None)
        return True

    record.start()
    # If objects are read in parts, this reads one object at a time, as the others do.
    readers = 1 if task.part else task.calls
    for _ in range(readers):
        ask()
    for _ in range(readers):
        ended.acquire()


class ReadWhole:
    """Reads for the workers of s3torchconnector, and returns the time that it took."""

    def __call__(self, reader: Any) -> tuple[int, float]:
        began = time.perf_counter()
        try:
            return len(reader.read()), time.perf_counter() - began
        except Exception as error:
            if "SlowDown" in str(error) or "503" in str(error) or "Client error" in str(error):
                return -1, 0.0
            raise


def first(items: list[Any]) -> Any:
    return items[0]


def run_s3torchconnector(task: Task, record: Record) -> None:
    """S3MapDataset in a DataLoader with worker processes. They hand over lengths: bytes through pipes would be slower still."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    import torch.utils.data
    from s3torchconnector import S3ClientConfig, S3MapDataset

    workers = 1 if task.part else task.workers  # large objects: more than one would only hold more of them at a time
    warm = workers * 2  # so many are read before the clock starts: the loader prefetches two for each worker
    # The number is larger than it can read in the time (its workers wait for each object), and too small to show in the memory of each.
    count = task.count or int(2000 * task.seconds)
    uris = [f"s3://{task.bucket}/{task.key(number)}" for number in range(count + warm)]
    dataset = S3MapDataset.from_objects(
        uris,
        region=task.region,
        endpoint=task.endpoint,
        transform=ReadWhole(),
        s3client_config=S3ClientConfig(force_path_style=True, part_size=task.part or 8 << 20),
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=1, num_workers=workers, collate_fn=first)
    items = iter(loader)
    for _ in range(workers):
        next(items)
    record.start()
    for got, seconds in itertools.islice(items, count):
        if got < 0:
            record.failed("the client gave up")
        else:
            record.done(time.perf_counter() - seconds, got)
        if not task.count and time.perf_counter() - record.began >= task.seconds:
            break
    record.extra["processes"] = workers
    finish(record)  # while the workers live


def run_boto3(task: Task, record: Record) -> None:
    """get_object in threads; large objects by download_fileobj, as its documentation advises, into a file that drops all bytes."""
    import boto3
    import boto3.s3.transfer
    import botocore.config

    config = botocore.config.Config(max_pool_connections=task.calls, s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=task.endpoint, config=config)

    class Count:
        def __init__(self) -> None:
            self.bytes = 0

        def write(self, data: bytes) -> int:
            self.bytes += len(data)
            return len(data)

    def whole(number: int) -> int:
        return len(client.get_object(Bucket=task.bucket, Key=task.key(number))["Body"].read())

    def in_parts(number: int) -> int:
        into = Count()
        settings = boto3.s3.transfer.TransferConfig(max_concurrency=task.calls, multipart_chunksize=task.part)
        client.download_fileobj(task.bucket, task.key(number), into, Config=settings)
        return into.bytes

    client.head_object(Bucket=task.bucket, Key=task.key(0))
    in_threads(task, record, in_parts if task.part else whole, 1 if task.part else task.calls)


def run_obstore(task: Task, record: Record) -> None:
    import obstore
    import obstore.store

    options: dict[str, Any] = {"allow_http": True, "timeout": "120s"}
    if task.ca_file:
        options["root_certificate"] = Path(task.ca_file).read_bytes()
    store = obstore.store.S3Store(
        task.bucket,
        endpoint=task.endpoint,
        region=task.region,
        access_key_id=task.access_key,
        secret_access_key=task.secret_key,
        virtual_hosted_style_request=False,
        client_options=options,
    )

    async def whole(number: int) -> int:
        return len(await (await obstore.get_async(store, task.key(number))).bytes_async())

    async def part(number: int, begin: int, end: int) -> int:
        return len(await obstore.get_range_async(store, task.key(number), start=begin, end=end))

    asyncio.run(in_tasks(task, record, whole, part))


def run_s3fs(task: Task, record: Record) -> None:
    import s3fs

    async def main() -> None:
        files = s3fs.S3FileSystem(
            asynchronous=True,
            endpoint_url=task.endpoint,
            key=task.access_key,
            secret=task.secret_key,
            client_kwargs={"region_name": task.region, **({"verify": task.ca_file} if task.ca_file else {})},
            config_kwargs={"max_pool_connections": task.calls, "s3": {"addressing_style": "path"}},
        )
        session = await files.set_session()

        async def whole(number: int) -> int:
            return len(await files._cat_file(f"{task.bucket}/{task.key(number)}"))

        async def part(number: int, begin: int, end: int) -> int:
            return len(await files._cat_file(f"{task.bucket}/{task.key(number)}", start=begin, end=end))

        await in_tasks(task, record, whole, part)
        await session.close()

    asyncio.run(main())


def run_curl(task: Task, record: Record) -> None:
    """Runs one curl for all: whole objects to /dev/null, at most 300 at a time (its own limit), unsigned and without retries."""
    count = task.count or 1 << 20
    with tempfile.NamedTemporaryFile("w", suffix=".curl") as config:
        for number in range(count):
            config.write(f'url = "{task.endpoint}/{task.bucket}/{task.key(number)}"\noutput = /dev/null\n')
        config.flush()
        parallel = 1 if task.part else min(task.calls, 300)
        command = ["curl", "--silent", "--no-progress-meter", "--config", config.name, "--write-out"]
        command += ["%{http_code} %{size_download} %{time_total} %{num_connects}\\n"]
        command += ["--parallel", "--parallel-immediate", "--parallel-max", str(parallel)] if parallel > 1 else []
        command += ["--cacert", task.ca_file] if task.ca_file else []
        record.start()
        connections = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                code, size, seconds, connects = line.split()
                connections += int(connects)
                if code == "200":
                    record.done(time.perf_counter() - float(seconds), int(size))
                else:
                    record.failed(f"status {code}")
                if not task.count and time.perf_counter() - record.began >= task.seconds:
                    process.terminate()
                    break
        record.extra["connections"] = connections


RIVALS: dict[str, Callable[[Task, Record], None]] = {
    "awscrt": run_awscrt,
    "s3torchconnector": run_s3torchconnector,
    "boto3": run_boto3,
    "obstore": run_obstore,
    "s3fs": run_s3fs,
    "curl": run_curl,
}


def parse_size(text: str) -> int:
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 8MiB or 115000")
    return int(found[1]) << {None: 0, "KiB": 10, "MiB": 20, "GiB": 30}[found[2]]


def parse_arguments() -> tuple[str, Task]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RIVALS)
    parser.add_argument("uri", help="s3://bucket/prefix/")
    parser.add_argument("--objects", type=int, default=1, help="how many distinct ones there are (default 1)")
    parser.add_argument("--size", type=parse_size, required=True, help="of each")
    parser.add_argument("--count", type=int, default=0, help="objects to read (default: each once)")
    parser.add_argument("--seconds", type=float, default=0, help="or for so long")
    parser.add_argument("--calls", type=int, default=256, help="GETs in flight (default 256)")
    parser.add_argument("--part", type=parse_size, default=0, help="one object after the other, in parts of this size")
    parser.add_argument("--io-threads", type=int, default=1, help="of awscrt (default 1)")
    parser.add_argument("--workers", type=int, default=8, help="processes of s3torchconnector (default 8)")
    options = parser.parse_args()
    found = re.fullmatch(r"s3://([^/]+)/(.*)", options.uri)
    if not found:
        parser.error("the URI must be s3://bucket/prefix/")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        if name not in os.environ:
            parser.error(f"{name} is not set")
    return options.name, Task(
        bucket=found[1],
        prefix=found[2],
        objects=options.objects,
        size=options.size,
        count=options.count or (0 if options.seconds else options.objects),
        seconds=options.seconds,
        calls=options.calls,
        part=options.part,
        workers=options.workers,
        io_threads=options.io_threads,
        endpoint=os.environ["AWS_ENDPOINT_URL"].rstrip("/"),
        region=os.environ.get("AWS_REGION", "us-east-1"),
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        ca_file=os.environ.get("AWS_CA_BUNDLE", ""),
    )


def finish(record: Record) -> None:
    print(json.dumps(record.report()), flush=True)
    # This avoids the interpreter's end, since threads of the rivals may be in the middle of requests.
    os._exit(0)


def main() -> int:
    name, task = parse_arguments()
    record = Record(task)
    try:
        RIVALS[name](task, record)
    except ImportError as error:
        print(f"rivals.py: {name} is not installed: {error}", file=sys.stderr)
        return MISSING
    finish(record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
