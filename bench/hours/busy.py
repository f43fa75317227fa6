"""Changes in a cluster as users make them: pods whose status changes, pods that need a node and go again."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.latency import POD
from bench.scale.objects import new_pod
from local.kubernetes.api import ApiError, KubernetesApi

# A pod that needs a node of its own stays for so long: its node goes when it is empty.
_POD_SECONDS: Final = 180.0
_NOT_READY: Final = "node.kubernetes.io/not-ready"
# Numbers of pods that no other part of the benchmark uses.
_FIRST_POD: Final = 100_000


@dataclass(frozen=True)
class Pace:
    """``changes_per_second``: of pods' statuses. ``launch_seconds``: from a pod that needs a node to the next."""

    changes_per_second: float = 20.0
    launch_seconds: float = 30.0


class BusyCluster:
    """Changes a cluster that a Filler has filled; counts what it has done. Its node controller stands still, so that
    new nodes lose their taint here."""

    def __init__(self, kubeconfig: Path, pods: int, pace: Pace) -> None:
        self._kubeconfig, self._pods, self._pace = kubeconfig, pods, pace
        self._random, self._waiting = random.Random(0), deque[tuple[float, int]]()
        self.changes = self.launches = 0

    def run(self, seconds: float) -> None:
        """Returns after so many seconds, when every pod that it created is deleted. Raises ApiError."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._every, args=(1 / self._pace.changes_per_second, end, self._change)),
            threading.Thread(target=self._every, args=(self._pace.launch_seconds, end, self._launch)),
            threading.Thread(target=self._every, args=(1.0, end, self._open_nodes)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while self._waiting:
            self._delete(KubernetesApi(self._kubeconfig))

    def _every(self, seconds: float, end: float, act: Callable[[KubernetesApi], None]) -> None:
        """A change that the API server refuses is left out: pods and nodes go while this looks at them."""
        api, due = KubernetesApi(self._kubeconfig), time.monotonic()
        while time.monotonic() < end:
            with suppress(ApiError):
                act(api)
            # A slow API server is not asked faster afterwards.
            due = max(due + seconds, time.monotonic())
            time.sleep(max(0.0, min(due, end) - time.monotonic()))

    def _change(self, api: KubernetesApi) -> None:
        """What a kubelet does when a container was restarted."""
        pod, status = new_pod(self._random.randrange(self._pods))
        self.changes += 1
        statuses = [{**each, "restartCount": self.changes} for each in status["containerStatuses"]]
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        api.patch(path, {"status": {"containerStatuses": statuses}})

    def _launch(self, api: KubernetesApi) -> None:
        self.launches += 1
        number = _FIRST_POD + self.launches
        api.apply_all(POD.format(number=number))
        self._waiting.append((time.monotonic() + _POD_SECONDS, number))
        if self._waiting[0][0] < time.monotonic():
            self._delete(api)

    def _delete(self, api: KubernetesApi) -> None:
        """At once: no kubelet would end it."""
        _, number = self._waiting.popleft()
        api.delete(f"/api/v1/namespaces/default/pods/bench-{number}", {"gracePeriodSeconds": 0})

    def _open_nodes(self, api: KubernetesApi) -> None:
        for node in api.get("/api/v1/nodes", labelSelector="karpenter.sh/nodepool")["items"]:
            taints: list[dict[str, Any]] = node["spec"].get("taints", [])
            is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in _conditions(node))
            if is_ready and any(taint["key"] == _NOT_READY for taint in taints):
                kept = [taint for taint in taints if taint["key"] != _NOT_READY]
                api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": kept or None}})


def _conditions(node: dict[str, Any]) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = node.get("status", {}).get("conditions", [])
    return conditions
