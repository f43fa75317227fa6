"""Pods that have rules about each other, seated one by one.

Every pod goes where all rules hold at that moment: on a node that exists, else on the node in the making to which it
adds least, or on one of its own. Pods that find no place are tried again as long as others find one, since they may
have waited for these.
"""

from collections.abc import Iterable, Iterator, Sequence

from spotwright.model.requirements import Requirements
from spotwright.scheduling.inputs.pod_classes import PodRequirements
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.placement.existing_nodes import ExistingNode, FreeCapacityIndex, NodeAdmission
from spotwright.scheduling.placement.open_nodes import NodeOption, OpenNode, find_join_option, find_new_node_option
from spotwright.scheduling.placement.pending_pods import PendingClass
from spotwright.scheduling.placement.weight_groups import WeightGroup
from spotwright.scheduling.topology.domain_rules import DomainRule
from spotwright.scheduling.topology.topology import Topology


class SequentialPlacer:
    """The places of one plan, as seats for pods with rules.

    ``spread_targets``: pods that others want on their very host keep apart, so that there are hosts enough.
    """

    def __init__(
        self,
        rooms: Sequence[ExistingNode],
        tiers: Sequence[WeightGroup],
        topology: Topology,
        disks: VolumeTopology,
        *,
        spread_targets: bool = False,
    ) -> None:
        self.spread_targets = spread_targets
        self.free_capacity_index = FreeCapacityIndex(rooms)
        self.weight_groups = tiers
        self.topology = topology
        self.volume_topology = disks
        self.open_nodes: list[OpenNode] = []
        self.work_units = 0

    def place(self, waiting: Iterable[PendingClass]) -> int:
        """Seat as many as possible, wherever that is; how many were."""
        total, seated = 0, -1
        while seated:
            seated = sum(
                self._seat_class(pending_class, pending_class.pod_requirements)
                for pending_class in waiting
                if pending_class.pod_keys and pending_class.pod_requirements is not None
            )
            total += seated
        return total

    def place_on_existing_nodes(self, waiting: PendingClass, demand: PodRequirements) -> int:
        """Seat pods of a class on nodes there are; how many were."""
        rules = self.topology.domain_rules(waiting.pod_class, demand)
        volumes = self.volume_topology.node_requirements(waiting.pod_class.pod)
        seated = 0
        for room in self.existing_nodes_with_room(waiting):
            if not waiting.pod_keys:
                break
            self.work_units += 1
            while waiting.pod_keys and self._takes(room, waiting, rules, volumes):
                self._give(room, waiting)
                seated += 1
        return seated

    def has_existing_nodes_with_room(self, waiting: PendingClass) -> bool:
        """True when some node that exists could hold another pod of a class, rules aside."""
        return next(self.existing_nodes_with_room(waiting), None) is not None

    def existing_nodes_with_room(self, waiting: PendingClass) -> Iterator[ExistingNode]:
        """Nodes that exist and could hold another pod of a class, rules aside."""
        welcome = NodeAdmission([waiting])
        return (
            room
            for room in self.free_capacity_index.nodes_with_room(waiting.size)
            if welcome.admitted_classes(room.state_node)
        )

    def _give(self, room: ExistingNode, waiting: PendingClass) -> None:
        room.add_pod(waiting, self.volume_topology)
        self.topology.record(room)

    def _seat_class(self, waiting: PendingClass, demand: PodRequirements) -> int:
        """How many pods of a class found a seat."""
        rules = self.topology.domain_rules(waiting.pod_class, demand)
        volumes = self.volume_topology.node_requirements(waiting.pod_class.pod)
        rooms, seated = list(self.existing_nodes_with_room(waiting)), 0
        while waiting.pod_keys and self._seat_one(waiting, demand, rules, volumes, rooms):
            seated += 1
        return seated

    def _seat_one(
        self,
        waiting: PendingClass,
        demand: PodRequirements,
        rules: Sequence[DomainRule],
        volumes: Sequence[Requirements],
        rooms: Sequence[ExistingNode],
    ) -> bool:
        for room in rooms:
            self.work_units += 1
            if self._takes(room, waiting, rules, volumes):
                self._give(room, waiting)
                return True
        option = self._best_site(waiting, demand, rules, volumes)
        if option is None:
            return False
        if option.open_node.offering < 0:
            self.open_nodes.append(option.open_node)
        option.open_node.add_pod(waiting, demand, option.options, option.offering)
        self.topology.record(option.open_node)
        return True

    def _takes(
        self, room: ExistingNode, waiting: PendingClass, rules: Sequence[DomainRule], volumes: Sequence[Requirements]
    ) -> bool:
        if not room.fits(waiting.size):
            return False
        if not all(rule.allows(room.domain(rule.topology_key)) for rule in rules):
            return False
        if volumes and not any(room.state_node.meets_requirements(requirements) for requirements in volumes):
            return False
        if any(
            host_port.conflicts_with(port) for host_port in waiting.pod_class.host_ports for port in room.host_ports
        ):
            return False
        return not self.volume_topology.exceeds_limits(
            room.state_node, room.volumes, self.volume_topology.volumes(waiting.pod_class.pod)
        )

    def _best_site(
        self,
        waiting: PendingClass,
        demand: PodRequirements,
        rules: Sequence[DomainRule],
        volumes: Sequence[Requirements],
    ) -> NodeOption | None:
        """The cheapest seat on a node in the making, or on a new one of the heaviest pools that make one."""
        options = []
        keeps_apart = self.spread_targets and self.topology.is_host_affinity_target(waiting.pod_class)
        for site in self.open_nodes:
            self.work_units += 1
            option = find_join_option(site, waiting, demand, rules, volumes)
            if option is not None:
                if option.cost <= 0 and not keeps_apart:
                    return option
                options.append(option)
        name = f"new node {len(self.open_nodes) + 1}"
        for tier in self.weight_groups:
            self.work_units += 1
            option = find_new_node_option(name, tier, waiting, demand, rules, volumes)
            if option is not None:
                options.append(option)
                break
        if keeps_apart:
            return min(options, key=lambda one: (_alike(one.open_node, waiting), one.cost), default=None)
        return min(options, key=lambda one: one.cost, default=None)


def _alike(site: OpenNode, waiting: PendingClass) -> int:
    """How many pods of a class a node has."""
    return sum(count for cls, count in site.pod_counts if cls is waiting.pod_class)
