"""Tests forks, spawned workers, and the end of the interpreter. Each script has a time limit: a hang fails."""

from __future__ import annotations

import pathlib

import millrace
import pytest
from support import Samples, check_script

PRELUDE = """
import gc, os, sys, multiprocessing
import millrace, numpy
uri = sys.argv[1]
def loader_of(**options):
    return millrace.Loader(uri, **{"batch_size": 8, "size": 8, "output": "numpy", "epochs": 1, "digest": "raw", **options})
def digest():
    loader = loader_of()
    for batch in loader: pass
    return loader.report()["digest"]
def in_child(work):
    # The output of `work` appears; its exit status must be 0.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_objects_of_the_parent_are_refused_in_a_fork(tar: Samples) -> None:
    script = (
        PRELUDE
        + """
loader = loader_of()
iterator = iter(loader)
next(iterator)
state = loader.state_dict()
parent = os.getpid()
def work():
    uses = [
        lambda: next(iterator), lambda: next(iter(loader)), loader.report, loader.state_dict, loader.close, lambda: loader.epoch,
        lambda: loader.load_state_dict(state),
    ]
    for use in uses:
        try:
            use()
        except millrace.UsageError as error:
            assert isinstance(error, RuntimeError)
            assert f"made in process {parent}" in str(error) and "after the fork" in str(error), error
        else:
            raise AssertionError("not refused")
    print("refused", len(uses))
in_child(work)
print(sum(1 for _ in iterator))  # the parent's goes on
"""
    )
    assert check_script(script, tar.uri).splitlines() == ["refused 7", "6"]


def test_a_fork_makes_its_own(tar: Samples) -> None:
    script = (
        PRELUDE
        + """
expected = digest()
held = loader_of()
next(iter(held))
def work():
    assert digest() == expected
    def grandchild():
        assert digest() == expected
        print("grandchild")
    in_child(grandchild)
    print("child")
in_child(work)
in_child(work)
assert digest() == expected
"""
    )
    assert check_script(script, tar.uri).splitlines() == ["grandchild", "child"] * 2


def test_objects_of_the_parent_die_quietly_in_a_fork(tar: Samples) -> None:
    script = (
        PRELUDE
        + """
dataset, loader = millrace.Dataset(uri), loader_of()
batch = next(iter(loader))
copy = batch["image"].copy()
def work():
    global dataset, loader, batch
    assert (batch["image"] == copy).all()
    batch["image"][:] = 0  # the child's own pages
    del dataset, loader, batch
    gc.collect()
    print("collected")
in_child(work)
assert (batch["image"] == copy).all()
"""
    )
    assert check_script(script, tar.uri) == "collected\n"


@pytest.mark.parametrize("use", ["pass", "digest()"])
def test_a_fork_may_end_like_any_program(tar: Samples, use: str) -> None:
    script = (
        PRELUDE
        + f"""
loader = loader_of()
batch = next(iter(loader))
if os.fork() == 0:
    {use}
    sys.exit(0)  # runs atexit handlers and destroys all objects
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
print("ended")
"""
    )
    assert check_script(script, tar.uri) == "ended\n"


def test_fork_while_another_thread_waits_for_a_batch(tar: Samples) -> None:
    script = (
        PRELUDE
        + """
import threading
loader = loader_of(epochs=None)
stop = False
def consume():
    while not stop:
        for batch in loader: pass
thread = threading.Thread(target=consume)
thread.start()
def work():
    try:
        loader.report()
    except millrace.UsageError:
        digest()
        print("child")
for _ in range(5):
    in_child(work)
stop = True
thread.join()
"""
    )
    assert check_script(script, tar.uri) == "child\n" * 5


WORKERS = """
import sys
import millrace, torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
uri, method, early = sys.argv[1:]
class Stream(IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset
    def __iter__(self):
        worker = get_worker_info()
        # Spawned workers got the data set by pickling, which opens it again; forked ones must open it again.
        source = self.dataset if method == "spawn" else self.dataset.uri if early == "open" else self.dataset
        for batch in millrace.Loader(source, batch_size=4, size=8, epochs=1, rank=worker.id, world=worker.num_workers):
            yield [key for key in batch["key"] if key]
if __name__ == "__main__":
    dataset = millrace.Dataset(uri) if early == "open" or method == "spawn" else uri
    if early == "open":
        next(iter(millrace.Loader(dataset, size=8)))
    keys = []
    for batch in DataLoader(Stream(dataset), batch_size=None, num_workers=2, multiprocessing_context=method):
        keys += batch
    print(len(keys), len(set(keys)))
"""


@pytest.mark.parametrize(("method", "early"), [("fork", "open"), ("fork", "not"), ("spawn", "open")])
def test_workers_of_a_torch_dataloader(tar: Samples, tmp_path: pathlib.Path, method: str, early: str) -> None:
    program = tmp_path / "workers.py"  # spawned workers import it
    program.write_text(WORKERS)
    script = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    assert check_script(script, str(program), tar.uri, method, early) == "50 50\n"


def test_a_loader_of_the_parent_in_a_worker_fails_clearly(tar: Samples) -> None:
    script = """
import sys
import millrace
from torch.utils.data import DataLoader, IterableDataset
class Wrapped(IterableDataset):
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        yield from self.loader
try:
    next(iter(DataLoader(Wrapped(millrace.Loader(sys.argv[1], size=8)), batch_size=None, num_workers=1)))
except millrace.UsageError as error:
    assert isinstance(error, RuntimeError)
    print(str(error).count("was made in process"))
"""
    assert check_script(script, tar.uri) == "1\n"


def test_a_loader_is_not_pickled_and_a_dataset_is(tar: Samples) -> None:
    import pickle

    dataset = millrace.Dataset(tar.uri)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.fingerprint == dataset.fingerprint and copy is not dataset
    with pytest.raises(millrace.UnsupportedError, match="send its Dataset"):
        pickle.dumps(millrace.Loader(dataset, size=8))


@pytest.mark.parametrize(
    "rest",
    [
        "loader = loader_of()",
        "loader = loader_of(); iterator = iter(loader); batch = next(iterator)",
        "loader = loader_of(epochs=None); kept = [next(iter(loader)) for _ in range(3)]",
        "batch = next(iter(loader_of())); loader = None",
        "loader = loader_of(); loop = [loader]; loop.append(loop); loader.self = loop",
        "dataset = millrace.Dataset(uri)",
        "pass",
    ],
)
def test_the_interpreter_ends_with_live_objects(tar: Samples, rest: str) -> None:
    assert check_script(f"{PRELUDE}{rest}\nprint('end')", tar.uri) == "end\n"


def test_progress_is_shown_while_indexing(tmp_path: pathlib.Path) -> None:
    from support import write_tar

    write_tar(tmp_path, 50)
    script = """
import io, sys, millrace
sys.stderr = io.StringIO()
dataset = millrace.Dataset(sys.argv[1], progress=True)
shown = sys.stderr.getvalue()
print(len(dataset), shown.startswith(f"\\rindexing {sys.argv[1]}: "), ", 100 %" in shown, shown.endswith(" \\r"))
millrace.Dataset(sys.argv[1], progress=True)  # there is an index now
print(sys.stderr.getvalue() == shown)
"""
    assert check_script(script, str(tmp_path)) == "50 True True True\nTrue\n"
