"""Who goes first in another attempt, so that pods without a place may get one.

Limits and anti-affinity serve those who come first: so pods that were left come first. Pods that must be near others
can come no earlier than these: so one of the others comes first, and where they can follow.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.labels import HOSTNAME
from spotwright.model.requirements import NodeSelectorRequirement, Requirements, conjunction
from spotwright.scheduling.capacity.existing_nodes import NodeAdmission
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_requirements import PodRequirements, node_selector_terms
from spotwright.scheduling.placement.placement import Placement

# Weights end at a hundred.
_ABOVE_ALL: Final = 101


class RetryOrder(msgspec.Struct, frozen=True):
    """``first_pods``: to serve before all others, by name. ``affinity_targets``: those of them that shall be where
    others can follow, with the pod whose class asked for it.
    """

    first_pods: tuple[Pod, ...]
    affinity_targets: dict[str, str]


def compute_retry_order(placement: Placement, pods: Sequence[Pod], alone: Set[str] = frozenset()) -> RetryOrder:
    """Who shall come first; nobody if that would change nothing for those who were left.

    Pods that others must follow ask for the domains of these too. ``alone``: pods whose classes nobody waits for.
    """
    by_key = {pod.key: pod for pod in pods}
    found: dict[str, Pod] = {}
    leaders: dict[str, str] = {}
    for pending_class in placement.pending:
        if pending_class.can_be_placed:
            asked = pending_class.pod_class.pod_keys[0]
            free = (
                {key: pod for key, pod in by_key.items() if key not in leaders}
                if pending_class.pod_requirements.pod_affinity
                else {}
            )
            leading = (
                list(_leaders(pending_class, pending_class.pod_requirements, placement, free))
                if asked not in alone
                else []
            )
            if leading or _comes_late(pending_class, pending_class.pod_requirements, placement):
                found |= {key: by_key[key] for key in pending_class.pod_keys}
            found |= {pod.key: pod for pod in leading}
            leaders |= dict.fromkeys((pod.key for pod in leading), asked)
    return RetryOrder(tuple(found[key] for key in sorted(found)), leaders)


def _comes_late(waiting: PendingClass, demand: PodRequirements, placement: Placement) -> bool:
    """True when others have the place it could have: a node within the limits, room on a node, or a domain."""
    if placement.topology.separates_domains(waiting.pod_class, demand):
        return True
    for tier in placement.weight_groups:
        mask = tier.compatible_offerings(demand) & tier.offering_index.by_capacity.with_room(waiting.size)
        if (
            mask
            and any(tier.initial_limits.by_template)
            and mask & tier.initial_limits.allowed_offerings(tier.offering_index)
        ):
            return True
    welcome = NodeAdmission([waiting])
    return any(
        resources.fits(waiting.pod_class.requests, room.state_node.free_capacity)
        and welcome.admitted_classes(room.state_node)
        for room in placement.existing_nodes
        if room.assigned_pods
    )


def _leaders(
    waiting: PendingClass, demand: PodRequirements, placement: Placement, by_key: Mapping[str, Pod]
) -> Iterator[Pod]:
    """Pods of each company that a class must join, which now prefer to be where the class can follow.

    A wish, because what a pod demands also decides which nodes count for its spread.
    """
    left = placement.unplaced_pods()
    for company in demand.pod_affinity:
        wanted = _where(waiting, demand, company, placement)
        keys = sorted(by_key) if wanted else ()
        invited = (by_key[key] for key in keys if key not in left and placement.topology.selects(company, by_key[key]))
        for wish, leader in zip(wanted, invited, strict=False):
            yield msgspec.structs.replace(
                leader, preferred_node_affinity=((_ABOVE_ALL, wish), *leader.preferred_node_affinity)
            )


def _where(
    waiting: PendingClass, demand: PodRequirements, company: PodAffinityTerm, placement: Placement
) -> list[tuple[NodeSelectorRequirement, ...]]:
    """What a pod must ask for so that the class can join it; nothing when there is such a pod, or can be none.

    A class that spreads over these very domains, or keeps apart there, needs a pod to join in each of them.
    """
    pod = waiting.pod_class.pod
    if company.topology_key == HOSTNAME:
        own = (NodeSelectorRequirement(key, "In", (value,)) for key, value in sorted(pod.node_selector.items()))
        return [(*own, *node_selector_terms(pod)[0])]
    there = _domains(waiting, demand, company.topology_key, placement)
    joined = there & placement.topology.domains_with_pods(company)
    parted = {constraint.topology_key for constraint in demand.topology_spread_constraints}.union(
        pod_affinity_term.topology_key for pod_affinity_term in demand.pod_anti_affinity
    )
    if company.topology_key in parted:
        return [
            (NodeSelectorRequirement(company.topology_key, "In", (one,)),)
            for one in sorted(there - joined)[: len(waiting.pod_keys)]
        ]
    return (
        [(NodeSelectorRequirement(company.topology_key, "In", tuple(sorted(there))),)] if there and not joined else []
    )


def _domains(waiting: PendingClass, demand: PodRequirements, key: str, placement: Placement) -> set[str]:
    """Where nodes for a class exist or can be made, rules between pods aside."""
    found = {room.domain(key) for room in placement.sequential_placer.existing_nodes_with_room(waiting)}
    for reachable in placement.sequential_placer.volume_topology.node_requirements(waiting.pod_class.pod) or (
        Requirements(),
    ):
        wanted = conjunction((*demand.requirements, *reachable))
        if wanted is not None:
            narrowed = msgspec.structs.replace(demand, requirements=wanted)
            for tier in placement.weight_groups:
                found.update(_sold(tier, narrowed, waiting, key))
    return {one for one in found if one is not None}


def _sold(tier: WeightGroup, demand: PodRequirements, waiting: PendingClass, key: str) -> Iterator[str | None]:
    fields = tier.undetermined_labels.requirement_bits(demand.requirements)
    mask = (
        tier.compatible_offerings(demand)
        & tier.offering_index.by_capacity.with_room(waiting.size)
        & tier.offerings_without_port_conflicts(waiting.pod_class.host_ports)
    )
    mask = tier.undetermined_labels.narrow(mask, fields)
    return tier.possible_values(key, mask, fields) if mask else iter(())
