"""A deployed local stack with a large cluster, and what the measurements ask of it."""

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from bench.latency import POD
from bench.scale import processes
from bench.scale.call_log import CallLog
from bench.scale.fill import Filler, ThreadApis
from bench.scale.meter import ApiServerLoad, api_server_load
from bench.scale.workloads import class_and_pool
from local.cdk_deployment import CdkDeployment, administrator_session
from local.kubernetes.api import KubernetesApi
from local.stack import Stack
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.aws.shipped_cluster_state import ShippedClusterState
from spotwright.workflows.planning.cluster_state import NoClusterState, read_cluster_state

#: How long anything may take before the benchmark ends with what it waited for.
PATIENCE_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 2.0
# They would judge nodes that have no kubelet, and follow every pod with a processor that the figures need.
HELD_PARTS: Final = ("kube-controller-manager", "pods", "boot")
_BUSY: Final = frozenset(("CreateFleet", "PutObject", "TransactWriteItems"))


class Scene:
    """A cluster that grows."""

    def __init__(self, stack: Stack, deployment: CdkDeployment) -> None:
        self.stack, self.outputs = stack, deployment.outputs()
        account = administrator_session(stack)
        self.dynamodb = account.client("dynamodb", endpoint_url=stack.aws_endpoint)
        self.sqs = account.client("sqs", endpoint_url=stack.aws_endpoint)
        blobs = S3Blobs(
            account.client("s3", endpoint_url=stack.aws_endpoint), bucket=self.outputs["BucketName"],
            cluster=stack.cluster,
        )  # fmt: skip
        self._state = ShippedClusterState(self.dynamodb, blobs, table=self.outputs["TableName"], cluster=stack.cluster)
        self.apis = ThreadApis(stack.kubeconfig)
        self._filler = Filler(self.apis)
        self._forwarder = 0

    @contextmanager
    def ready(self, held_parts: Collection[str] = HELD_PARTS) -> Iterator["Scene"]:
        """The forwarder runs, and what would disturb figures stands still."""
        self.prepare()
        with self.held(held_parts):
            yield self

    def prepare(self) -> None:
        """The forwarder runs on a node of its own."""
        self.apply(class_and_pool(self.stack.cluster))
        self.apply(POD.format(number=0))
        self.until(lambda: self._shipped_pods() > 0, "the forwarder to ship a cluster state")
        self.until(lambda: not self.waiting_pods(), "the first pods to be bound")

    @contextmanager
    def held(self, parts: Collection[str] = HELD_PARTS) -> Iterator[None]:
        """What would disturb figures stands still."""
        pids = self.stack.pids()
        self.forwarder()
        with processes.held(pids[name] for name in parts):
            yield

    def grow_to(self, nodes: int, pods: int) -> None:
        """Fill the cluster, and wait until the forwarder has shipped that and the functions have nothing to do."""
        self._filler.grow_to(nodes, pods)
        self.until(lambda: self._shipped_pods() >= pods, f"a cluster state of {pods} pods")
        self.until_quiet()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Raises TimeoutError, saying what was waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_SECONDS:.0f} s for {what}; logs in {self.stack.logs}")
            time.sleep(_POLL_SECONDS)

    def until_quiet(self) -> None:
        """Nothing was bought, decided or shipped in the last two seconds."""

        def is_quiet() -> bool:
            lately = self.call_log()
            time.sleep(_QUIET_SECONDS)
            return not any(call["action"] in _BUSY for call in lately.calls())

        self.until(is_quiet, "the functions and the forwarder to have nothing to do")

    def call_log(self) -> CallLog:
        """What the local AWS is asked for from now on."""
        return CallLog(self.stack.logs / "aws-calls.jsonl")

    def apply(self, text: str) -> None:
        self.stack.kubectl("apply", "-f", "-", input=text)

    @property
    def api(self) -> KubernetesApi:
        """The API server, as its administrator."""
        return self.apis.api

    def waiting_pods(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.api.get("/api/v1/pods", fieldSelector="spec.nodeName=")["items"]
        return pods

    def forwarder(self) -> int:
        """Its process, which stays the same while the part that runs pods stands still."""
        if not self._forwarder:
            (file,) = (self.stack.directory / "pods").glob("kube-system_spotwright-forwarder-*/*.json")
            self._forwarder = int(json.loads(file.read_text())["pid"])
        return self._forwarder

    def load(self) -> ApiServerLoad:
        return api_server_load(self.stack.kubectl("get", "--raw", "/metrics").stdout)

    def functions(self) -> tuple[str, ...]:
        """The short names of the deployed functions."""
        return tuple(function["name"] for function in self.stack.control("GET", "/_local/functions")["functions"])

    def _shipped_pods(self) -> int:
        """How many pods the newest state shows; 0 where there is none that a planner may use."""
        state = read_cluster_state(self._state, now=datetime.now(UTC))
        return 0 if isinstance(state, NoClusterState) else len(state.objects.pods)


class FunctionLog:
    """What a function logs from now on."""

    def __init__(self, stack: Stack, function: str) -> None:
        self._file = stack.logs / f"function-{function}.log"
        self._from = self._file.stat().st_size if self._file.exists() else 0

    def text(self) -> str:
        if not self._file.exists():
            return ""
        with self._file.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")
