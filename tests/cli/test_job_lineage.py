"""`millrace run --lineage FILE`: what a job has read, by which the same data can be found again."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from cli_support import Bucket, Millrace


def lineage(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The events of a file, by name, without what every line has."""
    events: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        for name in ("time", "run", "host"):
            assert event.pop(name)
        events.setdefault(event.pop("event"), []).append(event)
    return events


def test_what_was_read(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(
        **{f"p/{i}": b"x" * i for i in range(7)},
        **{"m.json": json.dumps([{"prefix": "s3://bkt/p/"}, "5", "2"]).encode()},
    )
    pages = bucket.s3.list_objects_v2(Bucket="bkt", Prefix="p/")["Contents"]
    objects = [
        {"uri": f"s3://bkt/{item['Key']}", "etag": item["ETag"].strip('"'), "size": item["Size"]} for item in pages
    ]
    channels = {
        "file": ("s3://bkt/p", objects),
        "some": ("s3://bkt/m.json,type=ManifestFile", [objects[2], objects[5]]),
        "part": ("s3://bkt/p,distribution=ShardedByS3Key", objects[1::2]),
        "pipe": ("s3://bkt/p,mode=Pipe,shuffle-seed=4,distribution=ShardedByS3Key", objects),
    }
    options = [word for name, (uri, _) in channels.items() for word in ("--channel", f"{name}={uri}")]
    job = [
        "run",
        "--root",
        tmp_path / "ml",
        "--lineage",
        tmp_path / "lineage",
        *options,
        "--hosts",
        "a,b",
        "--current-host",
        "b",
    ]
    body = 'cat "$SM_CHANNEL_PIPE"_0 "$SM_CHANNEL_PIPE"_1 | wc -c'
    done = millrace(*job, "--", "sh", "-c", body, env=bucket.env)
    events = lineage(tmp_path / "lineage")
    for name, (uri, found) in channels.items():
        assert [
            {k: v for k, v in each.items() if k != "channel"} for each in events["object"] if each["channel"] == name
        ] == found, name
        digest = hashlib.sha256(
            "".join(f"{each['uri']}\t{each['etag']}\t{each['size']}\n" for each in found).encode()
        ).hexdigest()
        [channel] = [each for each in events["channel"] if each["channel"] == name]
        assert (channel["digest"], channel["objects"]) == (digest, len(found))
        assert channel["uri"] == uri.partition(",")[0] and channel["hosts"] == ["a", "b"] and channel["job_host"] == "b"
        assert (channel["mode"], channel["order"]) == (("Pipe", "global") if name == "pipe" else ("File", "none"))
    assert channel["seed"] == 4 and channel["sharded"] is True
    epochs = [(each["channel"], each["epoch"], each["items"], each["of"]) for each in events["epoch"]]
    assert epochs == [("pipe", 0, 3, 3), ("pipe", 1, 3, 3)]
    assert sum(each["bytes"] for each in events["epoch"]) == int(done.stdout)
    # A second run has the same data, though nothing is copied.
    millrace(*job, "--", "true", env=bucket.env)
    again = lineage(tmp_path / "lineage")
    assert again["channel"] == events["channel"] * 2 and again["object"] == events["object"] * 2


def test_what_was_made_and_by_which_program(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    repository.mkdir()
    (repository / "train.sh").write_text('echo model >"$SM_MODEL_DIR/weights"\n')
    for words in (["init", "-q"], ["add", "train.sh"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    job = ["run", "--root", tmp_path / "ml", "--lineage", tmp_path / "lineage", "--output", "s3://bkt/out"]
    code = ["--code", f"file://{repository}", "--code-dir", tmp_path / "code"]
    millrace(*job, *code, "--", "sh", "train.sh", env=bucket.env)
    events = lineage(tmp_path / "lineage")
    assert [(each["url"], each["commit"]) for each in events["code"]] == [(f"file://{repository}", commit)]
    head = bucket.s3.head_object(Bucket="bkt", Key="out/model.tar.gz")
    [output] = events["output"]
    assert (output["name"], output["uri"]) == ("model", "s3://bkt/out/model.tar.gz")
    assert (output["etag"], output["size"]) == (head["ETag"].strip('"'), head["ContentLength"])


def test_a_file_that_cannot_be_written(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"p/a": b"1"})
    job = ["run", "--root", tmp_path / "ml", "--channel", "train=s3://bkt/p", "--lineage"]
    nowhere = millrace(*job, tmp_path / "none" / "file", "--", "echo", "no", code=1, env=bucket.env)
    assert nowhere.stdout == b"" and b"none/file" in nowhere.stderr
    full = millrace(*job, "/dev/full", "--", "echo", "no", code=1, env=bucket.env)
    assert full.stdout == b"" and b"/dev/full" in full.stderr
