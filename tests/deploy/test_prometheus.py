"""A real Prometheus reads Millrace's metrics; its own checker reads the alerts; Grafana's own types take the dashboard."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import built_package
import pytest
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds; a test that waits so long fails

TRAINER = """
import json, sys
import millrace
millrace.configure(metrics_port=0)
print(millrace.metrics_url(), flush=True)
loader = millrace.Loader(sys.argv[1], batch_size=8, size=16, output="numpy", epochs=2)
for _ in range(2):
    for batch in loader:
        pass
print(json.dumps(loader.report()), flush=True)
sys.stdin.readline()
"""


class Prometheus:
    """Is the server, which reads one target ten times a second."""

    def __init__(self, folder: Path, target: str, rules: Callable[[str], str] = str) -> None:
        self.port = free_port()
        (folder / "alerts.yml").write_text(rules((ROOT / "deploy/prometheus/alerts.yml").read_text()))
        config = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        config = config.replace("15s", "100ms").replace("127.0.0.1:9400", target)
        (folder / "prometheus.yml").write_text(config)
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=120) as answer:
            return json.load(answer)["data"]

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=120):
                    return
            except OSError as error:
                assert self.process.poll() is None and time.monotonic() < deadline, error
                time.sleep(0.05)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


@pytest.fixture
def data(millrace_bin: Path, tmp_path: Path) -> Path:
    """Makes 30 small images."""
    subprocess.run(
        [millrace_bin, "synth", tmp_path / "data", "--count", "30", "--kb", "4"], check=True, capture_output=True
    )
    return tmp_path / "data"


@pytest.fixture
def trainer(data: Path, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs a training that has received all its batches and still lives. Returns where its metrics are, and its
    report."""
    paths = {"PYTHONPATH": str(built_package.folder()), "MILLRACE_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | paths,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        yield url, json.loads(process.stdout.readline())
    finally:
        process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0


def test_prometheus_has_the_numbers_of_the_report(trainer: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, report = trainer
    target = urllib.parse.urlparse(url).netloc
    server = Prometheus(tmp_path, target)
    try:
        server.wait_until_ready()

        def query(text: str) -> dict[str, float]:
            found = server.ask("/api/v1/query", query=text)["result"]
            return {one["metric"].get("cause", ""): float(one["value"][1]) for one in found}

        deadline = time.monotonic() + PATIENCE
        while query("millrace_loader_samples_total") != {"": report["samples"]}:
            assert time.monotonic() < deadline, server.ask("/api/v1/targets")
            time.sleep(0.05)
        assert report["samples"] == 60
        assert query("millrace_loader_stall_seconds_total") == pytest.approx(report["stalls"], abs=1e-9)
        assert query("millrace_loader_seconds_total") == {"": pytest.approx(report["seconds"], abs=1e-9)}
        while query("millrace_loader_open") != {"": 0}:  # its epochs are used up, so it reads no more
            assert time.monotonic() < deadline, server.ask("/api/v1/targets")
            time.sleep(0.05)
        # It takes the page as it is, knows what each metric is, and evaluates the alerts without an error.
        targets = server.ask("/api/v1/targets")["activeTargets"]
        assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")]
        kinds = {name: one[0]["type"] for name, one in server.ask("/api/v1/metadata").items()}
        assert kinds["millrace_loader_samples_total"] == "counter" and kinds["millrace_loader_open"] == "gauge"
        groups = server.ask("/api/v1/rules")["groups"]
        assert [rule["name"] for rule in groups[0]["rules"]] and not any(
            rule.get("lastError") for rule in groups[0]["rules"]
        )
    finally:
        server.end()


SAVER = """
import sys
import millrace
millrace.configure(metrics_port=0)
millrace.Checkpoints(sys.argv[1]).save(1, {"step": 1})
print(millrace.metrics_url(), flush=True)
sys.stdin.readline()
"""


def wait_for_alert(server: Prometheus, name: str) -> dict[str, str]:
    """Returns the labels of the alert, when it fires."""
    deadline = time.monotonic() + PATIENCE
    while True:
        alerts = server.ask("/api/v1/alerts")["alerts"]
        for one in alerts:
            if one["labels"]["alertname"] == name and one["state"] == "firing":
                return dict(one["labels"])
        assert time.monotonic() < deadline, (alerts, server.ask("/api/v1/targets"))
        time.sleep(0.05)


def test_an_alert_fires_for_a_checkpoint_that_is_too_old(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": str(built_package.folder()), "MILLRACE_CACHE": str(tmp_path / "cache")}
    program = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(tmp_path / "ckpt")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | paths,
    )
    try:
        assert program.stdout is not None
        # The same rules with another threshold: a second, and no time for which that has to be so.
        server = Prometheus(
            tmp_path,
            urllib.parse.urlparse(program.stdout.readline().strip()).netloc,
            rules=lambda text: text.replace("> 3600\n        for: 1m", "> 1"),
        )
        try:
            server.wait_until_ready()
            labels = wait_for_alert(server, "MillraceCheckpointOld")
            assert labels["checkpoints"].endswith("/ckpt/") and labels["severity"] == "critical"
            [saves] = server.ask("/api/v1/query", query="millrace_checkpoint_saves_total")["result"]
            assert saves["value"][1] == "1"
        finally:
            server.end()
    finally:
        program.communicate("\n", timeout=PATIENCE)
    assert program.returncode == 0


def test_alerts_fire_for_a_hang_and_a_job_that_failed(millrace_bin: Path, tmp_path: Path) -> None:
    """The alerts come from the file that `millrace run` leaves. A web server stands in for a node exporter to show
    it."""
    shown = tmp_path / "shown"
    shown.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = {"": "text/plain; version=0.0.4"}

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(shown))

        def log_message(self, format: str, *args: object) -> None: ...

    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    run = [str(millrace_bin), "run", "--metrics-file", str(shown / "metrics")]
    # A run before it, which ends well: its numbers stay in the file until the next run begins.
    subprocess.run([*run, "--", "true"], check=True, capture_output=True, timeout=PATIENCE, umask=0o077)
    assert stat.S_IMODE((shown / "metrics").stat().st_mode) == 0o644, "the node exporter has another user"
    # The same rules with another threshold for a run that is lost.
    server = Prometheus(
        tmp_path,
        f"127.0.0.1:{exporter.server_address[1]}",
        rules=lambda text: text.replace(
            "(millrace_run_alive_timestamp_seconds) > 300", "(millrace_run_alive_timestamp_seconds) > 1"
        ),
    )
    try:
        server.wait_until_ready()
        deadline = time.monotonic() + PATIENCE
        while not server.ask("/api/v1/query", query='millrace_run_ended{outcome="success"} == 1')["result"]:
            assert time.monotonic() < deadline, server.ask("/api/v1/targets")
            time.sleep(0.05)
        assert server.ask("/api/v1/alerts")["alerts"] == []
        hangs = [*run, "--hang-after", "1s", "--grace", "1s", "--", "sleep", "10000"]
        job = subprocess.run(hangs, capture_output=True, text=True, timeout=PATIENCE)
        assert job.returncode != 0 and "hangs" in job.stderr
        wait_for_alert(server, "MillraceJobHangs")
        assert wait_for_alert(server, "MillraceJobFailed")["severity"] == "critical"
        [outcome] = server.ask("/api/v1/query", query="millrace_run_ended == 1")["result"]
        assert outcome["metric"]["outcome"] == "failure"
        # A run that is killed: its file says that it runs, and its time stands still.
        with subprocess.Popen([*run, "--", "sh", "-c", "while kill -0 $PPID; do sleep 0.1; done"]) as killed:
            deadline = time.monotonic() + PATIENCE
            while "\nmillrace_run_alive_timestamp_seconds " not in (shown / "metrics").read_text():
                assert time.monotonic() < deadline and killed.poll() is None
                time.sleep(0.05)
            killed.kill()
        assert wait_for_alert(server, "MillraceJobLost")["severity"] == "critical"
    finally:
        server.end()
        exporter.shutdown()
        exporter.server_close()


def test_the_page_is_in_prometheus_style(trainer: tuple[str, dict[str, Any]]) -> None:
    url, _ = trainer
    with urllib.request.urlopen(url, timeout=120) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page = answer.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_and_configuration() -> None:
    promtool("check", "config", ROOT / "deploy/prometheus/prometheus.yml")
    promtool("test", "rules", ROOT / "tests/deploy/alerts_test.yml")


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Returns what of `given` is not in `kept`."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [path]
        return [
            each
            for key in given
            for each in (lost(given[key], kept[key], f"{path}/{key}") if key in kept else [f"{path}/{key}"])
        ]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(given) != len(kept):
            return [path]
        return [each for at, (one, other) in enumerate(zip(given, kept)) for each in lost(one, other, f"{path}/{at}")]
    return [] if given == kept else [path]


def through_grafana(dashboard: Any) -> Any:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # type: ignore[import-untyped]
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # type: ignore[import-untyped]
    from grafana_foundation_sdk.models.dashboard import Dashboard  # type: ignore[import-untyped]

    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))


def test_dashboard_is_one_for_grafana() -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/millrace.json").read_text())
    assert lost(dashboard, through_grafana(dashboard)) == []
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    # The canary: Grafana's types know nothing of other fields.
    panels[0]["titel"] = "x"
    assert lost(dashboard, through_grafana(dashboard)) == ["/panels/0/titel"]


def known_metrics() -> set[str]:
    """Returns the names that the programs can report, from their source."""
    sources = [source for source in (ROOT / "src").glob("*/*.cc") if not source.stem.endswith(("_test", "_fuzz"))]
    return {name for source in sources for name in re.findall(r'"((?:millrace|process)_[a-z_]+)"', source.read_text())}


@pytest.mark.parametrize("path", ["deploy/grafana/millrace.json", "deploy/prometheus/alerts.yml", "docs/metrics.md"])
def test_names_that_exist(path: str) -> None:
    named = set(re.findall(r"\b((?:millrace|process)_[a-z]+_[a-z_]+)\b", (ROOT / path).read_text()))
    assert named and named <= known_metrics(), named - known_metrics()


def test_all_metrics_are_documented() -> None:
    documented = (ROOT / "docs/metrics.md").read_text()
    missing = {name for name in known_metrics() if name not in documented and not name.startswith("process_")}
    assert not missing
