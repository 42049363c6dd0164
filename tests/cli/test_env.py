"""`millrace env` and `millrace help`."""

from __future__ import annotations

import json
import sys

from cli_support import Millrace

SECRET = "do-not-show"


def test_env_names_the_machine_and_no_secret(millrace: Millrace) -> None:
    variables = {
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SECRET,
        "AWS_ENDPOINT_URL": f"http://user:{SECRET}@localhost:9000",
        "HTTPS_PROXY": f"http://user:{SECRET}@proxy:3128",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": SECRET,
        "MILLRACE_S3_SSE_KMS_KEY_ID": SECRET,
        "SOME_TOKEN": SECRET,
        "AWS_REGION": "eu-west-1",
    }
    text = millrace("env", "--python", sys.executable, env=variables)
    assert text.returncode == 0 and SECRET.encode() not in text.stdout + text.stderr
    assert b"AWS_REGION=eu-west-1" in text.stdout and b"AWS_SECRET_ACCESS_KEY=(set)" in text.stdout
    found = json.loads(millrace("env", "--json", "--python", sys.executable, env=variables).stdout)
    assert found["millrace"] and found["python"].startswith("Python 3") and "numpy" in found["python"]
    assert found["variables"]["HTTPS_PROXY"] == "(set)" and "SOME_TOKEN" not in found["variables"]


def test_env_without_the_python(millrace: Millrace) -> None:
    told = millrace("env", "--python", "/nowhere/python")
    assert told.returncode == 0 and b"/nowhere/python: the command" in told.stdout


def test_help_is_that_of_the_command(millrace: Millrace) -> None:
    for words in ([], ["feed"], ["checkpoint", "gc"]):
        assert millrace("help", *words).stdout == millrace(*words, "--help").stdout
    wrong = millrace("help", "fed", code=2)
    assert b"there is no command 'fed'; did you mean feed?" in wrong.stderr
