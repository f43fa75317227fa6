"""Which nodes are empty and may be disrupted.

Source: Karpenter v1.14 ``pkg/controllers/disruption/emptiness.go``. Difference: a node that runs only followers is
empty when only followers are left in the cluster.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.decisions.decision import EMPTY
from spotwright.disruption import blockers, budgets
from spotwright.model import labels
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import format_time
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.inputs.provisionable import is_follower
from spotwright.scheduling.plan import Plan

REASON: Final = EMPTY


class BlockedClaim(msgspec.Struct, frozen=True):
    """An empty claim that may not be disrupted now, and why."""

    claim: str
    reason: str


class Emptiness(msgspec.Struct, frozen=True):
    """``claims``: empty claims to disrupt now, by name, within their budgets. ``blocked``: empty claims that may not.

    ``waiting``: empty claims that have to wait for their budgets.
    """

    claims: tuple[str, ...] = ()
    blocked: tuple[BlockedClaim, ...] = ()
    waiting: tuple[str, ...] = ()


def find_empty_nodes(snapshot: Snapshot, plan: Plan, *, locked: frozenset[str]) -> Emptiness:
    """``plan``: where the snapshot's pending pods would go. ``locked``: claims that a command or notice holds."""
    nominated = frozenset(node.name for node in plan.existing_nodes)
    buffered = frozenset(node.name for node in plan.buffer_assignments)
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes = blockers.nodes_by_provider_id(snapshot.nodes)
    pods = blockers.pods_by_node(snapshot.pods)
    only_followers = has_only_followers(snapshot, plan)
    empty_claims: dict[str, list[str]] = {}
    blocked = []
    for claim in sorted(snapshot.nodeclaims, key=lambda nodeclaim: nodeclaim.name):
        node = nodes.get(claim.provider_id)
        node_pods = pods.get(node.name, []) if node else []
        if not claim.is_managed or claim.name in locked or not _is_empty(node_pods, snapshot, only_followers):
            continue
        pool = pools.get(claim.nodepool)
        why = blockers.blocking_reason(claim, node, node_pods, pool, snapshot, nominated)
        if not why and node is not None and not buffered.isdisjoint((node.name, claim.name)):
            why = "node has buffer pods"
        why = why or consolidate_after_reason(claim, pool, node_pods, snapshot.now)
        if why:
            blocked.append(BlockedClaim(claim.name, why))
        else:
            empty_claims.setdefault(claim.nodepool, []).append(claim.name)
    claims, waiting = [], []
    for name, candidates in empty_claims.items():
        allowed = budgets.remaining_disruptions(
            pools[name], REASON, snapshot.nodeclaims, snapshot.nodes, locked=locked, now=snapshot.now
        )
        claims += candidates[:allowed]
        waiting += candidates[allowed:]
    return Emptiness(tuple(sorted(claims)), tuple(blocked), tuple(sorted(waiting)))


def consolidate_after_reason(claim: NodeClaim, pool: NodePool | None, pods: list[Pod], now: datetime) -> str:
    """Why consolidateAfter has not passed since the last pod event; an event that is not recorded yet counts as now."""
    at = consolidation_timer.consolidatable_at(claim, pool)
    if at is None:
        return "consolidation is disabled (consolidateAfter: Never, or a static pool)"
    unrecorded = claim.metadata.annotations.get(labels.PODS_SEEN, "none") != consolidation_timer.pods_digest(pods)
    if now < at or (unrecorded and pool is not None and pool.consolidate_after_seconds):
        return f"not consolidatable before {format_time(at)}"
    return ""


def keeps_node(pod: Pod, settings: Settings) -> bool:
    """Whether a pod keeps its node from being empty; a follower never does."""
    return eviction.is_reschedulable(pod) and eviction.eviction_cost(pod) > 0 and not is_follower(pod, settings)


def _is_empty(pods: list[Pod], snapshot: Snapshot, only_followers: bool) -> bool:
    """Whether no pod keeps the node: it has none to move, or their eviction cost is zero or less.

    ``only_followers``: only followers are left in the cluster, which keep no node then.
    """
    if only_followers:
        return not any(keeps_node(pod, snapshot.settings) for pod in pods)
    return all(eviction.eviction_cost(pod) <= 0 for pod in pods if eviction.is_reschedulable(pod))


def has_only_followers(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether every pod that is bound, or that the plan places, is a follower, and every node has a NodeClaim."""
    claimed = {claim.provider_id for claim in snapshot.nodeclaims}
    if any(node.provider_id not in claimed for node in snapshot.nodes):
        return False
    placed_pods = {pod for node in plan.existing_nodes for pod in node.pods}
    placed_pods |= {pod for node in plan.new_nodes for pod in node.pods}
    return not any(
        keeps_node(pod, snapshot.settings) for pod in snapshot.pods if pod.node_name or pod.key in placed_pods
    )


def stale_consolidation_timers(snapshot: Snapshot) -> tuple[str, ...]:
    """Claims whose recorded pod events or condition Consolidatable are out of date, by name; lifecycle updates them."""
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes, pods = blockers.nodes_by_provider_id(snapshot.nodes), blockers.pods_by_node(snapshot.pods)
    stale = []
    for claim in snapshot.nodeclaims:
        node = nodes.get(claim.provider_id)
        if (
            node is None
            or claim.metadata.deletion_timestamp is not None
            or not claim.is_condition_true("Initialized")
            or not claim.is_managed
        ):
            continue
        at = consolidation_timer.consolidatable_at(claim, pools.get(claim.nodepool))
        due = at is not None and at <= snapshot.now
        if due != claim.is_condition_true("Consolidatable") or consolidation_timer.has_other_pods(
            claim, pods.get(node.name, [])
        ):
            stale.append(claim.name)
    return tuple(sorted(stale))
