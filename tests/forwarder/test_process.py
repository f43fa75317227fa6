"""The forwarder as a process: a real cluster, its own service account, queues and a table."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto.server import ThreadedMotoServer

from spotwright import manifests
from tests.manifests.cluster import Cluster, running_cluster
from tests.manifests.samples import SAMPLES, changed

ROOT = Path(__file__).parents[2]
ACCOUNT = "spotwright-forwarder"


@dataclass
class Forwarder:
    process: subprocess.Popen[bytes]
    log: Path
    cluster: Cluster
    sqs: Any
    dynamodb: Any
    urls: dict[str, str]

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

    def wait_for(self, queue: str, *wanted: tuple[str, str], seconds: float = 15) -> None:
        missing = set(wanted)

        def all_there() -> bool:
            missing.difference_update(self.messages(queue))
            return not missing

        wait_until(all_there, lambda: f"{missing} never came to {queue}:\n{self.log.read_text()[-2000:]}", seconds)

    def page(self, path: str) -> str:
        line = next(line for line in self.log.read_text().splitlines() if '"forwarding"' in line)
        with urllib.request.urlopen(f"http://{json.loads(line)['metrics']}{path}", timeout=5) as answer:
            return str(answer.read().decode())


def wait_until(true: Callable[[], bool], story: Callable[[], str], seconds: float = 15) -> None:
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


@pytest.fixture
def forwarder(aws: str, tmp_path: Path) -> Iterator[Forwarder]:
    cluster = running_cluster()
    for document in [*manifests.definitions(), *manifests.rights()]:
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
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'layers/core/python'}",
        "KUBECONFIG": str(as_service_account(cluster, tmp_path)),
        "CLUSTER_NAME": "test",
        "SPOTWRIGHT_TABLE": tmp_path.name,
        "METRICS_PORT": "0",
        **{f"SPOTWRIGHT_{name.upper()}_QUEUE_URL": url for name, url in urls.items()},
        **keys,
    }
    log = tmp_path / "forwarder.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "forwarder"], env=environment, stdout=out, stderr=out, cwd=tmp_path
        )
    running = Forwarder(process, log, cluster, sqs, dynamodb, urls)
    try:
        wait_until(lambda: heartbeat(running) is not None, lambda: log.read_text(), 30)
        yield running
    finally:
        process.kill()
        process.wait()


_QUEUES = ("provision", "lifecycle", "catalog")


def as_service_account(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig that logs in as the forwarder does, with no rights but its own."""
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", "kube-system").stdout.strip()
    assert token
    kubeconfig = yaml.safe_load(cluster.plane.kubeconfig.read_text())
    for user in kubeconfig["users"]:
        user["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def heartbeat(running: Forwarder) -> int | None:
    table = running.log.parent.name
    key = {"pk": {"S": "forwarder#test"}, "sk": {"S": "heartbeat"}}
    item = running.dynamodb.get_item(TableName=table, Key=key).get("Item")
    return int(item["at"]["N"]) if item else None


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
    forwarder.wait_for("provision", ("pods", ""))

    node_class = changed(SAMPLES["EC2NodeClass"](), "metadata.name", "rings")
    pool = changed(SAMPLES["NodePool"](), "metadata.name", "rings")
    claim = changed(SAMPLES["NodeClaim"](), "metadata.name", "rings")
    for one in (node_class, pool, claim):
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

    page = forwarder.page("/metrics")
    assert 'karpenter_pods_state{name="wants-a-node"' in page
    assert "karpenter_cluster_state_node_count 1" in page
    assert forwarder.page("/healthz") == "ok\n"
    assert forwarder.page("/readyz") == "ok\n"

    for one in (claim, pool, node_class, node, pod):
        cluster.objects.delete(one)
    forwarder.wait_for("lifecycle", ("claim", "rings"), ("node", "rings"))
    forwarder.wait_for("catalog", ("nodeclasses", "rings"))


def test_it_ends_cleanly_when_told_to(forwarder: Forwarder) -> None:
    forwarder.process.send_signal(signal.SIGTERM)
    assert forwarder.process.wait(timeout=10) == 0
    assert json.loads(forwarder.log.read_text().splitlines()[-1])["message"] == "ended"


def test_it_may_only_read(forwarder: Forwarder) -> None:
    account = f"--as=system:serviceaccount:kube-system:{ACCOUNT}"
    for verb, what, allowed in [
        ("watch", "pods", "yes"),
        ("list", "nodeclaims.karpenter.sh", "yes"),
        ("delete", "pods", "no"),
        ("patch", "nodes", "no"),
        ("get", "secrets", "no"),
        ("create", "nodeclaims.karpenter.sh", "no"),
    ]:
        assert forwarder.cluster.kubectl("auth", "can-i", verb, what, "-A", account).stdout.strip() == allowed


def test_a_wrong_environment_ends_it_with_a_sentence(tmp_path: Path) -> None:
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT}:{ROOT / 'layers/core/python'}", "CLUSTER_NAME": "c"}
    ended = subprocess.run(
        [sys.executable, "-m", "forwarder"], env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=30
    )
    assert ended.returncode == 2
    assert "SPOTWRIGHT_TABLE" in ended.stdout
