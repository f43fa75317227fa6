"""What forbids the disruption of a node, whatever the reason for it.

Source: Karpenter v1.14 ``pkg/controllers/disruption/types.go`` (NewCandidate) and ``state/statenode.go``
(ValidateNodeDisruptable, ValidatePodsDisruptable). A node that a plan gives pods to counts as nominated.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.disruption import budgets
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import EARLIEST_TIME, ObjectMeta, find_condition, format_time
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.provisionable import is_follower
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.telemetry.rows import Event

SHARED_INSTANCE: Final = "node shares its instance with another Node"
# A node counts as nominated for this long after it is initialized: the pods it was launched for may not be bound yet.
NOMINATION_WINDOW: Final = timedelta(seconds=20)
# Of a value in a message.
_SHOWN_CHARACTERS: Final = 100


class BlockedEvent(msgspec.Struct, frozen=True):
    """An Event about what may not be disrupted, or may be again. ``kind`` and ``about`` name its object."""

    kind: str
    about: ObjectMeta
    event: Event


def blocking_reason(
    claim: NodeClaim,
    node: Node | None,
    pods: list[Pod],
    pool: NodePool | None,
    snapshot: Snapshot,
    nominated: frozenset[str],
) -> str:
    """Why a claim may not be disrupted, in Karpenter's words; "" = it may. ``pods``: the pods of its node.

    ``node``: by ``nodes_by_provider_id``.
    """
    now = snapshot.now
    if node is None:
        is_shared = claim.node_name and any(other.provider_id == claim.provider_id for other in snapshot.nodes)
        return SHARED_INSTANCE if is_shared else "nodeclaim does not have an associated node"
    if not claim.is_condition_true("Initialized") or not node.is_initialized:
        return "node isn't initialized"
    if claim.metadata.deletion_timestamp is not None or node.metadata.deletion_timestamp is not None:
        return "node is deleting or marked for deletion"
    if node.name in nominated or claim.name in nominated or now < nominated_until(claim):
        return "node is nominated for a pending pod"
    if why := node_protection(node):
        return why
    if pool is None:
        return f"NodePool not found (NodePool={claim.nodepool})"
    return _pod_blocking_reason(pods, snapshot)


def _pod_blocking_reason(pods: list[Pod], snapshot: Snapshot) -> str:
    """Why the pods of a node forbid its disruption; as in Karpenter, DaemonSet and mirror pods count too."""
    if why := pod_protection(pods, snapshot.now):
        return why
    for pod in pods:
        # A follower's budget does not keep a node on which only followers are left; the drain deletes the follower.
        if is_follower(pod, snapshot.settings):
            continue
        if eviction.is_evictable(pod, snapshot.now) and (
            why := eviction.eviction_refusal(pod, snapshot.pod_disruption_budgets)
        ):
            return why
    return ""


def node_protection(node: Node) -> str:
    """Why the node's own annotation forbids its disruption; "" = it does not."""
    if node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return "disruption is blocked through the karpenter.sh/do-not-disrupt annotation"
    return ""


def pod_protection(pods: Iterable[Pod], now: datetime) -> str:
    """Why an annotation of a pod of the node forbids its disruption; "" = none does."""
    for pod in pods:
        if pod.is_active and eviction.is_do_not_disrupt_active(pod, now):
            return f"pod has the karpenter.sh/do-not-disrupt annotation (Pod={pod.key})"
    return ""


def nominated_until(claim: NodeClaim) -> datetime:
    """When NOMINATION_WINDOW of its node ends; EARLIEST_TIME = it has not begun, or nobody says when."""
    initialized = find_condition(claim.conditions, "Initialized")
    if initialized is None or initialized.status != "True" or initialized.last_transition_time is None:
        return EARLIEST_TIME
    return initialized.last_transition_time + NOMINATION_WINDOW


def annotation_events(snapshot: Snapshot) -> tuple[BlockedEvent, ...]:
    """What the annotations do-not-disrupt mean of pods on nodes that NodeClaims own, but for ``true``; of a
    controller's pods with an invalid value, whose template is to be corrected, the first one is told.

    Source: Karpenter v1.14 ``pkg/utils/pod``, which ignores what is neither ``true`` nor a duration, and tells of a
    duration that has ended as long as the pod runs. Here that is told in the first minutes: later it is no news.
    """
    nodes = {claim.node_name for claim in snapshot.nodeclaims if claim.is_managed} - {""}
    annotated = [
        pod
        for pod in snapshot.pods
        if labels.DO_NOT_DISRUPT in pod.metadata.annotations and pod.is_active and pod.node_name in nodes
    ]
    told: dict[tuple[str, str], BlockedEvent] = {}
    for pod in sorted(annotated, key=lambda found: found.key):
        invalid = eviction.invalid_do_not_disrupt(pod)
        owner = next((owner.uid for owner in pod.metadata.owner_references if owner.uid), "") if invalid else ""
        event = _annotation_event(pod, invalid, snapshot.now)
        if event is not None:
            told.setdefault((owner or pod.key, invalid), BlockedEvent("pods", pod.metadata, event))
    return tuple(told.values())


def _annotation_event(pod: Pod, invalid: str, now: datetime) -> Event | None:
    if invalid:
        return events.INVALID_DO_NOT_DISRUPT_ANNOTATION(value=invalid[:_SHOWN_CHARACTERS])
    until = eviction.do_not_disrupt_until(pod)
    if until is None:
        return None
    if now < until:
        return events.DO_NOT_DISRUPT_UNTIL(until=format_time(until))
    elapsed = events.DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED
    return elapsed() if now - until < elapsed.repeat_after else None


def blocked_events(snapshot: Snapshot, plan: Plan, *, locked: frozenset[str], reason: str) -> tuple[BlockedEvent, ...]:
    """Events on claims and nodes that may not be disrupted, and on pools whose budgets allow none for ``reason``.

    Claims that a command holds (``locked``) or that are being deleted have no event.
    """
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes, pods = nodes_by_provider_id(snapshot.nodes), pods_by_node(snapshot.pods)
    named = {node.name: node for node in snapshot.nodes}
    nominated = frozenset(node.name for node in plan.existing_nodes)
    buffered = frozenset(node.name for node in plan.buffer_assignments)
    blocked: list[BlockedEvent] = []
    for claim in sorted(snapshot.nodeclaims, key=lambda nodeclaim: nodeclaim.name):
        node, pool = nodes.get(claim.provider_id), pools.get(claim.nodepool)
        if not claim.is_managed or claim.name in locked or claim.metadata.deletion_timestamp is not None:
            continue
        if node is None:
            shared = named.get(claim.node_name)
            if shared is not None and shared.provider_id == claim.provider_id:
                reason = SHARED_INSTANCE[0].upper() + SHARED_INSTANCE[1:]
                blocked += claim_and_node_events(claim, shared, events.DISRUPTION_BLOCKED(reason=reason))
            continue
        why = blocking_reason(claim, node, pods.get(node.name, []), pool, snapshot, nominated)
        if why:
            blocked += claim_and_node_events(claim, node, events.DISRUPTION_BLOCKED(reason=why[0].upper() + why[1:]))
        elif node.name in buffered and all(map(eviction.is_owned_by_daemonset, pods.get(node.name, []))):
            blocked += claim_and_node_events(
                claim, node, events.DISRUPTION_BLOCKED(reason=f"Node {node.name} has buffer pods")
            )
        elif pool is not None and pool.consolidate_after_seconds is None:
            blocked += claim_and_node_events(claim, node, events.UNCONSOLIDATABLE(nodepool=pool.name))
    return (*blocked, *_exhausted_budget_events(snapshot, reason))


def _exhausted_budget_events(snapshot: Snapshot, reason: str) -> Iterable[BlockedEvent]:
    for pool in snapshot.nodepools:
        initialized = sum(
            1 for claim in snapshot.nodeclaims if claim.nodepool == pool.name and claim.is_condition_true("Initialized")
        )
        if initialized and budgets.allowed_disruptions(pool, reason, initialized, snapshot.now) == 0:
            yield BlockedEvent("nodepools", pool.metadata, events.BLOCKED_BY_BUDGET(reason=reason))


def claim_and_node_events(claim: NodeClaim, node: Node, event: Event) -> tuple[BlockedEvent, BlockedEvent]:
    return BlockedEvent("nodeclaims", claim.metadata, event), BlockedEvent("nodes", node.metadata, event)


def nodes_by_provider_id(nodes: Iterable[Node]) -> dict[str, Node]:
    """Without those that share their instance: which of them has the pods, or the instance, is not known.

    As in Karpenter, where several Nodes of an instance count as none.
    """
    known = [node for node in nodes if node.provider_id]
    shared = Counter(node.provider_id for node in known)
    return {node.provider_id: node for node in known if shared[node.provider_id] == 1}


def pods_by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.is_terminal:
            by_node.setdefault(pod.node_name, []).append(pod)
    return by_node
