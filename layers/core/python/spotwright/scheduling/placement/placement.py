"""An attempt at placing all pods: where pods are placed so far, and how it compares to another attempt."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.labels import HOSTNAME
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.existing_nodes import ExistingNode
from spotwright.scheduling.capacity.limit_shares import spend_limits
from spotwright.scheduling.capacity.limit_slack import plan_cheaper_types
from spotwright.scheduling.capacity.pending_pods import PendingClass, build_pending_classes, resource_dimensions
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import ENFORCED, LimitPolicy, WeightGroup, build_weight_groups
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass, group_pods
from spotwright.scheduling.inputs.volume_topology import VolumeTopology, request_volumes
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.offerings.limit_prices import numbers_in
from spotwright.scheduling.placement.existing_node_filling import fill_existing_nodes
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.placement.sequential import SequentialPlacer
from spotwright.scheduling.topology.topology import Topology

type FillExistingNodes = Callable[[Sequence[ExistingNode], Sequence[PendingClass]], int]


class Placement:
    """Where pods are placed so far.

    ``batches``: pods in the order in which they are placed; a batch gets what the batches before it left.
    ``fill``: how pods without rules fill existing nodes. ``sequential_keys``: pods whose classes are placed one by one
    even where all other pods are packed at once. ``limit_policy``: how the limits of NodePools count.

    ``unpacked_pods``: a pod of each class that found no node in its domains when all were packed at once.
    ``held_back_followers``: followers that may not cause a node.
    """

    def __init__(
        self,
        context: PlanningContext,
        batches: Sequence[Sequence[Pod]],
        templates: Sequence[NodeClaimTemplate],
        *,
        spread_targets: bool = False,
        fill: FillExistingNodes = fill_existing_nodes,
        sequential_keys: Set[str] = frozenset(),
        limit_policy: LimitPolicy = ENFORCED,
    ) -> None:
        classes_of_batches = [group_pods(pods, context.preference_policy) for pods in batches]
        classes = [pod_class for classes in classes_of_batches for pod_class in classes]
        for number, pod_class in enumerate(classes):
            pod_class.index = number
        pods = [pod for batch in batches for pod in batch]
        request_volumes(classes, pods, templates, context.volume_topology)
        dimensions, cluster_state = resource_dimensions(classes), context.cluster_state
        self.topology = Topology(cluster_state.nodes, templates, context.namespaces, context.bound_pods)
        self.topology.register_classes(classes)
        self.existing_nodes = [
            ExistingNode(state_node, dimensions, context.volume_topology) for state_node in cluster_state.nodes
        ]
        requirements = list(_all_requirements(classes, self.topology, context.volume_topology))

        def weight_groups(limit_policy: LimitPolicy) -> list[WeightGroup]:
            return build_weight_groups(
                templates,
                context.offering_index_cache,
                dimensions,
                cluster_state.usage_by_nodepool,
                requirements,
                reservations.remaining_instances(templates, context.snapshot),
                limit_policy,
            )

        self._build_weight_groups = weight_groups
        self.limit_policy = limit_policy
        self.weight_groups = weight_groups(limit_policy)
        self.sequential_placer = SequentialPlacer(
            self.existing_nodes,
            self.weight_groups,
            self.topology,
            context.volume_topology,
            spread_targets=spread_targets,
        )
        self.batches = [build_pending_classes(classes, dimensions) for classes in classes_of_batches]
        self.pending = [pending_class for batch in self.batches for pending_class in batch]
        self.fill = fill
        self.sequential_keys = sequential_keys
        self.planned_nodes: list[PlannedNode] = []
        self.unpacked_pods: list[str] = []
        self.held_back_followers: list[Pod] = []
        self.work_units = 0

    def reopen_planned_nodes(self) -> None:
        """Let pods with rules join the planned nodes one by one."""
        open_nodes = self.sequential_placer.open_nodes
        for planned_node in self.planned_nodes:
            for node in planned_node.split(len(open_nodes) + 1):
                self.topology.record_host(node)
                open_nodes.append(node)
        self.planned_nodes.clear()

    def settle_open_nodes(self) -> None:
        """Count the nodes that pods joined one by one among the planned nodes."""
        for open_node in self.sequential_placer.open_nodes:
            open_node.settle()
            self.planned_nodes.append(open_node)
        self.work_units += self.sequential_placer.work_units

    def count_limits(self) -> None:
        """Count the planned nodes at their own prices against the limits that NodePools state."""
        if self.limit_policy == ENFORCED:
            return
        groups = self._build_weight_groups(ENFORCED)
        for group_then, group in zip(self.weight_groups, groups, strict=True):
            numbers = numbers_in(group.offering_index, group_then.offering_index)
            self.planned_nodes = [
                node.moved_to(group, numbers) if node.weight_group is group_then else node
                for node in self.planned_nodes
            ]
            spend_limits(group, (node for node in self.planned_nodes if node.weight_group is group))
        self.limit_policy, self.weight_groups = ENFORCED, groups

    def plan_cheaper_types(self) -> None:
        """Spend what is left of the limits on cheaper types that count more."""
        self.planned_nodes = [
            node for group in self.weight_groups for node in plan_cheaper_types(group, self.planned_nodes_of(group))
        ]

    def planned_nodes_of(self, group: WeightGroup) -> list[PlannedNode]:
        return [planned_node for planned_node in self.planned_nodes if planned_node.weight_group is group]

    def count_new_nodes(self, group: WeightGroup, template_index: int) -> int:
        """How many nodes of a NodePool of a weight group are planned."""
        return sum(
            len(planned_node.pods_by_node)
            for planned_node in self.planned_nodes_of(group)
            if planned_node.template_index == template_index
        )

    def pods_blocked_by_limits(self) -> list[str]:
        """Pods without a place for which a node could be bought if there were no limits."""
        return [
            key
            for pending_class in self.pending
            if pending_class.can_be_placed
            for group in self.weight_groups
            if any(group.limits.by_template)
            and group.compatible_offerings(pending_class.pod_requirements)
            & group.offering_index.by_capacity.with_room(pending_class.size)
            for key in pending_class.pod_keys
        ]

    def has_offerings(self, pending_class: PendingClass) -> bool:
        """Whether a node could be bought for a pod of the class, limits and other pods aside."""
        return any(
            group.compatible_offerings(pending_class.pod_requirements)
            & group.offering_index.by_capacity.with_room(pending_class.size)
            for group in self.weight_groups
        )

    def unplaced_pods(self) -> set[str]:
        """Pods without a place, by key."""
        return {key for pending_class in self.pending for key in pending_class.pod_keys}

    def swap_pods(self, key_for: Mapping[str, str]) -> None:
        """Let pods take each other's places."""
        for planned_node in self.planned_nodes:
            planned_node.pods_by_node = [
                tuple([key_for.get(key, key) for key in keys]) for keys in planned_node.pods_by_node
            ]
        for existing_node in self.existing_nodes:
            existing_node.assigned_pods = [key_for.get(key, key) for key in existing_node.assigned_pods]
        for pending_class in self.pending:
            pending_class.pod_keys = sorted(key_for.get(key, key) for key in pending_class.pod_keys)

    def unplaced_or_relaxed(self, keys: Set[str]) -> set[str]:
        """The part of these pods that has no place, or gave up a preference for it."""
        return {
            key
            for pending_class in self.pending
            if pending_class.pod_keys or pending_class.relaxation_level
            for key in pending_class.pod_class.pod_keys
            if key in keys
        }

    def price(self) -> int:
        """What the planned nodes cost, in picodollars per hour."""
        return sum(
            planned_node.weight_group.price(planned_node.offering) * len(planned_node.pods_by_node)
            for planned_node in self.planned_nodes
        )

    def is_better_than(self, placement: "Placement") -> bool:
        """True when no pod fares worse than there, and more pods are placed or the nodes cost less."""
        concessions, concessions_there = self._concessions(), placement._concessions()
        if any(concession > concessions_there[key] for key, concession in concessions.items()):
            return False
        unplaced, unplaced_there = (
            sum(is_unplaced for is_unplaced, _ in by_pod.values()) for by_pod in (concessions, concessions_there)
        )
        return unplaced < unplaced_there or self.price() < placement.price()

    def _concessions(self) -> dict[str, tuple[bool, int]]:
        """Per pod: whether it has no place, and how many preferences its class gave up."""
        return {
            key: (key in unplaced, pending_class.relaxation_level)
            for pending_class in self.pending
            for unplaced in (set(pending_class.pod_keys),)
            for key in pending_class.pod_class.pod_keys
        }

    def pods_by_weight_group(self, pods: Sequence[Pod]) -> list[list[Pod]]:
        """Pods by the weight of the NodePool of their planned node, lightest first; before them all other pods.

        In this order, pods that may use a heavier pool first take what is left on nodes that other pods need anyway.
        """
        group_of = {
            key: number
            for number, group in enumerate(self.weight_groups)
            for planned_node in self.planned_nodes_of(group)
            for keys in planned_node.pods_by_node
            for key in keys
        }
        if len(set(group_of.values())) < 2:
            return [list(pods)]
        by_group: dict[int, list[Pod]] = {}
        for pod in pods:
            by_group.setdefault(group_of.get(pod.key, len(self.weight_groups)), []).append(pod)
        return [by_group[number] for number in sorted(by_group, reverse=True)]

    @property
    def has_topology_rules(self) -> bool:
        """True when rules between pods decide where some pod goes."""
        return any(
            self.topology.is_constrained(pending_class.pod_class, pending_class.pod_class.requirement_levels[0])
            for pending_class in self.pending
            if pending_class.pod_class.requirement_levels
        )

    @property
    def lacks_affinity_hosts(self) -> bool:
        """True when a pod without a place must share a host with other pods."""
        return any(
            pod_affinity_term.topology_key == HOSTNAME
            for pending_class in self.pending
            if pending_class.can_be_placed
            for pod_affinity_term in pending_class.pod_requirements.pod_affinity
        )

    @property
    def uses_existing_nodes(self) -> bool:
        return any(existing_node.assigned_pods for existing_node in self.existing_nodes)

    @property
    def places_any_pod(self) -> bool:
        return bool(self.planned_nodes) or self.uses_existing_nodes


def _all_requirements(
    classes: Iterable[PodClass], topology: Topology, volume_topology: VolumeTopology
) -> Iterator[Requirements]:
    for pod_class in classes:
        yield from (pod_requirements.requirements for pod_requirements in pod_class.requirement_levels)
        if pod_class.pod.volume_claim_names:
            yield from volume_topology.node_requirements(pod_class.pod)
    for key, domains in sorted(topology.known_domains().items()):
        yield Requirements({key: Requirement(key, False, frozenset(domains))})
