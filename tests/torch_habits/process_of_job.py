"""One process of a program's job: process_of_job.py MODULE PROGRAM FOLDER MEETING. Prints what both sides return."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys

import habits
import torch
from samples import Inputs

if __name__ == "__main__":
    module, program, folder, meeting = sys.argv[1:]
    importlib.import_module(module)
    torch.distributed.init_process_group(
        "gloo", init_method=meeting, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    (one,) = [each for each in habits.of_module(module) if each.id == program]
    inputs = Inputs(pathlib.Path(folder))
    sides = [one.torch] if habits.TORCH_SIDE_ONLY else [one.torch, one.ours]
    values = [side(**{name: inputs(one.data, name) for name in habits.names(side)}) for side in sides if side]
    print(json.dumps([*values, None][:2]))
    torch.distributed.destroy_process_group()
