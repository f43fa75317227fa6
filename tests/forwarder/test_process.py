"""The forwarder as a process: a real cluster, its own service account, queues and a table."""

import base64
import json
import os
import platform
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto.server import ThreadedMotoServer
from prometheus_client.parser import text_string_to_metric_families

from spotwright import manifests
from spotwright.adapters.cluster_state.bodies import decode
from spotwright.adapters.cluster_state.head import decode_head
from spotwright.model.cluster_state import ClusterState
from tests.manifests.cluster import Cluster, running_cluster
from tests.manifests.samples import SAMPLES, changed
from tools.forwarder_image import assemble

ACCOUNT = "spotwright-forwarder"
# The interpreter without the packages of this environment: the image has its own.
PYTHON = str(sys._base_executable)  # type: ignore[attr-defined]


@dataclass
class Forwarder:
    process: subprocess.Popen[bytes]
    log: Path
    cluster: Cluster
    sqs: Any
    dynamodb: Any
    urls: dict[str, str]
    s3: Any
    bucket: str

    def state(self) -> ClusterState | None:
        """The newest cluster state, as the functions read it."""
        key = {"pk": {"S": "forwarder#test"}, "sk": {"S": "state"}}
        item = self.dynamodb.get_item(TableName=self.log.parent.name, Key=key).get("Item")
        if item is None:
            return None
        head = decode_head(item["body"]["S"], cluster="test", now=datetime.now(UTC))
        assert (int(item["epoch"]["N"]), int(item["sequence"]["N"])) == (head.epoch, head.sequence)
        return decode(head, self._body(head.full), self._body(head.changes) if head.changes else b"")

    def _body(self, key: str) -> bytes:
        return bytes(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def messages(self, queue: str) -> list[tuple[str, str]]:
        """Kind and key of what is in a queue; taken out."""
        found: list[tuple[str, str]] = []
        while True:
            answer = self.sqs.receive_message(QueueUrl=self.urls[queue], MaxNumberOfMessages=10)
            if not answer.get("Messages"):
                return found
            for one in answer["Messages"]:
                self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=one["ReceiptHandle"])
                body = json.loads(one["Body"])
                assert body["cluster"] == "test"
                found.append((body["kind"], body["key"]))

    def wait_for(self, queue: str, *wanted: tuple[str, str], seconds: float = 180) -> None:
        missing = set(wanted)

        def all_there() -> bool:
            missing.difference_update(self.messages(queue))
            return not missing

        wait_until(all_there, lambda: f"{missing} never came to {queue}:\n{self.log.read_text()[-2000:]}", seconds)

    def page(self, path: str) -> str:
        line = next(line for line in self.log.read_text().splitlines() if '"started forwarder"' in line)
        with urllib.request.urlopen(f"http://{json.loads(line)['metrics']}{path}", timeout=60) as answer:
            return str(answer.read().decode())


def wait_until(true: Callable[[], bool], story: Callable[[], str], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, story()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the forwarder's image holds."""
    folder = tmp_path_factory.mktemp("image")
    assemble("x86_64" if platform.machine() == "x86_64" else "arm64", folder)
    return folder


@pytest.fixture
def forwarder(aws: str, image: Path, tmp_path: Path) -> Iterator[Forwarder]:
    cluster = running_cluster()
    for document in [*manifests.definitions(), *manifests.rbac()]:
        cluster.objects.apply(document)
    keys = {
        "AWS_ENDPOINT_URL": aws, "AWS_REGION": "ap-northeast-2", "AWS_DEFAULT_REGION": "ap-northeast-2",
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="ap-northeast-2")
    sqs, dynamodb = session.client("sqs", endpoint_url=aws), session.client("dynamodb", endpoint_url=aws)
    urls = {name: sqs.create_queue(QueueName=f"{name}-{tmp_path.name}")["QueueUrl"] for name in _QUEUES}
    dynamodb.create_table(
        TableName=tmp_path.name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    )
    bucket, s3 = f"bucket-{tmp_path.name}".replace("_", "-"), session.client("s3", endpoint_url=aws)
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "ap-northeast-2"})
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(image),
        **as_service_account(cluster, tmp_path),
        "CLUSTER_NAME": "test",
        "SPOTWRIGHT_TABLE": tmp_path.name,
        "SPOTWRIGHT_BUCKET": bucket,
        "METRICS_PORT": "0",
        **{f"SPOTWRIGHT_{name.upper()}_QUEUE_URL": url for name, url in urls.items()},
        **keys,
    }
    log = tmp_path / "forwarder.log"
    with log.open("wb") as out:
        process = subprocess.Popen([PYTHON, "-m", "forwarder"], env=environment, stdout=out, stderr=out, cwd=tmp_path)
    running = Forwarder(process, log, cluster, sqs, dynamodb, urls, s3, bucket)
    try:
        wait_until(lambda: heartbeat(running) is not None, lambda: log.read_text())
        yield running
    finally:
        process.kill()
        process.wait()


_QUEUES = ("provision", "lifecycle", "catalog")


def as_service_account(cluster: Cluster, folder: Path) -> dict[str, str]:
    """Environment of a pod that logs in as the forwarder does, with no rights but its own."""
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", "kube-system").stdout.strip()
    assert token
    access = yaml.safe_load(cluster.plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(base64.b64decode(access["certificate-authority-data"]))
    host, _, port = access["server"].removeprefix("https://").rpartition(":")
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICEACCOUNT_DIRECTORY": str(folder),
    }


def heartbeat(running: Forwarder) -> int | None:
    table = running.log.parent.name
    key = {"pk": {"S": "forwarder#test"}, "sk": {"S": "heartbeat"}}
    item = running.dynamodb.get_item(TableName=table, Key=key).get("Item")
    return int(item["at"]["N"]) if item else None


def pods_of(state: ClusterState | None) -> set[str]:
    return {pod.metadata.name for pod in state.objects.pods} if state else set()


def is_well(running: Forwarder, path: str) -> bool:
    """Not while AWS takes long to answer."""
    try:
        return running.page(path) == "ok\n"
    except urllib.error.HTTPError:
        return False


def test_what_happens_in_the_cluster_reaches_the_queues(forwarder: Forwarder) -> None:
    cluster = forwarder.cluster
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "wants-a-node", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    }
    cluster.objects.apply(pod)
    forwarder.wait_for("provision", ("pods", ""))
    # The doorbell waits for the state, but not for long.
    wait_until(lambda: "wants-a-node" in pods_of(forwarder.state()), forwarder.log.read_text)
    state = forwarder.state()
    assert state is not None
    assert "kube-system" in state.objects.namespaces
    assert all(int(kind.resource_version) for name, kind in state.kinds.items() if name != "CapacityBuffer")
    forwarder.wait_for("provision", ("pods", ""))

    nodeclass = changed(SAMPLES["EC2NodeClass"](), "metadata.name", "rings")
    pool = changed(SAMPLES["NodePool"](), "metadata.name", "rings")
    claim = changed(SAMPLES["NodeClaim"](), "metadata.name", "rings")
    for one in (nodeclass, pool, claim):
        cluster.objects.apply(one)
    forwarder.wait_for("catalog", ("nodeclasses", "rings"))
    forwarder.wait_for("lifecycle", ("nodepools", ""), ("claim", "rings"))

    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "rings", "labels": {"karpenter.sh/nodepool": "rings"}},
    }
    cluster.objects.apply(node)
    forwarder.wait_for("lifecycle", ("node", "rings"))
    cluster.kubectl("label", "node", "rings", "a=b")
    forwarder.wait_for("lifecycle", ("node", "rings"))

    metrics = {metric.name: metric.samples for metric in text_string_to_metric_families(forwarder.page("/metrics"))}
    assert "wants-a-node" in {sample.labels["name"] for sample in metrics["karpenter_pods_state"]}
    assert [sample.value for sample in metrics["karpenter_cluster_state_node_count"]] == [1]
    for path in ("/healthz", "/readyz"):
        wait_until(lambda: is_well(forwarder, path), forwarder.log.read_text)  # noqa: B023

    held = {"metadata": {"finalizers": ["example.com/held"]}}
    for one in (claim, node):
        cluster.objects.merge(one, held)
        cluster.objects.delete(one)
    forwarder.wait_for("lifecycle", ("claim", "rings"), ("node", "rings"))
    for one in (pool, nodeclass, pod):
        cluster.objects.delete(one)
    forwarder.wait_for("catalog", ("nodeclasses", "rings"))
    for one in (claim, node):
        cluster.objects.merge(one, {"metadata": {"finalizers": None}})


def test_it_ends_cleanly_when_told_to(forwarder: Forwarder) -> None:
    forwarder.process.send_signal(signal.SIGTERM)
    assert forwarder.process.wait(timeout=180) == 0
    assert json.loads(forwarder.log.read_text().splitlines()[-1])["message"] == "stopped forwarder"


def test_it_may_only_read(forwarder: Forwarder) -> None:
    account = f"--as=system:serviceaccount:kube-system:{ACCOUNT}"
    for verb, what, allowed in [
        ("watch", "pods", "yes"),
        ("list", "nodeclaims.karpenter.sh", "yes"),
        ("watch", "persistentvolumeclaims", "yes"),
        ("watch", "deployments.apps", "yes"),
        ("delete", "pods", "no"),
        ("patch", "nodes", "no"),
        ("get", "secrets", "no"),
        ("create", "nodeclaims.karpenter.sh", "no"),
    ]:
        assert forwarder.cluster.kubectl("auth", "can-i", verb, what, "-A", account).stdout.strip() == allowed


@pytest.mark.parametrize("missing", ["SPOTWRIGHT_TABLE", "KUBERNETES_SERVICE_HOST", "SPOTWRIGHT_LIFECYCLE_QUEUE_URL"])
def test_a_wrong_environment_ends_it_with_a_sentence(image: Path, tmp_path: Path, missing: str) -> None:
    wrong = {name: value for name, value in ENVIRONMENT.items() if name != missing}
    assert f"environment variable '{missing}' is not set" in ended(image, wrong, tmp_path)


def test_a_pod_without_a_service_account_ends_with_a_sentence(image: Path, tmp_path: Path) -> None:
    wrong = {**ENVIRONMENT, "KUBERNETES_SERVICEACCOUNT_DIRECTORY": str(tmp_path)}
    assert f"service account: [Errno 2] No such file or directory: '{tmp_path}/token'" in ended(image, wrong, tmp_path)


ENVIRONMENT = {
    "CLUSTER_NAME": "c",
    "SPOTWRIGHT_TABLE": "t",
    "SPOTWRIGHT_BUCKET": "b",
    **{f"SPOTWRIGHT_{name.upper()}_QUEUE_URL": "http://127.0.0.1:1" for name in _QUEUES},
    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
}


def ended(image: Path, environment: dict[str, str], folder: Path) -> str:
    """The reason that a forwarder gives as it ends at once."""
    done = subprocess.run(
        [PYTHON, "-m", "forwarder"],
        env={"PATH": os.defpath, "PYTHONPATH": str(image), **environment},
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
    )
    assert done.returncode == 2
    return str(json.loads(done.stdout)["error"])
