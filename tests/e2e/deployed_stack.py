"""What the end-to-end tests look at: pods, claims and instances of a deployed stack, and how to wait for them."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from local.cdk_deployment import ROOT, CdkDeployment, administrator_session
from local.demo.cluster_objects import API_PATHS
from local.kubernetes.api import KubernetesApi
from local.stack import Stack

POLL_SECONDS = 0.5
# Seconds say how long things take at most where nothing else runs; other tests do. So many times as long is waited.
PATIENCE = 3
INFLATE = (ROOT / "examples" / "scale-up-cmr.yaml").read_text().split("---")[-1]


class DeployedStack:
    """A deployed stack as an operator sees it."""

    def __init__(self, stack: Stack, deployment: CdkDeployment) -> None:
        self.stack, self.deployment = stack, deployment
        self.outputs = deployment.outputs()
        # A kubectl for every look would be most of what these tests compute.
        self.api = KubernetesApi(stack.kubeconfig)
        account = administrator_session(stack)
        self.sqs = account.client("sqs", endpoint_url=stack.aws_endpoint)
        self.dynamodb = account.client("dynamodb", endpoint_url=stack.aws_endpoint)

    def apply(self, name: str) -> None:
        text = Path(ROOT / "examples" / name).read_text().replace("${CLUSTER_NAME}", self.stack.cluster)
        self.stack.kubectl("apply", "-f", "-", input=text)

    def apply_object(self, value: dict[str, Any]) -> None:
        """Make an object, or what it says of one there is."""
        self.stack.kubectl("apply", "-f", "-", input=json.dumps(value))

    def scale(self, replicas: int) -> None:
        """`inflate` with so many replicas, whoever hosts it."""
        self.stack.kubectl("apply", "-f", "-", input=INFLATE.replace("replicas: 5", f"replicas: {replicas}"))

    def objects(self, kind: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.api.get(API_PATHS[kind])["items"]
        return items

    def running(self, app: str) -> int:
        pods = [p for p in self.objects("pods") if p["metadata"].get("labels", {}).get("app") == app]
        return sum(p["status"].get("phase") == "Running" for p in pods)

    def staying(self, app: str) -> list[str]:
        """Names of the pods that nobody has told to stop."""
        return [
            pod["metadata"]["name"]
            for pod in self.objects("pods")
            if pod["metadata"].get("labels", {}).get("app") == app and "deletionTimestamp" not in pod["metadata"]
        ]

    def instances(self) -> set[str]:
        """Ids of instances that are alive, as EC2 has them."""
        listed = self.stack.control("GET", "/_local/instances")["instances"]
        return {one["id"] for one in listed if one["state"] in ("pending", "running", "stopping", "stopped")}

    def all_instances(self) -> set[str]:
        """Ids of instances that are alive, or ended within the hour."""
        return {one["id"] for one in self.stack.control("GET", "/_local/instances")["instances"]}

    def claimed_instances(self) -> set[str]:
        """Ids of the instances that NodeClaims speak of."""
        return {c.get("status", {}).get("providerID", "").rsplit("/", 1)[-1] for c in self.objects("nodeclaims")} - {""}

    def calls(self, action: str, since: float) -> list[dict[str, Any]]:
        """Those that meant it: a class is tried by calls that only ask."""
        made: list[dict[str, Any]] = self.stack.control("GET", "/_local/calls?since=0")["calls"]
        meant = (c for c in made if c["action"] == action and not c["request"].get("DryRun"))
        return [c for c in meant if _seconds(c["time"]) >= since]

    def wait_until(self, what: str, holds: Callable[[], bool], *, seconds: float) -> None:
        """``seconds``: how long it takes at most on a machine that does nothing else."""
        deadline = time.monotonic() + PATIENCE * seconds
        while not holds():
            assert time.monotonic() < deadline, f"not seen within {PATIENCE * seconds:.0f} s: {what}\n{self.state()}"
            time.sleep(POLL_SECONDS)

    def state(self) -> str:
        return self.stack.kubectl("get", "nodepools,ec2nodeclasses,nodeclaims,nodes,pods", "-A", "-o", "wide").stdout

    def ring(self, queue: str, kind: str, key: str = "") -> None:
        body = {"schema": 1, "cluster": self.stack.cluster, "kind": kind, "key": key, "epoch": 0}
        self.sqs.send_message(QueueUrl=self.outputs[f"{queue}QueueUrl"], MessageBody=json.dumps(body))

    def shorten_visibility(self, queue: str) -> tuple[str, str]:
        """A queue whose failed messages come back after five seconds; its URL and that of its dead letters."""
        url = self.outputs[f"{queue}QueueUrl"]
        policy = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
        name = json.loads(policy["RedrivePolicy"])["deadLetterTargetArn"].rsplit(":", 1)[-1]
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "5"})
        return url, self.sqs.get_queue_url(QueueName=name)["QueueUrl"]

    def message_count(self, url: str) -> int:
        """Messages of a queue, those being worked on included."""
        names: list[Any] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def message_bodies(self, url: str) -> list[str]:
        """What lies in a queue of at most ten messages, sorted; it stays there."""
        answer = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return sorted(message["Body"] for message in answer.get("Messages", ()))

    def heartbeat(self) -> str:
        """What the forwarder's newest heartbeat says; empty while there is none."""
        key = {"pk": {"S": f"forwarder#{self.stack.cluster}"}, "sk": {"S": "heartbeat"}}
        found = self.dynamodb.get_item(TableName=self.outputs["TableName"], Key=key)
        return json.dumps(found["Item"], sort_keys=True) if "Item" in found else ""

    def delete_rows(self) -> int:
        """Lose the whole table; how many rows there were."""
        table = self.outputs["TableName"]
        rows = [
            item for page in self.dynamodb.get_paginator("scan").paginate(TableName=table) for item in page["Items"]
        ]
        for row in rows:
            self.dynamodb.delete_item(TableName=table, Key={"pk": row["pk"], "sk": row["sk"]})
        return len(rows)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
