"""A job of spot instances: what it has trained on is in its checkpoints in S3, and its log is on a volume that follows it.

millrace run --checkpoint s3://bucket/run --volume run=/data -- python train.py s3://bucket/train /data/log
"""

import sys
import time

import millrace

STEP_SECONDS = 0.03  # in place of a model


def main() -> None:
    data, log = sys.argv[1:]
    epochs = 2
    loader = millrace.Loader(data, batch_size=5, size=16, seed=1, epochs=epochs, memory="64MiB", output="numpy")
    checkpoints = millrace.Checkpoints(keep=2)  # the URI of `millrace run --checkpoint`
    done: list[list[object]] = []
    if checkpoints.latest() is not None:
        state = checkpoints.load()
        loader.load_state_dict(state["loader"])
        done = state["done"]
    notice = millrace.notice()  # from now on no signal is needed
    with open(log, "a", encoding="utf-8") as lines:
        print(f"begin {len(done)}", file=lines, flush=True)
        for epoch in range(loader.epoch, epochs):
            for batch in loader:
                time.sleep(STEP_SECONDS)
                done += [[epoch, key] for key, valid in zip(batch["key"], batch["valid"].tolist()) if valid]
                print(f"step {len(done)}", file=lines, flush=True)
                notice = millrace.notice()
                if notice:
                    checkpoints.save(len(done), {"loader": loader.state_dict(), "done": done})
                    print(f"saved {len(done)} with {notice.seconds_left():.0f} s left", file=lines, flush=True)
                    raise SystemExit(75)  # continue on another instance
        checkpoints.save(len(done), {"loader": loader.state_dict(), "done": done})
        print(f"end {len(done)}", file=lines, flush=True)


main()
