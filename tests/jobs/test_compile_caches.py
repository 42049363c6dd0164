"""`millrace compile-cache` on two hosts: ranks that wait for each other all start, and Triton's files are those of the host that reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

# Both meet before either compiles: a host that waited for the other to store something would wait for ever.
SOCKETS = """
import os, socket, time
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        server.accept()[0].close()
else:
    while True:
        try:
            socket.create_connection(address).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""
GLOO = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""
COMPILES = """
import os, pathlib
kernel = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "graph" / "kernel.so"
kernel.parent.mkdir(parents=True, exist_ok=True)
kernel.write_bytes(b"code")
print("met", flush=True)
"""


@pytest.mark.parametrize("meets", [SOCKETS, pytest.param(GLOO, marks=pytest.mark.all)], ids=["sockets", "gloo"])
def test_ranks_that_wait_for_each_other_all_start(millrace_bin: Path, tmp_path: Path, meets: str) -> None:
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    hosts = [
        subprocess.Popen(
            [millrace_bin, "compile-cache", tmp_path / "store", "--dir", tmp_path / f"host-{rank}"]
            + ["--", sys.executable, "-c", meets + COMPILES],
            env=os.environ | world | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for host in hosts:
            out, said = host.communicate(timeout=600)
            assert (host.returncode, out) == (0, "met\n"), said
            assert " s at most" not in said  # neither waits for the other to compile
    finally:
        for host in hosts:
            host.kill()
            host.wait()


# As Triton's FileCacheManager puts and reads the files of a kernel: the group file names the others by absolute paths.
TRITON = """
import json, os, pathlib
folder = pathlib.Path(os.environ["TRITON_CACHE_DIR"]) / "KEY"
group = folder / "__grp__kernel.json"
if group.exists():
    paths = json.loads(group.read_text())["child_paths"]
    print(json.dumps({name: pathlib.Path(path).read_text() for name, path in sorted(paths.items())}), flush=True)
else:
    folder.mkdir(parents=True)
    for name in ("kernel.cubin", "kernel.json"):
        (folder / name).write_text(f"the {name} of one host")
    paths = {name: str(folder / name) for name in ("kernel.cubin", "kernel.json")}
    group.write_text(json.dumps({"child_paths": paths}))
    print("compiled", flush=True)
"""


def test_triton_reads_a_kernel_of_another_host(millrace_bin: Path, tmp_path: Path) -> None:
    found = []
    for host in ("one", "two"):
        command = [millrace_bin, "compile-cache", tmp_path / "store", "--dir", tmp_path / host]
        done = subprocess.run(
            [*command, "--", sys.executable, "-c", TRITON], check=True, capture_output=True, text=True, timeout=600
        )
        found.append(done.stdout.strip())
        # The next host has no file of this one.
        (tmp_path / host).rename(tmp_path / f"{host}-is-gone")
    assert found[0] == "compiled"
    assert json.loads(found[1]) == {name: f"the {name} of one host" for name in ("kernel.cubin", "kernel.json")}
