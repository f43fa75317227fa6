"""Which nodes are empty and may go.

Source: Karpenter v1.14 ``pkg/controllers/disruption/{emptiness,types}.go``. Differences: a node that runs only
followers is empty when no pod but followers is left anywhere; nodes that a plan gives pods to count as nominated.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.disruption import budgets
from spotwright.model import eviction, idleness, labels
from spotwright.model.node import Node
from spotwright.model.nodeclaim import NodeClaim
from spotwright.model.nodepool import NodePool
from spotwright.model.objects import condition
from spotwright.model.pod import Pod
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.eligibility import is_follower
from spotwright.scheduling.plan import Plan

REASON: Final = "Empty"
# A node that just became usable keeps this long for the pods that were meant for it.
NOMINATION: Final = timedelta(seconds=20)


class Blocked(msgspec.Struct, frozen=True):
    """A claim that may not be disrupted now, and why; ``reason`` "" = it is simply not empty."""

    claim: str
    reason: str


class Emptiness(msgspec.Struct, frozen=True):
    """``claims``: names that may go now, by name, within their budgets. ``blocked``: empty ones that may not.

    ``waiting``: empty ones that budgets keep; they go later.
    """

    claims: tuple[str, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    waiting: tuple[str, ...] = ()


def emptiness(snapshot: Snapshot, plan: Plan, *, locked: frozenset[str]) -> Emptiness:
    """``plan``: where the snapshot's pending pods would go. ``locked``: claims that a command or notice holds."""
    nominated = frozenset(node.name for node in plan.existing_nodes)
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes = _by_provider(snapshot.nodes)
    pods = _by_node(snapshot.pods)
    alone = _only_followers(snapshot, plan)
    free: dict[str, list[str]] = {}
    blocked = []
    for claim in sorted(snapshot.nodeclaims, key=lambda one: one.name):
        node = nodes.get(claim.provider_id)
        mine = pods.get(node.name, []) if node else []
        if not claim.managed or claim.name in locked or not _is_empty(mine, snapshot, alone):
            continue
        why = _why_not(claim, node, mine, pools.get(claim.nodepool), snapshot, nominated)
        if why:
            blocked.append(Blocked(claim.name, why))
        else:
            free.setdefault(claim.nodepool, []).append(claim.name)
    going, waiting = [], []
    for name, candidates in free.items():
        left = budgets.remaining(
            pools[name], REASON, snapshot.nodeclaims, snapshot.nodes, locked=locked, now=snapshot.now
        )
        going += candidates[:left]
        waiting += candidates[left:]
    return Emptiness(tuple(sorted(going)), tuple(blocked), tuple(sorted(waiting)))


def _why_not(
    claim: NodeClaim,
    node: Node | None,
    pods: list[Pod],
    pool: NodePool | None,
    snapshot: Snapshot,
    nominated: frozenset[str],
) -> str:
    """The first gate that holds an empty claim back; "" = none."""
    now = snapshot.now
    if node is None:
        return "nodeclaim does not have an associated node"
    if not claim.has("Initialized") or not node.initialized:
        return "node isn't initialized"
    if claim.metadata.deleting is not None or node.metadata.deleting is not None:
        return "node is deleting or marked for deletion"
    if node.name in nominated or claim.name in nominated or _fresh(claim, now):
        return "node is nominated for a pending pod"
    if node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return "disruption is blocked through the karpenter.sh/do-not-disrupt annotation"
    if pool is None:
        return f"NodePool not found (NodePool={claim.nodepool})"
    return _pods_forbid(pods, snapshot) or _too_early(claim, pool, pods, now)


def _pods_forbid(pods: list[Pod], snapshot: Snapshot) -> str:
    """Karpenter's pod gates: they hold for DaemonSet and mirror pods too."""
    for pod in pods:
        if pod.active and eviction.do_not_disrupt(pod, snapshot.now):
            return f"pod has the karpenter.sh/do-not-disrupt annotation (Pod={pod.key})"
    for pod in pods:
        # A follower's budget protects nobody once there is nobody to follow; its drain deletes it then.
        if is_follower(pod, snapshot.settings):
            continue
        if eviction.evictable(pod, snapshot.now) and (why := eviction.forbidden_by(pod, snapshot.budgets)):
            return why
    return ""


def _too_early(claim: NodeClaim, pool: NodePool, pods: list[Pod], now: datetime) -> str:
    """consolidateAfter, counted from the last pod event that was recorded; one that was not yet counts as now."""
    at = idleness.consolidatable_at(claim, pool)
    if at is None:
        return "consolidation is disabled (consolidateAfter: Never, or a static pool)"
    unrecorded = claim.metadata.annotations.get(labels.PODS_SEEN, "none") != idleness.pods_seen(pods)
    if now < at or (unrecorded and pool.consolidate_after_seconds):
        return f"not consolidatable before {at.isoformat()}"
    return ""


def _fresh(claim: NodeClaim, now: datetime) -> bool:
    initialized = condition(claim.conditions, "Initialized")
    return initialized is not None and initialized.since is not None and now - initialized.since < NOMINATION


def keeps(pod: Pod, settings: Settings) -> bool:
    """True for a pod that keeps its node from being empty, followers never."""
    return eviction.reschedulable(pod) and eviction.eviction_cost(pod) > 0 and not is_follower(pod, settings)


def _is_empty(pods: list[Pod], snapshot: Snapshot, alone: bool) -> bool:
    """Moving its pods costs nothing: none, or only such whose eviction cost is not above zero.

    Followers alone keep no node either, where nobody is left whom they could follow.
    """
    if alone:
        return not any(keeps(pod, snapshot.settings) for pod in pods)
    return all(eviction.eviction_cost(pod) <= 0 for pod in pods if eviction.reschedulable(pod))


def _only_followers(snapshot: Snapshot, plan: Plan) -> bool:
    """True when every pod that has a place, or would get one, is a follower, and every node is ours."""
    ours = {claim.provider_id for claim in snapshot.nodeclaims}
    if any(node.provider_id not in ours for node in snapshot.nodes):
        return False
    placed = {pod for node in plan.existing_nodes for pod in node.pods}
    placed |= {pod for node in plan.new_nodes for pod in node.pods}
    return not any(keeps(pod, snapshot.settings) for pod in snapshot.pods if pod.node_name or pod.key in placed)


def _by_provider(nodes: Iterable[Node]) -> dict[str, Node]:
    return {node.provider_id: node for node in nodes if node.provider_id}


def _by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.terminal:
            found.setdefault(pod.node_name, []).append(pod)
    return found


def stale_idleness(snapshot: Snapshot) -> tuple[str, ...]:
    """Claims whose recorded pod events or Consolidatable condition no longer say what is: for lifecycle, by name."""
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes, pods = _by_provider(snapshot.nodes), _by_node(snapshot.pods)
    stale = []
    for claim in snapshot.nodeclaims:
        node = nodes.get(claim.provider_id)
        if node is None or claim.metadata.deleting is not None or not claim.has("Initialized") or not claim.managed:
            continue
        at = idleness.consolidatable_at(claim, pools.get(claim.nodepool))
        due = at is not None and at <= snapshot.now
        if due != claim.has("Consolidatable") or idleness.pod_event(claim, pods.get(node.name, []), snapshot.now):
            stale.append(claim.name)
    return tuple(sorted(stale))
