"""A job that is asked to leave, again and again, each time in another step, reads every sample exactly once and loses
no step."""

from __future__ import annotations

import json
import pathlib
import random
import signal
import subprocess
import sys
from collections import Counter

from support import Samples
from thoroughness import ALL, repeats

EPOCHS = 30 if ALL else 4

# The program writes down the samples of each step once the step counts: its position is in a checkpoint, or the job is
# done.
TRAIN = """
import json, sys
import millrace

uri, journal, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
loader = millrace.Loader(uri, batch_size=5, size=8, seed=3, epochs=epochs, memory="64MiB")
ckpt = millrace.Checkpoints(keep=2)
millrace.notice()  # from now on no signal is needed
done = []
if ckpt.latest() is not None:
    state = ckpt.load()
    loader.load_state_dict(state["loader"])
    done = state["done"]
for epoch in range(loader.epoch, epochs):
    for batch in loader:
        done += [[epoch, key] for key, valid in zip(batch["key"], batch["valid"].tolist()) if valid]
        print("step", len(done), flush=True)
        sys.stdin.readline()  # the test says when the next step begins
        if millrace.notice():
            ckpt.save(len(done), {"loader": loader.state_dict(), "done": done})
            raise SystemExit(75)
with open(journal, "w") as file:
    json.dump(done, file)
"""


def test_no_sample_is_lost_or_read_twice(millrace_bin: pathlib.Path, raw: Samples, tmp_path: pathlib.Path) -> None:
    program, journal = tmp_path / "train.py", tmp_path / "done.json"
    program.write_text(TRAIN)
    command = [str(millrace_bin), "run", "--retries", "3", "--checkpoint", str(tmp_path / "ckpt"), "--"]
    command += [sys.executable, str(program), raw.uri, str(journal), str(EPOCHS)]
    rng = random.Random(7)
    steps = EPOCHS * 9  # of 45 samples, five each
    interruptions = repeats(100, least=5)
    last = 0
    for left in range(interruptions, -1, -1):
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            leave_after = rng.randint(1, steps // interruptions) if left else steps
            for step in range(1, leave_after + 1):
                line = process.stdout.readline()
                if not line:
                    break
                assert line == f"step {last + 5}\n"  # the one after the last, whatever came between them
                last += 5
                if step == leave_after and left:
                    process.send_signal(signal.SIGUSR1)
                    while "announces" not in process.stderr.readline():
                        pass
                process.stdin.write("\n")
                process.stdin.flush()
            assert process.stdout.read() == ""
        assert process.returncode == (75 if left else 0)
    read = Counter((epoch, key) for epoch, key in json.loads(journal.read_text()))
    assert read == {(epoch, key): 1 for epoch in range(EPOCHS) for key in raw.pixels}
