"""Tests data sets of several stores in one process: each with endpoint, profile and region of its own."""

from __future__ import annotations

import json
import pathlib

import millrace
import pytest
from support import check_script, devstore, write_raw

_SCRIPT = """
import json, os, pickle, sys
import millrace

first_url = sys.argv[1]
first = millrace.Dataset("s3://bucket", endpoint=first_url, profile="keys")
second = millrace.Dataset("s3://bucket", profile="second", region="eu-west-1")
try:
    millrace.Dataset("s3://bucket", endpoint=first_url)
    refused = ""
except millrace.AccessDeniedError as error:
    refused = str(error)
copies = [pickle.loads(pickle.dumps(each)) for each in (first, second, second[:3])]
mix = millrace.Mix([first, second], weights=[1, 1])
loader = millrace.Loader(mix, batch_size=4, size=8, epochs=1, output="numpy")
parts = sorted({int(part) for batch in loader for part in batch["part"][batch["valid"]]})
pid = os.fork()
if pid == 0:
    os._exit(0 if second.read(4)["key"] == copies[1].head(5)[4]["key"] else 1)
fork = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps({
    "samples": [len(first), len(second)],
    "copies": [len(each) for each in copies],
    "read": [copies[1].read(4)["key"], second.read(4)["key"]],
    "parts": parts,
    "fork": fork,
    "refused": refused,
}))
"""


def test_each_data_set_has_settings_of_its_own(tmp_path: pathlib.Path) -> None:
    samples = {"first": 5, "second": 9}
    for name, count in samples.items():
        (tmp_path / name / "bucket").mkdir(parents=True)
        write_raw(tmp_path / name / "bucket", count)
    with devstore(tmp_path / "first") as first, devstore(tmp_path / "second") as second:
        keys = "aws_access_key_id = test\naws_secret_access_key = test-secret\n"
        (tmp_path / "config").write_text(
            f"[profile keys]\n{keys}[profile second]\n{keys}endpoint_url = {second['AWS_ENDPOINT_URL']}\n"
        )
        environment = {
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "MILLRACE_CACHE": str(tmp_path / "cache"),
        }
        found = json.loads(check_script(_SCRIPT, first["AWS_ENDPOINT_URL"], **environment))
    assert found["samples"] == [5, 9] and found["copies"] == [5, 9, 3]
    assert found["read"][0] == found["read"][1] and found["parts"] == [0, 1] and found["fork"] == 0
    assert "403" in found["refused"] or "access" in found["refused"].lower()


@pytest.mark.parametrize("name", ["endpoint", "profile", "region"])
def test_settings_that_say_nothing_are_refused(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(millrace.InvalidArgumentError, match=f"{name} is empty"):
        millrace.Dataset(str(tmp_path), **{name: ""})
    with pytest.raises(TypeError, match=f"{name} must be a string"):
        millrace.Dataset(str(tmp_path), **{name: 7})


def test_messages_name_the_setting() -> None:
    with pytest.raises(millrace.InvalidArgumentError, match="^endpoint: .*ftp://x"):
        millrace.Dataset("s3://bucket", endpoint="ftp://x")
    with pytest.raises(millrace.InvalidArgumentError, match="no profile 'missing' .*profile= of a Dataset"):
        millrace.Dataset("s3://bucket", profile="missing")
    with pytest.raises(millrace.InvalidArgumentError, match="region= of a Dataset"):
        millrace.Dataset("s3://bucket", region="no region")
