"""Typical events of each function, on a deployed local stack that stands still but for what the bench invokes."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from local.cdk_deployment import ROOT, CdkDeployment, administrator_session
from local.kubernetes.api import KubernetesApi
from local.stack import Stack

#: How many pods wait for nodes in a typical round of provisioning, and how many run beside them.
WAITING: Final = 20
RUNNING: Final = 20
PATIENCE_SECONDS: Final = 300
_PODS: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      nodeSelector: {{eks-team: my-team}}
      containers:
      - {{name: app, image: "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
          resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}
"""


@dataclass(frozen=True)
class Event:
    """``body``: makes the body of the message that wakes the function, and the cluster as it is before such a message.

    ``month``: how often it comes in a month in which nothing happens.
    """

    function: str
    what: str
    body: Callable[[], dict[str, Any]]
    month: int = 0


class Scene:
    """A cluster with some running pods and some that wait; nothing but the bench wakes a function."""

    def __init__(self, stack: Stack, deployment: CdkDeployment, *, waiting: int = WAITING) -> None:
        self._stack, self._outputs = stack, deployment.outputs()
        account = administrator_session(stack)
        self._dynamodb = account.client("dynamodb", endpoint_url=stack.aws_endpoint)
        self._ec2 = account.client("ec2", endpoint_url=stack.aws_endpoint)
        self._api = KubernetesApi(stack.kubeconfig)
        self._waiting, self._notices = waiting, 0
        self._functions = account.client("lambda", endpoint_url=stack.aws_endpoint)
        self._claims: set[str] = set()

    @contextmanager
    def still(self) -> Iterator["Scene"]:
        """Bring pods and nodes up, then let no queue wake a function until the end."""
        pool = (ROOT / "examples/basic-gen6.yaml").read_text().replace("${CLUSTER_NAME}", self._stack.cluster)
        self._apply(pool.replace('cpu: "10"', 'cpu: "100000"'))
        self._apply(_PODS.format(name="running", replicas=RUNNING, cpu="500m"))
        self._until(lambda: self._pods("running", "Running") == RUNNING, "pods of the Deployment running to run")
        self._until(self._all_initialized, "every NodeClaim to be Initialized")
        self._feed(enabled=False)
        self._claims = set(self._names())
        self._apply(_PODS.format(name="waiting", replicas=self._waiting, cpu="500m"))
        self._until(lambda: self._unschedulable() >= self._waiting // 2, "pods of the Deployment waiting to wait")
        try:
            yield self
        finally:
            self._feed(enabled=True)

    def events(self) -> tuple[Event, ...]:
        """Of each function the typical event comes first; numbers by month follow infra/triggers.py."""
        claim = min(self._claims)
        return (
            Event("provision", f"decides for {self._waiting} waiting pods", self._pods_wait),
            Event("lifecycle", "launches what was decided", self._decided),
            Event("lifecycle", "reconciles a NodeClaim", lambda: self._bell("claim", claim)),
            Event("lifecycle", "checks for drift", lambda: self._bell("drift"), month=8_640),
            Event("interrupt", "records a spot interruption", self._warning),
            Event("disrupt", "looks for empty nodes", lambda: self._bell("evaluate"), month=43_200),
            Event("catalog", "resolves the EC2NodeClass", lambda: self._bell("nodeclasses"), month=8_640),
            Event("catalog", "reads the region's types and prices", lambda: self._bell("region"), month=60),
            Event("sweep", "checks pods and due rows once a minute", lambda: self._bell("poll"), month=43_200),
            Event("sweep", "reads the forwarder's heartbeat", lambda: self._bell("poll", epoch=1), month=475_200),
            Event("sweep", "compares the whole cluster", lambda: self._bell("full"), month=4_320),
        )

    def invoke(self, event: Event) -> dict[str, str]:
        """What Lambda's REPORT line says of one invocation, by name. Raises RuntimeError when the work failed."""
        payload = json.dumps({"Records": [{"messageId": "bench", "body": json.dumps(event.body())}]})
        function = self._outputs[f"FunctionName{event.function.capitalize()}"]
        answer = self._functions.invoke(FunctionName=function, Payload=payload, LogType="Tail")
        content, log = answer["Payload"].read().decode(), base64.b64decode(answer["LogResult"]).decode()
        if json.loads(content) != {"batchItemFailures": []}:
            raise RuntimeError(f"{event.function} {event.what}: {content}\n{log}")
        return report(log)

    def _forget(self) -> None:
        """End what was launched for the waiting pods, and forget every decision."""
        for name in set(self._names()) - self._claims:
            self._stack.kubectl("patch", "nodeclaim", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            self._stack.kubectl("delete", "nodeclaim", name, "--ignore-not-found", "--wait=false")
        self._end_instances()
        table = self._outputs["TableName"]
        key = {":pk": {"S": self._stack.cluster}}
        rows = self._dynamodb.query(
            TableName=table, KeyConditionExpression="pk = :pk", ExpressionAttributeValues=key
        )["Items"]  # fmt: skip
        for row in rows:
            self._dynamodb.delete_item(TableName=table, Key={"pk": row["pk"], "sk": row["sk"]})

    def _end_instances(self) -> None:
        kept = {claim.get("status", {}).get("providerID", "").rpartition("/")[2] for claim in self._nodeclaims()}
        alive = self._stack.control("GET", "/_local/instances")["instances"]
        ended = [
            instance["id"]
            for instance in alive
            if instance["state"] in ("pending", "running") and instance["id"] not in kept
        ]
        if ended:
            self._ec2.terminate_instances(InstanceIds=ended)

    def _bell(self, kind: str, key: str = "", epoch: int = 0) -> dict[str, Any]:
        return {"schema": 1, "cluster": self._stack.cluster, "kind": kind, "key": key, "epoch": epoch}

    def _pods_wait(self) -> dict[str, Any]:
        self._forget()
        return self._bell("pods")

    def _decided(self) -> dict[str, Any]:
        self.invoke(Event("provision", "decides", self._pods_wait))
        return self._bell("decision")

    def _warning(self) -> dict[str, Any]:
        """EventBridge's message about an instance that nobody has told of before."""
        self._notices += 1
        return {
            "id": f"bench-{self._notices}",
            "source": "aws.ec2",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "detail": {"instance-id": f"i-{self._notices:017x}", "instance-action": "terminate"},
        }

    def _feed(self, *, enabled: bool) -> None:
        for mapping in self._functions.list_event_source_mappings()["EventSourceMappings"]:
            self._functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)

    def _apply(self, text: str) -> None:
        self._stack.kubectl("apply", "-f", "-", input=text)

    def _pods(self, app: str, phase: str) -> int:
        pods = self._api.get("/api/v1/namespaces/default/pods", labelSelector=f"app={app}")["items"]
        return sum(pod["status"].get("phase") == phase for pod in pods)

    def _unschedulable(self) -> int:
        pods = self._api.get("/api/v1/namespaces/default/pods", labelSelector="app=waiting")["items"]
        conditions = [condition for pod in pods for condition in pod["status"].get("conditions") or ()]
        return sum(condition.get("reason") == "Unschedulable" for condition in conditions)

    def _nodeclaims(self) -> list[dict[str, Any]]:
        claims: list[dict[str, Any]] = self._api.get("/apis/karpenter.sh/v1/nodeclaims")["items"]
        return claims

    def _names(self) -> list[str]:
        return [claim["metadata"]["name"] for claim in self._nodeclaims()]

    def _all_initialized(self) -> bool:
        return all(
            any(c["type"] == "Initialized" and c["status"] == "True" for c in claim["status"].get("conditions") or ())
            for claim in self._nodeclaims()
        )

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_SECONDS} s for {what}")
            time.sleep(0.5)


def report(log: str) -> dict[str, str]:
    """The last REPORT line of a log, by name."""
    line = [line for line in log.splitlines() if line.startswith("REPORT ")][-1]
    return dict(part.split(": ", 1) for part in line.removeprefix("REPORT ").split("\t"))
