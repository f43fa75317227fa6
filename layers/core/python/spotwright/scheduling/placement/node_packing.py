"""New nodes for pods whose domains are settled. Classes that compete for offerings are one packing problem."""

from collections.abc import Iterable, Sequence

from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_classes import PodCount
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import build_host_constraints
from spotwright.scheduling.packing.problem import PackedNodes, PackingProblem
from spotwright.scheduling.packing.search import find_cheapest_packing
from spotwright.scheduling.topology.topology import Topology


def plan_new_nodes(
    group: WeightGroup, pending_classes: Iterable[PendingClass], topology: Topology, budget: int
) -> tuple[list[PlannedNode], int]:
    """Nodes of these NodePools for as many pods as possible; the units of work it took."""
    placeable = [pending_class for pending_class in pending_classes if pending_class.can_be_placed]
    offerings = [group.offerings_for_pod(pending_class, pending_class.pod_requirements) for pending_class in placeable]
    planned_nodes, work_units = list[PlannedNode](), 0
    reserved = group.offering_index.reserved_offerings
    # What is reserved is paid for: it is used up before any instance is bought.
    for sold in (reserved, group.offering_index.all_offerings & ~reserved):
        for component in _components([mask & sold for mask in offerings]):
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
        self._options = [
            OfferingOptions(
                mask, group.undetermined_labels.requirement_bits(pending_class.pod_requirements.requirements)
            )
            for mask, pending_class in zip(offerings, pending_classes, strict=True)
        ]
        self._problem = PackingProblem(
            group.offering_index,
            Items([pending_class.size for pending_class in pending_classes]),
            offerings,
            [options.label_bits for options in self._options],
            group.undetermined_labels,
            build_host_constraints(
                [(pending_class.pod_class, pending_class.pod_requirements) for pending_class in pending_classes],
                topology,
            ),
        )
        self.planned_nodes: list[PlannedNode] = []

    def pack(self, budget: int) -> int:
        """Plan nodes until the search finds no more; the units of work it took."""
        limits, work_units = self._group.limits, 0
        while True:
            counts = [len(pending_class.pod_keys) for pending_class in self._pending_classes]
            packing = find_cheapest_packing(self._problem, counts, limits, budget - work_units)
            work_units += packing.work_units
            if not packing.nodes:
                return work_units
            self.planned_nodes += [self._plan(packed_nodes) for packed_nodes in packing.nodes]
            limits.by_template = packing.limits.by_template
            limits.by_reservation.update(packing.limits.by_reservation)

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


def _components(offerings: Sequence[int]) -> list[list[int]]:
    """Classes that share offerings, directly or through other classes; classes without any offering are left out."""
    components: list[tuple[int, list[int]]] = []
    for j, mask in enumerate(offerings):
        if not mask:
            continue
        separate, together = [], [j]
        for component, classes in components:
            if component & mask:
                mask |= component
                together += classes
            else:
                separate.append((component, classes))
        components = [*separate, (mask, together)]
    return sorted(sorted(classes) for _, classes in components)
