"""Tests that the program of README.md and the pages for new users run as they are printed, against an S3 server, in a
process that has only their imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port
from support import binary, devstore, run_script, write_raw

ROOT = Path(__file__).parents[2]
# These pages have programs for the bucket s3://my-bucket.
PAGES = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "quickstart",
            "distributed",
            "tuning",
            "gpu",
            "trainium",
            "sagemaker",
            "spot",
            "coming-from-others",
        )
    ),
]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def programs() -> list[tuple[str, int]]:
    return [(page, number) for page in PAGES for number in range(len(blocks(page, "python")))]


def fill(root: Path) -> None:
    (root / "my-bucket" / "train").mkdir(parents=True)
    write_raw(root / "my-bucket" / "train", 96)


def test_there_are_programs() -> None:
    assert {page for page, _ in programs()} == set(PAGES)
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize(("page", "number"), programs())
def test_the_program_runs(page: str, number: int, tmp_path: Path) -> None:
    fill(tmp_path)
    with devstore(tmp_path) as settings:
        code = blocks(page, "python")[number]
        done = run_script(code, **settings, OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stdout + done.stderr
        if page == "README.md":
            assert "limited by" in done.stdout
            again = run_script(code, **settings, OMP_NUM_THREADS="1")  # all epochs are done
            assert again.returncode == 0, again.stdout + again.stderr


def test_the_commands_of_the_quickstart_run(tmp_path: Path) -> None:
    fill(tmp_path)
    with devstore(tmp_path) as settings:
        for block in blocks("docs/quickstart.md", "sh"):
            if "devstore" in block:  # it makes a server of its own, on a fixed port
                continue
            done = subprocess.run(
                ["bash", "-ec", block],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                env={
                    **os.environ,
                    **settings,
                    "PATH": f"{binary().parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                },
            )
            assert done.returncode == 0, block + done.stdout + done.stderr


def test_files_of_the_readers_own_reach_a_training_loop(tmp_path: Path) -> None:
    """A reader has README.md, photos in class folders, and no account: the commands serve the photos, and train."""
    (block,) = (block for block in blocks("README.md", "sh") if "devstore" in block)
    (tmp_path / "photos").mkdir()
    write_raw(tmp_path / "photos", 96)
    (tmp_path / "train.py").write_text(blocks("README.md", "python")[0])
    port = str(free_port())
    script = block.replace("/tmp/s3", str(tmp_path / "s3")).replace("9000", port)
    assert block.count("9000") == 2 and "/tmp/s3" not in script
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "HOME": str(tmp_path),
        "PATH": f"{binary().parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-ec", "trap 'kill %1; wait' EXIT\n" + script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "limited by" in done.stdout
    (printed,) = (line for line in done.stdout.splitlines() if line.startswith("export "))
    assert printed in script  # README shows the line that devstore prints
