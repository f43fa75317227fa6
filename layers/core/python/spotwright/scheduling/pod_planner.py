"""Pending pods and the instance catalog in, a plan out.

The order of things: pods of equal demands form classes; nodes that exist or are in flight are filled first; then
NodePools by weight make nodes, priced shape by shape; what still has no place gives up one preference and tries
again. Nothing here depends on the order in which pods, nodes or pools are listed.
"""

from collections.abc import Iterable, Sequence

import msgspec

from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.explain import unschedulable
from spotwright.scheduling.inputs import provisionable
from spotwright.scheduling.inputs.nodeclaim_templates import build_daemonset_pods, build_templates
from spotwright.scheduling.inputs.state_nodes import ClusterState, build_cluster_state
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.node_size_cap import cap_node_size
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.offerings.overlays import OverlayStatus, apply_overlays
from spotwright.scheduling.placement.placement import Placement, PlanningContext
from spotwright.scheduling.placement.planned_nodes import to_new_nodes
from spotwright.scheduling.plan import NodeAssignment, Plan
from spotwright.scheduling.strategies.best_placement import find_best_placement
from spotwright.scheduling.zone_share import cap_zone_share


def plan_pods(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """Where every pending pod goes: existing nodes, new nodes, or nowhere, and why."""
    catalog = reservations.apply_feature_gate(catalog, snapshot.settings.feature_gates)
    sold = apply_overlays(catalog, snapshot.nodeoverlays, snapshot.nodepools)
    catalog = sold.catalog
    every_daemon = build_daemonset_pods(snapshot)
    standing = build_cluster_state(snapshot, catalog, every_daemon)
    disks = VolumeTopology(snapshot.storage)
    intake = provisionable.select_pods(
        snapshot, frozenset(state_node.name for state_node in standing.deleting_nodes), disks
    )
    templates, closed = build_templates(snapshot, catalog)
    world = PlanningContext(
        snapshot, standing, templates, every_daemon, disks, frozenset(pod.key for pod in intake.provisionable_pods)
    )
    refused = [
        why
        for pod in intake.provisionable_pods
        if (why := unschedulable.explain_unsupported(pod, snapshot)) is not None
    ]
    told = {unplaced_pod.pod for unplaced_pod in refused}
    planned = [pod for pod in intake.provisionable_pods if not told or pod.key not in told]
    placement, bounds = _within_bounds(world, disks.anonymize_claims(planned, snapshot.pods))
    refused += unschedulable.explain_unplaced(
        placement.pending, placement.weight_groups, placement.existing_nodes, placement.topology, disks, closed
    )
    refused += [unschedulable.explain_follower(pod) for pod in placement.held_back_followers]
    new_nodes = [
        node for tier in placement.weight_groups for draft in tier.enforce_limits() for node in to_new_nodes(draft)
    ]
    barren, unread = unschedulable.explain_empty_nodepools(placement.weight_groups), _unread(snapshot)
    capped = cap_zone_share(new_nodes, standing.nodes, catalog, snapshot.settings.largest_zone_share)
    return Plan(
        new_nodes=capped.nodes,
        existing_nodes=tuple(
            NodeAssignment(room.state_node.name, tuple(sorted(room.assigned_pods)))
            for room in sorted(placement.existing_nodes, key=lambda existing_node: existing_node.state_node.name)
            if room.assigned_pods
        ),
        unschedulable_pods=tuple(sorted(refused, key=lambda unplaced_pod: unplaced_pod.pod)),
        ignored_pods=tuple(sorted(intake.ignored_pods, key=lambda unplaced_pod: unplaced_pod.pod)),
        notes=(
            *_notes(snapshot, closed | barren, sold.statuses),
            *_told(unread),
            *_unheeded(snapshot),
            *bounds,
            *capped.notes,
        ),
        work_units=placement.work_units,
        lower_bound_picousd_per_hour=sum(tier.lower_bound(placement.topology) for tier in placement.weight_groups),
        nodepools_without_offerings=barren,
        read_errors=unread,
    )


def _within_bounds(world: PlanningContext, pods: Sequence[Pod]) -> tuple[Placement, tuple[str, ...]]:
    """Everybody's placement with no node above the setting's share of the plan, and what that costs.

    Whoever would be left for it gets a node as large as needed: then the bound does not hold, which is said.
    """
    share, free = world.settings.largest_node_share, _placed(world, pods)
    if share >= 100:
        return free, ()
    smaller = msgspec.structs.replace(world, templates=cap_node_size(world.templates, pods, share))
    held = _placed(smaller, pods)
    held.work_units += free.work_units
    bound = f"at most {share} % of the plan on one node"
    if _left(held) > _left(free):
        return free, (f"{bound} cannot be kept: {_left(held) - _left(free)} pods would be left without a node",)
    more = held.price() - free.price()
    return held, (f"{bound} costs ${more / PICOUSD:.4f} an hour more" if more > 0 else f"{bound} costs nothing",)


def _left(placement: Placement) -> int:
    return sum(len(pending_class.pod_keys) for pending_class in placement.pending)


def _placed(world: PlanningContext, pods: Sequence[Pod]) -> Placement:
    """Everybody's placement; followers are left out of it where they would cause the first node."""
    following = {pod.key for pod in pods if provisionable.is_follower(pod, world.settings)}
    if not following:
        return find_best_placement(world, pods, world.templates)
    pods = [_modest(pod) if pod.key in following else pod for pod in pods]
    if _busy(world.cluster_state, world.snapshot):
        return find_best_placement(world, pods, world.templates)
    followers = [pod for pod in pods if pod.key in following]
    leaders = [pod for pod in pods if pod.key not in following]
    led = find_best_placement(world, leaders, world.templates)
    if led.places_any_pod:
        return find_best_placement(world, pods, world.templates)
    seated = find_best_placement(world, followers, ())
    left = {key for pending_class in seated.pending for key in pending_class.pod_keys}
    led.held_back_followers = [pod for pod in followers if pod.key in left]
    led.existing_nodes = seated.existing_nodes
    led.work_units += seated.work_units
    return led


def _modest(follower: Pod) -> Pod:
    """A follower without its preferences: it goes along with others, and its wishes buy nothing."""
    return msgspec.structs.replace(
        follower,
        preferred_node_affinity=(),
        preferred_pod_affinity=(),
        preferred_pod_anti_affinity=(),
        topology_spread_constraints=tuple(
            constraint for constraint in follower.topology_spread_constraints if constraint.do_not_schedule
        ),
    )


def _busy(standing: ClusterState, snapshot: Snapshot) -> bool:
    """True when the cluster is not at zero: a node that is nobody's, or one that runs more than followers."""
    return any(not host.nodepool or any(_leads(pod, snapshot) for pod in host.pods) for host in standing.nodes)


def _leads(pod: Pod, snapshot: Snapshot) -> bool:
    return (
        not pod.is_mirror and not pod.is_owned_by("DaemonSet") and not provisionable.is_follower(pod, snapshot.settings)
    )


def _unread(snapshot: Snapshot) -> dict[str, str]:
    """Nodes and claims that cannot be read, and why: they take no pods."""
    claims = {f"nodeclaims/{nodeclaim.name}": nodeclaim.read_error for nodeclaim in snapshot.nodeclaims}
    nodes = {f"nodes/{node.name}": node.read_error for node in snapshot.nodes}
    return {key: why for key, why in sorted((claims | nodes).items()) if why}


def _unheeded(snapshot: Snapshot) -> tuple[str, ...]:
    """What else cannot be read, and what that means; volumes are named by the pods that need them."""
    budgets = (
        f"PodDisruptionBudget {budget.metadata.key} cannot be read, so nothing in its namespace is evicted:"
        f" {budget.read_error}"
        for budget in snapshot.pod_disruption_budgets
        if budget.read_error
    )
    daemonsets = (
        f"DaemonSet {daemonset.metadata.key} cannot be read, so nodes are sized without it:"
        f" {daemonset.template.read_error}"
        for daemonset in snapshot.daemonsets
        if daemonset.template.read_error
    )
    drivers = (
        f"CSINode {csi_node.metadata.name} cannot be read, so its volumes are not counted: {csi_node.read_error}"
        for csi_node in snapshot.storage.csi_nodes
        if csi_node.read_error
    )
    return tuple(sorted((*budgets, *daemonsets, *drivers)))


def _told(unread: dict[str, str]) -> tuple[str, ...]:
    words = {"nodes": "Node", "nodeclaims": "NodeClaim"}
    return tuple(
        f"{words[kind]} {name} takes no pods, for it cannot be read: {why}"
        for kind, _, name, why in ((*key.partition("/"), why) for key, why in unread.items())
    )


def _notes(snapshot: Snapshot, closed: dict[str, str], verdicts: Iterable[OverlayStatus]) -> tuple[str, ...]:
    """What is wrong with NodePools, classes and overlays, by name."""
    notes: list[str] = []
    for pool in sorted(snapshot.nodepools, key=lambda nodepool: nodepool.name):
        notes += [f"NodePool {pool.name}: {problem}" for problem in pool.problems]
        if pool.name in closed:
            none = "no nodes" if pool.replicas is None else "no nodes for pods"
            notes.append(f"NodePool {pool.name} makes {none}: {closed[pool.name]}")
    for nodeclass in sorted(snapshot.nodeclasses, key=lambda one: one.name):
        notes += [f"EC2NodeClass {nodeclass.name}: {problem}" for problem in nodeclass.problems]
    notes += [
        f"NodeOverlay {overlay_status.name} is not applied ({overlay_status.reason}): {overlay_status.message}"
        for overlay_status in verdicts
        if overlay_status.reason
    ]
    return tuple(notes)
