"""Tests that ranks that open shards without an index build it together."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

OPEN = "import sys, millrace; print(len(millrace.Dataset(sys.argv[1])))"


def write_shards(folder: pathlib.Path, count: int) -> int:
    folder.mkdir()
    for shard in range(count):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as archive:
            for sample in range(shard % 5 + 1):
                info = tarfile.TarInfo(f"{shard}-{sample}.cls")
                info.size = 1
                archive.addfile(info, io.BytesIO(b"7"))
    return sum(shard % 5 + 1 for shard in range(count))


def ranks_of(variables: tuple[str, str], world: int, there: list[int], data: pathlib.Path) -> list[int]:
    rank_name, world_name = variables
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(data)],
            env=os.environ | {rank_name: str(rank), world_name: str(world)},
            stdout=subprocess.PIPE,
        )
        for rank in there
    ]
    return [int(rank.communicate(timeout=300)[0]) for rank in ranks]


@pytest.mark.parametrize(
    ("variables", "there"),
    [
        (("RANK", "WORLD_SIZE"), [0, 1, 2]),
        (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), [1]),  # the others are not there
        (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), [2, 0]),
    ],
)
def test_ranks_build_one_index(
    tmp_path: pathlib.Path, millrace_bin: pathlib.Path, variables: tuple[str, str], there: list[int]
) -> None:
    data = tmp_path / "data"
    samples = write_shards(data, 20)
    subprocess.run([millrace_bin, "index", data, "--output", tmp_path / "alone"], check=True, stdout=subprocess.DEVNULL)
    assert ranks_of(variables, 3, there, data) == [samples] * len(there)
    assert (data / ".millrace/index").read_bytes() == (tmp_path / "alone").read_bytes()
    assert list((data / ".millrace").glob("index.part-*")) == []


def test_a_rank_out_of_range_indexes_alone(tmp_path: pathlib.Path) -> None:
    samples = write_shards(tmp_path / "data", 3)
    assert ranks_of(("RANK", "WORLD_SIZE"), 2, [5], tmp_path / "data") == [samples]
