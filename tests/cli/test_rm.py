"""`millrace rm` over folders and devstore."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Bucket, Millrace, contents, lines


def test_rm_of_files(millrace: Millrace, tree: Path) -> None:
    assert millrace("rm", tree / "a0", tree / "a" / "x").stdout == b"removed 2 objects, 6 B\n"
    assert sorted(contents(tree)) == ["a-", "a/y/z", "big"]


def test_rm_of_what_is_not_there(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    """Stores delete it without a word; nothing may be counted, and the others are removed."""
    bucket.put(**{"wds/0.tar": b"1", "wds-old": b"2", "one": b"333"})
    for missing, exists in ((f"{tree}/nowhere", f"{tree}/a0"), ("s3://bkt/nowhere", "s3://bkt/one")):
        done = millrace("rm", missing, code=1, env=bucket.env)
        assert done.stdout == b"" and b"nowhere" in done.stderr and b"--recursive" not in done.stderr
        dry = millrace("rm", "--dry-run", "--json", missing, exists, code=1, env=bucket.env)
        assert json.loads(lines(dry)[-1])["objects"] == 1
        report = json.loads(millrace("rm", "--json", missing, exists, code=1, env=bucket.env).stdout)
        assert (report["objects"], report["failed"]) == (1, 1)
    millrace("rm", "--recursive", tree / "nowhere", code=1)
    done = millrace("rm", "s3://bkt/wds", code=1, env=bucket.env)
    assert done.stdout == b"" and b"no such object; add --recursive" in done.stderr
    assert b"--recursive" not in millrace("rm", "s3://bkt/wds-", code=1, env=bucket.env).stderr
    assert b"no-such-bucket" in millrace("rm", "s3://no-such-bucket/x", code=1, env=bucket.env).stderr
    assert sorted(bucket.keys()) == ["wds-old", "wds/0.tar"]


def test_rm_of_a_link_that_leads_nowhere(millrace: Millrace, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert millrace("rm", tmp_path / "link").stdout == b"removed 1 object\n"
    assert not (tmp_path / "link").is_symlink()


def test_rm_recursive_of_a_folder(millrace: Millrace, tree: Path) -> None:
    assert millrace("rm", "--recursive", tree / "a").stdout == b"removed 2 objects, 5 B\n"
    assert sorted(contents(tree)) == ["a-", "a0", "big"]
    assert b"nothing below" in millrace("rm", "--recursive", tree / "a", code=1).stderr


def test_rm_dry_run_removes_nothing(millrace: Millrace, tree: Path) -> None:
    before = contents(tree)
    assert lines(millrace("rm", "--recursive", "--dry-run", tree / "a")) == [
        f"would remove {tree}/a/x",
        f"would remove {tree}/a/y/z",
        "would remove 2 objects, 5 B",
    ]
    shown = [json.loads(line) for line in lines(millrace("rm", "--recursive", "--dry-run", "--json", tree / "a"))]
    assert shown[0] == {"schema": "millrace.rm/1", "remove": f"{tree}/a/x", "size": 2}
    assert (shown[2]["objects"], shown[2]["dry_run"]) == (2, True)
    assert contents(tree) == before


def test_rm_refuses_folders_and_buckets_without_recursive(millrace: Millrace, bucket: Bucket, tree: Path) -> None:
    bucket.put(a=b"1")
    for uri in ("s3://bkt", "s3://bkt/", "s3://bkt/folder/", str(tree), f"{tree}/a/"):
        # The other is not removed either: usage is checked before anything is done.
        assert b"--recursive" in millrace("rm", "s3://bkt/a", uri, code=2, env=bucket.env).stderr
    assert b"everything" in millrace("rm", "--recursive", "/", code=2).stderr
    assert b"everything" in millrace("rm", "--recursive", f"{tree}/../../../../../../../../..", code=2).stderr
    assert bucket.keys() == ["a"]
    assert len(contents(tree)) == 5


def test_rm_stops_at_links(millrace: Millrace, tree: Path, tmp_path: Path) -> None:
    """As `rm -r`: a link is removed, not what it leads to."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "dear").write_bytes(b"dear")
    (tree / "a" / "link").symlink_to(tmp_path / "outside")
    (tree / "a" / "one").symlink_to(tree / "a0")
    done = millrace("rm", "--recursive", tree / "a", "--json", code=1)
    assert b"behind the link" in done.stderr
    assert json.loads(done.stdout)["objects"] == 3
    assert (tmp_path / "outside" / "dear").exists() and (tree / "a0").exists()
    millrace("rm", "--recursive", tree / "a" / "link")
    assert not (tree / "a" / "link").is_symlink()
    assert (tmp_path / "outside" / "dear").exists()


def test_s3_rm(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"train": b"1", "train/a": b"2", "train/b/": b"", "trainer": b"3", "odd key <&>\n": b"4"})
    millrace("rm", "s3://bkt/train", "s3://bkt/odd key <&>\n", env=bucket.env)
    assert bucket.keys() == ["train/a", "train/b/", "trainer"]
    millrace("rm", "--recursive", "s3://bkt/train", env=bucket.env)  # the folder, markers included
    assert bucket.keys() == ["trainer"]
    report = json.loads(millrace("rm", "--recursive", "--yes", "s3://bkt", "--json", env=bucket.env).stdout)
    assert report | {"seconds": 0} == {
        "schema": "millrace.rm/1",
        "objects": 1,
        "bytes": 1,
        "failed": 0,
        "seconds": 0,
        "dry_run": False,
    }
    assert bucket.keys() == []
    assert b"missing" in millrace("rm", "--recursive", "-y", "s3://missing", code=1, env=bucket.env).stderr


def test_a_whole_bucket_needs_a_confirmation(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"train/a": b"1", "b": b"2"})
    for words in (
        ["-r", "s3://bkt"],
        ["-r", "s3://bkt/"],
        ["-r", "s3://bkt/train", "s3://bkt"],
        ["-r", "s3://bkt", "--exclude", "*"],
        ["-r", "s3://bkt/**"],
        ["-r", "s3://bkt/*"],
        ["-r", "s3://bkt/*/**/"],
        ["s3://bkt/**"],
        ["s3://bkt/train/a", "s3://bkt/**/*"],
        # Each pattern without a literal prefix asks, however much of the bucket it matches.
        *([*recursive, f"s3://bkt/{pattern}"] for recursive in ([], ["-r"]) for pattern in WITHOUT_PREFIX),
    ):
        done = millrace("rm", *words, code=2, env=bucket.env)
        assert b"whole bucket; add --yes" in done.stderr, words
    assert bucket.keys() == ["b", "train/a"]
    assert b"would remove 2 objects" in millrace("rm", "-r", "s3://bkt", "--dry-run", env=bucket.env).stdout
    assert b"would remove 2 objects" in millrace("rm", "s3://bkt/**", "--dry-run", env=bucket.env).stdout
    millrace("rm", "--recursive", "s3://bkt/train", env=bucket.env)  # a prefix needs no confirmation
    millrace("rm", "--yes", "s3://bkt/*", env=bucket.env)
    assert bucket.keys() == []


WITHOUT_PREFIX = [
    "*",
    "?",
    "?**",
    "*?",
    "**",
    "***",
    "**/*",
    "*/*",
    "*/**",
    "[a-z]*",
    "[!x]**",
    "*.tmp",
    "**/*.tmp",
    "*/b",
]


@pytest.mark.parametrize("pattern", ["t**", "train/**", "train/?", "t?ain/*", r"\*/**", r"\[a]*", "/**"])
def test_a_pattern_with_a_literal_prefix_needs_no_confirmation(
    millrace: Millrace, bucket: Bucket, pattern: str
) -> None:
    bucket.put(**{"train/a": b"1", "*/a": b"2", "[a]": b"3", "/a": b"4", "b": b"5"})
    millrace("rm", f"s3://bkt/{pattern}", env=bucket.env)
    assert len(bucket.keys()) == 4 and "b" in bucket.keys()


@pytest.mark.parametrize("uri", ["s3://bkt", "s3://bkt/**"])
@pytest.mark.parametrize("answer", [b"y\n", b"yes\n", b"\n", b"n\n", b"yesterday\n", b"\x04"])
def test_a_terminal_is_asked_for_a_whole_bucket(millrace_bin: Path, bucket: Bucket, answer: bytes, uri: str) -> None:
    bucket.put(**{"a": b"1"})
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [millrace_bin, "rm", "-r", uri],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | bucket.env,
    )
    os.close(terminal)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(main, 65536)
    pattern = b" that matches '**'" if "*" in uri else b""
    assert b"Remove everything in the bucket s3://bkt" + pattern + b"?" in shown
    os.write(main, answer)
    with contextlib.suppress(OSError):  # the end, of a terminal
        while piece := os.read(main, 65536):
            shown += piece
    os.close(main)
    confirmed = answer in (b"y\n", b"yes\n")
    assert process.wait(timeout=300) == (0 if confirmed else 1)
    assert bucket.keys() == ([] if confirmed else ["a"])
    assert confirmed or b"nothing was removed" in shown


def test_s3_rm_takes_a_request_for_a_thousand(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    """DELETE does not work here, so it must be DeleteObjects."""
    bucket = faulty_bucket("DELETE * status=403")
    bucket.put(**{f"many/{i:04}": b"x" for i in range(1234)}, other=b"y")
    report = json.loads(millrace("rm", "--recursive", "s3://bkt/many", "--json", env=bucket.env).stdout)
    assert (report["objects"], report["bytes"], report["failed"]) == (1234, 1234, 0)
    assert bucket.keys() == ["other"]


def test_s3_rm_of_a_key_that_xml_cannot_express_spares_others(millrace: Millrace, bucket: Bucket) -> None:
    """In the XML of DeleteObjects its control character would be another one."""
    bucket.put(**{"a\x01b": b"1", "a?b": b"2", "c": b"3"})
    assert json.loads(millrace("rm", "s3://bkt/a\x01b", "s3://bkt/c", "--json", env=bucket.env).stdout)["objects"] == 2
    assert bucket.keys() == ["a?b"]


def test_s3_rm_tells_what_failed(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty_bucket("POST bkt* status=403")
    bucket.put(**{f"k{i:02}": b"x" for i in range(20)})
    done = millrace("rm", "--recursive", "--yes", "s3://bkt", "--json", code=1, env=bucket.env)
    assert json.loads(done.stdout)["failed"] == 20
    assert done.stderr.count(b"no permission") == 1, "said once, though it is the same of each"
    assert b"millrace rm: 19 more objects failed\n" in done.stderr
    assert len(bucket.keys()) == 20


def test_s3_rm_survives_faults(millrace: Millrace, faulty_bucket: Callable[..., Bucket]) -> None:
    bucket = faulty_bucket("POST bkt* error-in-200 count=1", "POST bkt* status=503 count=2 after=1")
    bucket.put(**{f"k{i:02}": b"x" for i in range(20)})
    millrace("rm", "--recursive", "--yes", "s3://bkt", env=bucket.env)
    assert bucket.keys() == []


# patterns, in rm and in the others


KEYS = ["a1.tar", "a2.tar", "a3.txt", "d/a1.tar", "d/e/a1.tar", "d2/b.tar", "z"]


@pytest.fixture
def named(bucket: Bucket, tmp_path: Path) -> Callable[[str], tuple[str, Callable[[], list[str]]]]:
    """The same objects in a bucket and in a folder: where they are, and a look at what is there."""

    def make(kind: str) -> tuple[str, Callable[[], list[str]]]:
        if kind == "s3":
            bucket.put(**{f"base/{key}": key.encode() for key in KEYS})
            return "s3://bkt/base", lambda: [key.removeprefix("base/") for key in bucket.keys()]
        root = tmp_path / "base"
        for key in KEYS:
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(key.encode())
        return (f"file://{root}" if kind == "file" else str(root)), lambda: sorted(contents(root))

    return make


Named = Callable[[str], tuple[str, Callable[[], list[str]]]]

PATTERNS = {
    "*.tar": ["a1.tar", "a2.tar"],
    "a[12].t?r": ["a1.tar", "a2.tar"],
    "a[!1].*": ["a2.tar", "a3.txt"],
    "**.tar": ["a1.tar", "a2.tar", "d/a1.tar", "d/e/a1.tar", "d2/b.tar"],
    "**/a1.tar": ["a1.tar", "d/a1.tar", "d/e/a1.tar"],
    "d*/*.tar": ["d/a1.tar", "d2/b.tar"],
    "*/e/*": ["d/e/a1.tar"],
    "d/**": ["d/a1.tar", "d/e/a1.tar"],
    "?": ["z"],
}


@pytest.mark.parametrize("kind", ["s3", "file", "path"])
def test_patterns(millrace: Millrace, named: Named, bucket: Bucket, tmp_path: Path, kind: str) -> None:
    base, left = named(kind)
    for number, (pattern, matches) in enumerate(PATTERNS.items()):
        assert millrace("cat", f"{base}/{pattern}", env=bucket.env).stdout.decode() == "".join(matches)
        shown = [
            line[31:].removeprefix("base/")
            for line in lines(millrace("ls", f"{base}/{pattern}", env=bucket.env))
            if "PRE" not in line
        ]
        assert shown == [
            name.removeprefix(pattern.split("*")[0].rpartition("/")[0] + "/") if kind != "s3" else name
            for name in matches
        ]
        millrace("cp", f"{base}/{pattern}", tmp_path / str(number), env=bucket.env)
        # Below the last folder without a wildcard.
        cut = len("d/") if pattern.startswith("d/") else 0
        assert sorted(contents(tmp_path / str(number))) == [name[cut:] for name in matches]
        if pattern not in ("**.tar", "d/**"):  # of what is still there in the end
            assert len(lines(millrace("rm", "--dry-run", f"{base}/{pattern}", env=bucket.env))) == len(matches) + 1
    millrace("rm", f"{base}/**.tar", env=bucket.env)
    assert left() == ["a3.txt", "z"]


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_patterns_of_folders(millrace: Millrace, named: Named, bucket: Bucket, tmp_path: Path, kind: str) -> None:
    base, left = named(kind)
    assert b"only folders match; add --recursive" in millrace("rm", f"{base}/d*", code=1, env=bucket.env).stderr
    shown = [line[31:].removeprefix("base/") for line in lines(millrace("ls", f"{base}/d*", env=bucket.env))]
    assert shown == ["d/", "d2/"]
    millrace("cp", "--recursive", f"{base}/d*", tmp_path / "copy", env=bucket.env)
    assert sorted(contents(tmp_path / "copy")) == ["d/a1.tar", "d/e/a1.tar", "d2/b.tar"]
    millrace("rm", "--recursive", f"{base}/d?", env=bucket.env)
    assert left() == [key for key in KEYS if not key.startswith("d2/")]


@pytest.mark.parametrize("kind", ["s3", "path"])
def test_a_pattern_without_a_match_is_an_error(
    millrace: Millrace, named: Named, bucket: Bucket, tmp_path: Path, kind: str
) -> None:
    base, left = named(kind)
    for command in (["cat"], ["ls"], ["rm"], ["rm", "--recursive"], ["cp"], ["cp", "--recursive"]):
        target = [tmp_path / "x"] if command[0] == "cp" else []
        done = millrace(*command, f"{base}/nothing*", *target, code=1, env=bucket.env)
        assert b"nothing matches this pattern" in done.stderr and done.stdout == b""
    assert left() == KEYS


def test_what_is_named_word_for_word_is_no_pattern(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"a*": b"star", "ab": b"other", "f[1]/x": b"x", "f1/y": b"y"})
    assert millrace("cat", "s3://bkt/a*", env=bucket.env).stdout == b"star"
    assert [line[31:] for line in lines(millrace("ls", "s3://bkt/f[1]/", env=bucket.env))] == ["x"]
    assert millrace("cat", r"s3://bkt/a\*", env=bucket.env).stdout == b"star"
    millrace("rm", "s3://bkt/a*", env=bucket.env)
    assert bucket.keys() == ["ab", "f1/y", "f[1]/x"]
    millrace("rm", "--recursive", "s3://bkt/f[1]", env=bucket.env)
    assert bucket.keys() == ["ab", "f1/y"]


def test_cp_by_a_pattern_does_not_copy_onto_itself(millrace: Millrace, bucket: Bucket) -> None:
    bucket.put(**{"d/a": b"1"})
    assert b"onto itself" in millrace("cp", "s3://bkt/d/*", "s3://bkt/d/", code=2, env=bucket.env).stderr
    assert b"into itself" in millrace("cp", "s3://bkt/d/**", "s3://bkt/d/e", code=2, env=bucket.env).stderr
    assert bucket.keys() == ["d/a"]
