"""Tests ranks that are killed at any moment, and a job that continues with another number of them."""

from __future__ import annotations

import collections
import json
import pathlib
import random
import subprocess
import sys
import time
from typing import Any

import pytest
from thoroughness import repeats
from token_corpus import write_corpus

ROWS = 3000
EPOCHS = 3

# A rank of a job takes a batch, trains, and writes down what it had and where it is.
TRAINER = """
import json, sys, time, millrace
uri, rank, world, batch, shuffle, state, log, most = sys.argv[1:]
loader = millrace.Loader(uri, tokens=millrace.Tokens(16, layout="pad"), batch_size=int(batch), rank=int(rank), world=int(world),
                         epochs=EPOCHS, seed=5, shuffle=shuffle, output="numpy", memory="8MiB")
if state != "null": loader.load_state_dict(json.loads(state))
batches = 0
with open(log, "w", buffering=1) as out:
    while loader.epoch < EPOCHS:
        for batch in loader:
            batches += 1
            while batches == int(most): time.sleep(1)  # it is to be killed, and goes no further
            time.sleep(0.002)
            out.write(json.dumps([loader.state_dict(), batch["row"][batch["valid"]].tolist()]) + "\\n")
""".replace("EPOCHS", str(EPOCHS))


def written(log: pathlib.Path) -> list[tuple[dict[str, Any], list[int]]]:
    """Returns what a rank had, batch by batch. A line that was being written when the rank was killed is not there."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("shuffle", ["none", "global", "window"])
def test_each_row_once_an_epoch_whatever_happens(tmp_path: pathlib.Path, shuffle: str) -> None:
    """All ranks are killed at once, wherever each of them is. The job continues, with other ranks and batches, from the
    last batch that all of them had. Batches that some had beyond it come again, as steps of a training do that were
    made after its checkpoint."""
    corpus = write_corpus(tmp_path / "corpus", [16] * ROWS)
    random_state = random.Random(shuffle)
    state: dict[str, Any] | None = None
    came: collections.Counter[int] = collections.Counter()
    kills, often = 0, repeats(8, least=2)
    for part in range(40):
        most = 60 if part < often else 0
        world, batch = random_state.randint(1, 4), random_state.choice([1, 7, 16])
        logs = [tmp_path / f"{part}-{rank}" for rank in range(world)]
        ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    TRAINER,
                    corpus.uri,
                    *map(str, (rank, world, batch)),
                    shuffle,
                    json.dumps(state),
                    log,
                    str(most),
                ]
            )
            for rank, log in enumerate(logs)
        ]
        # Ranks are killed from when all of them are in flight; the last part is left alone.
        deadline = time.monotonic() + 300
        while not all(log.exists() and log.stat().st_size for log in logs) and any(
            rank.poll() is None for rank in ranks
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if part < often:
            time.sleep(random_state.uniform(0, 0.3))
            for rank in ranks:
                rank.kill()
        codes = [rank.wait(300) for rank in ranks]
        kills += codes.count(-9)
        assert set(codes) <= {0, -9}
        batches = [written(log) for log in logs]
        common = min(map(len, batches))
        if common:
            states = [of_rank[common - 1][0] for of_rank in batches]
            assert len({state["position"] for state in states}) == 1
            state = states[0]
            for of_rank in batches:
                for _, rows in of_rank[:common]:
                    came.update(rows)
        if set(codes) == {0}:
            break
    assert kills >= often // 2
    assert came == collections.Counter(dict.fromkeys(range(ROWS), EPOCHS))
