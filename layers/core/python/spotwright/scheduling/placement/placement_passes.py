"""The steps of one attempt: existing nodes, then new nodes, then again with one preference less.

Pods with rules either get their domains first and are then packed by price with all other pods, or are placed one by
one. Packed nodes usually cost less; placing pods one by one never fails for a domain that was given too early.
"""

from collections.abc import Sequence, Set

from spotwright.scheduling.capacity.existing_nodes import NodeAdmission
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.placement.backfill import backfill
from spotwright.scheduling.placement.domain_assignment import DomainAssigner, allow_exchanges
from spotwright.scheduling.placement.node_packing import plan_new_nodes
from spotwright.scheduling.placement.placement import Placement


def place_pods(placement: Placement, budget: int, *, pack_together: bool) -> bool:
    """Place what can be placed, batch by batch. ``budget``: units of work for packing.

    ``pack_together``: pack pods with rules by price with all other pods. False when a pod then found no node in the
    domain that rules already count on: then pods with rules must be placed one by one.
    """
    for pending_class in placement.pending:
        if not placement.limit_policy.respects_preferences:
            pending_class.relax_all()
        _relax_impossible(placement, pending_class)
    # A pod may have waited for a pod of a later batch.
    again = [placement.pending] if len(placement.batches) > 1 else []
    for number, batch in enumerate([*placement.batches, *again]):
        if number:
            placement.reopen_planned_nodes()
        if not _place_batch(placement, batch, budget, pack_together=pack_together):
            return False
    placement.settle_open_nodes()
    return True


def _place_batch(placement: Placement, batch: Sequence[PendingClass], budget: int, *, pack_together: bool) -> bool:
    """Place classes until none of them has a preference left to give up."""
    unplaced = [pending_class for pending_class in batch if pending_class.pod_keys]
    while unplaced:
        with_rules = {pending_class for pending_class in unplaced if _has_rules(placement, pending_class)}
        if not _place_once(placement, unplaced, with_rules, budget, pack_together=pack_together):
            return False
        unplaced = [pending_class for pending_class in unplaced if pending_class.pod_keys]
        relaxed = {pending_class for pending_class in unplaced if pending_class.relax()}
        for pending_class in unplaced:
            _relax_impossible(placement, pending_class)
        if not relaxed:
            return True
        # A pod with rules may have waited for a pod that gives up a preference only now.
        relaxed |= with_rules
        unplaced = [pending_class for pending_class in unplaced if pending_class in relaxed]
        placement.reopen_planned_nodes()
    return True


def _place_once(
    placement: Placement,
    unplaced: Sequence[PendingClass],
    with_rules: Set[PendingClass],
    budget: int,
    *,
    pack_together: bool,
) -> bool:
    """Place classes with the preferences they have left."""
    ruled = [pending_class for pending_class in unplaced if pending_class in with_rules]
    without_rules = [pending_class for pending_class in unplaced if pending_class not in with_rules]
    assigners = _assign_domains(placement, ruled) if pack_together else []
    allow_exchanges(assigners)
    assigned = [pods for assigner in assigners for pods in assigner.assigned_pods()]
    if not pack_together:
        placement.sequential_placer.place(ruled)
    placement.work_units += placement.fill(placement.existing_nodes, without_rules)
    to_pack = [*without_rules, *assigned]
    placement.work_units += backfill(placement.sequential_placer.open_nodes, to_pack, placement.topology)
    for group in placement.weight_groups:
        planned_nodes, work_units = plan_new_nodes(group, to_pack, placement.topology, budget - placement.work_units)
        placement.planned_nodes += planned_nodes
        placement.work_units += work_units
    for assigner in assigners:
        assigner.record_exchanges()
    placement.unpacked_pods = [pods.pod_class.pod_keys[0] for pods in assigned if pods.pod_keys and pods.is_pinned]
    if placement.unpacked_pods:
        return False
    for pods in assigned:
        pods.return_unplaced()
    return True


def _has_rules(placement: Placement, pending_class: PendingClass) -> bool:
    return pending_class.can_be_placed and placement.topology.is_constrained(
        pending_class.pod_class, pending_class.pod_requirements
    )


def _relax_impossible(placement: Placement, pending_class: PendingClass) -> None:
    """Give up preferences that no node could meet, so that the class is packed with all classes, not after them."""
    if pending_class.pod_class.requirement_levels:
        while not _some_node_meets(placement, pending_class) and pending_class.relax():
            pass


def _some_node_meets(placement: Placement, pending_class: PendingClass) -> bool:
    """Whether a node that exists or could be bought meets the pod's requirements, other pods aside."""
    if placement.has_offerings(pending_class):
        return True
    admission = NodeAdmission([pending_class])
    return any(admission.admitted_classes(existing_node.state_node) for existing_node in placement.existing_nodes)


def _assign_domains(placement: Placement, with_rules: Sequence[PendingClass]) -> list[DomainAssigner]:
    """Places for pods that must share a host, places on existing nodes, and domains for all other pods.

    Repeated as long as any pod gets one, since other pods may have waited for it.
    """
    assigners: list[DomainAssigner] = []
    progress = -1
    while progress:
        progress = 0
        for pending_class in with_rules:
            if pending_class.can_be_placed:
                before = len(pending_class.pod_keys)
                assigners += _assign_class(placement, pending_class)
                progress += before - len(pending_class.pod_keys)
    return assigners


def _assign_class(placement: Placement, pending_class: PendingClass) -> list[DomainAssigner]:
    placer, topology = placement.sequential_placer, placement.topology
    if (
        topology.needs_shared_host(pending_class.pod_class, pending_class.pod_requirements)
        or pending_class.pod_class.pod_keys[0] in placement.sequential_keys
    ):
        placer.place([pending_class])
        return []
    assigner = DomainAssigner(pending_class, topology, placement.weight_groups, placer.volume_topology)
    moved = -1
    # A spread constraint that kept pods off a node allows it again once other domains have as many pods.
    while pending_class.pod_keys and moved:
        moved = placer.place_on_existing_nodes(pending_class)
        if not moved:
            one_by_one = placer.has_existing_nodes_with_room(pending_class)
            moved = assigner.assign(1 if one_by_one else len(pending_class.pod_keys))
    return [assigner]
