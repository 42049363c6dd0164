"""The demo of spot instances: a job is interrupted twice, and each time it continues in another availability zone.

Run it with `make demo-spot`. It needs the built `millrace` and the Python package next to it, and nothing of AWS: EC2, its metadata
service and S3 are `millrace devstore --ec2`, strict fakes on this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import demo_steps  # noqa: E402
from demo_steps import KEYS, MILLRACE, DemoFailed, check, millrace, say  # noqa: E402

SAMPLES = 1000
EPOCHS = 2
PATIENCE = 120  # seconds, for anything


def signed(url: str, body: str) -> urllib.request.Request:
    """A call of EC2 by Signature Version 4."""
    host, now = url.removeprefix("http://"), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{now[:8]}/{KEYS['AWS_REGION']}/ec2/aws4_request"
    canonical = (
        f"POST\n/\n\nhost:{host}\nx-amz-date:{now}\n\nhost;x-amz-date\n{hashlib.sha256(body.encode()).hexdigest()}"
    )
    key = f"AWS4{KEYS['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={KEYS['AWS_ACCESS_KEY_ID']}/{scope}, SignedHeaders=host;x-amz-date, Signature={signature}"
    headers = {"X-Amz-Date": now, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}
    return urllib.request.Request(f"{url}/", data=body.encode(), headers=headers)


def ec2(url: str, action: str, **parameters: str) -> str:
    """Calls EC2, as `aws ec2` would; gives the answer's text."""
    body = urllib.parse.urlencode({"Action": action, "Version": "2016-11-15", **parameters})
    with urllib.request.urlopen(signed(url, body), timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


class Instance:
    """A spot instance: what it runs when it boots is the job."""

    def __init__(self, url: str, zone: str, folder: pathlib.Path) -> None:
        placement = {"ImageId": "ami-1", "MinCount": "1", "MaxCount": "1", "Placement.AvailabilityZone": zone}
        found = re.search(r"<instanceId>([^<]+)", ec2(url, "RunInstances", **placement))
        assert found
        self.url, self.zone, self.id = url, zone, found[1]
        self.home = folder / "hosts" / self.id
        tools = self.home / "tools"
        tools.mkdir(parents=True)
        for name in ("findmnt", "blkid", "mkfs.ext4", "mount", "umount"):
            (tools / name).symlink_to(HERE / "host_tool.sh")
        (self.home / "mounts").touch()
        self.log = self.home / "data" / "log"
        settings = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "FAKE_HOST": str(self.home),
            "AWS_EC2_METADATA_DISABLED": "false",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{url}/imds/{self.id}",
        }
        volume = f"demo={self.home / 'data'},create=1GiB,dev={folder / 'ec2' / 'instances' / self.id}"
        command = ["run", "--checkpoint", "s3://demo/run", "--volume", volume, "--journal", str(folder / "journal")]
        command += ["--", sys.executable, str(HERE / "train.py"), "s3://demo/train", str(self.log)]
        say(f"Instance {self.id} boots in {zone}")
        self.process = subprocess.Popen([str(MILLRACE), *command], env=os.environ | settings)

    def wait_for(self, begins: int, steps: int) -> None:
        """Waits until the job has begun so often, on all instances, and has made so many steps since it began here."""
        deadline = time.monotonic() + PATIENCE
        while True:
            log = self.log.read_text() if self.log.exists() else ""
            if log.count("begin ") == begins and log.rpartition("begin ")[2].count("step ") >= steps:
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise DemoFailed(f"the job on {self.id} did not make {steps} steps; see its messages above")
            time.sleep(0.01)

    def interrupt(self) -> None:
        """EC2 takes it back in two minutes."""
        say(f"EC2 announces that it takes {self.id} back")
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/imds/{self.id}/interrupt?seconds=120", method="POST"), timeout=PATIENCE
        ):
            pass

    def end(self, status: int) -> None:
        """The job ends here with that status, and the instance is terminated."""
        found = self.process.wait(PATIENCE)
        check(found == status, f"the job on {self.id} ends with status {status}")
        ec2(self.url, "TerminateInstances", **{"InstanceId.1": self.id})
        deadline = time.monotonic() + PATIENCE
        while "<name>terminated</name>" not in ec2(
            self.url, "DescribeInstances", **{"InstanceId.1": self.id}
        ):  # its volume is free then
            if time.monotonic() > deadline:
                raise DemoFailed(f"EC2 does not end {self.id}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def read_checkpoint() -> list[list[object]]:
    """All samples that were trained on, as the last checkpoint has them."""
    import millrace  # once the AWS variables name the store

    done: list[list[object]] = millrace.Checkpoints("s3://demo/run").load()["done"]
    return done


def demo(folder: pathlib.Path, instances: list[Instance]) -> None:
    with demo_steps.devstore("mem:", "--bucket", "demo", "--ec2", folder / "ec2", "--ec2-looks", "2") as url:
        os.environ["AWS_ENDPOINT_URL_EC2"] = url
        say("S3 and EC2 are here; making the data")
        millrace("synth", "s3://demo/train", "--count", str(SAMPLES), "--kb", "2")
        total = SAMPLES * EPOCHS
        for zone in ("us-east-1a", "us-east-1b", "us-east-1c"):
            instances.append(Instance(url, zone, folder))
            is_last = zone == "us-east-1c"
            if not is_last:
                instances[-1].wait_for(len(instances), 20)
                instances[-1].interrupt()
            instances[-1].end(0 if is_last else 75)
        say("What is left")
        left = millrace("volume", "ls", "--json").splitlines()
        volume = json.loads(left[0])
        check(len(left) == 1 and volume["zone"] == "us-east-1c", "one volume, in the last zone, and no snapshot")
        log = (folder / "ec2" / "volumes" / volume["volume"] / "log").read_text()
        for line in log.splitlines():
            if not line.startswith("step"):
                print(f"          | {line}")
        saved = re.findall(r"^saved (\d+) with (\d+) s left$", log, re.MULTILINE)
        begun = re.findall(r"^begin (\d+)$", log, re.MULTILINE)
        check(
            len(saved) == 2 and all(int(left) > 60 for _, left in saved), "both times it saved well within two minutes"
        )
        check(begun == ["0", *(count for count, _ in saved)], "and went on where it had saved: no step was lost")
        counts = Counter((int(str(epoch)), str(key)) for epoch, key in read_checkpoint())
        check(
            len(counts) == total and set(counts.values()) == {1},
            f"{EPOCHS} epochs of {SAMPLES} samples: none was lost, and none came twice",
        )
        events = [json.loads(line) for line in (folder / "journal").read_text().splitlines()]
        notices = [event for event in events if event["event"] == "notice"]
        check([notice["kind"] for notice in notices] == ["interruption"] * 2, "the journal has both notices")
        millrace("volume", "rm", "demo")
        check(millrace("volume", "ls") == "", "nothing is paid for any more")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millrace-demo-spot-") as name:
        instances: list[Instance] = []
        try:
            demo(pathlib.Path(name), instances)
        finally:
            for instance in instances:
                instance.stop()
    say("Done")


if __name__ == "__main__":
    sys.exit(demo_steps.run(main))
