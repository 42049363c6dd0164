"""Tests `save(asynchronous=True)`: it saves what was there when it was called, reports its errors, and the end of the
program waits for it."""

from __future__ import annotations

import millrace
import numpy as np
import pytest
import torch
from support import check_script, run_script


def test_snapshot_memory_bounds_the_copy(folder: str) -> None:
    """Tensors that do not fit are written before save returns, so that the caller may change the whole state."""
    state = {"large": torch.ones(3 << 20), "small": torch.ones(1 << 20), "tiny": torch.ones(3)}
    for limit, held in ((None, 16 << 20), (1 << 40, 16 << 20), (13 << 20, 12 << 20), (5 << 20, 4 << 20), (1, 0)):
        ckpt = millrace.Checkpoints(folder, snapshot_memory=limit)
        ckpt.save(1, state, asynchronous=True)
        for tensor in state.values():
            tensor.zero_()
        ckpt.wait()
        assert all(tensor.eq(1).all() for tensor in ckpt.load().values()), limit
        memory = ckpt._snapshot.bytes
        assert held <= memory <= held + 4096 and (limit is None or memory <= limit), limit
        for tensor in state.values():
            tensor.fill_(1)
    with pytest.raises(millrace.InvalidArgumentError, match="snapshot_memory"):
        millrace.Checkpoints(folder, snapshot_memory=0)


def test_asynchronous_saves_what_was_there(uri: str) -> None:
    ckpt = millrace.Checkpoints(uri)
    tensor, array = torch.zeros(1 << 20), np.zeros(1 << 20)
    for step in range(1, 6):
        tensor.fill_(step)
        array.fill(step)
        ckpt.save(step, {"tensor": tensor, "array": array}, asynchronous=True)
        tensor.fill_(-1)
        array.fill(-1)
    assert ckpt.latest() == 5
    for step in range(1, 6):
        state = ckpt.load(step)
        assert state["tensor"].eq(step).all() and (state["array"] == step).all()


def test_errors_of_asynchronous_saves_come_with_the_next_call(folder: str) -> None:
    ckpt = millrace.Checkpoints(folder)
    ckpt.save(1, {"x": 1})
    millrace.Checkpoints(folder).claim()
    ckpt.save(2, {"x": 2}, asynchronous=True)
    with pytest.raises(millrace.MismatchError):
        ckpt.wait()
    ckpt.wait()  # said once
    assert ckpt.latest() == 1


def test_an_error_that_nobody_was_told_is_printed_at_the_end(folder: str) -> None:
    script = """
import sys, millrace
ckpt = millrace.Checkpoints(sys.argv[1])
ckpt.save(1, {})
millrace.Checkpoints(sys.argv[1]).claim()
ckpt.save(2, {"x": 2}, asynchronous=True)
if "wait" in sys.argv:
    try:
        ckpt.wait()
    except millrace.MismatchError:
        pass
"""
    found = run_script(script, folder)
    assert (
        found.returncode == 0
        and "MismatchError" in found.stderr
        and "saving step 2" in found.stderr
        and "wait()" in found.stderr
    ), found.stderr
    found = run_script(script, folder, "wait")
    assert found.returncode == 0 and found.stderr == "", found.stderr


def test_the_end_of_the_program_waits(folder: str) -> None:
    check_script(
        "import sys, numpy, millrace\nmillrace.Checkpoints(sys.argv[1]).save(1, {'x': numpy.zeros(1 << 22)}, asynchronous=True)\n",
        folder,
    )
    assert millrace.Checkpoints(folder).latest() == 1
