"""Tests batches from workers: they are those of a local Loader, whatever becomes of the workers."""

from __future__ import annotations

import contextlib
import io
import itertools
import pathlib
import signal
import subprocess
import time
from typing import Any

import millrace
import numpy as np
import pytest
from PIL import Image
from ports import free_port
from service_support import OPTIONS, Proxy, is_late, is_sound, none_here, outcome, plain, received
from support import Samples, binary
from token_corpus import write_corpus


@pytest.mark.parametrize("last", ["pad", "short", "drop", "wrap"])
@pytest.mark.parametrize("world", [1, 2])
def test_equal_to_a_local_loader(tar: Samples, workers: Any, last: str, world: int) -> None:
    addresses = [workers().address for _ in range(3)]
    for rank in range(world):
        for count in (1, 2, 3):  # streams: 1, 2, 4
            options = {"rank": rank, "world": world, "last": last, "epochs": 2, "seed": 3}
            local, one = received(tar.uri, **options)
            remote, other = received(tar.uri, workers=addresses[:count], **options)
            assert remote == local
            assert outcome(other) == outcome(one)
            report = other.report()["workers"]
            assert [entry["worker"] for entry in report] == [*addresses[:count], "local"]
            assert all(map(is_sound, report)), report
            # On a busy machine a worker that begins late may be overtaken.
            assert none_here(report) and all(entry["rows"] > 0 or entry["last_failure"] for entry in report[:-1])
            assert one.report()["workers"] == []


def test_fields_subsets_and_mixes(tar: Samples, raw: Samples, workers: Any) -> None:
    addresses = [workers().address, workers().address]
    fields = {
        "image": millrace.Image("png"),
        "text": millrace.Text("txt"),
        "more": millrace.Json("json"),
        "cls": millrace.Label("cls"),
    }
    assert received(tar.uri, fields=fields, workers=addresses)[0] == received(tar.uri, fields=fields)[0]
    part = millrace.Dataset(tar.uri).where(samples=range(7, 40, 3))
    assert received(part, workers=addresses)[0] == received(part)[0]
    mix = millrace.Mix([millrace.Dataset(raw.uri), millrace.Dataset(tar.uri)], weights=[1, 2], epoch_samples=60)
    remote, other = received(mix, workers=addresses, epochs=2)
    local, one = received(mix, epochs=2)
    assert remote == local and outcome(other) == outcome(one)


def test_images_that_are_shown_in_spite_of_warnings_are_counted(tmp_path: pathlib.Path, workers: Any) -> None:
    (tmp_path / "set").mkdir()
    for number in range(24):
        out = io.BytesIO()
        pixels = np.random.default_rng(number).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(out, "JPEG")
        data = out.getvalue()
        odd = data[:-2] + bytes(228) + data[-2:] if number % 3 == 0 else data
        (tmp_path / f"set/{number}.jpg").write_bytes(odd)
    uri = str(tmp_path / "set")
    local, one = received(uri)
    remote, other = received(uri, workers=[workers().address])
    assert remote == local
    assert other.report()["odd_images"] == one.report()["odd_images"] > 0


def test_a_bucket(tar: Samples, bucket: str, server: dict[str, str], workers: Any) -> None:
    """Workers read with credentials of their own; a trainer sends none."""
    uri = f"{bucket}/service"
    for shard in sorted(pathlib.Path(tar.uri).glob("*.tar")):
        with millrace.open(f"{uri}/{shard.name}", "wb") as file:
            file.write(shard.read_bytes())
    able, unable = workers(**server), workers(**{**server, "AWS_SECRET_ACCESS_KEY": "wrong"})
    local, one = received(uri)
    remote, other = received(uri, workers=[able.address, unable.address])
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert is_sound(report[0]) and (report[0]["rows"] > 0 or report[0]["last_failure"]), report
    assert report[1]["rows"] == 0 and report[1]["last_failure"]


def test_resume(tar: Samples, workers: Any) -> None:
    """A position says nothing of workers, streams or the world."""
    addresses = [workers().address, workers().address]
    options: dict[str, Any] = {**OPTIONS, "epochs": 2}
    whole, _ = received(tar.uri, epochs=2)
    for stop in (1, 3, 7, 9):
        for first, second in ((addresses, None), (None, addresses), (addresses, addresses[:1])):
            with millrace.Loader(tar.uri, workers=first, **options) as loader:
                batches = (plain(batch) for _ in range(2) for batch in loader)
                begun = list(itertools.islice(batches, stop))
                state = loader.state_dict()
            with millrace.Loader(tar.uri, workers=second, **options) as loader:
                loader.load_state_dict(state)
                rest = [plain(batch) for _ in range(loader.epoch, 2) for batch in loader]
            assert begun + rest == whole


def test_another_world_and_batch_after_a_resume(tar: Samples, workers: Any) -> None:
    addresses = [workers().address, workers().address]
    with millrace.Loader(tar.uri, workers=addresses, **{**OPTIONS, "batch_size": 6, "shuffle": "global"}) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict()
        next(batches)
    digests = []
    for workers_of_ranks in (None, [*addresses, "127.0.0.1:1"]):
        rows = []
        for rank in range(3):
            options = {**OPTIONS, "batch_size": 4, "shuffle": "global", "rank": rank, "world": 3}
            with millrace.Loader(tar.uri, workers=workers_of_ranks, **options) as loader:
                loader.load_state_dict(state)
                rows.append([plain(batch) for batch in loader])
        digests.append(rows)
    assert digests[0] == digests[1]


@pytest.mark.parametrize("layout", ["pack", "pad", "stream"])
def test_rows_of_tokens(workers: Any, tmp_path: pathlib.Path, layout: str) -> None:
    corpus = write_corpus(tmp_path / "corpus", [int(n) for n in np.random.default_rng(1).integers(1, 90, 300)])
    addresses = [workers().address, workers().address]
    tokens = millrace.Tokens(64, layout)
    remote, other = received(corpus.uri, tokens=tokens, workers=addresses)
    local, one = received(corpus.uri, tokens=tokens)
    assert remote == local and outcome(other) == outcome(one)
    assert other.report()["tokens"] == one.report()["tokens"] > 0
    assert none_here(other.report()["workers"])


@pytest.mark.parametrize("layout", ["pad", "pack"])
def test_compressed_rows_of_tokens(workers: Any, tmp_path: pathlib.Path, layout: str) -> None:
    """The same rows come in fewer bytes; and nothing changes for those that do not ask for it."""
    corpus = write_corpus(tmp_path / "corpus", [int(n) for n in np.random.default_rng(1).integers(1, 90, 3000)])
    relay = Proxy(workers().address)
    local, one = received(corpus.uri, tokens=millrace.Tokens(512, layout), batch_size=32)
    sent = []
    for compression in (None, "zstd"):
        for _ in range(10):
            before = relay.bytes_from_worker
            remote, other = received(
                corpus.uri,
                tokens=millrace.Tokens(512, layout),
                batch_size=32,
                workers=millrace.Service([relay.address], compression=compression),
            )
            assert remote == local and outcome(other) == outcome(one)
            assert is_sound(other.report()["workers"][0])
            if not other.report()["workers"][0][
                "last_failure"
            ]:  # else not all came from there, or some twice: the machine is busy
                break
        sent.append(relay.bytes_from_worker - before)
    relay.close()
    assert sent[1] < sent[0] / 2


def test_what_zstd_does_not_shrink(many: Samples, workers: Any) -> None:
    """Files that are compressed already, which are most of each batch, are sent as they are."""
    fields = {"image": millrace.Image("png"), "file": millrace.Bytes("png")}
    relay = Proxy(workers().address)
    local, one = received(many.uri, fields=fields)
    sent = []
    for compression in (None, "zstd"):
        for _ in range(10):
            before = relay.bytes_from_worker
            remote, other = received(
                many.uri, fields=fields, workers=millrace.Service([relay.address], compression=compression)
            )
            assert remote == local and outcome(other) == outcome(one)
            if not other.report()["workers"][0][
                "last_failure"
            ]:  # else not all came from there, or some twice: the machine is busy
                break
        sent.append(relay.bytes_from_worker - before)
    relay.close()
    assert abs(sent[1] - sent[0]) < sent[0] / 20


def test_local_streams_that_follow(many: Samples, workers: Any) -> None:
    """Which rows are decoded where is a matter of time; which rows come is not."""
    local, one = received(many.uri, epochs=3)
    remote, other = received(
        many.uri, epochs=3, workers=millrace.Service([workers().address, workers().address], local_streams="auto")
    )
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert sum(entry["rows"] for entry in report) == sum(len(batch["valid"]) for batch in remote)
    assert report[-1]["rows"] > 0, "first the CPUs of this machine"


def test_workers_take_streams_that_the_program_waits_for(many: Samples, workers: Any) -> None:
    """This process decodes all rows at first. The program does nothing but wait for them, so that workers get some."""
    options = {
        **OPTIONS,
        "batch_size": 16,
        "size": 224,
        "epochs": None,
        "digest": None,
        "memory": "512MiB",
    }  # decoding takes far longer than this loop
    with millrace.Loader(
        many.uri, workers=millrace.Service([workers().address, workers().address], local_streams="auto"), **options
    ) as loader:
        batches = (batch for _ in range(10**9) for batch in loader)
        next(batches)
        assert loader.report()["workers"][-1]["rows"] > 0
        deadline = time.monotonic() + 120
        while not any(entry["rows"] for entry in loader.report()["workers"][:-1]):
            next(batches)
            assert time.monotonic() < deadline, loader.report()["workers"]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_ends_is_not_noticed(many: Samples, workers: Any, capfd: Any, end: int, victim: int) -> None:
    both = [workers(), workers()]
    local, one = received(many.uri, epochs=4)
    with millrace.Loader(many.uri, workers=[worker.address for worker in both], **{**OPTIONS, "epochs": 4}) as loader:
        got = []
        for _ in range(4):
            for batch in loader:
                got.append(plain(batch))
                if len(got) == 10:
                    both[victim].process.send_signal(end)
        report = loader.report()
    assert got == local and outcome(loader) == outcome(one)
    assert report["workers"][victim]["last_failure"]
    assert is_sound(report["workers"][1 - victim]), report["workers"]
    assert none_here([report["workers"][1 - victim], report["workers"][2]])
    assert "no worker serves" not in capfd.readouterr().err or is_late(report["workers"][1 - victim]), (
        "without any worker there is a warning"
    )


def test_an_address_that_cannot_be_reached(many: Samples, workers: Any, capfd: Any) -> None:
    """It is named, with the reason and what happens, also if other workers serve all streams."""
    nobody = f"127.0.0.1:{free_port()}"
    local, one = received(many.uri)
    for addresses in ([nobody], [workers().address, nobody]):
        capfd.readouterr()
        remote, other = received(many.uri, workers=addresses)
        assert remote == local and outcome(other) == outcome(one)
        said = capfd.readouterr().err
        assert said.count(f"worker {nobody}: there is no connection to it (") == 1, said
        assert "; until that changes, other workers or this process decode in its place\n" in said


def test_without_any_worker(many: Samples, workers: Any, capfd: Any) -> None:
    """There is at most one warning of each connection: the Loader connects again when the first epoch was taken to its
    end, and reads on from then on."""
    worker = workers()
    local, one = received(many.uri, epochs=4)
    with millrace.Loader(many.uri, workers=[worker.address], **{**OPTIONS, "epochs": 4}) as loader:
        got = []
        for _ in range(4):
            for batch in loader:
                got.append(plain(batch))
                if len(got) == 5:
                    worker.process.kill()
                    worker.process.wait()
    assert got == local and outcome(loader) == outcome(one)
    assert loader.report()["workers"][1]["rows"] > 0
    said = capfd.readouterr().err
    # The first connection warns unless the worker has sent the whole epoch before it was killed.
    assert 1 <= said.count("no worker serves") <= 2


def test_a_worker_that_comes_back(many: Samples, workers: Any) -> None:
    worker = workers(listen=f"127.0.0.1:{free_port()}")
    with millrace.Loader(many.uri, workers=[worker.address], **{**OPTIONS, "epochs": None}) as loader:
        batches = (batch for _ in range(10**9) for batch in loader)
        next(batches)
        worker.process.kill()
        worker.process.wait()
        deadline = time.monotonic() + 300
        while loader.report()["workers"][1]["rows"] == 0:
            next(batches)
            assert time.monotonic() < deadline
        again = subprocess.Popen([str(binary()), "worker", "--listen", worker.address], stdout=subprocess.PIPE)
        try:
            before = loader.report()["workers"][0]["rows"]
            while loader.report()["workers"][0]["rows"] == before:
                next(batches)
                assert time.monotonic() < deadline
        finally:
            again.kill()
            again.communicate()


@pytest.mark.parametrize("every", [1, 3, 10])
def test_flipped_bytes(many: Samples, workers: Any, every: int) -> None:
    liar = Proxy(workers().address, flips_every=every)
    honest = workers()
    local, one = received(many.uri)
    remote, other = received(many.uri, workers=[liar.address, honest.address])
    liar.close()
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    # If what it flips leaves the trainer waiting, it may be overtaken before it has failed.
    assert report[0]["last_failure"] and is_sound(report[1]), report


def test_another_data_set_is_refused(tar: Samples, workers: Any, tmp_path: pathlib.Path, capfd: Any) -> None:
    """The worker is of another bucket of the same name."""
    worker = workers("--allow", tmp_path)
    local, one = received(tar.uri)
    remote, other = received(tar.uri, workers=[worker.address])
    assert remote == local and outcome(other) == outcome(one)
    report = other.report()["workers"]
    assert report[0]["rows"] == 0 and "--allow" in report[0]["last_failure"]
    said = capfd.readouterr().err
    assert said.count("this worker does not read") == 1, said


def test_tokens_of_workers(tar: Samples, workers: Any, tmp_path: pathlib.Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("correct-horse-battery\n")
    wrong.write_text("staple-staple-staple\n")
    worker = workers("--token-file", right)
    for token, failure in ((right, ""), (wrong, "is not the worker's"), (None, "asks for a token")):
        _, loader = received(tar.uri, workers=millrace.Service([worker.address], token=token))
        report = loader.report()["workers"]
        assert failure in report[0]["last_failure"] and (report[0]["rows"] > 0) == (failure == "")
        assert "correct" not in str(report)


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_one_cache_for_all_trainers(
    tar: Samples,
    bucket: str,
    server: dict[str, str],
    server_folder: pathlib.Path,
    workers: Any,
    cache_folder: pathlib.Path,
    place: str,
) -> None:
    """A loader does not fetch what another one of other options has read: the objects may even be gone."""
    uri = f"{bucket}/cached-{place}"
    names = [shard.name for shard in sorted(pathlib.Path(tar.uri).glob("*.tar"))]
    for name in names:
        with millrace.open(f"{uri}/{name}", "wb") as file:
            file.write((pathlib.Path(tar.uri) / name).read_bytes())
    words = ["--cache", cache_folder] if place == "disk" else ["--cache", "memory", "--cache-size", "64MiB"]
    worker = workers(*words, **server)
    for _ in range(10):
        first, loader = received(uri, workers=[worker.address])
        if not loader.report()["workers"][0][
            "last_failure"
        ]:  # else some rows were made here, and the worker has not read them: the machine is busy
            break
    assert any(cache_folder.rglob("*")) == (place == "disk")
    data = millrace.Dataset(uri)
    for name in names:
        (server_folder / uri.removeprefix("s3://") / name).unlink()
    for _ in range(10):
        with contextlib.suppress(
            millrace.Error
        ):  # a worker that is late, on a busy machine: this process has nothing to read
            again, loader = received(data, workers=[worker.address], batch_size=4)
            break
    assert none_here(loader.report()["workers"])
    keys = [sorted(key for batch in batches for key in batch["key"] if key) for batches in (first, again)]
    assert keys[0] == keys[1] and len(keys[0]) == len(tar)


def test_what_makes_no_sense(tar: Samples) -> None:
    for options in (
        {"workers": "127.0.0.1:7070"},
        {"workers": [7070]},
        {"workers": ["nowhere"]},
        {"workers": ["h:1", "h:1"]},
        {"workers": millrace.Service(["h:1"], local_streams=-1)},
        {"workers": millrace.Service(["h:1"], local_streams=100)},
        {"workers": millrace.Service(None, local_streams=1)},  # type: ignore[arg-type]
        {"workers": millrace.Service("h:1")},
        {"workers": millrace.Service(["h:1"], local_streams="all")},
        {"workers": millrace.Service(["h:1"], compression="gzip")},
        {"workers": millrace.Service(["h:1"], token=3)},  # type: ignore[arg-type]
    ):
        with pytest.raises(
            (millrace.InvalidArgumentError, TypeError), match="worker|local.streams|HOST|compression|token"
        ):
            millrace.Loader(tar.uri, **options)


def test_buckets_are_refused(tmp_path: pathlib.Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [5, 50, 20, 40])
    tokens = millrace.Tokens(layout="bucket", lengths=[32, 64], batch_sizes=[4, 2])
    with pytest.raises(millrace.InvalidArgumentError, match="buckets"):
        millrace.Loader(corpus.uri, tokens=tokens, workers=["h:1"])


def test_addresses_that_others_reach() -> None:
    made = subprocess.run(
        [str(binary()), "worker", "--listen", "0.0.0.0:0"], capture_output=True, text=True, timeout=120
    )
    assert made.returncode == 2 and "--token-file" in made.stderr
