"""Roll-outs: how a NodePool's drifted nodes are replaced in safe steps. The first new node is the canary.

While no new node of a NodePool has proved itself, a single node is replaced; then budgets alone count. A new node has
proved itself when it is Initialized and enough of its pods are Ready. A roll-out stops when a replacement is not
Initialized in time, or pods on new nodes do not become Ready. It goes on by itself: when a new node proves itself
after all, when NodePool or EC2NodeClass ask for something else, or with another canary after a while.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.decisions.decision import DRIFTED, derived_id
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import ObjectMeta, find_condition
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot

# The condition of a NodePool that says how far its roll-out is.
CONDITION: Final = "DriftProgressing"
# Of the annotation spotwright.dev/drift-rollout.
CANARY: Final = "Canary"
OFF: Final = "Off"
VALUES: Final = (CANARY, OFF)
# So long a new node may wait for its pods, and so long a pod may take to become Ready on it.
READY_WITHIN: Final = timedelta(minutes=5)
# A new node to which no pods are on their way is waited for so long: those of the old one may be made anew just now.
PODS_ARRIVE_WITHIN: Final = timedelta(seconds=30)
# A replacement must be Initialized within this time, or the disruption is aborted (Karpenter's ten minutes).
REPLACEMENT_TIMEOUT: Final = timedelta(minutes=10)
# Of the share of pods that is Ready on nodes that have not been replaced, so much is enough on a new one.
ENOUGH_READY: Final = Fraction(1, 2)
# After a replacement that was not Initialized in time: twice as long after each further one.
RETRY_AFTER: Final = timedelta(minutes=15)
LONGEST_RETRY: Final = timedelta(hours=4)
# Commands of so long ago are known.
REMEMBERED: Final = timedelta(hours=24)


class Attempt(msgspec.Struct, frozen=True):
    """A command that replaced a drifted node, or tried to. ``rollout``: see ``rollout_key``.

    ``nodes``: how many it has replaced. ``failed_at``: when it was given up because a replacement was not Initialized
    in time, None = it was not; ``replacement``: the name of that NodeClaim.
    """

    rollout: str
    nodes: int = 0
    failed_at: datetime | None = None
    replacement: str = ""


class Phase(StrEnum):
    """The reasons of the condition."""

    CANARY = "CanaryNeeded"
    WAITING = "CanaryInProgress"
    REPLACING = "ReplacingNodes"
    NOT_INITIALIZED = "ReplacementNotInitialized"
    PODS_NOT_READY = "PodsNotReady"
    PAUSED = "DisruptionPaused"


STOPPED: Final = (Phase.NOT_INITIALIZED, Phase.PODS_NOT_READY)
COMPLETE: Final = "RolloutComplete"


class Rollout(msgspec.Struct, frozen=True):
    """How far a NodePool is. ``message``: all of it, for a user."""

    phase: Phase
    message: str

    @property
    def is_stopped(self) -> bool:
        """Whether it needs a look: a replacement failed, or its pods are not Ready."""
        return self.phase in STOPPED

    @property
    def goes_on(self) -> bool:
        return self.phase not in (*STOPPED, Phase.PAUSED)


class _Nodes(msgspec.Struct, frozen=True):
    """The nodes of a NodePool. ``waiting``: drifted NodeClaims that no command holds; ``going``: that one holds.

    ``starting``: new NodeClaims that are not Initialized and may become it in time; ``joined``: those that are, each
    with its pods, and how many pods are still to come; ``ready``: the share of pods that is Ready on the other nodes.
    """

    waiting: tuple[NodeClaim, ...]
    going: tuple[NodeClaim, ...]
    starting: tuple[NodeClaim, ...]
    joined: tuple[tuple[NodeClaim, tuple[Pod, ...], int], ...]
    ready: Fraction


def find_rollouts(snapshot: Snapshot, attempts: Collection[Attempt], locked: frozenset[str]) -> dict[str, Rollout]:
    """The roll-outs of NodePools that have drifted nodes, by NodePool. ``locked``: NodeClaims that a command holds.

    A NodePool whose annotation spotwright.dev/drift-rollout is Off has none: budgets alone count.
    """
    classes = {nodeclass.name: nodeclass for nodeclass in snapshot.nodeclasses}
    running = _pods_by_node(snapshot)
    found = {}
    for pool in snapshot.nodepools:
        claims = _claims_of(pool, snapshot)
        since = _drifted_since(claims)
        if _is_off(pool) or since is None:
            continue
        nodeclass = classes.get(pool.node_class_ref.name)
        key = rollout_key(pool, nodeclass)
        nodes = _nodes(pool, nodeclass, claims, since, snapshot, running, locked)
        found[pool.name] = _judge(nodes, [attempt for attempt in attempts if attempt.rollout == key], snapshot.now)
    return found


def find_destinations(snapshot: Snapshot, found: Mapping[str, Rollout]) -> dict[str, Rollout]:
    """How far NodePools are whose new nodes may take the pods of other NodePools' drifted nodes, by NodePool.

    Those with a roll-out, and those whose EC2NodeClass drifted nodes of others have: what is new of it has to prove
    itself on their nodes as well. ``found``: the roll-outs.
    """
    classes = {nodeclass.name: nodeclass for nodeclass in snapshot.nodeclasses}
    running = _pods_by_node(snapshot)
    claims = {pool.name: _claims_of(pool, snapshot) for pool in snapshot.nodepools}
    of_class: dict[str, list[NodeClaim]] = {}
    for pool in snapshot.nodepools:
        of_class.setdefault(pool.node_class_ref.name, []).extend(claims[pool.name])
    destinations = {}
    for pool in snapshot.nodepools:
        since = _drifted_since(of_class[pool.node_class_ref.name])
        if _is_off(pool) or since is None:
            continue
        nodeclass = classes.get(pool.node_class_ref.name)
        nodes = _nodes(pool, nodeclass, claims[pool.name], since, snapshot, running, frozenset())
        rollout = found.get(pool.name)
        if rollout is None or rollout.phase == Phase.REPLACING:
            # Also where all of its own drifted nodes are on their way out.
            rollout = _judge_new_nodes(nodes, snapshot.now)
        if rollout.phase == Phase.CANARY and nodes.starting:
            rollout = Rollout(Phase.WAITING, "the canary is to become Initialized")
        destinations[pool.name] = rollout
    return destinations


def held(rollout: Rollout, why: str) -> Rollout:
    """The roll-out while nothing is disrupted by choice in the cluster. ``why``: that, in a sentence."""
    return Rollout(Phase.PAUSED, f"{rollout.message.partition('; ')[0]}; {why}")


def rollout_key(pool: NodePool, nodeclass: EC2NodeClass | None) -> str:
    """The NodePool's name and a digest of what its nodes should be: another one when any of that changes."""
    wanted: list[str] = [pool.metadata.annotations.get(labels.NODEPOOL_HASH, "")]
    wanted += sorted(msgspec.json.encode(requirement).decode() for requirement in pool.requirements)
    if nodeclass is not None:
        wanted.append(nodeclass.metadata.annotations.get(labels.EC2NODECLASS_HASH, ""))
        wanted += sorted(image.id for image in nodeclass.amis)
        wanted += sorted(group.id for group in nodeclass.security_groups)
        wanted += sorted(subnet.id for subnet in nodeclass.subnets)
    return f"{pool.name}/{derived_id(*wanted)}"


def _is_off(pool: NodePool) -> bool:
    return pool.metadata.annotations.get(labels.DRIFT_ROLLOUT) == OFF


def _claims_of(pool: NodePool, snapshot: Snapshot) -> list[NodeClaim]:
    return [claim for claim in snapshot.nodeclaims if claim.is_managed and claim.nodepool == pool.name]


def _is_drifted(claim: NodeClaim) -> bool:
    return claim.is_condition_true(DRIFTED)


def _drifted_since(claims: Iterable[NodeClaim]) -> datetime | None:
    """When the first of them drifted; None = none has."""
    return min((since_when(claim, DRIFTED) for claim in claims if _is_drifted(claim)), default=None)


def _nodes(
    pool: NodePool,
    nodeclass: EC2NodeClass | None,
    claims: Sequence[NodeClaim],
    since: datetime,
    snapshot: Snapshot,
    running: Mapping[str, Sequence[Pod]],
    locked: frozenset[str],
) -> _Nodes:
    drifted = [claim for claim in claims if _is_drifted(claim)]
    new = [claim for claim in claims if _is_new(claim, pool, nodeclass, since)]
    ready = nodes_of_claims(new, (node for node in snapshot.nodes if node.is_ready))
    names = {name: nodes[0].name for name, nodes in ready.items()}
    coming = Counter(pod.node_name for pod in snapshot.pods if pod.key in snapshot.moving_pods)
    joined = tuple(
        (claim, tuple(running.get(names[claim.name], ())), coming[names[claim.name]])
        for claim in new
        if claim.is_condition_true("Initialized") and claim.name in names
    )
    others = {claim.node_name for claim in claims} - {claim.node_name for claim in new}
    pods = [pod for node in others for pod in running.get(node, ())]
    return _Nodes(
        tuple(claim for claim in drifted if claim.metadata.deletion_timestamp is None and claim.name not in locked),
        tuple(claim for claim in drifted if claim.name in locked),
        tuple(claim for claim in new if _is_starting(claim, snapshot.now)),
        joined,
        Fraction(sum(pod.is_ready for pod in pods), len(pods)) if pods else Fraction(1),
    )


def _is_new(claim: NodeClaim, pool: NodePool, nodeclass: EC2NodeClass | None, since: datetime) -> bool:
    """Whether the NodeClaim was made for what is wanted now, after the first node had drifted from it.

    That the condition Drifted is missing proves nothing in the moments in which NodeClaims are compared.
    """
    created, images = claim.metadata.creation_timestamp, {image.id for image in nodeclass.amis} if nodeclass else set()
    return (
        claim.metadata.deletion_timestamp is None
        and not _is_drifted(claim)
        and created is not None
        and created >= since
        and _has_hash(claim, labels.NODEPOOL_HASH, pool.metadata)
        and (nodeclass is None or _has_hash(claim, labels.EC2NODECLASS_HASH, nodeclass.metadata))
        and (not claim.image_id or not images or claim.image_id in images)
    )


def _is_starting(claim: NodeClaim, now: datetime) -> bool:
    created = claim.metadata.creation_timestamp
    return not claim.is_condition_true("Initialized") and created is not None and now - created < REPLACEMENT_TIMEOUT


def _has_hash(claim: NodeClaim, key: str, wanted: ObjectMeta) -> bool:
    """A hash that is missing on either side shows no difference, as in Karpenter's drift."""
    own, other = claim.metadata.annotations.get(key), wanted.annotations.get(key)
    return own is None or other is None or own == other


def since_when(claim: NodeClaim, condition: str) -> datetime:
    found = find_condition(claim.conditions, condition)
    since = found.last_transition_time if found is not None else None
    return since or datetime.min.replace(tzinfo=UTC)


def _pods_by_node(snapshot: Snapshot) -> dict[str, list[Pod]]:
    """Pods that would move with their node, where they run now."""
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if eviction.is_reschedulable(pod):
            pods.setdefault(snapshot.moving_pods.get(pod.key, pod.node_name), []).append(pod)
    return pods


def _judge(nodes: _Nodes, attempts: Sequence[Attempt], now: datetime) -> Rollout:
    replaced = sum(attempt.nodes for attempt in attempts)
    if not (nodes.waiting or nodes.going):
        return Rollout(Phase.REPLACING, f"all {replaced} nodes replaced; the last ones are being drained")
    progress = f"{replaced} of {replaced + len(nodes.waiting) + len(nodes.going)} nodes replaced"
    if why := _unready_pods(nodes, now):
        return Rollout(Phase.PODS_NOT_READY, f"{progress}; {why}")
    proven = _proven(nodes, now)
    proven_at = max((since_when(claim, "Initialized") for claim in proven), default=datetime.min.replace(tzinfo=UTC))
    failed = sorted(
        ((attempt.failed_at, attempt.replacement) for attempt in attempts if attempt.failed_at is not None),
    )
    failed = [(at, name) for at, name in failed if at > proven_at]
    if failed:
        at, name = failed[-1]
        retry = at + min(RETRY_AFTER * 2 ** min(len(failed) - 1, 10), LONGEST_RETRY)
        if now < retry:
            return Rollout(Phase.NOT_INITIALIZED, f"{progress}; {_not_initialized(name, retry)}")
    elif proven:
        zones = sorted({claim.metadata.labels.get(labels.ZONE, "") for claim in nodes.waiting} - {""})
        return Rollout(Phase.REPLACING, f"{progress}; zone {zones[0]} next" if zones else progress)
    if nodes.going or (nodes.joined and not failed):
        return Rollout(Phase.WAITING, f"{progress}; {_awaited(nodes)}")
    return Rollout(Phase.CANARY, f"{progress}; a single node goes first, as the canary")


def _judge_new_nodes(nodes: _Nodes, now: datetime) -> Rollout:
    """How far a NodePool is by its new nodes alone."""
    if why := _unready_pods(nodes, now):
        return Rollout(Phase.PODS_NOT_READY, why)
    if _proven(nodes, now):
        return Rollout(Phase.REPLACING, "its new nodes have proved themselves")
    if nodes.joined:
        return Rollout(Phase.WAITING, _awaited(nodes))
    return Rollout(Phase.CANARY, "a single node goes first, as the canary")


def _unready_pods(nodes: _Nodes, now: datetime) -> str:
    """Which pods on a new node are not Ready in time; "" = enough of them are, on each."""
    for claim, pods, _ in nodes.joined:
        late = [pod for pod in pods if _is_late(pod, now)]
        if late and Fraction(len(pods) - len(late), len(pods)) < nodes.ready * ENOUGH_READY:
            return _not_ready(claim, len(pods), late)
    return ""


def _proven(nodes: _Nodes, now: datetime) -> list[NodeClaim]:
    return [claim for claim, pods, coming in nodes.joined if _is_proven(claim, pods, coming, nodes.ready, now)]


def _awaited(nodes: _Nodes) -> str:
    names = ", ".join(claim.name for claim, _, _ in nodes.joined)
    return f"canary {names}: its pods are to become Ready" if names else "the canary is to become Initialized"


def _is_late(pod: Pod, now: datetime) -> bool:
    since = pod.start_time or pod.metadata.creation_timestamp
    return not pod.is_ready and since is not None and now - since >= READY_WITHIN


def _is_proven(claim: NodeClaim, pods: Sequence[Pod], coming: int, ready: Fraction, now: datetime) -> bool:
    if pods:
        return Fraction(sum(pod.is_ready for pod in pods), len(pods)) >= ready * ENOUGH_READY
    return now - since_when(claim, "Initialized") >= (READY_WITHIN if coming else PODS_ARRIVE_WITHIN)


def _not_ready(claim: NodeClaim, count: int, late: Sequence[Pod]) -> str:
    return (
        f"stopped: {len(late)} of {count} pods on the new node {claim.node_name} are not Ready after"
        f" {READY_WITHIN.seconds // 60} minutes (pod {late[0].key}). It goes on when they are; look at the pods, and"
        " correct them, the NodePool or the EC2NodeClass"
    )


def _not_initialized(replacement: str, retry: datetime) -> str:
    return (
        f"stopped: the replacement {replacement} was not Initialized within 10 minutes. Look at that NodeClaim's"
        " conditions and its instance's console output, and correct the NodePool or the EC2NodeClass. Another canary"
        f" is tried at {retry.isoformat(timespec='seconds')}, or after `spotwright resume`"
    )
