"""A deployed local stack with a large cluster, in which a pod that waits is launched for, from state or from lists."""

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.latency import POD, WINDOW_SECONDS
from bench.scale import processes
from bench.scale.figures import FROM_STATE, Launch
from bench.scale.fill import Filler
from bench.scale.meter import ApiServerLoad, api_server_load, peak_megabytes
from local.cdk_deployment import ROOT, CdkDeployment, administrator_session
from local.kubernetes.api import KubernetesApi
from local.stack import Stack
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.aws.shipped_cluster_state import ShippedClusterState
from spotwright.workflows.planning.cluster_state import NoClusterState, read_cluster_state

#: How long anything may take before the benchmark ends with what it waited for.
PATIENCE_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.02
# They would judge nodes that have no kubelet, and follow every pod with a processor that the figures need.
_HELD_PARTS: Final = ("kube-controller-manager", "pods", "boot")


class Scene:
    """Pods that wait get numbers; each needs a node of its own."""

    def __init__(self, stack: Stack, deployment: CdkDeployment) -> None:
        self._stack, self._outputs = stack, deployment.outputs()
        self._api = KubernetesApi(stack.kubeconfig)
        account = administrator_session(stack)
        self._dynamodb = account.client("dynamodb", endpoint_url=stack.aws_endpoint)
        self._sqs = account.client("sqs", endpoint_url=stack.aws_endpoint)
        blobs = S3Blobs(
            account.client("s3", endpoint_url=stack.aws_endpoint), bucket=self._outputs["BucketName"],
            cluster=stack.cluster,
        )  # fmt: skip
        self._state = ShippedClusterState(
            self._dynamodb, blobs, table=self._outputs["TableName"], cluster=stack.cluster
        )
        self._filler = Filler(stack.kubeconfig)
        self._pods = 0

    @contextmanager
    def ready(self, held_parts: Collection[str] = _HELD_PARTS) -> Iterator["Scene"]:
        """The forwarder runs on a node of its own, and what would disturb the figures stands still."""
        pool = (ROOT / "examples/basic-gen6.yaml").read_text().replace("${CLUSTER_NAME}", self._stack.cluster)
        self._apply(pool.replace('cpu: "10"', 'cpu: "100000"'))
        self._apply(POD.format(number=self._pods))
        self._until(lambda: self._shipped_pods() > 0, "the forwarder to ship a cluster state")
        self._until(self._nothing_waits, "the first pods to be bound")
        with processes.held(pid for name, pid in self._stack.pids().items() if name in held_parts):
            self._filler.prepare()
            yield self

    def grow_to(self, nodes: int, pods: int) -> None:
        """Fill the cluster, and wait until the forwarder has shipped that."""
        self._filler.grow_to(nodes, pods)
        self._until(lambda: self._shipped_pods() >= pods, f"a cluster state of {pods} pods")

    def launches(self, way: str, runs: int) -> tuple[Launch, ...]:
        """One waiting pod after the other. Raises TimeoutError."""
        if way == FROM_STATE:
            return tuple(self._launch(WINDOW_SECONDS, lambda: None) for _ in range(runs))
        with self._without_state():
            return tuple(self._launch(0.0, self._ring) for _ in range(runs))

    def _launch(self, window: float, ring: Callable[[], None]) -> Launch:
        self._until(self._is_quiet, "the functions to have nothing to do")
        processes.hold_to_one_processor(processes.children(self._stack.pids()["aws"]))
        calls = self._stack.control("GET", "/_local/calls?since=0")["next"]
        log, before = self._log().stat().st_size, self.load()
        self._pods += 1
        self._apply(POD.format(number=self._pods))
        self._until(lambda: self._is_refused(self._pods), f"kube-scheduler to refuse pod bench-{self._pods}")
        refused = time.time()
        ring()
        self._until(lambda: self._fleet(calls) > 0, f"CreateFleet for pod bench-{self._pods}")
        seconds = self._fleet(calls) - refused - window
        load = self.load().since(before)
        self._until(lambda: peak_megabytes(self._log_since(log)) > 0, "the end of provision")
        return Launch(seconds, peak_megabytes(self._log_since(log)), load.requests, load.read_bytes)

    @contextmanager
    def _without_state(self) -> Iterator[None]:
        """The forwarder stands still, and what it shipped last is not there."""
        key: Any = {"pk": {"S": f"forwarder#{self._stack.cluster}"}, "sk": {"S": "state"}}
        with processes.held([self._forwarder()]):
            row = self._dynamodb.get_item(TableName=self._outputs["TableName"], Key=key)["Item"]
            self._dynamodb.delete_item(TableName=self._outputs["TableName"], Key=key)
            try:
                yield
            finally:
                self._dynamodb.put_item(TableName=self._outputs["TableName"], Item=row)

    def _forwarder(self) -> int:
        (file,) = (self._stack.directory / "pods").glob("kube-system_spotwright-forwarder-*/*.json")
        return int(json.loads(file.read_text())["pid"])

    def _ring(self) -> None:
        """The doorbell that the forwarder would send."""
        body = {"schema": 1, "cluster": self._stack.cluster, "kind": "pods", "key": "", "epoch": 0}
        self._sqs.send_message(QueueUrl=self._outputs["ProvisionQueueUrl"], MessageBody=json.dumps(body))

    def _shipped_pods(self) -> int:
        """How many pods the newest state shows; 0 where there is none that a planner may use."""
        state = read_cluster_state(self._state, now=datetime.now(UTC))
        return 0 if isinstance(state, NoClusterState) else len(state.objects.pods)

    def _nothing_waits(self) -> bool:
        pods = self._api.get("/api/v1/pods", fieldSelector="spec.nodeName=")["items"]
        return not pods

    def _is_refused(self, number: int) -> bool:
        pod = self._api.get(f"/api/v1/namespaces/default/pods/bench-{number}")
        return any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions") or ())

    def _fleet(self, since: int) -> float:
        """When EC2 got the first CreateFleet after a call, in seconds since 1970; 0 before that."""
        for call in self._stack.control("GET", f"/_local/calls?since={since}")["calls"]:
            if call["action"] == "CreateFleet" and not call["request"].get("DryRun"):
                # The log says when the call was answered, and how long that took.
                return datetime.fromisoformat(call["time"]).timestamp() - float(call["milliseconds"]) / 1000
        return 0.0

    def _is_quiet(self) -> bool:
        """No function called AWS in the last second."""
        seen = self._stack.control("GET", "/_local/calls?since=0")["next"]
        time.sleep(1.0)
        return not any(
            call["action"] in ("CreateFleet", "PutObject", "TransactWriteItems")
            for call in self._stack.control("GET", f"/_local/calls?since={seen}")["calls"]
        )

    def load(self) -> ApiServerLoad:
        """Of the API server, since it started."""
        return api_server_load(self._stack.kubectl("get", "--raw", "/metrics").stdout)

    def _log(self) -> Path:
        return self._stack.logs / "function-provision.log"

    def _log_since(self, position: int) -> str:
        with self._log().open("rb") as file:
            file.seek(position)
            return file.read().decode(errors="replace")

    def _apply(self, text: str) -> None:
        self._stack.kubectl("apply", "-f", "-", input=text)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_SECONDS:.0f} s for {what}; logs in {self._stack.logs}")
            time.sleep(_POLL_SECONDS)
