"""Followers: pods of add-ons that never cause the first node of a cluster (setting FOLLOWER_SELECTORS)."""

from collections.abc import Sequence

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs import provisionable
from spotwright.scheduling.inputs.cluster_state import ClusterState
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.strategies.within_limits import find_best_placement


def place_with_followers(context: PlanningContext, pods: Sequence[Pod]) -> Placement:
    """The best placement of all pods. Followers are placed on existing nodes only where they would cause the first
    node."""
    keys = {pod.key for pod in pods if provisionable.is_follower(pod, context.settings)}
    if not keys:
        return find_best_placement(context, pods, context.templates)
    pods = [_without_preferences(pod) if pod.key in keys else pod for pod in pods]
    if _runs_workloads(context.cluster_state, context.snapshot):
        return find_best_placement(context, pods, context.templates)
    workloads = find_best_placement(context, [pod for pod in pods if pod.key not in keys], context.templates)
    if workloads.places_any_pod:
        return find_best_placement(context, pods, context.templates)
    return _hold_back(context, [pod for pod in pods if pod.key in keys], workloads)


def _hold_back(context: PlanningContext, followers: Sequence[Pod], workloads: Placement) -> Placement:
    """The placement of the workloads, with followers on existing nodes as far as these have room."""
    placement = find_best_placement(context, followers, ())
    unplaced = placement.unplaced_pods()
    workloads.held_back_followers = [pod for pod in followers if pod.key in unplaced]
    workloads.existing_nodes = placement.existing_nodes
    workloads.work_units += placement.work_units
    return workloads


def _without_preferences(follower: Pod) -> Pod:
    """A follower's preferences cause no node either."""
    return msgspec.structs.replace(
        follower,
        preferred_node_affinity=(),
        preferred_pod_affinity=(),
        preferred_pod_anti_affinity=(),
        topology_spread_constraints=tuple(
            constraint for constraint in follower.topology_spread_constraints if constraint.do_not_schedule
        ),
    )


def _runs_workloads(cluster_state: ClusterState, snapshot: Snapshot) -> bool:
    """True when the cluster is not at zero: a node of no NodePool, or a node with more than followers on it."""
    return any(
        not state_node.nodepool or any(_is_workload(pod, snapshot) for pod in state_node.pods)
        for state_node in cluster_state.nodes
    )


def _is_workload(pod: Pod, snapshot: Snapshot) -> bool:
    return (
        not pod.is_mirror and not pod.is_owned_by("DaemonSet") and not provisionable.is_follower(pod, snapshot.settings)
    )
