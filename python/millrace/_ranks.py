"""This module has the rank of this process among the processes that share the data."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import _arguments
from ._errors import InvalidArgumentError

# The first pair that is set counts: torchrun under srun knows better than Slurm.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Kubernetes' PyTorchJob
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


# These variables have the number of ranks on this machine. Slurm does not have a variable that says it plainly.
_LOCAL_VARIABLES = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def local_ranks(rank: int, world: int) -> int:
    """Returns the number of ranks on this machine, or 0 if it is not known.

    It is known if all machines have equally many ranks, and if the numbers of a machine's ranks are consecutive.
    """
    for names in _LOCAL_VARIABLES:
        local, size = (os.environ.get(name, "") for name in names)
        if (
            local.isdecimal()
            and size.isdecimal()
            and 0 < int(size) <= world
            and world % int(size) == 0
            and rank % int(size) == int(local)
        ):
            return int(size)
    return 0


def rank_and_world(rank: int | None, world: int | None) -> tuple[int, int]:
    """Returns ``rank`` and ``world``, else those of torch.distributed if it is initialized, else those of the environment, else 0 of 1."""
    if rank is not None and world is not None:
        return _arguments.integer("rank", rank, least=0), _arguments.integer("world", world, least=1)
    if rank is not None or world is not None:
        raise InvalidArgumentError("rank and world belong together: give both, or neither to have them found")
    # A module that is not imported is not initialized.
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    for variables in _VARIABLES:
        found = [os.environ.get(name) for name in variables]
        # One variable of the first pair is a mistake. Slurm's batch scripts, which are not ranks, have one of theirs.
        if None not in found or (variables == _VARIABLES[0] and found != [None, None]):
            return _numbers(variables, found)
    return 0, 1


def share_of_work() -> tuple[int, int]:
    """Returns rank and world for work that the ranks of a job may share. It returns 0 of 1 if they are not found or not valid."""
    try:
        rank, world = rank_and_world(None, None)
    except InvalidArgumentError:
        return 0, 1
    return (rank, world) if 0 <= rank < world else (0, 1)


def _numbers(variables: tuple[str, str], found: list[str | None]) -> tuple[int, int]:
    try:
        return int(found[0] or ""), int(found[1] or "")
    except ValueError:
        said = " and ".join(f"{name}={value!r}" for name, value in zip(variables, found))
        raise InvalidArgumentError(
            f"the environment says {said}; set both to numbers, or give rank and world"
        ) from None
