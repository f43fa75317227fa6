"""Pods with rules, placed one by one.

Every pod goes where all rules hold at that moment: on an existing node, else on the planned node to which it adds
least, or on a new node. Pods that find no place are tried again as long as any pod finds a place, since they may have
waited for that pod.
"""

from collections.abc import Iterable, Iterator, Sequence

from spotwright.scheduling.capacity.capacity_indexes import FreeCapacityIndex
from spotwright.scheduling.capacity.existing_nodes import ExistingNode, NodeAdmission
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.capacity.planned_nodes import PlannedNode, node_name
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.placement.node_options import NodeOption, PodNeeds, find_join_option, find_new_node_option
from spotwright.scheduling.topology.topology import Topology


class SequentialPlacer:
    """Places pods one by one on existing nodes and on ``open_nodes``: single planned nodes that take further pods.

    ``spread_targets``: pods that other pods want on their very host keep apart, so that there are hosts enough.
    """

    def __init__(
        self,
        existing_nodes: Sequence[ExistingNode],
        weight_groups: Sequence[WeightGroup],
        topology: Topology,
        volume_topology: VolumeTopology,
        *,
        spread_targets: bool = False,
    ) -> None:
        self.spread_targets = spread_targets
        self.free_capacity_index = FreeCapacityIndex(existing_nodes)
        self.weight_groups = weight_groups
        self.topology = topology
        self.volume_topology = volume_topology
        self.open_nodes: list[PlannedNode] = []
        self.work_units = 0

    def place(self, pending_classes: Iterable[PendingClass]) -> int:
        """Place as many pods as possible; how many were placed."""
        total, placed = 0, -1
        while placed:
            placed = sum(
                self._place_class(pending_class) for pending_class in pending_classes if pending_class.can_be_placed
            )
            total += placed
        return total

    def place_on_existing_nodes(self, pending_class: PendingClass) -> int:
        """Place pods of a class on existing nodes; how many were placed."""
        needs, placed = self._needs(pending_class), 0
        for existing_node in self.existing_nodes_with_room(pending_class):
            if not pending_class.pod_keys:
                break
            self.work_units += 1
            while pending_class.pod_keys and self._place_on(existing_node, needs):
                placed += 1
        return placed

    def has_existing_nodes_with_room(self, pending_class: PendingClass) -> bool:
        """True when some existing node could hold another pod of a class, rules between pods aside."""
        return next(self.existing_nodes_with_room(pending_class), None) is not None

    def existing_nodes_with_room(self, pending_class: PendingClass) -> Iterator[ExistingNode]:
        """Existing nodes that could hold another pod of a class, rules between pods aside."""
        admission = NodeAdmission([pending_class])
        return (
            existing_node
            for existing_node in self.free_capacity_index.nodes_with_room(pending_class.size)
            if admission.admitted_classes(existing_node.state_node)
        )

    def _needs(self, pending_class: PendingClass) -> PodNeeds:
        pod_requirements = pending_class.pod_requirements
        return PodNeeds(
            pending_class,
            pod_requirements,
            self.topology.domain_rules(pending_class.pod_class, pod_requirements),
            self.volume_topology.node_requirements(pending_class.pod_class.pod),
        )

    def _place_class(self, pending_class: PendingClass) -> int:
        needs, placed = self._needs(pending_class), 0
        existing_nodes = list(self.existing_nodes_with_room(pending_class))
        while pending_class.pod_keys and self._place_pod(needs, existing_nodes):
            placed += 1
        return placed

    def _place_pod(self, needs: PodNeeds, existing_nodes: Sequence[ExistingNode]) -> bool:
        for existing_node in existing_nodes:
            self.work_units += 1
            if self._place_on(existing_node, needs):
                return True
        option = self._best_option(needs)
        if option is None:
            return False
        if option.planned_node.offering < 0:
            self.open_nodes.append(option.planned_node)
        option.choose(needs)
        self.topology.record(option.planned_node)
        return True

    def _place_on(self, existing_node: ExistingNode, needs: PodNeeds) -> bool:
        if not self._allows(existing_node, needs):
            return False
        existing_node.take_pod_with_rules(needs.pending_class, self.volume_topology)
        self.topology.record(existing_node)
        return True

    def _allows(self, existing_node: ExistingNode, needs: PodNeeds) -> bool:
        state_node, pod_class = existing_node.state_node, needs.pending_class.pod_class
        if not existing_node.fits(needs.pending_class.size):
            return False
        if not all(rule.allows(existing_node.domain(rule.topology_key)) for rule in needs.rules):
            return False
        if needs.volume_requirements and not any(map(state_node.meets_requirements, needs.volume_requirements)):
            return False
        if any(port.conflicts_with(used) for port in pod_class.host_ports for used in existing_node.host_ports):
            return False
        volumes = self.volume_topology.volumes(pod_class.pod)
        return not self.volume_topology.exceeds_limits(state_node, existing_node.volumes, volumes)

    def _best_option(self, needs: PodNeeds) -> NodeOption | None:
        """The cheapest way onto an open node, or onto a new one of the heaviest NodePools that have one."""
        options = []
        pod_class = needs.pending_class.pod_class
        keeps_apart = self.spread_targets and self.topology.is_host_affinity_target(pod_class)
        for open_node in self.open_nodes:
            self.work_units += 1
            option = find_join_option(open_node, needs)
            if option is not None:
                if option.cost <= 0 and not keeps_apart:
                    return option
                options.append(option)
        for group in self.weight_groups:
            self.work_units += 1
            option = find_new_node_option(node_name(len(self.open_nodes) + 1), group, needs)
            if option is not None:
                options.append(option)
                break
        if keeps_apart:
            return min(options, key=lambda option: (_count_pods(option, pod_class), option.cost), default=None)
        return min(options, key=lambda option: option.cost, default=None)


def _count_pods(option: NodeOption, pod_class: PodClass) -> int:
    """How many pods of a class the node has already."""
    return sum(pods.count for pods in option.planned_node.pod_counts if pods.pod_class is pod_class)
