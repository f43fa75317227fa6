"""The working state of one plan: rooms, markets, rules, and who still waits."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import LabelSelector
from spotwright.model.kubernetes.taints import TaintEffect
from spotwright.model.kubernetes.volumes import volume_resource
from spotwright.model.labels import HOSTNAME
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.inputs.nodeclaim_templates import DaemonSetPod, NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements, PreferencePolicy, group_pods
from spotwright.scheduling.inputs.state_nodes import ClusterState
from spotwright.scheduling.inputs.volume_topology import VolumeTopology, shared_claims
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.placement.backfill import backfill
from spotwright.scheduling.placement.domain_assignment import DomainAssigner
from spotwright.scheduling.placement.existing_nodes import ExistingNode, NodeAdmission, fill_existing_nodes
from spotwright.scheduling.placement.open_nodes import OpenNode
from spotwright.scheduling.placement.pending_pods import (
    AssignedPods,
    PendingClass,
    build_pending_classes,
    resource_dimensions,
)
from spotwright.scheduling.placement.sequential import SequentialPlacer
from spotwright.scheduling.placement.weight_groups import OfferingIndexCache, WeightGroup, build_weight_groups
from spotwright.scheduling.topology.groups import BoundPods
from spotwright.scheduling.topology.topology import Topology

_NAME_LABEL = "kubernetes.io/metadata.name"


class PlanningContext(msgspec.Struct, frozen=True, dict=True):
    """What every attempt at a plan shares. ``pods_to_place``: pods to place, by key."""

    snapshot: Snapshot
    cluster_state: ClusterState
    templates: Sequence[NodeClaimTemplate]
    daemonset_pods: Sequence[DaemonSetPod]
    volume_topology: VolumeTopology
    pods_to_place: frozenset[str]

    @property
    def settings(self) -> Settings:
        return self.snapshot.settings

    @cached_property
    def namespaces(self) -> dict[str, dict[str, str]]:
        """Labels of every namespace that is known or has a pod."""
        seen = {pod.metadata.namespace for pod in self.snapshot.pods}
        known = self.snapshot.namespaces
        return {name: {_NAME_LABEL: name} | known.get(name, {}) for name in sorted(seen.union(known))}

    @cached_property
    def bound_pods(self) -> BoundPods:
        """The pods that stay where they are."""
        return BoundPods((*self.cluster_state.nodes, *self.cluster_state.deleting_nodes), self.pods_to_place)

    @cached_property
    def offering_index_cache(self) -> OfferingIndexCache:
        return OfferingIndexCache(self.daemonset_pods)

    @cached_property
    def preference_policy(self) -> PreferencePolicy:
        taints = [
            *(node.taints for node in self.cluster_state.nodes),
            *(template.taints for template in self.templates),
        ]
        return PreferencePolicy(
            respects_preferences=self.settings.preference_policy != "Ignore",
            has_prefer_no_schedule_taints=any(
                one.effect == TaintEffect.PREFER_NO_SCHEDULE for taint in taints for one in taint
            ),
            selected_label_keys=_label_keys(self.snapshot.pods),
        )


def _label_keys(pods: Iterable[Pod]) -> tuple[str, ...] | None:
    """Pod labels that some rule looks at; None if there is no rule."""
    ruled = [
        pod
        for pod in pods
        if pod.pod_anti_affinity
        or pod.topology_spread_constraints
        or pod.pod_affinity
        or pod.preferred_pod_affinity
        or pod.preferred_pod_anti_affinity
    ]
    if not ruled:
        return None
    return tuple(
        sorted({expression.key for pod in ruled for selector in _selectors(pod) for expression in selector or ()})
    )


def _selectors(pod: Pod) -> Iterator[LabelSelector]:
    yield from (constraint.label_selector for constraint in pod.topology_spread_constraints)
    yield from (pod_affinity_term.label_selector for pod_affinity_term in (*pod.pod_affinity, *pod.pod_anti_affinity))
    yield from (
        weighted_term.pod_affinity_term.label_selector
        for weighted_term in (*pod.preferred_pod_affinity, *pod.preferred_pod_anti_affinity)
    )


class Placement:
    """Who is placed where so far. ``held_back_followers``: followers that may not cause a node.

    ``batches``: pods in the order in which they are served; what is left to one band is what those before it left.
    ``fill``: how pods without rules fill the nodes there are. ``sequential_keys``: pods whose classes are seated one by
    one even where all others are packed at once.

    ``unpacked_pods``: a pod of each class that found no node in its domains when all were packed at once.
    """

    def __init__(
        self,
        world: PlanningContext,
        batches: Sequence[Sequence[Pod]],
        templates: Sequence[NodeClaimTemplate],
        *,
        spread_targets: bool = False,
        fill: Callable[[Sequence[ExistingNode], Sequence[PendingClass]], int] = fill_existing_nodes,
        sequential_keys: Set[str] = frozenset(),
    ) -> None:
        together = [group_pods(pods, world.preference_policy) for pods in batches]
        classes = [one for pod_classes in together for one in pod_classes]
        for number, pod_class in enumerate(classes):
            pod_class.index = number
        _count_volumes(classes, [pod for pods in batches for pod in pods], templates, world.volume_topology)
        names = resource_dimensions(classes)
        standing = world.cluster_state
        self.topology = Topology(standing.nodes, templates, world.namespaces, world.bound_pods)
        self.topology.register_classes(classes)
        self.existing_nodes = [ExistingNode(host, names, world.volume_topology) for host in standing.nodes]
        asked = list(_asked(classes, self.topology, world.volume_topology))
        reserved = reservations.remaining_instances(templates, world.snapshot)
        self.weight_groups: list[WeightGroup] = build_weight_groups(
            templates, world.offering_index_cache, names, standing.usage_by_nodepool, asked, reserved
        )
        self.sequential_placer = SequentialPlacer(
            self.existing_nodes, self.weight_groups, self.topology, world.volume_topology, spread_targets=spread_targets
        )
        self.batches = [build_pending_classes(pod_classes, names) for pod_classes in together]
        self._occupy = fill
        self._singly = sequential_keys
        self.unpacked_pods: list[str] = []
        self.pending: list[PendingClass] = [
            pending_class for pending_classes in self.batches for pending_class in pending_classes
        ]
        self.held_back_followers: list[Pod] = []
        self.work_units = 0

    def place_pods(self, budget: int, *, pack_together: bool) -> bool:
        """Place what can be placed; those without a place give in step by step.

        ``pack_together``: pods with rules get their domains first and are packed by price with all others. False when a
        pod then found no node in the domain that others already counted on; then all must be placed one by one.
        """
        for pending_class in self.pending:
            self._lower(pending_class)
        # Who comes first may have waited for somebody who came later.
        again = [self.pending] if len(self.batches) > 1 else []
        for number, waiting in enumerate([*self.batches, *again]):
            if number:
                self._reopen()
            if not self._serve([one for one in waiting if one.pod_keys], budget, pack_together=pack_together):
                return False
        for site in self.sequential_placer.open_nodes:
            site.weight_group.planned_nodes.append(site.to_planned_node())
        self.work_units += self.sequential_placer.work_units
        return True

    def _serve(self, trying: Sequence[PendingClass], budget: int, *, pack_together: bool) -> bool:
        while trying:
            ruled = [
                one
                for one in trying
                if one.pod_requirements and self.topology.is_constrained(one.pod_class, one.pod_requirements)
            ]
            bound = {id(one) for one in ruled}
            free = [one for one in trying if id(one) not in bound]
            shares = self._settle(ruled) if pack_together else []
            if not pack_together:
                self.sequential_placer.place(ruled)
            self.work_units += self._occupy(self.existing_nodes, free)
            self.work_units += backfill(self.sequential_placer.open_nodes, [*free, *shares], self.topology)
            for tier in self.weight_groups:
                self.work_units += tier.pack([*free, *shares], self.topology, budget - self.work_units)
            self.unpacked_pods = [
                assigned_pods.pod_class.pod_keys[0]
                for assigned_pods in shares
                if assigned_pods.pod_keys and assigned_pods.is_pinned
            ]
            if self.unpacked_pods:
                return False
            for share in shares:
                share.return_unplaced()
            # Who has rules may have waited for somebody who gives in only now.
            left = [one for one in trying if one.pod_keys]
            gave_in = {id(one) for one in left if one.relax()}
            for pending_class in left:
                self._lower(pending_class)
            trying = [one for one in left if id(one) in gave_in or id(one) in bound] if gave_in else []
            if trying:
                self._reopen()
        return True

    def _lower(self, waiting: PendingClass) -> None:
        """Give up what no node has, whoever is on it: so the class is packed with all others, not after them."""
        while (
            waiting.pod_requirements is not None
            and not self._possible(waiting, waiting.pod_requirements)
            and waiting.relax()
        ):
            pass

    def _possible(self, waiting: PendingClass, demand: PodRequirements) -> bool:
        if any(
            tier.compatible_offerings(demand) & tier.offering_index.offerings_with_room(waiting.size)
            for tier in self.weight_groups
        ):
            return True
        welcome = NodeAdmission([waiting])
        return any(welcome.admitted_classes(room.state_node) for room in self.existing_nodes)

    def _reopen(self) -> None:
        """Let nodes that were packed take more, now that some pods have given in."""
        for tier in self.weight_groups:
            for draft in tier.planned_nodes:
                for pods in draft.pods_by_node:
                    name = f"new node {len(self.sequential_placer.open_nodes) + 1}"
                    site = OpenNode.from_planned_node(draft, tier, pods, name)
                    self.topology.record_host(site)
                    self.sequential_placer.open_nodes.append(site)
            tier.planned_nodes.clear()

    def _settle(self, ruled: Sequence[PendingClass]) -> list[AssignedPods]:
        """Seats for those who must share a host, seats on nodes there are, and domains for the rest.

        As long as somebody finds a place others may have waited for it.
        """
        shares: list[AssignedPods] = []
        progress = -1
        while progress:
            progress = 0
            for pending_class in ruled:
                if pending_class.pod_keys and pending_class.pod_requirements is not None:
                    progress += self._settle_class(pending_class, pending_class.pod_requirements, shares)
        return shares

    def _settle_class(self, waiting: PendingClass, demand: PodRequirements, shares: list[AssignedPods]) -> int:
        before = len(waiting.pod_keys)
        if self.topology.needs_shared_host(waiting.pod_class, demand) or waiting.pod_class.pod_keys[0] in self._singly:
            return self.sequential_placer.place([waiting])
        assigner = DomainAssigner(
            waiting, demand, self.topology, self.weight_groups, self.sequential_placer.volume_topology
        )
        moved = -1
        # A node that was full for a spread has its turn again once other domains have theirs.
        while waiting.pod_keys and moved:
            moved = self.sequential_placer.place_on_existing_nodes(waiting, demand)
            if not moved:
                moved = assigner.assign(
                    1 if self.sequential_placer.has_existing_nodes_with_room(waiting) else len(waiting.pod_keys)
                )
        shares += assigner.assigned_pods()
        return before - len(waiting.pod_keys)

    def pods_blocked_by_limits(self) -> list[str]:
        """Pods without a place for which a node could be bought if there were no limits."""
        return [
            key
            for pending_class in self.pending
            if pending_class.pod_keys and pending_class.pod_requirements is not None
            for tier in self.weight_groups
            if any(tier.limits.by_template)
            and tier.compatible_offerings(pending_class.pod_requirements)
            & tier.offering_index.offerings_with_room(pending_class.size)
            for key in pending_class.pod_keys
        ]

    def unplaced_pods(self) -> set[str]:
        """Pods without a place, by key."""
        return {key for pending_class in self.pending for key in pending_class.pod_keys}

    def swap_pods(self, names: Mapping[str, str]) -> None:
        """Let pods take each other's places."""
        for draft in (draft for tier in self.weight_groups for draft in tier.planned_nodes):
            draft.pods_by_node = [tuple([names.get(key, key) for key in keys]) for keys in draft.pods_by_node]
        for room in self.existing_nodes:
            room.assigned_pods = [names.get(key, key) for key in room.assigned_pods]
        for pending_class in self.pending:
            pending_class.pod_keys = sorted(names.get(key, key) for key in pending_class.pod_keys)

    def unplaced_or_relaxed(self, abstract_set: Set[str]) -> set[str]:
        """Those of the pods that have no place or gave up something for it."""
        return {
            key
            for pending_class in self.pending
            if pending_class.pod_keys or pending_class.relaxation_level
            for key in pending_class.pod_class.pod_keys
            if key in abstract_set
        }

    def price(self) -> int:
        """What the nodes to make cost, in picodollars per hour."""
        return sum(
            tier.offering_index.prices[draft.offering] * len(draft.pods_by_node)
            for tier in self.weight_groups
            for draft in tier.planned_nodes
        )

    def is_better_than(self, other_placement: "Placement") -> bool:
        """True when no pod fares worse than in another attempt, and more pods are placed or they cost less."""
        ours, theirs = self._conceded(), other_placement._conceded()
        if any(conceded > theirs[key] for key, conceded in ours.items()):
            return False
        return (
            sum(left for left, _ in ours.values()) < sum(left for left, _ in theirs.values())
            or self.price() < other_placement.price()
        )

    def _conceded(self) -> dict[str, tuple[bool, int]]:
        """Per pod: whether it has no place, and how far its class has given in."""
        return {
            key: (key in left, pending_class.relaxation_level)
            for pending_class in self.pending
            for left in (set(pending_class.pod_keys),)
            for key in pending_class.pod_class.pod_keys
        }

    def pods_by_weight_group(self, pods: Sequence[Pod]) -> list[list[Pod]]:
        """Pods by the tier that made their node, lightest first; before them those that got no new node.

        In this order, pods that may use a heavier pool first take what is left on nodes that others need anyway.
        """
        made = {
            key: number
            for number, tier in enumerate(self.weight_groups)
            for draft in tier.planned_nodes
            for keys in draft.pods_by_node
            for key in keys
        }
        if len(set(made.values())) < 2:
            return [list(pods)]
        found: dict[int, list[Pod]] = {}
        for pod in pods:
            found.setdefault(made.get(pod.key, len(self.weight_groups)), []).append(pod)
        return [found[number] for number in sorted(found, reverse=True)]

    @property
    def has_topology_rules(self) -> bool:
        """True when the pods around it decide where some pod goes."""
        return any(
            pending_class.pod_class.requirement_levels
            and self.topology.is_constrained(pending_class.pod_class, pending_class.pod_class.requirement_levels[0])
            for pending_class in self.pending
        )

    @property
    def lacks_affinity_hosts(self) -> bool:
        """True when somebody is left who must share a host with other pods, and these were placed."""
        left = (
            pending_class.pod_requirements
            for pending_class in self.pending
            if pending_class.pod_keys and pending_class.pod_requirements is not None
        )
        return any(company.topology_key == HOSTNAME for demand in left for company in demand.pod_affinity)

    @property
    def uses_existing_nodes(self) -> bool:
        return any(room.assigned_pods for room in self.existing_nodes)

    @property
    def places_any_pod(self) -> bool:
        return any(tier.planned_nodes for tier in self.weight_groups) or self.uses_existing_nodes


def _count_volumes(
    classes: Iterable[PodClass], pods: Sequence[Pod], templates: Iterable[NodeClaimTemplate], disks: VolumeTopology
) -> None:
    """Volumes become requests where a type limits how many can be attached."""
    pod_classes = [one for one in classes if one.pod.volume_claim_names]
    if pod_classes:
        limited = {
            volume_resource(driver)
            for template in templates
            for type_ in template.instance_types
            for driver in type_.attachable_volumes
        }
        shared = shared_claims(pods)
        for pod_class in pod_classes:
            taken = disks.volume_requests(pod_class.pod, shared).items()
            pod_class.requests |= {name: count for name, count in taken if name in limited}


def _asked(classes: Iterable[PodClass], topology: Topology, disks: VolumeTopology) -> Iterator[Requirements]:
    for cls in classes:
        yield from (demand.requirements for demand in cls.requirement_levels)
        if cls.pod.volume_claim_names:
            yield from disks.node_requirements(cls.pod)
    for key, values in sorted(topology.known_domains().items()):
        yield Requirements({key: Requirement(key, False, frozenset(values))})
