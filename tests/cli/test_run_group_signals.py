"""`millrace run --group`: each host ends when it is asked to, in every state, and says soon why it cannot reach the others."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from ports import free_port
from test_run_group import WAITS, StartHost, ends, joins, said, until, wait_for
from test_run_group import host as host  # a fixture

TWO = ["--main-hosts", 2, "--host-index", 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_host_whose_command_has_ended(host: StartHost, number: signal.Signals) -> None:
    """It waits for another host; the next job gets the port."""
    train = host("train", *TWO, train="true")
    wait_for(lambda: "the job has not ended yet" in said(train))
    train.send_signal(number)
    assert ends(train) == [128 + number], said(train)
    assert f"{number.name} came" in said(train)
    assert ends(host("train", train="true")) == [0]


def test_all_end_with_a_host_whose_command_has_ended(host: StartHost, tmp_path: Path) -> None:
    groups = {"data": WAITS, "train": "[ $INDEX = 0 ] || exec sleep 600"}
    first, second = (
        host("train", *TWO[:2], "--host-index", index, env={"INDEX": str(index)}, **groups) for index in (0, 1)
    )
    data = host("data", *TWO[:2], **groups)
    for each in (second, data):
        joins(each)
    wait_for(lambda: "the job has not ended yet" in said(first))
    first.send_signal(signal.SIGTERM)
    assert ends(first, second, data) == [143, 143, 143]


def test_a_command_that_saves_when_it_is_asked_to_end(host: StartHost) -> None:
    """It ends with 0; the job is not done, and does not wait for others either."""
    train = host("train", *TWO, train="trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    assert train.stdout is not None and train.stdout.readline() == "ready\n"
    train.send_signal(signal.SIGTERM)
    assert ends(train) == [143], said(train)


@pytest.mark.parametrize(("command", "status"), [(WAITS, 75), ("true", 75), ("exit 3", 143)])
def test_a_coordinator_that_nobody_is(host: StartHost, command: str, status: int) -> None:
    """A host that serves just leaves; if its command has failed for good, it waits for the coordinator to hear that."""
    nowhere = free_port()
    data = host("data", through=lambda _: nowhere, data=command, train="true")
    wait_for(lambda: f"the coordinator 127.0.0.1:{nowhere} does not answer (" in said(data))
    data.send_signal(signal.SIGTERM)
    wait_for(lambda: "leaves the job" in said(data))
    data.send_signal(signal.SIGTERM)
    assert ends(data) == [status]


def test_a_name_that_does_not_resolve(host: StartHost, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("correct-horse-battery")
    options = ["--group-token-file", tmp_path / "token", "--coordinator", "no-such-host.invalid:7079"]
    # The last one of an option given twice would be an error: the fixture's is left out.
    data = host(None, *options, "--role", "data", data="true", train="true")
    wait_for(lambda: "no-such-host.invalid:7079 does not answer (" in said(data))
    assert "resolve" in said(data)
    data.send_signal(signal.SIGTERM)
    wait_for(lambda: "leaves the job" in said(data))
    assert ends(data) == [75]


def test_a_host_that_still_copies_its_channels(host: StartHost, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }
        job = ["--root", tmp_path / "ml", "--channel", "train=s3://bkt/p", "--on-end", f"touch {tmp_path / 'ended'}"]
        train = host("train", *job, env=env, train="echo must not run")
        connection, _ = silent.accept()
        with connection:
            train.send_signal(signal.SIGTERM)
            assert ends(train) != [0]
    assert train.stdout is not None and train.stdout.read() == ""
    assert "interrupted" in said(train) and (tmp_path / "ended").exists()


def test_the_second_signal_ends_a_coordinator_that_waits_for_hosts(host: StartHost, tmp_path: Path) -> None:
    """A host that is there, and does not listen, has not heard how the job ends."""
    go = tmp_path / "go"
    groups = {"data": WAITS, "train": until(go, "exit 4")}
    train, data = host("train", **groups), host("data", **groups)
    joins(data)
    data.send_signal(signal.SIGSTOP)
    go.touch()
    wait_for(lambda: "the job ends with status 4" in said(train))
    train.send_signal(signal.SIGTERM)
    assert ends(train) == [4]
