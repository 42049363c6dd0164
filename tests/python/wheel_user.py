"""Uses the package and the command `millrace`, both of which come from PATH and nowhere else. It is run by
test_wheel.py, in a bare system and outside. Prints one JSON object.

usage: wheel_user.py FOLDER [CA_FILE]        FOLDER: for its files; CA_FILE: where this system keeps its authorities; it is written
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import millrace
from command_user import devstore, run, use_devstore

# These images have 8 x 8 pixels.
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


def loaded(uri: str, batch_size: int = 16) -> str:
    """Returns what a loader of an epoch delivers, as the digest of `feed`."""
    loader = millrace.Loader(uri, batch_size=batch_size, size=64, augment=True, seed=3, epochs=1, digest="decoded")
    for _ in loader:
        pass
    return str(loader.report()["digest"])


def trusted(root: pathlib.Path, ca_file: pathlib.Path) -> list[bool]:
    """Returns whether a server with TLS is trusted before and after its authority is among those of the system."""
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
    use_devstore(folder)
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
