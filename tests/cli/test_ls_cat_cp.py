"""`millrace ls`, `cat` and `cp` over folders and devstore; tests/store/test_rgw.py runs them on a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, contents, lines

# ls


def test_ls_shows_one_level(millrace: Millrace, tree: Path) -> None:
    shown = lines(millrace("ls", tree))
    assert [line[31:] for line in shown] == ["a-", "a/", "a0", "big"]
    assert shown[1][:30] == "PRE".rjust(30)
    assert shown[2][20:30] == "4".rjust(10)


def test_ls_recursive_is_in_order_of_whole_keys(millrace: Millrace, tree: Path) -> None:
    assert [line[31:] for line in lines(millrace("ls", tree, "--recursive"))] == ["a-", "a/x", "a/y/z", "a0", "big"]


def test_ls_human(millrace: Millrace, tree: Path) -> None:
    assert "24.4 MiB big" in lines(millrace("ls", tree, "--human"))[-1]


def test_ls_json(millrace: Millrace, tree: Path) -> None:
    shown = [json.loads(line) for line in lines(millrace("ls", tree, "--json"))]
    assert shown[1] == {"schema": "millrace.ls/1", "prefix": "a/"}
    assert shown[0]["key"] == "a-" and shown[0]["size"] == 1 and shown[0]["etag"]
    assert shown[0]["modified"].endswith("Z")


def test_ls_takes_a_file_and_an_empty_folder(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    assert lines(millrace("ls", tree / "a" / "x"))[0].endswith(" 2 x")
    (tmp_path / "empty").mkdir()
    assert millrace("ls", tmp_path / "empty").stdout == b""


def test_ls_survives_names_that_are_not_utf8(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff\xfe.jpg")).touch()
    assert json.loads(millrace("ls", tmp_path, "--json").stdout)["key"].endswith(".jpg")
    assert millrace("ls", tmp_path).stdout.endswith(b"\xff\xfe.jpg\n")


def test_ls_of_many_files(millrace: Millrace, tmp_path: Path) -> None:
    names = [f"{i:04}" for i in range(2345)]
    for name in names:
        (tmp_path / name).touch()
    assert [line[31:] for line in lines(millrace("ls", tmp_path))] == names


def test_cp_of_a_prefix_tells_what_is_missing(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"folder/x": b"x"})
    failed = millrace("cp", "s3://bkt/folder", tmp_path / "out", env=bucket.env, code=1)
    assert b"there is no such object; add --recursive to copy what is below it" in failed.stderr


@pytest.mark.parametrize(
    "command", ["ls X", "cat X", "cp X out", "rm X", "rm --recursive X", "index X", "inspect X", "pack X out", "feed X"]
)
def test_a_forgotten_scheme_is_guessed(millrace: Millrace, tree: Path, command: str) -> None:
    """Where nothing of that path is there; what can only be a path, or a file's name, is left alone."""

    def said(path: str) -> str:
        return millrace(*(path if word == "X" else word for word in command.split()), code=1, cwd=tree).stderr.decode()

    assert said("my-bucket/train/x").rstrip().endswith("; for an object store write s3://my-bucket/train/x")
    for path in ("a/none", "./my-bucket/x", f"{tree}/none/x", f"file://{tree}/none/x", "../none/x", "none.jpg"):
        assert "s3://" not in said(path), path


def test_ls_of_a_forgotten_scheme_takes_a_lone_name_for_a_bucket(millrace: Millrace, tree: Path) -> None:
    assert b"write s3://my-bucket\n" in millrace("ls", "my-bucket", code=1, cwd=tree).stderr


def test_ls_of_nothing_fails(millrace: Millrace, tmp_path: Path) -> None:
    assert b"missing" in millrace("ls", tmp_path / "missing", code=1).stderr


# cat


def test_cat(millrace: Millrace, tree: Path) -> None:
    assert millrace("cat", tree / "a" / "x").stdout == b"22"
    assert millrace("cat", f"file://{tree}/big").stdout == (tree / "big").read_bytes()
    (tree / "empty").touch()
    assert millrace("cat", tree / "empty").stdout == b""


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("0-0", 0, 1),
        ("5-9", 5, 10),
        ("100-", 100, None),
        ("-7", -7, None),
        ("25599990-99999999999", 25599990, None),
        ("-99999999999", 0, None),
    ],
)
def test_cat_range(millrace: Millrace, tree: Path, text: str, start: int, end: int | None) -> None:
    assert millrace("cat", tree / "big", f"--range={text}").stdout == (tree / "big").read_bytes()[start:end]


@pytest.mark.parametrize("text", ["-", "5", "9-5", "a-b", "1-2-3", " 1-2", "1-99999999999999999999999", "--1", "0x1-2"])
def test_cat_refuses_what_is_no_range(millrace: Millrace, tree: Path, text: str) -> None:
    assert b"range" in millrace("cat", tree / "big", f"--range={text}", code=2).stderr


def test_cat_range_beyond_the_end(millrace: Millrace, tree: Path) -> None:
    assert b"25600000 bytes" in millrace("cat", tree / "big", "--range=25600000-", code=1).stderr


def test_cat_into_a_pipe_that_closes_is_quiet(millrace_bin: Path, tree: Path) -> None:
    with subprocess.Popen(
        [millrace_bin, "cat", tree / "big"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.read(10) == bytes(range(10))
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=300) == -signal.SIGPIPE


def test_cat_to_a_full_device_fails(millrace_bin: Path, tree: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([millrace_bin, "cat", tree / "big"], stdout=full, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 1
    assert b"No space left" in done.stderr


def test_cat_needs_one_existing_object(millrace: Millrace, tree: Path) -> None:
    assert b"missing" in millrace("cat", tree / "missing", code=1).stderr
    assert b"folder" in millrace("cat", f"{tree}/", code=2).stderr
    millrace("cat", tree / "a", code=1)


# cp


def test_cp_to_a_name_a_folder_and_the_current_folder(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    millrace("cp", tree / "a0", tmp_path / "renamed")
    (tmp_path / "folder").mkdir()
    millrace("cp", tree / "a0", tmp_path / "folder")
    millrace("cp", tree / "a0", f"{tmp_path}/new/")
    (tmp_path / "here").mkdir()
    millrace("cp", tree / "a0", ".", cwd=tmp_path / "here")
    for copy in ("renamed", "folder/a0", "new/a0", "here/a0"):
        assert (tmp_path / copy).read_bytes() == b"4444"


def test_cp_recursive(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    done = millrace("cp", "--recursive", tree, target)
    assert done.stdout.startswith(b"copied 5 objects, 24.4 MiB")
    assert contents(target) == contents(tree)


def test_cp_json(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    report = json.loads(millrace("cp", "--recursive", tree, tmp_path / "target", "--json").stdout)
    assert report["objects"] == 5 and report["bytes"] == 25_600_010 and report["failed"] == 0 and report["seconds"] > 0


def test_cp_replaces(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"older and longer")
    millrace("cp", tree / "a0", target)
    assert target.read_bytes() == b"4444"


def test_cp_of_many_small_files(millrace: Millrace, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(500):
        (source / f"{i}").write_bytes(b"%d" % i * 100)
    millrace("cp", "--recursive", source, tmp_path / "target")
    assert contents(tmp_path / "target") == contents(source)


def test_cp_goes_on_after_a_failure_and_names_it(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "a0").mkdir(parents=True)  # in the way
    done = millrace("cp", "--recursive", tree, target, code=1)
    assert b"/a0" in done.stderr
    assert sorted(contents(target)) == ["a-", "a/x", "a/y/z", "big"]


def test_cp_refuses_what_makes_no_sense(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    assert b"--recursive" in millrace("cp", tree, tmp_path / "x", code=2).stderr
    assert b"same object" in millrace("cp", tree / "a0", tree / "a" / ".." / "a0", code=2).stderr
    assert b"into itself" in millrace("cp", "--recursive", tree, tree / "a" / "deeper", code=2).stderr
    assert b"AWS_ENDPOINT_URL" in millrace("cp", tree / "a0", "http://host/x", code=2).stderr
    assert b"missing" in millrace("cp", tree / "missing", tmp_path / "x", code=1).stderr
    (tmp_path / "empty").mkdir()
    assert b"nothing" in millrace("cp", "--recursive", tmp_path / "empty", tmp_path / "x", code=1).stderr
    assert not (tmp_path / "x").exists()


def test_cp_to_a_full_disk_fails_whole(millrace_bin: Path, tree: Path, tmp_path: Path) -> None:
    """A file system of 4 MiB in a mount namespace of its own: the small files fit, the large one does not."""
    script = """
        set -e
        mount -t tmpfs -o size=4m tmpfs "$1"
        if "$0" cp --recursive "$2" "$1"; then exit 99; fi
        find "$1" -type f | sort
    """
    (tmp_path / "disk").mkdir()
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        [
            shutil.which("unshare") or "unshare",
            *rights,
            "--mount",
            "bash",
            "-c",
            script,
            millrace_bin,
            tmp_path / "disk",
            tree,
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "No space left" in done.stderr and "free space" in done.stderr
    assert "big" not in [Path(line).name for line in done.stdout.splitlines()]
    assert not [line for line in done.stdout.splitlines() if "tmp-" in line]


def test_cp_interrupted_leaves_nothing_half_done(millrace_bin: Path, tree: Path, tmp_path: Path) -> None:
    """SIGINT when the first files are there: each of the 3,000 is synced, so most are still to come."""
    source = tmp_path / "source"
    source.mkdir()
    for i in range(3000):
        (source / f"{i:04}").write_bytes(b"x" * 1000)
    target = tmp_path / "target"
    with subprocess.Popen(
        [millrace_bin, "cp", "--recursive", source, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while process.poll() is None and not any(target.glob("[0-9]*")):
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    if process.returncode == 0:
        assert len(contents(target)) == 3000  # it was quicker
        return
    assert process.returncode == 130
    assert b"interrupted" in err
    assert all(name.isdigit() and data == b"x" * 1000 for name, data in contents(target).items())


def test_cp_that_copies_nothing_says_nothing_on_stdout(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "target" / "a0").mkdir(parents=True)  # in the way
    done = millrace("cp", tree / "a0", f"{tmp_path}/target/a0", "--json", code=0)  # into the folder
    assert json.loads(done.stdout)["objects"] == 1
    (tmp_path / "target" / "a0" / "a-").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a0").write_bytes(b"x")
    done = millrace("cp", "--recursive", tmp_path / "source", tmp_path / "target", code=1)
    assert done.stdout == b"" and b"/a0" in done.stderr
    done = millrace("cp", "--recursive", tmp_path / "source", tmp_path / "target", "--json", code=1)
    assert json.loads(done.stdout) | {"seconds": 0} == {
        "schema": "millrace.cp/1",
        "objects": 0,
        "bytes": 0,
        "unverified": 0,
        "read_twice": 0,
        "failed": 1,
        "skipped": 0,
        "indexes": 0,
        "seconds": 0,
        "dry_run": False,
    }


def test_cp_through_a_pipe(millrace: Millrace, millrace_bin: Path, tree: Path, tmp_path: Path, bucket: Bucket) -> None:
    """More than an upload in one piece takes, and in pieces that are not those of the pipe."""
    data = (tree / "big").read_bytes()
    for target in ("s3://bkt/in/big", str(tmp_path / "copy")):
        with open(tree / "big", "rb") as file:
            done = subprocess.run(
                [millrace_bin, "cp", "-", target],
                stdin=file,
                capture_output=True,
                env=os.environ | bucket.env,
                timeout=300,
            )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"copied 1 object, 24.4 MiB")
        assert millrace("cp", target, "-", env=bucket.env).stdout == data
    assert bucket.objects() == {"in/big": data}
    empty = subprocess.run([millrace_bin, "cp", "-", tmp_path / "empty"], stdin=subprocess.DEVNULL, timeout=300)
    assert empty.returncode == 0 and (tmp_path / "empty").read_bytes() == b""


def test_cp_of_a_pipe_interrupted_leaves_nothing(millrace_bin: Path, bucket: Bucket) -> None:
    command = [millrace_bin, "cp", "-", "s3://bkt/half"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | bucket.env
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"x" * (17 << 20))  # two pieces are taken, the rest waits for more
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 130
        assert b"interrupted" in process.stderr.read()
    assert bucket.keys() == [] and not bucket.s3.list_multipart_uploads(Bucket="bkt").get("Uploads")


def test_cp_through_a_pipe_refuses_what_makes_no_sense(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    assert b"--recursive" in millrace("cp", "--recursive", tree, "-", code=2).stderr
    assert b"--json" in millrace("cp", tree / "a0", "-", "--json", code=2).stderr
    assert b"copies nothing" in millrace("cp", "-", "-", code=2).stderr
    assert b"folder" in millrace("cp", "-", tree, code=2).stderr
    assert b"missing" in millrace("cp", tree / "missing", "-", code=1).stderr


# on S3


def test_s3_ls_is_like_that_of_aws(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"train/a/1": b"1", "train/a/2": b"22", "train/b": b"333", "trainer": b"4"})
    names = lambda *arguments: [line[31:] for line in lines(millrace("ls", *arguments, env=bucket.env))]  # noqa: E731
    assert names("s3://bkt") == names("s3://bkt/") == ["train/", "trainer"]
    assert names("s3://bkt/train") == ["train/", "trainer"]
    assert names("s3://bkt/train/") == ["a/", "b"]
    assert names("s3://bkt/train/", "--recursive") == ["train/a/1", "train/a/2", "train/b"]
    assert b"s3://bkt/nothing" in millrace("ls", "s3://bkt/nothing", code=1, env=bucket.env).stderr
    assert b"missing" in millrace("ls", "s3://missing", code=1, env=bucket.env).stderr


def test_s3_cat(millrace: Millrace, bucket: Bucket) -> None:
    body = bytes(range(256)) * 80_000
    bucket.put(**{"odd key +%&?.bin": body})
    assert millrace("cat", "s3://bkt/odd key +%&?.bin", env=bucket.env).stdout == body
    assert (
        millrace("cat", "s3://bkt/odd key +%&?.bin", "--range=9000000-9000009", env=bucket.env).stdout
        == body[9000000:9000010]
    )
    assert b"s3://bkt/none" in millrace("cat", "s3://bkt/none", code=1, env=bucket.env).stderr
    assert b"names no object" in millrace("cat", "s3://bkt", code=2, env=bucket.env).stderr


def test_cp_tells_what_is_the_same_of_all_once(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    said = millrace("cp", "--recursive", tree, "s3://nowhere", code=1, env=bucket.env).stderr.decode().splitlines()
    told = [line for line in said if "s3://nowhere: " in line and "the bucket does not exist" in line]
    assert len(told) == 2, "of small objects and of a large one"
    assert said == [*told, "millrace cp: 3 more objects failed"]


def test_s3_cat_of_a_prefix_says_how_to_go_on(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    bucket.put(**{"train/a.txt": b"1", "deep/er/a.txt": b"2", "shard-0.tar": b"3", "a": b"4"})
    for uri, hint in {
        "s3://bkt/train": "objects are below it; `millrace ls s3://bkt/train/` lists them, and `millrace cat 's3://bkt/train/*'` writes",
        "s3://bkt/train/": "`millrace cat 's3://bkt/train/*'`",
        "s3://bkt/deep": "`millrace cat 's3://bkt/deep/**'`",
        "s3://bkt/shard": "the names of others begin so; `millrace ls s3://bkt/shard` lists them, and `millrace cat 's3://bkt/shard*'`",
        str(tree / "a"): f"objects are below it; `millrace ls {tree}/a/` lists them, and `millrace cat '{tree}/a/*'`",
    }.items():
        said = millrace("cat", uri, code=1, env=bucket.env).stderr.decode()
        assert f"{uri}: there is no such object, but " in said and hint in said
    for uri in ("s3://bkt/none", "s3://bkt/train/a.txt2", str(tree / "none")):
        assert "millrace ls" not in millrace("cat", uri, code=1, env=bucket.env).stderr.decode()
    assert millrace("cat", "s3://bkt/train/*", env=bucket.env).stdout == b"1"
    assert millrace("cat", "s3://bkt/deep/**", env=bucket.env).stdout == b"2"
    assert millrace("cat", "s3://bkt/shard*", env=bucket.env).stdout == b"3"


def test_s3_cp_takes_targets_as_aws_does(millrace: Millrace, bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for target in ("s3://bkt", "s3://bkt/folder/", "s3://bkt/exact"):
        millrace("cp", tmp_path / "file", target, env=bucket.env)
    assert bucket.objects() == {"file": b"x", "folder/file": b"x", "exact": b"x"}
    millrace("cp", "s3://bkt/exact", "s3://bkt/deeper/", env=bucket.env)
    assert bucket.objects()["deeper/exact"] == b"x"
    (tmp_path / "here").mkdir()
    millrace("cp", "s3://bkt/folder/file", ".", cwd=tmp_path / "here", env=bucket.env)
    assert (tmp_path / "here" / "file").read_bytes() == b"x"
    assert b"--recursive" in millrace("cp", "s3://bkt/folder/", tmp_path, code=2, env=bucket.env).stderr
    assert b"--recursive" in millrace("cp", "s3://bkt", tmp_path, code=2, env=bucket.env).stderr


def test_s3_cp_there_across_and_back(millrace: Millrace, bucket: Bucket, tree: Path, tmp_path: Path) -> None:
    millrace("cp", "--recursive", tree, "s3://bkt/one", env=bucket.env)
    assert bucket.objects() == {f"one/{name}": data for name, data in contents(tree).items()}
    assert bucket.s3.list_multipart_uploads(Bucket="bkt").get("Uploads", []) == []
    millrace("cp", "--recursive", "s3://bkt/one", "s3://bkt/two/", env=bucket.env)
    millrace("cp", "--recursive", "s3://bkt/two", tmp_path / "back", env=bucket.env)
    assert contents(tmp_path / "back") == contents(tree)
    assert (
        b"into itself"
        in millrace("cp", "--recursive", "s3://bkt/one", "s3://bkt/one/more", code=2, env=bucket.env).stderr
    )


def test_s3_keys_that_no_folder_holds_fail_alone_and_never_escape(
    millrace: Millrace, bucket: Bucket, tmp_path: Path
) -> None:
    bad = ["in/../../escaped", "in//double", "in/./dot", "in//absolute"]
    bucket.put(**{"in/good": b"1", "in/folder/": b""}, **{key: b"bad" for key in bad})
    target = tmp_path / "deep" / "target"
    done = millrace("cp", "--recursive", "s3://bkt/in", target, "--json", code=1, env=bucket.env)
    assert contents(tmp_path) == {"deep/target/good": b"1"} | {
        name: data for name, data in contents(tmp_path).items() if name.endswith(".err")
    }
    report = json.loads(done.stdout)
    assert (report["objects"], report["failed"]) == (1, len(set(bad)))
    for word in (b"escaped", b"double", b"dot"):
        assert word in done.stderr


# the program


def test_help_has_examples(millrace: Millrace) -> None:
    for command in ("ls", "cat", "cp"):
        text = millrace(command, "--help").stdout
        assert b"Examples:" in text and b"s3://" in text
    assert b"Exit status" in millrace("--help").stdout
    assert millrace("--version").stdout.startswith(b"millrace ")


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["ls", "--frob", "x"], ["cp", "one"], ["cat"]])
def test_wrong_usage_exits_with_2(millrace: Millrace, arguments: list[str]) -> None:
    done = millrace(*arguments, code=2)
    assert b"--help" in done.stderr and done.stdout == b""
