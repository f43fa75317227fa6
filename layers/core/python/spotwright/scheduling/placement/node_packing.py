"""New nodes for pods whose domains are settled. Classes that compete for offerings are one packing problem."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from spotwright.scheduling.capacity.pending_pods import AssignedPods, PendingClass
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_classes import PodCount
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import build_host_constraints
from spotwright.scheduling.packing.problem import Exchange, PackedNodes, Packing, PackingProblem, connected_classes
from spotwright.scheduling.topology.topology import Topology


def plan_new_nodes(
    group: WeightGroup, pending_classes: Iterable[PendingClass], topology: Topology, budget: int
) -> tuple[list[PlannedNode], int]:
    """Nodes of these NodePools for as many pods as possible; the units of work it took."""
    placeable = [
        pending_class
        for pending_class in pending_classes
        if pending_class.can_be_placed or (isinstance(pending_class, AssignedPods) and pending_class.may_gain)
    ]
    offerings = [group.offerings_for_pod(pending_class, pending_class.pod_requirements) for pending_class in placeable]
    planned_nodes, work_units = list[PlannedNode](), 0
    reserved, every = group.offering_index.reserved_offerings, group.offering_index.all_offerings
    # What is reserved is paid for: it is used up before any instance is bought.
    for sold in (reserved, every & ~reserved) if group.reserved_first else (every,):
        for component in connected_classes(_with_exchanges(placeable, [mask & sold for mask in offerings])):
            packing = NodePacking(
                group, [placeable[j] for j in component], [offerings[j] & sold for j in component], topology
            )
            work_units += packing.pack(budget - work_units)
            planned_nodes += packing.planned_nodes
    return planned_nodes, work_units


class NodePacking:
    """Classes that compete for the same offerings, and the nodes that are planned for them. ``offerings``: by class."""

    def __init__(
        self,
        group: WeightGroup,
        pending_classes: Sequence[PendingClass],
        offerings: Sequence[int],
        topology: Topology,
    ) -> None:
        self._group = group
        self._pending_classes = pending_classes
        options = [
            OfferingOptions(
                mask, group.undetermined_labels.requirement_bits(pending_class.pod_requirements.requirements)
            )
            for mask, pending_class in zip(offerings, pending_classes, strict=True)
        ]
        self._options = options
        # After the classes themselves comes a class for each exchange, which stands for any of its classes.
        exchangeable = [
            classes
            for classes in _exchangeable_classes(pending_classes)
            if len({options[j].label_bits for j in classes}) == 1
        ]
        exchanges = [
            Exchange(any_class, {j: _bounds(pending_classes[j]) for j in classes})
            for any_class, classes in enumerate(exchangeable, len(pending_classes))
        ]
        first_classes = [classes[0] for classes in exchangeable]
        all_classes = [*pending_classes, *(pending_classes[j] for j in first_classes)]
        self._problem = PackingProblem(
            group.offering_index,
            Items([pending_class.size for pending_class in all_classes]),
            [*offerings, *(reduce(or_, [offerings[j] for j in classes]) for classes in exchangeable)],
            [options[j].label_bits for j in (*range(len(offerings)), *first_classes)],
            group.undetermined_labels,
            build_host_constraints(
                [(pending_class.pod_class, pending_class.pod_requirements) for pending_class in all_classes], topology
            ),
            exchanges,
        )
        self.planned_nodes: list[PlannedNode] = []

    def pack(self, budget: int) -> int:
        """Plan nodes until the search finds no more; the units of work it took."""
        limits, work_units = self._group.limits, 0
        while True:
            counts = [len(pending_class.pod_keys) for pending_class in self._pending_classes]
            counts += [0] * (len(self._problem.offerings) - len(counts))
            packing = self._group.known_packings.find_cheapest(self._problem, counts, limits, budget - work_units)
            work_units += packing.work_units
            if not packing.nodes:
                return work_units
            self._exchange_pods(packing)
            planned_nodes = [self._plan(packed_nodes) for packed_nodes in packing.nodes]
            for node in planned_nodes:
                node.is_of_cheapest = packing.is_cheapest and not any(limits.by_template)
            self.planned_nodes += planned_nodes
            limits.by_template = packing.limits.by_template
            limits.by_reservation.update(packing.limits.by_reservation)

    def _exchange_pods(self, packing: Packing) -> None:
        """Give every class the pods that the packing has for it. Pods are exchanged once: then nodes count on them."""
        packed = Counter(dict(enumerate(packing.unpacked)))
        for packed_nodes in packing.nodes:
            for j, count in packed_nodes.pod_counts.items():
                packed[j] += count * packed_nodes.node_count
        for exchange in self._problem.exchanges:
            all_pods = [
                (pods, packed[j]) for j in exchange.bounds if isinstance(pods := self._pending_classes[j], AssignedPods)
            ]
            keys = [key for pods, count in all_pods for key in pods.lose(max(len(pods.pod_keys) - count, 0))]
            for pods, count in all_pods:
                gained = count - len(pods.pod_keys)
                pods.gain(keys[:gained])
                del keys[:gained]
                pods.may_lose = pods.may_gain = 0
        self._problem.exchanges = ()

    def _plan(self, packed_nodes: PackedNodes) -> PlannedNode:
        """The packed nodes with the pods that go on them."""
        group = self._group
        template = group.offering_index.pool_type_of[packed_nodes.offering].template_index
        offerings, label_bits = group.offering_index.all_offerings, UNCONSTRAINED
        for j in packed_nodes.pod_counts:
            offerings &= self._options[j].offerings
            label_bits &= self._options[j].label_bits
        node = PlannedNode(group, template, OfferingOptions(offerings, label_bits), "")
        node.offering = packed_nodes.offering
        pods = [(self._pending_classes[j], count) for j, count in sorted(packed_nodes.pod_counts.items())]
        node.pod_counts = [
            PodCount(pending_class.pod_class, pending_class.pod_requirements, count) for pending_class, count in pods
        ]
        sizes = [[count * size for size in pending_class.size] for pending_class, count in pods]
        node.usage = tuple(map(sum, zip(*sizes, strict=True)))
        node.pods_by_node = [
            tuple([key for pending_class, count in pods for key in pending_class.take(count)])
            for _ in range(packed_nodes.node_count)
        ]
        node.settle()
        return node


def _exchangeable_classes(pending_classes: Sequence[PendingClass]) -> list[list[int]]:
    """By number, the pods of a class in each of its domains, where pods may change their domains."""
    by_parent: dict[int, list[int]] = {}
    for j, pods in enumerate(pending_classes):
        if isinstance(pods, AssignedPods) and (pods.may_lose or pods.may_gain):
            by_parent.setdefault(id(pods.parent), []).append(j)
    return [classes for classes in by_parent.values() if len(classes) > 1]


def _bounds(pods: PendingClass) -> tuple[int, int]:
    """The fewest and the most pods that a class may have after an exchange."""
    count = len(pods.pod_keys)
    return (max(count - pods.may_lose, 0), count + pods.may_gain) if isinstance(pods, AssignedPods) else (count, count)


def _with_exchanges(pending_classes: Sequence[PendingClass], offerings: Sequence[int]) -> list[int]:
    """The offerings that the pods of each class may use, here or in other domains of the class."""
    reachable = list(offerings)
    for classes in _exchangeable_classes(pending_classes):
        for j in classes:
            reachable[j] = reduce(or_, [offerings[other] for other in classes])
    return reachable
