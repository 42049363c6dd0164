"""Tests the page of `millrace bench` by its figures: sentences that a run of the command rarely needs, and names that
may be anything."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HTML = "{http://www.w3.org/1999/xhtml}"

sys.path.append(str(ROOT / "python/millrace"))

from bench import _page, _parts, _plots  # noqa: E402

# Else other tests that import jax or lightning would find millrace/jax.py.
sys.path.remove(str(ROOT / "python/millrace"))


def spread(median: float, least: float | None = None, most: float | None = None) -> dict[str, float]:
    return {
        "median": median,
        "least": median if least is None else least,
        "most": median if most is None else most,
    }


TALLY = {"GET": 12, "HEAD": 2, "LIST": 1, "PUT": 0, "retries": 3, "hedges": 4, "bytes_read": 5 << 20}


def point(name: str, threads: int, rate: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "threads": threads,
        "data_samples": 80,
        "samples_per_second": spread(rate, rate - 1, rate + 1),
        "samples_per_second_per_vcpu": rate / 2,
        "bytes_per_second": spread(2e8),
        "cpu_seconds_per_1000_samples": spread(1.25),
        "busy_cpus": spread(1.5),
        "other_busy_cpus": spread(0.25),
        "gets_per_1000_samples": spread(40),
        "model_busy": spread(0.5),
        "batch_p50_ms": spread(7),
        "batch_p99_ms": spread(70),
        "peak_rss_bytes": 300 << 20,
        "seconds": 2.0,
        "stalls": {"first byte": 0.9, "decode": 0.6, "memory": 0.0001},
        "epoch_requests": TALLY,
        "opening": {"seconds": 0.1, "requests": TALLY},
        "windows": [{"samples": 30}, {"samples": 50}],
        **more,
    }


def epoch(seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "cpu_seconds": 1.0, "samples": 80, "requests": TALLY}


def report() -> dict[str, Any]:
    out = {"name": "ray", "workers": 2, "left_out": "<it> & 'fails'"}
    rival = {
        "name": "dataloader",
        "workers": 2,
        "samples_per_second": spread(100),
        "cpu_seconds_per_1000_samples": spread(9),
        "first_batch_seconds": 1.5,
        "versions": {"torch": "2", "numpy": "1"},
    }
    more = {**rival, "workers": 8, "samples_per_second": spread(300)}
    first = {"name": "80 samples", "data_samples": 80, "requests": TALLY}
    ours = {"with_cache": False, "workers": 1}
    return {
        "limit": "CPUs limit it.",
        "version": "1",
        "data": {"uri": "s3://b/<&>\x01", "description": "", "store": "a store"},
        "environment": {
            "date": "now",
            "cpu": "a CPU",
            "vcpus": 2,
            "memory_bytes": 1 << 30,
            "kernel": "Linux",
            "compiler": "GCC",
        },
        "settings": {
            "batch": 16,
            "size": 64,
            "augment": True,
            "memory_bytes": 64 << 20,
            "io_threads": 1,
            "step_ms": 0.0,
            "warm_up_seconds": 0.1,
            "window_seconds": 1.0,
            "repeats": 2,
        },
        "prices": {"apply": True, "from": "a list", "region": "us-east-1", "date": "2030-01-01"},
        "published": {"samples_per_second_per_vcpu": [250, 375], "source": "a page"},
        "scenarios": {
            "d": {"points": [point("1 thread", 1, 500), point("2 threads", 2, 990)]},
            "a": {
                "points": [
                    point("none, 1 thread", 1, 500, shuffle="none", raw=False),
                    point("raw, 1 thread", 1, 50, shuffle="global", raw=True),
                ],
                "rivals": [rival, more, out],
            },
            "b": {
                "without_cache": [epoch(3), epoch(3)],
                "with_cache": [epoch(3), epoch(1)],
                "raw_objects": [
                    {"name": "millrace", **ours, "epochs": [epoch(3), epoch(3)]},
                    {"name": "millrace", **ours, "with_cache": True, "epochs": [epoch(3), epoch(1)]},
                    {"name": "s3fs", **ours, "left_out": "no mount"},
                ],
            },
            "c": {
                "points": [
                    point("1.0 MiB shards", 1, 400, shard_bytes=1 << 20),
                    point("4.0 MiB shards", 1, 450, shard_bytes=4 << 20),
                ],
                "rivals": [{**rival, "shard_bytes": 1 << 20}, {**out, "shard_bytes": 4 << 20}],
            },
            "e": {
                "points": [{**first, "first_batch_seconds": spread(0.5), "open_seconds": spread(0.25)}],
                "downloads": [{"data_samples": 80, "seconds": spread(9)}],
            },
            "f": {
                "exact": False,
                "points": [{"name": "from the middle", "first_batch_seconds": spread(1), "requests": TALLY}],
            },
            "g": {"faults": ["slow", "500"], "same_bytes": False, "calm": epoch(1), "storm": epoch(2)},
        },
        "rivals": [rival, more, out],
        "page": {
            "beside": "Of 1 other loader, one.",
            "order_ratios": ["raw, 1 thread: 0.1"],
            "orders_note": "The data fit.",
            "batches": 20,
            "batch_ms_percentiles": [float(n) for n in range(101)],
            "damaged": "",
            "gpus": "GPUs meanwhile: 2",
            "own_first_batch_seconds": 0.25,
            "opening_price": "<$0.001",
            "epoch_price": "$0.002",
        },
    }


def test_all_sections_are_well_formed() -> None:
    text = _page.draw_page(report())
    root = ET.fromstring(text)
    body = "".join(root.itertext())
    heads = [head.text for head in root.iter(f"{HTML}h2")]
    assert heads == [
        "Maximum rate without a model",
        "What the consumer waited for",
        "Time between batches of 16",
        "Random and sequential order",
        "Epochs with and without a cache on the local disk",
        "Sequential reading against the size of a shard",
        "Time to the first batch",
        "Resuming in the middle of an epoch",
        "An epoch while the store fails",
        "Other loaders over the same data",
        "Requests",
        "Where and how",
    ]
    for said in (
        "s3://b/<&> ",
        "left out: <it> & 'fails'",
        "The samples after the interruption were not those that would have come without it.",
        "All 80 samples came, and they were not the same bytes.",
        "It waited 1.5 of 2.0 s, which without a model is nearly all of it.",
        "Half of 20 batches came within 50.0 ms, 99 % within 99.0 ms.",
        "extrapolated from 80 that were measured. Prices: a list, us-east-1, of 2030-01-01",
        "990 (989 to 991)",
        "250 for each of 2 vCPUs (published)",
        "millrace, one process with 2 threads",
        "File mode: a training that begins when all objects have been copied to files",
        "<$0.001",
        "torch 2, numpy 1",
        "GPUs meanwhile: 2",
    ):
        assert said in body, said
    assert {row[0].text for row in root.iter(f"{HTML}tr")} >= {"dataloader, 8 workers", "ray, 2 workers", "80 samples"}
    assert "<script" not in text and "src=" not in text and "url(" not in text and "href" not in text
    # A page of one scenario has the sections that it has figures for.
    few = report()
    few["scenarios"] = {"f": few["scenarios"]["f"]}
    few["page"] = {**few["page"], "beside": "", "batches": 0}
    del few["rivals"]
    heads = [head.text for head in ET.fromstring(_page.draw_page(few)).iter(f"{HTML}h2")]
    assert heads == ["Resuming in the middle of an epoch", "Where and how"]


def test_colors_follow_the_system() -> None:
    style = _page.STYLE
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
    for name in ("ink", "paper", "main"):
        assert f"--{name}:" in light and f"--{name}:" in dark and f"var(--{name})" in dark
    assert "color-scheme: light dark" in light


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (12.345, "12.3"), (99.99, "100"), (1234.5, "1,234"), (-12345.0, "-12,345")]
)
def test_short_numbers(value: float, shown: str) -> None:
    assert _parts.short(value) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 51, "2048.0 TiB")])
def test_sizes(count: int, shown: str) -> None:
    assert _parts.size(count) == shown


def test_ticks_are_round() -> None:
    for most in (0.003, 0.9, 1, 7, 42, 99.5, 1000, 123456):
        step = _plots.tick_step(most)
        assert 2 <= most / step <= 5 and f"{step:.0e}"[0] in "125"


def test_any_python_draws_it(tmp_path: Path) -> None:
    """Its files need no package, as the command relies on."""
    (tmp_path / "figures.json").write_text(json.dumps(report()))
    code = f"import sys; sys.path[:0] = [{str(ROOT / 'python/millrace')!r}]; import runpy; runpy.run_module('bench', run_name='__main__')"
    page = tmp_path / "page.html"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, tmp_path / "figures.json", page], check=True, timeout=300)
    assert page.read_text() == _page.draw_page(report())
