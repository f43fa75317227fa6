"""Which pods to place first in another attempt, so that pods without a node may get one.

Where limits or anti-affinity let only some pods be placed, the first pods are: so unplaced pods come first. A pod with
pod affinity can only follow a pod that its affinity names: so such a target comes first too, in a domain where the pod
can follow.
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

# The largest weight of a preference is 100.
_ABOVE_ALL: Final = 101


class RetryOrder(msgspec.Struct, frozen=True):
    """``first_pods``: to place before all other pods, by key. ``affinity_targets``: which of them got a preference for
    domains where pods with affinity to them can follow, with the first pod of the class that can follow.
    """

    first_pods: tuple[Pod, ...]
    affinity_targets: dict[str, str]


def compute_retry_order(
    placement: Placement, pods: Sequence[Pod], without_targets: Set[str] = frozenset()
) -> RetryOrder:
    """The pods to place first; none if that would change nothing for the unplaced pods.

    ``without_targets``: pods for whose classes no affinity target shall come first.
    """
    by_key = {pod.key: pod for pod in pods}
    first_pods: dict[str, Pod] = {}
    affinity_targets: dict[str, str] = {}
    for pending_class in placement.pending:
        if pending_class.can_be_placed:
            follower = pending_class.pod_class.pod_keys[0]
            targets: list[Pod] = []
            if pending_class.pod_requirements.pod_affinity and follower not in without_targets:
                candidates = {key: pod for key, pod in by_key.items() if key not in affinity_targets}
                targets = list(_affinity_targets(pending_class, placement, candidates))
            if targets or _comes_too_late(pending_class, placement):
                first_pods |= {key: by_key[key] for key in pending_class.pod_keys}
            first_pods |= {pod.key: pod for pod in targets}
            affinity_targets |= dict.fromkeys((pod.key for pod in targets), follower)
    return RetryOrder(tuple(first_pods[key] for key in sorted(first_pods)), affinity_targets)


def _comes_too_late(pending_class: PendingClass, placement: Placement) -> bool:
    """True when other pods took what the class could use: a node within limits, an existing node, or a domain."""
    pod_requirements = pending_class.pod_requirements
    if placement.topology.separates_domains(pending_class.pod_class, pod_requirements):
        return True
    for group in placement.weight_groups:
        if any(group.initial_limits.by_template):
            offerings = group.compatible_offerings(pod_requirements)
            offerings &= group.offering_index.by_capacity.with_room(pending_class.size)
            if offerings and offerings & group.initial_limits.allowed_offerings(group.offering_index):
                return True
    admission = NodeAdmission([pending_class])
    return any(
        resources.fits(pending_class.pod_class.requests, existing_node.state_node.free_capacity)
        and admission.admitted_classes(existing_node.state_node)
        for existing_node in placement.existing_nodes
        if existing_node.assigned_pods
    )


def _affinity_targets(pending_class: PendingClass, placement: Placement, by_key: Mapping[str, Pod]) -> Iterator[Pod]:
    """Pods that the class's affinity names, each with a preference for where the class can follow.

    A preference, because node affinity that is required would also change which nodes count for the target's spread.
    """
    unplaced = placement.unplaced_pods()
    for affinity_term in pending_class.pod_requirements.pod_affinity:
        preferences = _target_preferences(pending_class, affinity_term, placement)
        keys = sorted(by_key) if preferences else ()
        candidates = (
            by_key[key]
            for key in keys
            if key not in unplaced and placement.topology.selects(affinity_term, by_key[key])
        )
        for preference, target in zip(preferences, candidates, strict=False):
            yield msgspec.structs.replace(
                target, preferred_node_affinity=((_ABOVE_ALL, preference), *target.preferred_node_affinity)
            )


def _target_preferences(
    pending_class: PendingClass, affinity_term: PodAffinityTerm, placement: Placement
) -> list[tuple[NodeSelectorRequirement, ...]]:
    """A preference for each target that the class needs; none where a target is already, or none can be.

    A class that spreads over the term's domains, or avoids pods there, needs a target in each of its domains.
    """
    pod, pod_requirements = pending_class.pod_class.pod, pending_class.pod_requirements
    topology_key = affinity_term.topology_key
    if topology_key == HOSTNAME:
        own = (NodeSelectorRequirement(key, "In", (value,)) for key, value in sorted(pod.node_selector.items()))
        return [(*own, *node_selector_terms(pod)[0])]
    domains = _possible_domains(pending_class, topology_key, placement)
    with_target = domains & placement.topology.domains_with_pods(affinity_term)
    spread_or_avoided_keys = {
        *(constraint.topology_key for constraint in pod_requirements.topology_spread_constraints),
        *(avoided_term.topology_key for avoided_term in pod_requirements.pod_anti_affinity),
    }
    if topology_key in spread_or_avoided_keys:
        return [
            (NodeSelectorRequirement(topology_key, "In", (domain,)),)
            for domain in sorted(domains - with_target)[: len(pending_class.pod_keys)]
        ]
    if not domains or with_target:
        return []
    return [(NodeSelectorRequirement(topology_key, "In", tuple(sorted(domains))),)]


def _possible_domains(pending_class: PendingClass, topology_key: str, placement: Placement) -> set[str]:
    """Domains of nodes that can take the class, existing or new, pod affinity and spread ignored."""
    placer, pod_requirements = placement.sequential_placer, pending_class.pod_requirements
    domains = {existing_node.domain(topology_key) for existing_node in placer.existing_nodes_with_room(pending_class)}
    for of_volumes in placer.volume_topology.node_requirements(pending_class.pod_class.pod) or (Requirements(),):
        requirements = conjunction((*pod_requirements.requirements, *of_volumes))
        if requirements is not None:
            narrowed = msgspec.structs.replace(pod_requirements, requirements=requirements)
            for group in placement.weight_groups:
                domains.update(_offered_domains(group, narrowed, pending_class, topology_key))
    return {domain for domain in domains if domain is not None}


def _offered_domains(
    group: WeightGroup, pod_requirements: PodRequirements, pending_class: PendingClass, topology_key: str
) -> Iterator[str | None]:
    """Domains of the offerings that hold a pod of the class."""
    label_bits = group.undetermined_labels.requirement_bits(pod_requirements.requirements)
    offerings = (
        group.compatible_offerings(pod_requirements)
        & group.offering_index.by_capacity.with_room(pending_class.size)
        & group.offerings_without_port_conflicts(pending_class.pod_class.host_ports)
    )
    offerings = group.undetermined_labels.narrow(offerings, label_bits)
    return group.possible_values(topology_key, offerings, label_bits) if offerings else iter(())
