"""Uses the command `millrace`, which comes from PATH. It is run by test_wheel.py and test_bare_systems.py, in a bare
system and outside. It needs Python alone, without the package. Prints one JSON object.

usage: command_user.py FOLDER        FOLDER: for its files
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

SAMPLES = 1000


def run(*command: str, **environment: str) -> str:
    result = subprocess.run(["millrace", *command], capture_output=True, text=True, env={**os.environ, **environment})
    if result.returncode != 0:
        raise SystemExit(f"millrace {' '.join(command)}: {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


@contextlib.contextmanager
def devstore(root: pathlib.Path, *arguments: str) -> Iterator[dict[str, str]]:
    """Gives the lines that it prints at the start, as names and values."""
    server = subprocess.Popen(
        ["millrace", "devstore", str(root), "--port", "0", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    said: dict[str, str] = {}
    try:
        while "listening on" not in said:
            line = server.stdout.readline()
            if not line:
                raise SystemExit(f"devstore ended; it said {said}")
            words = line.rpartition(" ")
            said[words[0].removesuffix(":")] = words[2].strip()
        yield said
    finally:
        server.terminate()
        server.communicate()


def use_devstore(folder: pathlib.Path) -> None:
    os.environ.update(
        AWS_ACCESS_KEY_ID="millrace",
        AWS_SECRET_ACCESS_KEY="millrace-secret",
        MILLRACE_CACHE=str(folder / "cache"),
    )


def mounted(uri: str, folder: pathlib.Path) -> str:
    """Returns the digest of all files of a mounted prefix: names and contents."""
    folder.mkdir()
    process = subprocess.Popen(["millrace", "mount", uri, str(folder), "--foreground"], stderr=subprocess.PIPE)
    try:
        while not any(
            line.split(" ")[4] == str(folder) for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        ):
            if process.poll() is not None:
                raise SystemExit(f"millrace mount ended: {process.communicate()[1].decode()}")
            time.sleep(0.01)
        digest = hashlib.sha256()
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(folder)} {len(content)}\n".encode() + content)
        return digest.hexdigest()
    finally:
        process.terminate()
        process.communicate()


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    (folder / "s3" / "bucket").mkdir(parents=True)
    use_devstore(folder)
    found: dict[str, object] = {"command": run("--version").strip()}
    with devstore(folder / "s3") as said:
        os.environ["AWS_ENDPOINT_URL"] = said["listening on"]
        run("synth", "s3://bucket/raw", "--count", str(SAMPLES), "--kb", "2")
        run("pack", "s3://bucket/raw", "s3://bucket/train", "--shard-size", "256KiB")
        fed = json.loads(run("feed", "s3://bucket/train", "--json", "--seed", "3", "--epochs", "1"))
        found |= {name: fed[name] for name in ("digest", "samples")}
        found["mounted"] = mounted("s3://bucket/train", folder / "mounted")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
