"""Tests `millrace compile-cache` with Triton itself, which compiles a kernel for an explicit target: no GPU is
needed."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

# A kernel for compute capability 8.0. The files are those that its metadata names on this host, and "compiled" is what Triton says to its
# listener.
KERNEL = """
import json, pathlib
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    tl.store(out + place, tl.load(x + place, mask=inside) + tl.load(y + place, mask=inside), mask=inside)

passes = []
triton.knobs.compilation.listener = lambda *, cache_hit, **_: passes.append(not cache_hit)
signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
source = triton.compiler.ASTSource(fn=add, signature=signature, constexprs={"BLOCK": 128})
kernel = triton.compile(source, target=GPUTarget("cuda", 80, 32))
files = {name: str(path) for name, path in kernel.metadata_group.items()}
cubin = kernel.asm["cubin"]
print(json.dumps({"compiled": passes, "files": files, "cubin": cubin.hex(), "elf": cubin[:4] == b"\\x7fELF"}))
"""


def test_a_kernel_of_another_host_is_found(millrace_bin: pathlib.Path, tmp_path: pathlib.Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(KERNEL)
    found = []
    for host in ("one", "two"):
        command = [millrace_bin, "compile-cache", tmp_path / "store", "--dir", tmp_path / host]
        done = subprocess.run(
            [*command, "--", sys.executable, kernel], check=True, capture_output=True, text=True, timeout=600
        )
        found.append(json.loads(done.stdout))
        files = [pathlib.Path(path) for path in found[-1]["files"].values()]
        assert files and all(path.is_relative_to(tmp_path / host) and path.exists() for path in files)
        # The next host has no file of this one.
        (tmp_path / host).rename(tmp_path / f"{host}-is-gone")
    one, two = found
    assert one["elf"] and one["compiled"] == [True] and two["compiled"] == [False]
    assert one["cubin"] == two["cubin"] and one["files"].keys() == two["files"].keys()
