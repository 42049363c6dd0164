"""Tests the Helm chart: Helm renders it, the schemas of Kubernetes take what it renders, and the worker runs as the
chart says."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests")]

import helm  # noqa: E402
from e2e.harness import Sandbox, binary, devstore, feed_args  # noqa: E402
from e2e.mounting import wait_until  # noqa: E402
from ports import free_port  # noqa: E402

CHART = REPOSITORY / "deploy" / "helm" / "millrace"
KUBERNETES = "1.31"

WORKERS = {"enabled": True, "allow": ["s3://b/train"], "tokenSecret": "worker-token"}
CLASS = {
    "name": "millrace-train",
    "uri": "s3://b/${pvc.namespace}/${pvc.name}",
    "region": "eu-central-1",
    "endpoint": "https://store.example",
    "mountOptions": ["uid=1000"],
    "secret": {"name": "train-keys", "namespace": "default"},
}
ROLE = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/r"}

# Values that users may give: the templates branch on each of them.
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no volumes": {"csi": {"enabled": False}},
    "claims": {"csi": {"storageClasses": [CLASS, {"name": "plain", "uri": "s3://b", "reclaimPolicy": "Retain"}]}},
    "volumes by a role": {
        "csi": {
            "serviceAccount": {"name": "volumes", "annotations": ROLE},
            "cache": {"hostPath": ""},
            "allowFolders": True,
            "credentialsSecret": "",
            "env": [{"name": "AWS_REGION", "value": "us-east-1"}],
        }
    },
    "workers": {"worker": WORKERS},
    "workers that come and go": {
        "imagePullSecrets": [{"name": "registry"}],
        "worker": {
            **WORKERS,
            "tokenSecret": "",
            "tlsSecret": "worker-certificate",
            "autoscaling": {"enabled": True},
            "cache": {"kind": "disk", "size": "50GiB"},
            "extraArgs": ["--keep-decoded=1GiB"],
            "credentialsSecret": "store-keys",
            "serviceAccount": {"annotations": ROLE},
            "env": [{"name": "AWS_REGION", "value": "us-east-1"}],
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
        },
    },
}


def run_helm(*arguments: str | pathlib.Path, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    command = [helm.make(), *arguments, "--values", "-"]
    return subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True)


def rendered(values: dict[str, Any], release: str = "r") -> list[dict[str, Any]]:
    done = run_helm("template", release, CHART, "--namespace", "n", "--kube-version", KUBERNETES, values=values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(documents: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"].endswith(ending)]
    return found


def pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        if document["kind"] in ("DaemonSet", "Deployment"):
            yield document["metadata"]["name"], document["spec"]["template"]


@pytest.mark.parametrize("case", CASES)
def test_the_schemas_take_what_helm_renders(case: str) -> None:
    done = run_helm("lint", "--strict", CHART, values=CASES[case])
    assert done.returncode == 0, done.stdout + done.stderr
    documents = rendered(CASES[case])
    assert documents or case == "no volumes"
    for document in documents:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    keys = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(keys)) == len(keys)


def test_the_schemas_refuse_what_is_wrong() -> None:
    worker = one(rendered(CASES["workers"]), "Deployment", "-worker")
    for change in ({"replica": 2}, {"replicas": "2"}):
        wrong = copy.deepcopy(worker)
        wrong["spec"] |= change
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"worker": {"enable": True}}, "enable"),
        ({"worker": {**WORKERS, "allow": []}}, "worker.allow"),
        ({"worker": {**WORKERS, "tokenSecret": ""}}, "tokenSecret"),
        ({"worker": {**WORKERS, "memory": "4 gigabytes"}}, "memory"),
        ({"csi": {"storageClasses": [{"name": "c", "uri": "gs://b"}]}}, "uri"),
        ({"csi": {"storageClasses": [{"name": "c", "uri": "s3://b", "bucket": "b"}]}}, "bucket"),
    ],
)
def test_values_that_are_wrong_are_refused(values: dict[str, Any], word: str) -> None:
    done = run_helm("template", "r", CHART, values=values)
    assert done.returncode != 0 and word in done.stderr, done.stdout + done.stderr


def test_the_plugin_is_that_of_the_manifests() -> None:
    """deploy/csi/base, which needs no Helm, and the chart do not drift apart."""
    documents = rendered({})
    base = REPOSITORY / "deploy" / "csi" / "base"
    plain = yaml.safe_load((base / "daemonset.yaml").read_text())["spec"]
    own = one(documents, "DaemonSet")["spec"]
    assert own["updateStrategy"] == plain["updateStrategy"]
    wanted, found = plain["template"]["spec"], own["template"]["spec"]
    assert found.pop("serviceAccountName") == "r-millrace-csi"
    container = found["containers"][0]
    assert container.pop("image").startswith("millrace-csi:") and container.pop("imagePullPolicy") == "IfNotPresent"
    assert container["args"].pop().startswith("--version=")
    del wanted["containers"][0]["image"]
    assert found == wanted
    driver = yaml.safe_load((base / "driver.yaml").read_text())
    assert one(documents, "CSIDriver")["spec"] == driver["spec"]


@pytest.mark.parametrize("case", CASES)
def test_only_the_plugin_of_a_node_is_privileged(case: str) -> None:
    """All others keep to the profile `restricted` of Kubernetes' pod security standards."""
    for name, template in pods(rendered(CASES[case])):
        spec = template["spec"]
        if name == "r-millrace-csi":
            assert [each["securityContext"] for each in spec["containers"]] == [{"privileged": True}]
            continue
        assert not {"hostPID", "hostNetwork", "hostIPC"} & set(spec)
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {kind for volume in spec["volumes"] for kind in volume} <= {"name", "emptyDir", "secret"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


@pytest.mark.parametrize("case", CASES)
def test_objects_find_each_other(case: str) -> None:
    documents = rendered(CASES[case])
    accounts = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    for _, template in pods(documents):
        assert template["spec"]["serviceAccountName"] in accounts
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    for document in documents:
        if document["kind"] in ("DaemonSet", "Deployment"):
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if document["kind"] == "Service":
            labels = one(documents, "Deployment", "-worker")["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"].items() <= labels.items()
            assert document["spec"]["clusterIP"] == "None"
        if document["kind"] == "HorizontalPodAutoscaler":
            target = document["spec"]["scaleTargetRef"]
            scaled = one(documents, target["kind"], target["name"])
            assert "replicas" not in scaled["spec"]
        if document["kind"] == "ClusterRoleBinding":
            one(documents, "ClusterRole", document["roleRef"]["name"])
            assert {subject["name"] for subject in document["subjects"]} <= accounts


def test_roles_of_service_accounts() -> None:
    accounts = {
        each["metadata"]["name"]: each["metadata"].get("annotations")
        for case in ("volumes by a role", "workers that come and go")
        for each in rendered(CASES[case])
        if each["kind"] == "ServiceAccount"
    }
    assert accounts["volumes"] == ROLE and accounts["r-millrace-worker"] == ROLE


def test_a_class_says_what_the_controller_reads() -> None:
    documents = rendered(CASES["claims"])
    sys.path[:0] = [str(REPOSITORY / "deploy" / "csi" / "plugin")]
    import controller

    claim = {place: "x" for place in controller.PLACES.values()}
    parameters = one(documents, "StorageClass", "-train")["parameters"]
    given = controller.attributes_of("v", {**claim, **parameters}, False)
    assert given == {"uri": "s3://b/x/x", "region": "eu-central-1", "endpoint": "https://store.example"}
    assert parameters["csi.storage.k8s.io/node-stage-secret-name"] == "train-keys"
    (rules,) = [each["rules"] for each in documents if each["kind"] == "ClusterRole"]
    assert "secrets" not in {resource for rule in rules for resource in rule["resources"]}
    driver = one(documents, "CSIDriver")["metadata"]["name"]
    assert {each["provisioner"] for each in documents if each["kind"] == "StorageClass"} == {driver}
    controllers = one(documents, "Deployment", "-csi-controller")["spec"]["template"]["spec"]["containers"]
    assert "--extra-create-metadata" in controllers[1]["args"]
    server = (REPOSITORY / "deploy/csi/plugin/server.py").read_text()
    for argument in controllers[0]["args"]:
        assert f'"{argument.partition("=")[0]}"' in server, argument


@pytest.fixture
def open_to_all() -> Iterator[pathlib.Path]:
    """Makes a folder below no other one that only root may enter."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_a_worker_runs_as_the_chart_says(tmp_path: pathlib.Path, open_to_all: pathlib.Path) -> None:
    """It has the command, arguments, environment and user of the chart, without any right of root; a trainer gets the
    rows that it would make itself."""
    folder = tmp_path
    sandbox = Sandbox(folder)
    sandbox.ok("synth", folder / "root/b/train", "--count", 50, "--kb", 4, "--seed", 1)
    values = copy.deepcopy(CASES["workers"])
    port, metrics = free_port(), free_port()
    values["worker"] |= {"port": port, "metricsPort": metrics, "memory": "256MiB"}
    values["worker"]["cache"] = {"kind": "disk", "size": "64MiB"}
    spec = one(rendered(values), "Deployment", "-worker")["spec"]["template"]["spec"]
    container = spec["containers"][0]
    user = spec["securityContext"]["runAsUser"]

    # The program and the volumes of the pod, in a folder that its user may enter.
    pod = open_to_all
    program = pod / "millrace"
    shutil.copy2(binary(), program)
    program.chmod(0o755)
    (pod / "cache").mkdir()
    os.chown(pod / "cache", user, user)
    token = pod / "etc/millrace/token/token"
    token.parent.mkdir(parents=True)
    token.write_text("a-token-that-trainers-know")
    (mode,) = [volume["secret"]["defaultMode"] for volume in spec["volumes"] if "secret" in volume]
    token.chmod(mode)
    os.chown(token, 0, user)

    def placed(text: str) -> str:
        return re.sub(r"(?<==)(?=/)|^(?=/)", str(pod), text)

    with devstore(sandbox, folder / "root") as store:
        environment = store.env() | {each["name"]: placed(each["value"]) for each in container["env"]}
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
        command += ["--inh-caps=-all", "--bounding-set=-all"]
        assert container["command"] == ["millrace"]
        with open(folder / "log", "w") as log:
            worker = subprocess.Popen(
                [*command, str(program), *map(placed, container["args"])], env=environment, stderr=log, cwd="/"
            )
        try:

            def listens() -> bool:
                assert worker.poll() is None, (folder / "log").read_text()
                done = sandbox.run("top", metrics, "--once", "--json")
                return done.code == 0

            wait_until(listens, "the worker")
            remote = sandbox.ok(
                *feed_args("s3://b/train"),
                "--workers",
                f"127.0.0.1:{port}",
                "--worker-token-file",
                token,
                env=store.env(),
            ).json()
            local = sandbox.ok(*feed_args("s3://b/train"), env=store.env()).json()
            assert remote["digest"] == local["digest"]
            rows = {each["worker"]: each["rows"] for each in remote["workers"]}
            assert rows.pop("local") == 0 and sum(rows.values()) >= 50, remote["workers"]
        finally:
            worker.terminate()
            assert worker.wait(60) == 0, (folder / "log").read_text()
