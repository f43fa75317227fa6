"""Nodes with a pod each: how soon they come, and how soon they go. Whoever provides them is not known here."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, Final, Self

from bench.lifecycle.processors import Processors
from bench.scale.figures import Measured
from bench.scale.scene import PATIENCE_SECONDS
from bench.scale.workloads import INTERRUPTED, LABEL, NAMESPACE
from local.kubernetes.api import KubernetesApi
from local.kubernetes.informer import Informer
from local.stack import Stack

LOOK_SECONDS: Final = 0.2
CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
STAGES: Final = ("Launched", "Registered", "Initialized")
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OF_POOL: Final = ("karpenter.sh/nodepool", INTERRUPTED)
_OF_WORKLOADS: Final = (LABEL, INTERRUPTED)

type Object = Mapping[str, Any]


class Watched:
    """NodeClaims and pods of a stack as watches show them: lists of all of them, several times a second, would slow
    down what is measured.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack, self.api = stack, KubernetesApi(stack.kubeconfig)
        changed = threading.Event()
        self.claims = Informer(self.api, CLAIMS, changed)
        self.pods = Informer(self.api, _PODS, changed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Before the stack ends: they would go on asking for it."""
        self.claims.close()
        self.pods.close()


class Life:
    """A NodePool and a Deployment of so many pods, each of which needs a node of its own. ``who`` provides them."""

    def __init__(self, watched: Watched, processors: Processors, who: str, nodes: int) -> None:
        self.stack, self.api, self.nodes = watched.stack, watched.api, nodes
        self._watched, self._processors, self._who = watched, processors, who

    def up(self, workload: str) -> Iterator[Measured]:
        """From the Deployment to the last pod that runs. ``workload``: NodePool and Deployment as YAML or JSON."""
        begun, used = time.time(), self._processors.used()
        self.apply(workload)
        self.until(lambda: len(self.running()) == self.nodes, f"{self.nodes} pods on nodes of their own")
        yield self.measured("up: seconds until all pods are Running", time.time() - begun)
        yield from self._processor_seconds("up", used)
        self.until(lambda: len(since(self.claims(), "Initialized", begun)) == self.nodes, "all nodes Initialized")
        for stage in STAGES:
            seconds = since(self.claims(), stage, begun)
            yield self.measured(f"up: seconds until {stage}, the middle one", median(seconds))
            yield self.measured(f"up: seconds until {stage}, the last one", max(seconds))

    def down(self) -> Iterator[Measured]:
        """All NodeClaims are deleted at once; nobody makes their pods anew."""
        for kind in ("deployments", "replicasets"):
            self.stack.kubectl("delete", kind, "-l", "=".join(_OF_WORKLOADS), "--cascade=orphan")
        pods, old = len(self.pods()), {claim["metadata"]["name"] for claim in self.claims()}
        begun, used = time.time(), self._processors.used()
        self.stack.kubectl("delete", "nodeclaims", "-l", "=".join(_OF_POOL), "--wait=false")
        evicted: list[tuple[float, int]] = []

        def are_gone() -> bool:
            staying = [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]
            evicted.append((time.time(), pods - len(staying)))
            # What was bought for pods while their nodes went stays.
            return not old & {claim["metadata"]["name"] for claim in self.claims()}

        self.until(are_gone, "all NodeClaims to be gone")
        yield self.measured("down: seconds until all NodeClaims are gone", time.time() - begun)
        yield from self._processor_seconds("down", used)
        yield self.measured("down: evictions per second", per_second(evicted))

    def _processor_seconds(self, phase: str, before: Mapping[str, float]) -> Iterator[Measured]:
        for who, seconds in self._processors.used().items():
            yield self.measured(f"{phase}: processor seconds of {who}", seconds - before[who])

    def measured(self, what: str, figure: float, goal: float | None = None) -> Measured:
        return Measured(f"{self._who}: {what}", figure, goal)

    def apply(self, text: str) -> None:
        self.stack.kubectl("apply", "-f", "-", input=text)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Raises TimeoutError, saying what was waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_SECONDS:.0f} s for {what}; logs in {self.stack.logs}")
            time.sleep(LOOK_SECONDS)

    def claims(self) -> list[Object]:
        return _selected(self._watched.claims, _OF_POOL)

    def pods(self) -> list[Object]:
        return _selected(self._watched.pods, _OF_WORKLOADS)

    def running(self) -> list[Object]:
        """Pods that run and are not being deleted."""
        staying = (pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"])
        return [pod for pod in staying if pod["status"].get("phase") == "Running"]


def _selected(informer: Informer, label: tuple[str, str]) -> list[Object]:
    key, value = label
    return [item for item in informer.objects() if item["metadata"].get("labels", {}).get(key) == value]


def since(claims: Sequence[Object], stage: str, begun: float) -> list[float]:
    """Seconds after ``begun`` at which each NodeClaim came to the stage, of those that did; whole seconds only."""
    conditions = (
        condition
        for claim in claims
        for condition in claim.get("status", {}).get("conditions") or ()
        if condition["type"] == stage and condition["status"] == "True"
    )
    times = (datetime.fromisoformat(condition["lastTransitionTime"]).timestamp() for condition in conditions)
    return [max(0.0, at - begun) for at in times]


def per_second(counts: Sequence[tuple[float, int]]) -> float:
    """From looks (time, how many until then): the rate between the last look without any and the first with all."""
    most = max((count for _, count in counts), default=0)
    if not most:
        return 0.0
    first = max((at for at, count in counts if not count), default=counts[0][0])
    last = min(at for at, count in counts if count == most)
    return most / max(last - first, LOOK_SECONDS)


def further_pods(workload: str, replicas: int) -> str:
    """A second Deployment beside that of the workload, whose pods share the nodes of the first."""
    (deployment,) = (item for item in json.loads(workload)["items"] if item["kind"] == "Deployment")
    spec = deployment["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    del container["ports"]
    container["resources"]["requests"]["cpu"] = "400m"
    labels = spec["template"]["metadata"]["labels"] | {"app": "further"}
    deployment["metadata"] |= {"name": "further", "labels": labels}
    spec["replicas"], spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"] = replicas, labels, labels
    return json.dumps(deployment)
