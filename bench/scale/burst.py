"""Thousands of pods come at once: the first CreateFleet, the last, and whether anything was bought twice."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import urllib3

from bench.scale import processes
from bench.scale.call_log import asked_at
from bench.scale.figures import Measured
from bench.scale.fill import side_by_side
from bench.scale.scene import FunctionLog, Scene
from bench.scale.workloads import BURST, LABEL, NAMESPACE, PODS_PER_NODE, burst_pod, burst_pool
from local.kubernetes.api import KubernetesApi

#: A batch of pods is closed when none came for a second, or after ten.
_IDLE_SECONDS, _MAXIMUM_SECONDS = 1.0, 10.0
_LOOK_SECONDS: Final = 2.0
_FIRST_GOAL, _LAST_GOAL = 3.0, 20.0
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_TIMED_OUT: Final = "Task timed out"


def burst_figures(scene: Scene, pods: int) -> Iterator[Measured]:
    """The pods are all there before kube-scheduler sees the first one. Raises TimeoutError."""
    nodes = -(-pods // PODS_PER_NODE)
    scene.apply(burst_pool())
    scene.until_quiet()
    # What was launched before counts against EC2's limits no more.
    scene.stack.control("POST", "/_local/throttling", {"enabled": True})
    logs = [FunctionLog(scene.stack, name) for name in scene.functions()]
    with processes.held([scene.stack.pids()["kube-scheduler"]]):
        side_by_side(lambda number: scene.api.create(_PODS, burst_pod(number)), range(pods))
        log = scene.call_log()
        verdicts = Verdicts(scene, pods)
    scene.until(lambda: verdicts.seen >= pods, f"kube-scheduler to refuse {pods} pods")
    scene.until(lambda: _instances_later(scene) >= nodes, f"{nodes} new instances")
    scene.until_quiet()
    calls = log.fleets()
    fleets = sorted(asked_at(call) for call in calls)
    window = min(_MAXIMUM_SECONDS, verdicts.last - verdicts.first + _IDLE_SECONDS)
    yield Measured("burst: seconds in which kube-scheduler refused the pods", verdicts.last - verdicts.first, None)
    yield Measured(
        "burst: seconds to the first CreateFleet, beyond the window", fleets[0] - verdicts.first - window, _FIRST_GOAL
    )
    yield Measured(
        "burst: seconds from the last refused pod to the last CreateFleet, beyond the window",
        fleets[-1] - verdicts.last - _IDLE_SECONDS, _LAST_GOAL,
    )  # fmt: skip
    yield Measured("burst: CreateFleet", len(fleets), None)
    yield Measured("burst: CreateFleet that EC2 throttled", sum("error" in call for call in calls), None)
    yield Measured("burst: instances more than needed", _instances(scene) - nodes, 0)
    yield Measured("burst: invocations that timed out", sum(text.text().count(_TIMED_OUT) for text in logs), 0)


class Verdicts:
    """When kube-scheduler refused the first pod and the last one, as a watch sees it; seconds since 1970."""

    def __init__(self, scene: Scene, pods: int) -> None:
        self.first = self.last = 0.0
        self._uids: set[str] = set()
        self._pods, self._api = pods, KubernetesApi(scene.stack.kubeconfig)
        version = str(self._api.get(_PODS, limit="1")["metadata"]["resourceVersion"])
        threading.Thread(target=self._follow, args=[version], name="verdicts", daemon=True).start()

    @property
    def seen(self) -> int:
        return len(self._uids)

    def _follow(self, version: str) -> None:
        while self.seen < self._pods:
            with suppress(urllib3.exceptions.HTTPError):
                for event in self._api.watch(_PODS, version, labelSelector=f"{LABEL}={BURST}"):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "MODIFIED":
                        self._take(event["object"])

    def _take(self, pod: dict[str, Any]) -> None:
        conditions = pod["status"].get("conditions") or ()
        if any(condition.get("reason") == "Unschedulable" for condition in conditions):
            now = time.time()
            self.first = self.first or now
            if pod["metadata"]["uid"] not in self._uids:
                self._uids.add(pod["metadata"]["uid"])
                self.last = now


def _instances_later(scene: Scene) -> int:
    """The answer is long, and the local AWS has other work."""
    time.sleep(_LOOK_SECONDS)
    return _instances(scene)


def _instances(scene: Scene) -> int:
    """Those of the burst's NodePool, also ones that are gone again: they were bought."""
    found = scene.stack.control("GET", "/_local/instances")["instances"]
    return sum(instance["tags"].get("karpenter.sh/nodepool") == BURST for instance in found)
