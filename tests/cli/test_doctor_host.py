"""`millrace doctor host`: what is a fault and what is a figure, by status, text and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace

# However full the disk of the tests is.
ROOM = ["--min-free", "1MiB"]
FIGURES = {"memory_gbps", "disk_write_mbps", "disk_read_mbps", "disk_sync_ms"}


@pytest.fixture
def host(
    millrace: Millrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, dict[str, str]]]:
    """The checks by name. No Python is asked unless `--python` says so."""
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "SLURM_LOCALID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path, code: int = 0, env: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
        python = [] if "--python" in arguments else ["--python", ""]
        room = [] if "--min-free" in arguments else ROOM
        words = ["doctor", "host", "--disk", tmp_path, *room, *python, *arguments, "--json"]
        report = json.loads(millrace(*words, code=code, env=env).stdout)
        assert report["ok"] == (code == 0) and report["figures"].keys() >= FIGURES - {"disk_sync_ms"}
        assert all(bool(check["remedy"]) == (check["result"] == "failed") for check in report["checks"])
        return {check["name"]: check for check in report["checks"]}

    return run


Host = Callable[..., dict[str, dict[str, str]]]


def fake_python(folder: Path, script: str) -> Path:
    """Stands for the Python that trains: its answer is what counts here."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_sound_machine(host: Host, millrace: Millrace, tmp_path: Path) -> None:
    found = host()
    assert [check["result"] for check in found.values()] == ["ok", "ok", "ok", "skipped", "skipped"]
    assert list(found) == ["memory", "free space", "disk", "store", "devices"]
    assert list(tmp_path.iterdir()) == []
    text = millrace("doctor", "host", "--disk", tmp_path, *ROOM, "--python", "").stdout.decode().splitlines()
    assert [line.split(None, 1)[1].split(":")[0] for line in text] == list(found)


@pytest.mark.parametrize(
    ("option", "check"), [("--min-memory-gbps", "memory"), ("--min-disk-mbps", "disk"), ("--min-free", "free space")]
)
def test_what_is_below_a_limit_is_a_fault(host: Host, option: str, check: str) -> None:
    found = host(option, "1000000" if option != "--min-free" else "1000000TiB", code=1)
    assert [name for name, one in found.items() if one["result"] == "failed"] == [check]
    assert "it must be" in found[check]["text"]


def test_a_missing_disk_is_a_fault(millrace: Millrace, tmp_path: Path) -> None:
    done = millrace("doctor", "host", "--disk", tmp_path / "missing", "--python", "", code=1)
    assert b"FAILED disk: " in done.stdout and b"--disk" in done.stdout


def test_the_store_and_the_clock_are_asked(host: Host, bucket: Bucket) -> None:
    bucket.put(**{"train/a": b"x" * 3_000_000})
    found = host("s3://bkt/train/", env=bucket.env)
    assert (
        found["clock"]["result"] == found["get"]["result"] == found["speed"]["result"] == "ok" and "store" not in found
    )
    assert host("s3://bkt/train/", "--min-store-mbps", "1e9", env=bucket.env, code=1)["store"]["result"] == "failed"
    assert host("s3://nowhere/", env=bucket.env, code=1)["list"]["result"] == "failed"


def test_python_is_told_and_believed(host: Host, tmp_path: Path) -> None:
    script = """
asked = json.load(sys.stdin)
assert sys.argv[1] == "-c" and sys.argv[3:] == ["millrace.preflight"] and asked["figures"]["memory_gbps"] > 0 and asked["min_bus_gbps"] == 7
assert [failed["name"] for failed in asked["failed"]] == ["disk"]
checks = [{"name": "device cuda:0", "result": "failed", "text": "9 elements wrong on " + asked["node"], "remedy": "replace it"}]
print(json.dumps({"checks": checks, "figures": {"cuda_tflops": 3.5}}))
"""
    found = host(
        "--python",
        fake_python(tmp_path, script),
        "--node",
        "n7",
        "--min-bus-gbps",
        "7",
        "--min-disk-mbps",
        "1e9",
        code=1,
    )
    assert found["device cuda:0"]["text"] == "9 elements wrong on n7"


def test_other_ranks_leave_the_talking_to_rank_0(millrace: Millrace, tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'print(json.dumps({"checks": [], "healthy": False, "silent": True}))')
    done = millrace("doctor", "host", "--disk", tmp_path, *ROOM, "--python", python, code=1, env={"LOCAL_RANK": "1"})
    assert done.stdout == b""
    sound = fake_python(tmp_path, 'print(json.dumps({"checks": [], "healthy": True, "silent": True}))')
    assert (
        millrace("doctor", "host", "--disk", tmp_path, *ROOM, "--python", sound, env={"LOCAL_RANK": "0"}).stdout == b""
    )


@pytest.mark.parametrize(
    "script", ["sys.exit('no module named millrace')", "print('hello')", "print('[1]')", "print('{}')"]
)
def test_a_python_that_does_not_answer_is_a_fault(host: Host, tmp_path: Path, script: str) -> None:
    found = host("--python", fake_python(tmp_path, script), code=1)
    assert found["devices"]["result"] == "failed"


def test_no_python_is_no_fault_unless_it_is_named(host: Host, tmp_path: Path) -> None:
    assert host("--python", tmp_path / "missing", code=1)["devices"]["result"] == "failed"
    assert host("--python", "python3", env={"PATH": "/nowhere"})["devices"]["result"] == "skipped"


def test_usage(millrace: Millrace, tmp_path: Path) -> None:
    for arguments in (["/data"], ["ftp://x"], ["--min-free", "some"], ["--min-disk-mbps", "-1"], ["s3://a", "s3://b"]):
        millrace("doctor", "host", *arguments, code=2)
