"""Nodes that exist or are in flight, as places for pods."""

from collections.abc import Sequence

from spotwright.model.kubernetes.taints import Taint, untolerated_taints
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES, csi_driver
from spotwright.model.requirements import Requirements
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.inputs.pod_classes import PodCount
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.inputs.volume_topology import (
    VolumesByDriver,
    VolumeTopology,
    attached_volumes,
    merge_volumes,
)
from spotwright.scheduling.offerings.pool_types import Vector


class ExistingNode:
    """A node that exists or is in flight: what is free on it, and the pods that this plan puts there."""

    __slots__ = (
        "assigned_pods",
        "free_capacity",
        "host_ports",
        "pod_counts",
        "recorded_counts",
        "state_node",
        "volumes",
    )

    def __init__(self, state_node: StateNode, dimensions: Sequence[str], volume_topology: VolumeTopology) -> None:
        self.state_node = state_node
        # An overdrawn node takes no pod, whatever else is free on it.
        overdrawn = any(amount < 0 for amount in state_node.free_capacity.values())
        self.free_capacity = tuple(0 if overdrawn else _free(state_node, name) for name in dimensions)
        self.assigned_pods: list[str] = []
        self.pod_counts: list[PodCount] = []
        self.recorded_counts: dict[str, int] = {}
        self.host_ports = state_node.host_ports
        self.volumes: VolumesByDriver = attached_volumes(state_node.pods, volume_topology)

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.state_node.taints

    def domain(self, key: str) -> str | None:
        return self.state_node.domain(key)

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return self.state_node.meets_requirements(requirements)

    def fits(self, size: Vector) -> bool:
        # A loop, since this is asked for every node and class.
        for free, amount in zip(self.free_capacity, size, strict=True):  # noqa: SIM110
            if free < amount:
                return False
        return True

    def take_pods(self, pending_class: PendingClass, count: int) -> tuple[str, ...]:
        """Put the next pods of a class here."""
        keys = pending_class.take(count)
        self.assigned_pods += keys
        self.free_capacity = tuple(
            [free - len(keys) * size for free, size in zip(self.free_capacity, pending_class.size, strict=True)]
        )
        return keys

    def take_pod_with_rules(self, pending_class: PendingClass, volume_topology: VolumeTopology) -> None:
        """Put the next pod of a class here, with its host ports and volumes, so that rules between pods count it."""
        (key,) = self.take_pods(pending_class, 1)
        self.pod_counts.append(PodCount(pending_class.pod_class, pending_class.pod_requirements, 1))
        self.host_ports += pending_class.pod_class.host_ports
        self.volumes = merge_volumes(self.volumes, volume_topology.volumes(pending_class.pod_class.pod, key))


def _free(state_node: StateNode, resource: str) -> int:
    """Volumes are counted by claim instead, see ``VolumeTopology.exceeds_limits``."""
    return UNLIMITED_VOLUMES if csi_driver(resource) else state_node.free_capacity.get(resource, 0)


class NodeAdmission:
    """Which classes the labels and taints of a node admit. Nodes with the same labels and taints are asked once."""

    def __init__(self, pending_classes: Sequence[PendingClass]) -> None:
        self._pod_requirements = [
            pending_class.pod_requirements if pending_class.pod_class.requirement_levels else None
            for pending_class in pending_classes
        ]
        self._label_keys = sorted(
            {
                key
                for pod_requirements in self._pod_requirements
                if pod_requirements
                for key in pod_requirements.requirements.by_key
            }
        )
        self._admitted: dict[object, int] = {}

    def admitted_classes(self, state_node: StateNode) -> int:
        """The classes, as bits."""
        key = (state_node.taints, tuple([state_node.labels.get(label) for label in self._label_keys]))
        if key not in self._admitted:
            self._admitted[key] = sum(
                1 << j
                for j, pod_requirements in enumerate(self._pod_requirements)
                if pod_requirements and _admits(state_node, pod_requirements)
            )
        return self._admitted[key]


def _admits(state_node: StateNode, pod_requirements: PodRequirements) -> bool:
    tolerated = not untolerated_taints(state_node.taints, pod_requirements.tolerations)
    return tolerated and state_node.meets_requirements(pod_requirements.requirements)
