"""Tests the Helm chart, as far as it can be looked at without Helm: tests/frameworks/cases_chart.py renders it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/millrace"


def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def test_the_version_is_that_of_the_project() -> None:
    stated = re.search(r"project\(millrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert stated is not None and chart["version"] == chart["appVersion"] == stated[1]


def schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text())


def names(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Returns the paths of all properties that a schema knows."""
    for name, inner in node.get("properties", {}).items():
        yield (*path, name)
        yield from names(inner, (*path, name))


def test_the_schema_takes_the_values_and_knows_no_others() -> None:
    jsonschema.validate(values(), schema())
    given = values()
    for path in names(schema()):
        if path == ("global",):  # Helm's own
            continue
        node: Any = given
        for name in path:
            assert name in node, ".".join(path)
            node = node[name]
    with pytest.raises(jsonschema.ValidationError, match="cach"):
        jsonschema.validate({"csi": {"cach": {}}}, schema())


def test_templates_use_the_values_and_no_others() -> None:
    text = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    used = {tuple(found.split(".")) for found in re.findall(r"\.Values\.([\w.]+)", text)}
    used |= {("worker", *found.split(".")) for found in re.findall(r"\$worker\.([\w.]+)", text)}
    given = values()
    for path in used:
        node: Any = given
        for name in path:
            assert name in node, ".".join(path)
            node = node[name]
    unused = [
        f"{part}.{name}"
        for part in ("image", "csi", "worker")
        for name in given[part]
        if not any(path[:2] == (part, name) for path in used)
    ]
    assert not unused


RULES = """
evaluation_interval: 1m
rule_files: [rules.yml]
tests:
  - interval: 1m
    input_series:
      # Four streams, of which each is waited for a quarter of the time; and a pod that nobody has asked for anything.
      - series: 'millrace_worker_stream_seconds_total{namespace="n", pod="busy"}'
        values: '0+240x20'
      - series: 'millrace_worker_awaited_seconds_total{namespace="n", pod="busy"}'
        values: '0+60x20'
      - series: 'millrace_worker_stream_seconds_total{namespace="n", pod="idle"}'
        values: '0x20'
      - series: 'millrace_worker_awaited_seconds_total{namespace="n", pod="idle"}'
        values: '0x20'
      - series: 'millrace_worker_awaited_seconds_total{namespace="other", pod="busy"}'
        values: '0+240x20'
    promql_expr_test:
      - expr: millrace_worker_busy_share
        eval_time: 10m
        exp_samples:
          - labels: 'millrace_worker_busy_share{pod="busy"}'
            value: 0.25
          - labels: 'millrace_worker_busy_share{pod="idle"}'
            value: 0
"""


def test_the_autoscaler_gets_the_share_that_it_asks_for(tmp_path: Path) -> None:
    """The query of prometheus-adapter, with what the adapter writes into it, evaluated by Prometheus."""
    (rule,) = yaml.safe_load((ROOT / "deploy/prometheus/adapter.yaml").read_text())["rules"]["custom"]
    assert rule["name"]["as"] == values()["worker"]["autoscaling"]["metric"]
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="n",pod=~"busy|idle"')
    query = query.replace("<<.GroupBy>>", "pod")
    assert (
        "<<" not in query
        and rule["name"]["matches"] in query
        and rule["seriesQuery"].startswith(rule["name"]["matches"])
    )
    record = {"groups": [{"name": "adapter", "rules": [{"record": rule["name"]["as"], "expr": query}]}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(record))
    (tmp_path / "test.yml").write_text(RULES)
    done = subprocess.run(["promtool", "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_metric_is_that_of_workers() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    query = (ROOT / "deploy/prometheus/adapter.yaml").read_text()
    for name in set(re.findall(r"millrace_worker_\w+_total", query)):
        assert f"`{name}`" in page
