"""What rings for the changes of a simulated cluster."""

from collections.abc import Callable
from typing import Final, Protocol

from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.node import Node
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.state import FakeDoorbells, FakeState
from spotwright.workflows.ports.doorbells import Doorbell

HEARTBEAT_SECONDS: Final = 15


class Forwarder(Protocol):
    """A forwarder of a cluster in virtual time."""

    def forward(self) -> None:
        """It runs: what happened until now rings, as far as it is due, and the heartbeat is written."""

    def stop(self) -> None:
        """It does not run at this moment; what it has not rung for yet is lost."""

    def forget(self) -> None:
        """Nothing rings any more for what happened until now, but what rings again and again."""


type MakeForwarder = Callable[[FakeCluster, FakeDoorbells, FakeState, Clock], Forwarder]


class ForwarderOfEveryChange:
    """Rings at once for every change of a Node and every end of a pod of one that is drained, for claims that are new
    or being deleted, and for pods that wait: for far more than the forwarder itself.
    """

    def __init__(self, cluster: FakeCluster, doorbells: FakeDoorbells, state: FakeState, clock: Clock) -> None:
        self._cluster, self._doorbells, self._state, self._clock = cluster, doorbells, state, clock
        self._seen: dict[str, str] = {}
        self._beat_at = 0

    def forward(self) -> None:
        if self._clock.milliseconds() - self._beat_at >= HEARTBEAT_SECONDS * 1000:
            self._state.heartbeat_at = self._beat_at = self._clock.milliseconds()
        versions = {f"node/{obj.name}": self._version_of_node(obj) for obj in self._cluster.all("nodes")}
        versions |= {
            f"claim/{obj.name}": str(obj.metadata.deletion_timestamp) for obj in self._cluster.all("nodeclaims")
        }
        versions |= {
            f"pods/{pod.key}": "" for pod in self._cluster.all("pods") if pod.unschedulable and not pod.node_name
        }
        for key, version in versions.items():
            if self._seen.get(key) != version:
                kind, _, object_name = key.partition("/")
                queue = "provision" if kind == "pods" else "lifecycle"
                doorbell = Doorbell(self._cluster.name, kind, "" if kind == "pods" else object_name)
                self._doorbells.ring(queue, [doorbell])
        self._seen = versions

    def stop(self) -> None:
        """Changes that are missed ring when it runs again."""

    def forget(self) -> None:
        """Whatever happened until the last ``forward`` has rung."""

    def _version_of_node(self, node: Node) -> str:
        version = node.metadata.resource_version
        if DISRUPTED_TAINT in node.taints:
            active = (
                pod.key for pod in self._cluster.all("pods") if pod.node_name == node.name and not pod.is_terminal
            )
            version += f" {sorted(active)}"
        return version
