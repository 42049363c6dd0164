"""A user of the package and the command `millrace`, both of which come from PATH and nowhere else: run by test_wheel.py, in a bare
system and outside. Prints one JSON object.

usage: wheel_user.py FOLDER [CA_FILE]        FOLDER: for its files; CA_FILE: where this system keeps its authorities; it is written
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import millrace

# Of 8 x 8 pixels.
FILES = {
    "webp": "UklGRkoAAABXRUJQVlA4ID4AAACwAQCdASoIAAgAAoBCJbACdAEOuwSAAP75UytfJZhWMcqegCl+Qbqa00R5A+dHepf/5xPf4nHdb9O5VwAAAA==",
    "tiff": (
        "SUkqAHAAAACAAAAFqBFoeQODlo8QOFlpaQOHwSBwWEwmGw2IxEADyCRweR6OHiQxxaSSORuOwaQQqRw6TQQ8TCDTEeTE8TaYrSczEATyaT+FTiHTuCLSiwajDyjHil0ZaU"
        "6jACo0mqQqmw6oFqAgAAoAAAEDAAEAAAAIAAAAAQEDAAEAAAAIAAAAAgEDAAMAAADuAAAAAwEDAAEAAAAFAAAABgEDAAEAAAACAAAAEQEEAAEAAAAIAAAAFQEDAAEAAAAD"
        "AAAAFgEDAAEAAAAIAAAAFwEEAAEAAABnAAAAHAEDAAEAAAABAAAAAAAAAAgACAAIAA=="
    ),
    "gif": (
        "R0lGODdhCAAIAIMAALS0Wni0WrR4Wnh4Wjy0Wjx4WgC0WgB4WrQ8Wng8Wjw8WgA8WrQAWngAWjwAWgAAWiwAAAAACAAIAAAIOQAfPHDgoEEDBgwEEjSIcMECBQoSJECAwC"
        "FEiRQPHChQYMAAAQI0cvQI0oABAgQCBAAAwCRKlSwDAgA7"
    ),
    "png": "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAHklEQVR4nGNkYIhiYGCwYWBAI5kYcAAWqAIMMKA6ABcVAdi2aYQDAAAAAElFTkSuQmCC",
}


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


def loaded(uri: str, batch_size: int = 16) -> str:
    """What a loader of an epoch delivers, as the digest of `feed`."""
    loader = millrace.Loader(uri, batch_size=batch_size, size=64, augment=True, seed=3, epochs=1, digest="decoded")
    for _ in loader:
        pass
    return str(loader.report()["digest"])


def trusted(root: pathlib.Path, ca_file: pathlib.Path) -> list[bool]:
    """Whether a server with TLS is trusted before and after its authority is among those of the system."""
    answers = []
    with devstore(root, "--tls") as said:
        for there in (False, True):
            if there:
                ca_file.parent.mkdir(parents=True, exist_ok=True)
                ca_file.write_bytes(pathlib.Path(said["CA file"]).read_bytes())
            command = ["millrace", "ls", "s3://bucket/train/", "--endpoint-url", said["listening on"]]
            result = subprocess.run(command, capture_output=True, text=True)
            assert result.returncode == 0 or "not trusted" in result.stderr, result.stderr
            answers.append(result.returncode == 0)
    return answers


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    (folder / "s3" / "bucket").mkdir(parents=True)
    keys = {
        "AWS_ACCESS_KEY_ID": "millrace",
        "AWS_SECRET_ACCESS_KEY": "millrace-secret",
        "MILLRACE_CACHE": str(folder / "cache"),
    }
    os.environ.update(keys)
    found: dict[str, object] = {"version": millrace.__version__, "command": run("--version").strip()}
    with devstore(folder / "s3") as said:
        os.environ["AWS_ENDPOINT_URL"] = said["listening on"]
        run("synth", "s3://bucket/raw", "--count", "60", "--kb", "20")
        run("pack", "s3://bucket/raw", "s3://bucket/train", "--shard-size", "256KiB")
        feed = [
            "feed",
            "s3://bucket/train",
            "--json",
            "--augment",
            "--size",
            "64",
            "--seed",
            "3",
            "--digest-of",
            "decoded",
        ]
        found["feed"] = json.loads(run(*feed))["digest"]
        found["loader"] = loaded("s3://bucket/train")
        run("inspect", "s3://bucket/train", "--preview", str(folder / "sheet.png"))
        for kind, text in FILES.items():
            (folder / "formats" / kind).mkdir(parents=True)
            (folder / "formats" / kind / f"0.{kind}").write_bytes(base64.b64decode(text))
        found["formats"] = loaded(str(folder / "formats"), batch_size=len(FILES))
        found["sheet"] = hashlib.sha256((folder / "sheet.png").read_bytes()).hexdigest()
    if len(sys.argv) > 2:
        found["trusted"] = trusted(folder / "s3", pathlib.Path(sys.argv[2]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
