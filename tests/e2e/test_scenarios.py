"""Memory and connections stay within their bounds whatever the store does, and however many objects there are."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from .harness import MIB, Result, Sandbox, Server, devstore, feed_args, logged_devstore

BUDGET = 64 * MIB


class Scenario(NamedTuple):
    arguments: tuple[object, ...] = ()
    faults: tuple[str, ...] = ()


SCENARIOS = {
    "no fault": Scenario(),
    "30 % 503": Scenario(faults=("GET b/raw/*.jpg status=503 p=0.3",)),
    "a tail of 5 s": Scenario(("--first-byte-ms", 10, "--first-byte-tail-ms", 5000, "--tail-fraction", 0.01)),
    "flips": Scenario(faults=("GET b/raw/*.jpg flip=5000 p=0.05",)),
    "trickles": Scenario(faults=("GET b/raw/*.jpg rate=1024 p=0.01",)),
    "throttling": Scenario(faults=("GET b/raw/*.jpg limit=300",)),
}
OFTEN = ("no fault", "flips")  # the others are left to `make test-all`
every_scenario = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=name, marks=[] if name in OFTEN else pytest.mark.all)
        for name, scenario in SCENARIOS.items()
    ],
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, session_sandbox: Sandbox) -> Path:
    """More than the budget (800 JPEGs of 115 KB), next to nothing, and many small ones."""
    root = tmp_path_factory.mktemp("scenarios")
    for name, count, kb in (("raw", 800, 115), ("few", 4, 6), ("small-400", 400, 6), ("small-1600", 1600, 6)):
        session_sandbox.ok("synth", root / "b" / name, "--count", count, "--kb", kb, "--seed", 1, timeout=300)
    with devstore(session_sandbox, root) as server:
        for name in ("raw", "few", "small-400", "small-1600"):
            session_sandbox.ok("index", f"s3://b/{name}", "--checksums", env=server.env(), timeout=300)
    return root


def feed(sandbox: Sandbox, server: Server, place: str) -> Result:
    how = {"batch": 16, "size": 64, "shuffle": "global", "memory": f"{BUDGET // MIB}MiB"}
    result = sandbox.run(*feed_args(f"s3://b/{place}", **how), env=server.env(), timeout=300, watch_rss=True)
    assert result.code == 0, str(result)
    return result


def copy(sandbox: Sandbox, server: Server, place: str, to: Path) -> Result:
    result = sandbox.run(
        "cp", "--recursive", "--json", f"s3://b/{place}", to, env=server.env(), timeout=300, watch_rss=True
    )
    assert result.code == 0, str(result)
    assert result.json()["failed"] == 0
    return result


@pytest.fixture(scope="module")
def idle(root: Path, session_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The memory of the commands for next to no data: the program, its libraries and threads."""
    with devstore(session_sandbox, root) as server:
        fed = feed(session_sandbox, server, "few").json()["max_rss_bytes"]
        copied = copy(session_sandbox, server, "few", tmp_path_factory.mktemp("idle") / "to").peak_rss
    assert 0 < fed < 48 * MIB and copied < 48 * MIB
    return {"feed": fed, "cp": copied}


@pytest.mark.slow
@every_scenario
def test_feed_keeps_to_its_budget(root: Path, idle: dict[str, int], sandbox: Sandbox, scenario: Scenario) -> None:
    with devstore(sandbox, root, "--seed", 1, *scenario.arguments, faults=scenario.faults) as server:
        result = feed(sandbox, server, "raw")
    report = result.json()
    assert report["samples"] == 800
    limit = idle["feed"] + 1.05 * BUDGET
    assert max(report["max_rss_bytes"], result.peak_rss) <= limit, (
        f"{report['max_rss_bytes'] / MIB:.1f} of {limit / MIB:.1f} MiB"
    )


@pytest.mark.slow
@every_scenario
def test_cp_keeps_to_its_bound(
    root: Path, idle: dict[str, int], sandbox: Sandbox, tmp_path: Path, scenario: Scenario
) -> None:
    """64 objects and 64 MiB of small objects at a time."""
    with devstore(sandbox, root, "--seed", 1, *scenario.arguments, faults=scenario.faults) as server:
        result = copy(sandbox, server, "raw", tmp_path / "to")
    assert (result.json()["objects"], result.json()["indexes"]) == (800, 1)
    limit = idle["cp"] + 1.05 * BUDGET
    assert 0 < result.peak_rss <= limit, f"{result.peak_rss / MIB:.1f} of {limit / MIB:.1f} MiB"


class Connections:
    """Connections to a server of 127.0.0.1, as the kernel lists those of all states but the listening one."""

    def __init__(self, url: str) -> None:
        self._server = f"0100007F:{int(url.rsplit(':', 1)[1]):04X}"
        self._done = threading.Event()
        self.ports: set[str] = set()  # of the other side, of all that were ever there
        self.peak = 0
        self._thread = threading.Thread(target=self._watch)

    def _look(self) -> None:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        found = {line.split()[1]: line.split()[3] for line in lines if line.split()[2] == self._server}
        self.ports |= found.keys()
        self.peak = max(self.peak, sum(state == "01" for state in found.values()))  # established

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._look()

    def __enter__(self) -> Connections:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()  # those that were closed are remembered for a minute


@pytest.mark.parametrize("command", ["feed", "cp"])
@pytest.mark.parametrize(
    "name", ["30 % 503", pytest.param("no fault", marks=pytest.mark.all), pytest.param("flips", marks=pytest.mark.all)]
)
@pytest.mark.slow
def test_connections_do_not_grow_with_the_objects(
    root: Path, sandbox: Sandbox, tmp_path: Path, command: str, name: str
) -> None:
    made: dict[int, int] = {}
    again: dict[int, int] = {}  # requests for what was asked for before
    for count in (400, 1600):
        place = f"small-{count}"
        faults = tuple(fault.replace("b/raw/", f"b/{place}/") for fault in SCENARIOS[name].faults)
        log = tmp_path / f"{place}.log"
        with logged_devstore(sandbox, root, log, "--seed", 1, "--first-byte-ms", 5, faults=faults) as server:
            with Connections(server.url) as connections:
                if command == "feed":
                    feed(sandbox, server, place)
                else:
                    copy(sandbox, server, place, tmp_path / place)
        asked = [line.split()[2] for line in log.read_text().splitlines() if " GET /b/" in line and ".jpg" in line]
        assert len(set(asked)) == count
        again[count] = len(asked) - count
        made[count] = len(connections.ports)
        assert made[count] > 0
        assert connections.peak <= 256 + 34, connections.peak  # and for second requests
    # A second request beside a late one ends a connection. How many there are depends on how busy this machine is.
    assert made[1600] - again[1600] <= 1.25 * made[400] + 32, (made, again)
