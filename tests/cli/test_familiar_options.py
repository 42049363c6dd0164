"""Filters, names of options and settings on the command line, as people know them from aws s3, s5cmd and rclone."""

from __future__ import annotations

import fnmatch
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import Bucket, Millrace, contents, lines


def aws_takes(filters: list[tuple[str, str]], name: str) -> bool:
    """As documented for `aws s3`: the last filter that matches decides, of the path below the source."""
    taken = True
    for option, pattern in filters:
        if fnmatch.fnmatchcase(name, pattern):
            taken = option == "--include"
    return taken


NAMES = [
    "a",
    "b.log",
    "logs/x.log",
    "logs/deep/y.log",
    "logs/deep/y.txt",
    "data/1.tar",
    "data/logs/z.log",
    ".git/objects/ab",
]
PATTERNS = [
    "*",
    "*.log",
    "logs/*",
    "*/y.*",
    "?",
    "data/?.tar",
    "[a-c]*",
    "[!a-d]*",
    "a",
    "y.log",
    ".git/*",
    "logs?deep*",
]


@pytest.mark.parametrize("command", ["cp -r", "sync", "rm -r"])
def test_filters_are_those_of_aws(millrace: Millrace, bucket: Bucket, tmp_path: Path, command: str) -> None:
    source = tmp_path / "source"
    for name in NAMES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"x")
    draw = random.Random(7)
    seen = set()
    for count in (1, 1, 1, 2, 2, 2, 3, 3, 4, 4):
        filters = [(draw.choice(["--exclude", "--exclude", "--include"]), draw.choice(PATTERNS)) for _ in range(count)]
        wanted = sorted(name for name in NAMES if aws_takes(filters, name))
        places = [source] if command.startswith("rm") else [source, tmp_path / "target"]
        shown = lines(millrace(*command.split(), *places, *itertools.chain(*filters), "--dry-run", "--json"))
        steps = [json.loads(line) for line in shown[:-1]]
        said = sorted((step.get("copy") or step.get("remove")).removeprefix(f"{source}/") for step in steps)
        assert said == wanted, filters
        assert json.loads(shown[-1])["dry_run"]
        assert sorted(contents(source)) == sorted(NAMES) and not (tmp_path / "target").exists()
        seen.add(tuple(wanted))
    assert len(seen) > 4


def test_cp_filters(millrace: Millrace, bucket: Bucket, tree: Path, tmp_path: Path) -> None:
    millrace(
        "cp", "-r", tree, "s3://bkt/t", "--exclude", "a/*", "--exclude", "big", "--include", "a/y/*", env=bucket.env
    )
    assert bucket.keys() == ["t/a-", "t/a/y/z", "t/a0"]
    # The path of a match begins below the last folder without a wildcard.
    millrace("cp", "s3://bkt/t/**", tmp_path / "out", "--exclude", "a/*", env=bucket.env)
    assert sorted(contents(tmp_path / "out")) == ["a-", "a0"]
    assert lines(millrace("cp", "-r", tree, "s3://bkt/none", "--exclude", "*", env=bucket.env))[0].startswith(
        "copied 0 objects"
    )


@pytest.mark.parametrize("command", ["cp SRC DST", "rm SRC", "cp SRC -"])
def test_filters_want_many_objects(millrace: Millrace, tree: Path, tmp_path: Path, command: str) -> None:
    words = command.replace("SRC", str(tree / "a0")).replace("DST", str(tmp_path / "copy")).split()
    assert b"--exclude and --include" in millrace(*words, "--exclude", "b*", code=2).stderr
    assert (tree / "a0").exists() and not (tmp_path / "copy").exists()


def test_rm_keeps_what_is_excluded(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{name: b"1" for name in ("p/a.tmp", "p/a.tar", "p/d/b.tmp", "q")})
    millrace("rm", "-r", "s3://bkt/p", "--exclude", "*", "--include", "*.tmp", env=bucket.env)
    assert bucket.keys() == ["p/a.tar", "q"]
    assert lines(millrace("rm", "-r", "s3://bkt/p", "--exclude", "*", env=bucket.env)) == ["removed 0 objects"]
    millrace("rm", "s3://bkt/**", "--yes", "--exclude", "q", env=bucket.env)
    assert bucket.keys() == ["q"]


@pytest.mark.parametrize("option", ["--dry-run", "--dryrun"])
def test_dry_runs(millrace: Millrace, bucket: Bucket, tree: Path, option: str) -> None:
    bucket.put(x=b"1")
    said = lines(millrace("cp", "-r", tree, "s3://bkt/t", option, env=bucket.env))
    assert said[0] == f"would copy {tree}/a- to s3://bkt/t/a-"
    assert len(said) == 6 and said[-1].startswith("would copy 5 objects")
    assert (
        lines(millrace("cp", "s3://bkt/x", "s3://bkt/y", option, env=bucket.env))[0]
        == "would copy s3://bkt/x to s3://bkt/y"
    )
    assert lines(millrace("sync", tree, "s3://bkt/t", option, env=bucket.env))[-1].startswith("would have copied 5")
    assert lines(millrace("rm", "s3://bkt/x", option, env=bucket.env))[0] == "would remove s3://bkt/x"
    assert bucket.keys() == ["x"]
    assert b"--dry-run does not go" in millrace("cp", tree / "a0", "-", option, code=2).stderr


def test_cp_dry_run_says_what_would_fail(millrace: Millrace, tree: Path, bucket: Bucket) -> None:
    bucket.put(**{"p/..": b"1", "p/x": b"2"})
    done = millrace("cp", "-r", "s3://bkt/p", tree / "out", "--dry-run", code=1, env=bucket.env)
    assert b"s3://bkt/p/x" in done.stdout and b"would copy s3://bkt/p/.." not in done.stdout
    assert not (tree / "out").exists()


def test_ls_summarize(millrace: Millrace, tree: Path) -> None:
    shown = lines(millrace("ls", "-r", tree, "--summarize"))
    assert shown[-3:] == ["", "Total Objects: 5", f"   Total Size: {25_600_000 + 10}"]
    assert lines(millrace("ls", tree, "--summarize", "--human-readable"))[-2:] == [
        "Total Objects: 3",
        "   Total Size: 24.4 MiB",
    ]
    assert json.loads(lines(millrace("ls", tree / "a" / "**", "--summarize", "--json"))[-1]) == {
        "schema": "millrace.ls/1",
        "objects": 2,
        "bytes": 5,
    }


def test_cat_of_several(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    bucket.put(**{"p/1": b"one", "p/2": b"two"})
    done = millrace("cat", "s3://bkt/p/*", tree / "a" / "x", "s3://bkt/p/1", env=bucket.env)
    assert done.stdout == b"onetwo" + b"22" + b"one"
    assert millrace("cat", "s3://bkt/p/1", "s3://bkt/p/2", "--range", "1-", env=bucket.env).stdout == b"newo"
    # Arguments that are wrong in themselves are found before anything is written.
    assert millrace("cat", tree / "a0", "http://host/x", code=2).stdout == b""
    assert b"none" in millrace("cat", "s3://bkt/p/none", "s3://bkt/p/1", code=1, env=bucket.env).stderr


def without_settings(bucket: Bucket, home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {name: "" for name in bucket.env if name.startswith("AWS_")} | {
        "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "", "AWS_CONFIG_FILE": "",
    }  # fmt: skip


@pytest.mark.parametrize("before", [False, True], ids=["behind the command", "before it"])
def test_settings_on_the_command_line(millrace: Millrace, bucket: Bucket, tmp_path: Path, before: bool) -> None:
    bucket.put(x=b"1")
    endpoint = bucket.env["AWS_ENDPOINT_URL"]
    given = tmp_path / "home" / ".aws" / "credentials"
    given.parent.mkdir(parents=True)
    keys = f"aws_access_key_id = {bucket.env['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {bucket.env['AWS_SECRET_ACCESS_KEY']}\n"
    given.write_text(
        f"[default]\naws_access_key_id = NOBODY\naws_secret_access_key = wrong\n[lab]\n{keys}[full]\n{keys}endpoint_url = {endpoint}\n"
    )
    clean = without_settings(bucket, tmp_path / "home")

    def ls(*options: str, code: int = 0, env: dict[str, str] | None = None) -> bytes:
        words = [*options, "ls", "s3://bkt"] if before else ["ls", "s3://bkt", *options]
        done = millrace(*words, code=code, env=clean | (env or {}))
        return done.stdout + done.stderr

    assert b" x\n" in ls("--endpoint-url", endpoint, "--profile", "lab", "--region", "us-east-1")
    assert b" x\n" in ls("--profile", "full")
    # They win over the environment.
    elsewhere = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_REGION": "no region!", "AWS_PROFILE": "gone"}
    assert b" x\n" in ls("--endpoint-url", endpoint, "--profile", "lab", "--region", "us-east-1", env=elsewhere)
    wrong_keys = {"AWS_ACCESS_KEY_ID": "NOBODY", "AWS_SECRET_ACCESS_KEY": "wrong"}
    assert b" x\n" in ls("--profile", "full", env=wrong_keys)
    assert b"InvalidAccessKeyId" in ls("--endpoint-url", endpoint, code=1)
    assert b"'gone'" in ls("--profile", "gone", code=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--endpoint-url", "localhost:9000"],
            b"millrace: --endpoint-url: the S3 endpoint 'localhost:9000' has no scheme",
        ),
        (["--endpoint-url", "http://me:geheim@host"], b"not shown"),
        (["--region", "eu west"], b"--region: 'eu west' is not a region's name"),
        (["--profile", ""], b"--profile: the name is empty"),
    ],
)
def test_wrong_settings(millrace: Millrace, options: list[str], message: bytes) -> None:
    said = millrace("ls", "s3://bkt", *options, code=2).stderr
    assert message in said and b"geheim" not in said


COMMANDS = ["ls", "synth", "cat", "cp", "sync", "rm", "mount", "pack", "index", "inspect", "feed", "worker", "run"]
COMMANDS += ["checkpoint ls", "doctor", "doctor s3", "bench", "advise"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_settings(millrace: Millrace, command: str) -> None:
    text = millrace(*command.split(), "--help").stdout
    for option in (b"--endpoint-url", b"--profile", b"--region", b"--no-sign-request"):
        assert option in text


def test_what_run_starts_has_the_settings(millrace: Millrace) -> None:
    words = ["--endpoint-url", "http://127.0.0.1:1", "--profile", "lab", "--region", "eu-west-1"]
    shell = 'echo "$AWS_ENDPOINT_URL_S3 $AWS_PROFILE $AWS_REGION ${AWS_ACCESS_KEY_ID-none}"'
    done = millrace(
        "run", *words, "--", "sh", "-c", shell, env={"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
    )
    assert done.stdout == b"http://127.0.0.1:1 lab eu-west-1 none\n"


def test_requests_without_a_signature(
    millrace: Millrace, bucket: Bucket, devstore: Callable[..., Any], tmp_path: Path
) -> None:
    public = devstore("mem:", "--bucket", "bkt", "--anonymous")
    nobody = without_settings(bucket, tmp_path / "home")
    place = ["s3://bkt", "--endpoint-url", public.env()["AWS_ENDPOINT_URL"]]
    assert b"no AWS credentials" in millrace("ls", *place, code=1, env=nobody).stderr
    assert millrace("ls", *place, "--no-sign-request", env=nobody).stdout == b""
    assert b"AccessDenied" in millrace("ls", "s3://bkt", "--no-sign-request", code=1, env=bucket.env).stderr


def test_doctor_without_s3(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"p/x": b"1" * 1000})
    env = {name: value for name, value in bucket.env.items() if name != "AWS_ENDPOINT_URL"}
    for words in (["doctor"], ["doctor", "s3"]):
        found = json.loads(
            millrace(*words, "s3://bkt/p", "--endpoint-url", bucket.env["AWS_ENDPOINT_URL"], "--json", env=env).stdout
        )
        assert found["ok"]
    for words in (["doctor", "s3"], ["doctor", "--write"]):
        assert b"a URI is missing" in millrace(*words, code=2).stderr
    # Right after an installation: what `doctor host` says.
    this_machine = json.loads(millrace("doctor", "--json").stdout)
    assert this_machine["ok"] and {"node", "figures"} <= set(this_machine)
    assert {check["name"] for check in this_machine["checks"]} >= {"memory", "disk", "free space"}
    assert b"memory: " in millrace("doctor").stdout
    assert b"is not on S3" in millrace("doctor", tmp_path, code=2).stderr
    assert b"doctor s3" in millrace("doctor", "--help").stdout
