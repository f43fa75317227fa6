"""A node that exists or is in flight, and the room it has for pods.

Source: Karpenter v1.14 ``pkg/controllers/state/statenode.go`` and ``scheduling/existingnode.go``.
"""

from collections.abc import Iterable, Sequence

from spotwright.model import labels, resources
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod, daemonset_key


class StateNode:
    """A Node, or a NodeClaim in flight. ``nodepool`` "" = no NodePool's.

    ``free_capacity``: allocatable without its pods and the DaemonSet pods still to come; ``capacity`` counts against
    the NodePool's limits. ``host_ports``: what its pods bind. ``attachable_volumes``: by CSI driver while there is no
    CSINode.
    """

    __slots__ = (
        "attachable_volumes",
        "capacity",
        "free_capacity",
        "host_ports",
        "is_in_flight",
        "is_initialized",
        "labels",
        "name",
        "nodepool",
        "pods",
        "taints",
    )

    def __init__(
        self,
        name: str,
        node_labels: dict[str, str],
        taints: Sequence[Taint],
        *,
        is_initialized: bool,
        is_in_flight: bool,
    ) -> None:
        self.name = name
        self.labels = {labels.HOSTNAME: name} | {labels.normalize(key): value for key, value in node_labels.items()}
        self.taints = tuple(taints)
        self.is_initialized = is_initialized
        self.is_in_flight = is_in_flight
        self.nodepool = self.labels.get(labels.NODEPOOL, "")
        self.capacity: dict[str, int] = {}
        self.free_capacity: dict[str, int] = {}
        self.attachable_volumes: dict[str, int] = {}
        self.pods: list[Pod] = []
        self.host_ports: tuple[HostPort, ...] = ()

    def domain(self, key: str) -> str | None:
        """The value of a label."""
        return self.labels.get(key)

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return self.meets_requirements(requirements)

    def meets_requirements(self, requirements: Requirements) -> bool:
        """True when its labels meet every requirement; an absent label meets negative requirements."""
        return all(_meets(self.labels.get(requirement.key), requirement) for requirement in requirements)

    def bind(self, pod: Pod) -> None:
        """Take a pod that runs here off the room."""
        self.pods.append(pod)
        self.host_ports += pod.host_ports
        # In place: a large cluster has ten times as many running pods as pending pods.
        for name, size in pod.requests.items():
            self.free_capacity[name] = self.free_capacity.get(name, 0) - size

    def reserve_for_daemonsets(self, daemonset_pods: Iterable[DaemonSetPod]) -> None:
        """Take DaemonSet pods that are still to come off the room.

        Their host ports stay free: the first pod to come gets them, and that may be a pending pod.
        """
        running = {daemonset_key(pod) for pod in self.pods if pod.metadata.owner_references}
        for daemonset_pod in daemonset_pods:
            if (
                daemonset_pod.key not in running
                and daemonset_pod.tolerates(self.taints)
                and any(map(self.meets_requirements, daemonset_pod.node_terms))
            ):
                self.free_capacity = resources.subtract(self.free_capacity, daemonset_pod.requests)


def _meets(value: str | None, requirement: Requirement) -> bool:
    return requirement.allows_absence if value is None else requirement.has(value)
