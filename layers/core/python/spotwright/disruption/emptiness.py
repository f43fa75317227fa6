"""Which nodes are empty and may go.

Source: Karpenter v1.14 ``pkg/controllers/disruption/emptiness.go``. Difference: a node that runs only followers is
empty when no pod but followers is left anywhere.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.disruption import blockers, budgets
from spotwright.model import labels
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.inputs.provisionable import is_follower
from spotwright.scheduling.plan import Plan

REASON: Final = "Empty"


class BlockedClaim(msgspec.Struct, frozen=True):
    """A claim that may not be disrupted now, and why; ``reason`` "" = it is simply not empty."""

    claim: str
    reason: str


class Emptiness(msgspec.Struct, frozen=True):
    """``claims``: names that may go now, by name, within their budgets. ``blocked``: empty ones that may not.

    ``waiting``: empty ones that budgets keep; they go later.
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
    alone = _only_followers(snapshot, plan)
    free: dict[str, list[str]] = {}
    blocked = []
    for claim in sorted(snapshot.nodeclaims, key=lambda nodeclaim: nodeclaim.name):
        node = nodes.get(claim.provider_id)
        mine = pods.get(node.name, []) if node else []
        if not claim.is_managed or claim.name in locked or not _is_empty(mine, snapshot, alone):
            continue
        pool = pools.get(claim.nodepool)
        why = blockers.blocking_reason(claim, node, mine, pool, snapshot, nominated)
        if not why and node is not None and not buffered.isdisjoint((node.name, claim.name)):
            why = "node has buffer pods"
        why = why or _too_early(claim, pool, mine, snapshot.now)
        if why:
            blocked.append(BlockedClaim(claim.name, why))
        else:
            free.setdefault(claim.nodepool, []).append(claim.name)
    going, waiting = [], []
    for name, candidates in free.items():
        left = budgets.remaining_disruptions(
            pools[name], REASON, snapshot.nodeclaims, snapshot.nodes, locked=locked, now=snapshot.now
        )
        going += candidates[:left]
        waiting += candidates[left:]
    return Emptiness(tuple(sorted(going)), tuple(blocked), tuple(sorted(waiting)))


def _too_early(claim: NodeClaim, pool: NodePool | None, pods: list[Pod], now: datetime) -> str:
    """consolidateAfter, counted from the last pod event that was recorded; one that was not yet counts as now."""
    at = consolidation_timer.consolidatable_at(claim, pool)
    if at is None:
        return "consolidation is disabled (consolidateAfter: Never, or a static pool)"
    unrecorded = claim.metadata.annotations.get(labels.PODS_SEEN, "none") != consolidation_timer.pods_digest(pods)
    if now < at or (unrecorded and pool is not None and pool.consolidate_after_seconds):
        return f"not consolidatable before {at.isoformat()}"
    return ""


def keeps_node(pod: Pod, settings: Settings) -> bool:
    """True for a pod that keeps its node from being empty, followers never."""
    return eviction.is_reschedulable(pod) and eviction.eviction_cost(pod) > 0 and not is_follower(pod, settings)


def _is_empty(pods: list[Pod], snapshot: Snapshot, alone: bool) -> bool:
    """Moving its pods costs nothing: none, or only such whose eviction cost is not above zero.

    Followers alone keep no node either, where nobody is left whom they could follow.
    """
    if alone:
        return not any(keeps_node(pod, snapshot.settings) for pod in pods)
    return all(eviction.eviction_cost(pod) <= 0 for pod in pods if eviction.is_reschedulable(pod))


def _only_followers(snapshot: Snapshot, plan: Plan) -> bool:
    """True when every pod that has a place, or would get one, is a follower, and every node is ours."""
    ours = {claim.provider_id for claim in snapshot.nodeclaims}
    if any(node.provider_id not in ours for node in snapshot.nodes):
        return False
    placed = {pod for node in plan.existing_nodes for pod in node.pods}
    placed |= {pod for node in plan.new_nodes for pod in node.pods}
    return not any(keeps_node(pod, snapshot.settings) for pod in snapshot.pods if pod.node_name or pod.key in placed)


def stale_consolidation_timers(snapshot: Snapshot) -> tuple[str, ...]:
    """Claims whose recorded pod events or Consolidatable condition no longer say what is: for lifecycle, by name."""
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
        if due != claim.is_condition_true("Consolidatable") or consolidation_timer.has_pod_event(
            claim, pods.get(node.name, []), snapshot.now
        ):
            stale.append(claim.name)
    return tuple(sorted(stale))
