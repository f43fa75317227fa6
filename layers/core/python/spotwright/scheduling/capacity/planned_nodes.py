"""Nodes to make. Each pod on a planned node narrows what the node can become."""

from collections.abc import Iterator, Sequence

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_classes import PodCount
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.offerings.bit_sets import iterate_bits, renumber
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED


class OfferingOptions(msgspec.Struct, frozen=True):
    """What a node can still become: offerings, undetermined labels, and what volumes and rules ask of its labels."""

    offerings: int
    label_bits: int = UNCONSTRAINED
    topology_requirements: Requirements = Requirements()


class PlannedNode:
    """A node to make, or equal nodes. ``offering``: the cheapest that would do now; -1 before the first pod.

    Pods with rules join single nodes, which are known to rules by ``name``; packing makes equal nodes.
    ``pods_by_node``: the keys of the pods of each node; ``pod_counts``: the pods that each of the nodes has.
    ``is_of_cheapest``: it was packed with other nodes, and no nodes hold the pods of all of them for less,
    within limits or not.
    """

    __slots__ = (
        "is_of_cheapest",
        "name",
        "offering",
        "options",
        "pod_counts",
        "pods_by_node",
        "recorded_counts",
        "template_index",
        "usage",
        "weight_group",
    )

    def __init__(self, weight_group: WeightGroup, template_index: int, options: OfferingOptions, name: str) -> None:
        self.weight_group = weight_group
        self.template_index = template_index
        self.options = options
        self.name = name
        self.offering = -1
        self.usage: Vector = (0,) * len(weight_group.offering_index.dimensions)
        self.pod_counts: list[PodCount] = []
        self.pods_by_node: list[tuple[str, ...]] = [()]
        self.recorded_counts: dict[str, int] = {}
        self.is_of_cheapest = False

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.weight_group.offering_index.templates[self.template_index].taints

    @property
    def host_ports(self) -> Iterator[HostPort]:
        return (host_port for pods in self.pod_counts for host_port in pods.pod_class.host_ports)

    def domain(self, key: str) -> str | None:
        if key == labels.HOSTNAME:
            return self.name
        return self.options.topology_requirements.get(key).sole_value or self.weight_group.certain_value(
            key, self.options.offerings
        )

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return bool(self.weight_group.offering_index.by_label.meeting_all(requirements) & self.options.offerings)

    def interchangeable_offerings(self) -> int:
        """Offerings of the type it counts on, under the same capacity type or reservation."""
        index = self.weight_group.offering_index
        capacity_type = index.offerings[self.offering].capacity_type
        same = index.pool_type_of[self.offering].offerings & index.by_label.meeting(
            Requirement(labels.CAPACITY_TYPE, False, frozenset((capacity_type,)))
        )
        return index.same_reservation(same, self.offering)

    def resize(self, offering: int) -> None:
        """Count on another offering; limits follow."""
        limits, index = self.weight_group.limits, self.weight_group.offering_index
        if self.offering >= 0:
            limits.spend(index, self.offering, -1)
        limits.spend(index, offering, 1)
        self.offering = offering

    def add_pods(
        self, pending_class: PendingClass, pod_requirements: PodRequirements, count: int, options: OfferingOptions
    ) -> None:
        """Put pods on a single node whose type has room for them; its zone may become another."""
        interchangeable = options.offerings & self.interchangeable_offerings()
        if not interchangeable >> self.offering & 1:
            self.offering = _lowest(interchangeable)
        self.usage = tuple(used + count * size for used, size in zip(self.usage, pending_class.size, strict=True))
        self.pod_counts.append(PodCount(pending_class.pod_class, pod_requirements, count))
        self.pods_by_node = [(*self.pods_by_node[0], *pending_class.take(count))]
        self.options = options

    def settle(self) -> None:
        """Keep all offerings of its NodePool that have room for its pods and meet what these ask for."""
        group, index, options = self.weight_group, self.weight_group.offering_index, self.options
        offerings = options.offerings & index.offerings_of_template[self.template_index]
        offerings &= index.by_capacity.with_room(self.usage)
        offerings = index.same_reservation(
            group.undetermined_labels.narrow(offerings, options.label_bits), self.offering
        )
        offerings = index.keep_min_values(offerings & index.general_purpose) or offerings
        self.options = OfferingOptions(offerings, options.label_bits, options.topology_requirements)

    def moved_to(self, group: WeightGroup, numbers: Sequence[int]) -> "PlannedNode":
        """The node in the group of the same NodePools under other limits or prices, on the cheapest offering there that
        counts no more. ``numbers``: by offering here, its number there. Limits there do not change.
        """
        options = self.options
        moved = OfferingOptions(renumber(options.offerings, numbers), options.label_bits, options.topology_requirements)
        node = PlannedNode(group, self.template_index, moved, self.name)
        node.usage, node.pod_counts, node.pods_by_node = self.usage, self.pod_counts, self.pods_by_node
        node.offering = numbers[self.offering]
        # Types that stood for bundles had less room than they have.
        index = group.offering_index
        if index is not self.weight_group.offering_index and index.min_values[self.template_index]:
            node.widen()
        node.offering = node.cheapest_counting_no_more()
        node.is_of_cheapest = self.is_of_cheapest
        return node

    def widen(self) -> None:
        """Keep all offerings that its pods leave to it, whatever it was planned from."""
        group, options = self.weight_group, self.options
        offerings = group.offering_index.by_label.meeting_all(options.topology_requirements)
        for pods in self.pod_counts:
            offerings &= group.compatible_offerings(pods.pod_requirements)
            offerings &= group.offerings_without_port_conflicts(pods.pod_class.host_ports)
        self.options = OfferingOptions(offerings, options.label_bits, options.topology_requirements)
        self.settle()

    def cheapest_counting_no_more(self) -> int:
        """Of its offerings the cheapest whose type has no more of any limited resource than the planned type."""
        index = self.weight_group.offering_index
        limited = self.weight_group.initial_limits.by_template[self.template_index]
        planned = index.pool_type_of[self.offering]
        for offering in iterate_bits(self.options.offerings & ((1 << self.offering) - 1)):
            pool_type = index.pool_type_of[offering]
            if all(pool_type.counted(name) <= planned.counted(name) for name in limited):
                return offering
        return self.offering

    def split(self, first_number: int) -> Iterator["PlannedNode"]:
        """Its nodes one by one, each with a name, so that pods with rules can join them."""
        for number, keys in enumerate(self.pods_by_node, first_number):
            yield self._with_pods([keys], node_name(number))

    def split_off(self, node_count: int, offering: int) -> "PlannedNode":
        """Plan so many of the equal nodes for another of their offerings; limits do not follow."""
        node = self._with_pods(self.pods_by_node[:node_count], self.name)
        self.pods_by_node = self.pods_by_node[node_count:]
        node.offering = offering
        return node

    def _with_pods(self, pods_by_node: list[tuple[str, ...]], name: str) -> "PlannedNode":
        node = PlannedNode(self.weight_group, self.template_index, self.options, name)
        node.offering, node.usage = self.offering, self.usage
        node.pod_counts, node.pods_by_node = list(self.pod_counts), pods_by_node
        return node


def node_name(number: int) -> str:
    """What stands for the hostname of a single planned node."""
    return f"new node {number}"


def _lowest(offerings: int) -> int:
    """The first offering of a set: the cheapest."""
    return (offerings & -offerings).bit_length() - 1
