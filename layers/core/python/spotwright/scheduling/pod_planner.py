"""Pending pods and the instance catalog in, a plan out.

Pods that are equal for scheduling form classes. Classes fill the nodes that exist or are in flight; then NodePools by
weight make nodes, priced offering by offering; a class that is left gives up one preference and tries again. Nothing
here depends on the order in which pods, nodes or NodePools are listed.
"""

from collections.abc import Iterable

import msgspec

from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.explain import unschedulable
from spotwright.scheduling.explain.empty_nodepools import explain_empty_nodepools
from spotwright.scheduling.explain.label_values import note_unknown_values
from spotwright.scheduling.explain.limit_notes import write_limit_notes
from spotwright.scheduling.explain.notes import list_read_errors, write_notes
from spotwright.scheduling.inputs import provisionable
from spotwright.scheduling.inputs.cluster_state import build_cluster_state
from spotwright.scheduling.inputs.daemonset_pods import build_daemonset_pods
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.node_share import place_with_node_share
from spotwright.scheduling.nodeclaims.new_nodes import build_new_nodes
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.placement.cheapest_nodes import are_cheapest
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.placement.price_bound import lower_bound_picousd_per_hour
from spotwright.scheduling.plan import NewNode, NodeAssignment, Plan, UnplacedPod
from spotwright.scheduling.zone_share import cap_zone_share


def plan_pods(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """Where every pending pod goes: existing nodes, new nodes, or nowhere, and why.

    With BestEffort, minValues is lowered to what the NodePool's types have. Only where pods would wait for it, it is
    lowered further: to half of that if that is enough, else as far as the pods ask for.
    """
    has_min_values = any(item.min_values for pool in snapshot.nodepools for item in pool.requirements)
    if snapshot.settings.min_values_policy != "BestEffort" or not has_min_values:
        return _plan_pods(snapshot, catalog)
    kept = _plan_pods(snapshot, catalog, min_values_share=1)
    if not kept.unschedulable_pods:
        return kept
    lowered = _plan_pods(snapshot, catalog)
    if _unplaced(lowered) == _unplaced(kept):
        # minValues keeps no pod from a node, and no reason speaks of it.
        return msgspec.structs.replace(kept, unschedulable_pods=lowered.unschedulable_pods)
    halved = _plan_pods(snapshot, catalog, min_values_share=2)
    return halved if _unplaced(halved) == _unplaced(lowered) else lowered


def _unplaced(plan: Plan) -> frozenset[str]:
    return frozenset(unplaced_pod.pod for unplaced_pod in plan.unschedulable_pods)


def _plan_pods(snapshot: Snapshot, catalog: Catalog, *, min_values_share: int = 0) -> Plan:
    """``min_values_share``: see ``build_templates``."""
    catalog = reservations.apply_feature_gate(catalog, snapshot.settings.feature_gates)
    overlaid = apply_overlays(catalog, snapshot.nodeoverlays, snapshot.nodepools)
    daemonset_pods = build_daemonset_pods(snapshot)
    cluster_state = build_cluster_state(snapshot, overlaid.catalog, daemonset_pods)
    volume_topology = VolumeTopology(snapshot.storage)
    deleting_nodes = frozenset(state_node.name for state_node in cluster_state.deleting_nodes)
    selection = provisionable.select_pods(snapshot, deleting_nodes, volume_topology.storage)
    templates, closed_nodepools = build_templates(snapshot, overlaid.catalog, min_values_share=min_values_share)
    pods = selection.provisionable_pods
    context = PlanningContext(
        snapshot, cluster_state, templates, daemonset_pods, volume_topology, frozenset(pod.key for pod in pods)
    )
    unsupported = [
        unplaced for pod in pods if (unplaced := unschedulable.explain_unsupported(pod, snapshot)) is not None
    ]
    unsupported_keys = {unplaced.pod for unplaced in unsupported}
    supported = [pod for pod in pods if pod.key not in unsupported_keys]
    placement, share_notes = place_with_node_share(context, volume_topology.anonymize_claims(supported, snapshot.pods))
    new_nodes = [
        node for group in placement.weight_groups for node in build_new_nodes(group, placement.planned_nodes_of(group))
    ]
    capped = cap_zone_share(new_nodes, cluster_state.nodes, overlaid.catalog, snapshot.settings.largest_zone_share)
    empty_nodepools, read_errors = explain_empty_nodepools(placement.weight_groups), list_read_errors(snapshot)
    notes = write_notes(snapshot, closed_nodepools | empty_nodepools, overlaid.statuses, read_errors)
    unplaced_pods = [
        *unsupported,
        *unschedulable.explain_unplaced(placement, volume_topology, closed_nodepools),
        *(unschedulable.explain_follower(pod, snapshot.settings) for pod in placement.held_back_followers),
    ]
    return Plan(
        new_nodes=capped.nodes,
        existing_nodes=_node_assignments(placement),
        unschedulable_pods=_by_key(unplaced_pods),
        ignored_pods=_by_key(selection.ignored_pods),
        notes=(*notes, *note_unknown_values(templates), *write_limit_notes(placement), *share_notes, *capped.notes),
        work_units=placement.work_units,
        lower_bound_picousd_per_hour=sum(
            lower_bound_picousd_per_hour(group, placement.planned_nodes_of(group), placement.topology)
            for group in placement.weight_groups
        ),
        # Zones that a cap decides may cost more.
        is_cheapest=are_cheapest(placement, context) and placement.price() == _price(capped.nodes),
        nodepools_without_offerings=empty_nodepools,
        read_errors=read_errors,
    )


def _price(nodes: Iterable[NewNode]) -> int:
    return sum(node.price_picousd_per_hour for node in nodes)


def _node_assignments(placement: Placement) -> tuple[NodeAssignment, ...]:
    return tuple(
        NodeAssignment(existing_node.state_node.name, tuple(sorted(existing_node.assigned_pods)))
        for existing_node in sorted(placement.existing_nodes, key=lambda existing_node: existing_node.state_node.name)
        if existing_node.assigned_pods
    )


def _by_key(unplaced_pods: Iterable[UnplacedPod]) -> tuple[UnplacedPod, ...]:
    return tuple(sorted(unplaced_pods, key=lambda unplaced_pod: unplaced_pod.pod))
