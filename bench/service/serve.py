#!/usr/bin/env python3
"""A worker of a rival of run.py, in a process of its own until it is killed. It prints `ready` when it serves.

serve.py grpc --port 6001 --rows DIR --batch 128
serve.py tfdata-dispatcher --port 6000
serve.py tfdata --port 6001 --dispatcher 127.0.0.1:6000 --address 127.0.0.1:6101     (the address for trainers)
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rows


def serve_grpc(options: argparse.Namespace) -> Any:
    """Serves an endless stream of messages, a batch each, as AWS's sample does. They are plain bytes, which saves protobuf's copy at both ends."""
    import grpc

    mapped = rows.open_rows(options.rows / "rows.bin")
    batches = [
        mapped[begin : begin + options.batch].tobytes()
        for begin in range(0, len(mapped) - options.batch + 1, options.batch)
    ]

    def get_examples(request: bytes, context: Any) -> Iterator[bytes]:
        return itertools.cycle(batches)

    most = [("grpc.max_send_message_length", 200 << 20)]
    server = grpc.server(ThreadPoolExecutor(4), options=most)
    handler = grpc.unary_stream_rpc_method_handler(get_examples)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("feed", {"get_examples": handler})])
    server.add_insecure_port(f"127.0.0.1:{options.port}")
    server.start()
    return server


def serve_tfdata(options: argparse.Namespace) -> Any:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    service = tf.data.experimental.service
    if options.kind == "tfdata-dispatcher":
        return service.DispatchServer(service.DispatcherConfig(port=options.port, protocol="grpc"))
    config = service.WorkerConfig(
        dispatcher_address=options.dispatcher,
        worker_address=options.address,
        port=options.port,
        protocol="grpc",
        heartbeat_interval_ms=500,
    )
    return service.WorkerServer(config)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["grpc", "tfdata-dispatcher", "tfdata"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--dispatcher")
    parser.add_argument("--address")
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    server = serve_grpc(options) if options.kind == "grpc" else serve_tfdata(options)
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM])
    del server
    os._exit(0)  # without waiting for trainers


if __name__ == "__main__":
    sys.exit(main())
