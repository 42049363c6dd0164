"""A store that misbehaves: the digest is right, or the run fails with a clear message. Never a hang, never a wrong byte."""

from __future__ import annotations

import pytest
from ports import free_port

from . import oracle
from .conftest import Photos
from .harness import Sandbox, Server, devstore, feed_args

SURVIVED = [
    ("GET b/tar/* status=503 p=0.3",),
    ("GET b/tar/* status=503 until=2",),
    ("GET b/tar/* status=500 p=0.2",),
    ("GET b/tar/* status=429 p=0.2",),
    ("GET b/tar/* retry-after=1 count=3",),
    ("GET b/tar/* limit=20 until=3",),
    ("GET b/tar/* reset=head p=0.3",),
    ("GET b/tar/* reset=0 p=0.2",),
    ("GET b/tar/* reset=70000 p=0.3",),
    ("GET b/tar/* cut=head p=0.3",),
    ("GET b/tar/* cut=0 p=0.2",),
    ("GET b/tar/* cut=1 p=0.2",),
    ("GET b/tar/* cut=70000 p=0.3",),
    ("GET b/tar/*.tar flip=0 p=0.3",),
    ("GET b/tar/*.tar flip=50000 p=0.3",),
    ("GET b/tar/*.tar flip=999999 p=0.5",),
    ("GET b/tar/*.tar wrong-range p=0.3",),
    ("GET b/tar/* stall=1000:1500 count=2",),
    ("GET b/tar/* delay-ms=1500 count=3",),
    ("GET b/tar/* rate=300000 count=2",),
    (
        "GET b/tar/* status=503 p=0.1",
        "GET b/tar/* cut=5000 p=0.1",
        "GET b/tar/*.tar flip=2000 p=0.1",
        "GET b/tar/* reset=head p=0.1",
    ),
]


@pytest.mark.parametrize("faults", SURVIVED, ids=lambda faults: " + ".join(faults))
def test_packed_data_survive(photos: Photos, sandbox: Sandbox, server: Server, faults: tuple[str, ...]) -> None:
    with devstore(sandbox, photos.root, "--seed", 3, faults=faults) as faulty:
        report = sandbox.feed("s3://b/tar", env=faulty.env(), memory="64MiB", timeout=300)
    assert (report["samples"], report["digest"]) == (1005, photos.digest())


@pytest.mark.parametrize(
    "fault",
    [
        "status=503 p=0.3",
        "reset=head p=0.1",
        "cut=9000 p=0.1",
        "flip=9000 p=0.05",
        "wrong-range p=0.1",
        "delay-ms=700 p=0.02",
        "limit=400 until=3",
    ],
)
def test_raw_data_survive(photos: Photos, sandbox: Sandbox, server: Server, fault: str) -> None:
    with devstore(sandbox, photos.root, "--seed", 3, faults=(f"GET b/raw/*.jpg {fault}",)) as faulty:
        report = sandbox.feed("s3://b/raw", env=faulty.env(), timeout=300)
    assert (report["samples"], report["digest"]) == (1005, photos.digest())


@pytest.mark.parametrize("fault", ["status=503 p=0.2", "cut=200 p=0.2", "reset=head p=0.2", "delay-ms=500 count=2"])
def test_listing_and_indexing_survive(photos: Photos, sandbox: Sandbox, fault: str) -> None:
    """`index` itself under faults. The key of a listing is `bucket/` and the prefix."""
    with devstore(sandbox, photos.root, "--seed", 4, faults=(f"GET b/raw* {fault}", f"GET b/tar* {fault}")) as faulty:
        for place in ("raw", "tar"):
            sandbox.ok("index", f"s3://b/{place}", env=faulty.env(), timeout=300)
            assert sandbox.feed(f"s3://b/{place}", env=faulty.env(), timeout=300)["digest"] == photos.digest()


def test_faults_do_fire(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    """Otherwise the tests above would prove nothing: with p=0.3 there are more requests than without."""
    plain = sandbox.feed("s3://b/raw", env=server.env())
    with devstore(sandbox, photos.root, faults=("GET b/raw/*.jpg status=503 p=0.3",)) as faulty:
        faulted = sandbox.feed("s3://b/raw", env=faulty.env(), timeout=300)
    assert faulted["requests"]["GET"] > 1.2 * plain["requests"]["GET"]


@pytest.mark.parametrize("threads", [1, 8])
def test_flips_are_found_whatever_the_threads(photos: Photos, sandbox: Sandbox, server: Server, threads: int) -> None:
    with devstore(sandbox, photos.root, faults=("GET b/raw/*.jpg flip=100 p=0.03",)) as faulty:
        assert (
            sandbox.feed("s3://b/raw", shuffle="none", threads=threads, env=faulty.env(), timeout=300)["digest"]
            == photos.digest()
        )


def test_a_changed_etag_asks_for_a_new_index(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    with devstore(sandbox, photos.root, faults=("GET b/tar/*1.tar new-etag",)) as faulty:
        result = sandbox.run(*feed_args("s3://b/tar"), env=faulty.env())
    result.failed(1, r"b/tar/.*1\.tar", "changed|no longer|does not match|not the one", "millrace index")


PERMANENT = [
    ("flip=5000", "checksum|crc"),
    ("cut=5000", "end|cut|closed|short|incomplete|bytes"),
    ("wrong-range", "range"),
    ("status=404", "not found|no such|does not exist"),
    ("status=403", "denied|permission|forbidden"),
    ("status=400", "400|bad request|invalid"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "word"), [PERMANENT[0], *(pytest.param(*one, marks=pytest.mark.all) for one in PERMANENT[1:])]
)
def test_what_never_heals_is_reported(photos: Photos, sandbox: Sandbox, server: Server, fault: str, word: str) -> None:
    with devstore(sandbox, photos.root, faults=(f"GET b/tar/*1.tar {fault}",)) as faulty:
        result = sandbox.run(*feed_args("s3://b/tar"), env=faulty.env(), timeout=300)
    result.failed(1, r"b/tar/.*1\.tar", word)


@pytest.mark.all
@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("status=503", "503|slow ?down|unavailable"),
        ("reset=head", "reset|closed|connection"),
        ("stall=5000:900000", "stall|time|deadline|slow|within"),
    ],
)
def test_an_outage_ends_in_an_error(photos: Photos, sandbox: Sandbox, server: Server, fault: str, word: str) -> None:
    """However patient the client is, it gives up in the end, and says for which object."""
    with devstore(sandbox, photos.root, faults=(f"GET b/tar/*1.tar {fault}",)) as faulty:
        result = sandbox.run(*feed_args("s3://b/tar"), env=faulty.env(), timeout=600)
    result.failed(1, r"b/tar/.*1\.tar", word)


def test_the_server_goes_away(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    """Nobody listens any more: an error, not a wait without end."""
    port = free_port()
    with devstore(sandbox, photos.root, port=port) as gone:
        env = gone.env()
    sandbox.run(*feed_args("s3://b/tar"), env=env, timeout=600).failed(
        1, "s3://b/tar", "connect|refused", r"127\.0\.0\.1|AWS_ENDPOINT_URL"
    )


def test_resume_under_faults(photos: Photos, sandbox: Sandbox, server: Server) -> None:
    with devstore(
        sandbox, photos.root, faults=("GET b/tar/* reset=20000 p=0.2", "GET b/tar/*.tar flip=7000 p=0.2")
    ) as faulty:
        first = sandbox.feed("s3://b/tar", env=faulty.env(), shuffle="window", stop_after=400, timeout=300)
        rest = sandbox.feed("s3://b/tar", env=faulty.env(), shuffle="window", resume=first["position"], timeout=300)
    whole = sandbox.feed("s3://b/tar", env=server.env(), shuffle="window")
    assert oracle.add(first["digest"], rest["digest"]) == whole["digest"]
