"""Nominations: a pod's ``status.nominatedNodeName`` tells kube-scheduler which node it was planned for.

kube-scheduler clears a nomination whenever it tries the pod while the node does not admit it. So a registered node
keeps the taint spotwright.dev/held until it is Ready; then its pods are nominated, the taint is removed, and pods whose
nomination was cleared in between are nominated again. Where the state table or the API fails, the taint is removed.

Where all pods that wait are alike, any node may take any of them: no node is held, and only pods for which none has
come a moment after the node is initialized are nominated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decision import Decision
from spotwright.errors import ApiError, Conflict
from spotwright.lifecycle.initialization import initialize
from spotwright.lifecycle.registration import NodeUpdate
from spotwright.model import labels, resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import is_reschedulable
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_context, log_line
from spotwright.workflows.lifecycle.actions import log, request_planning
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning import nominated_pods
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NominationRow, epoch_ms

HELD_TAINT: Final = Taint(labels.HELD, TaintEffect.NO_SCHEDULE)
# Three times kube-scheduler's longest backoff of 10 s.
BINDING_TIMEOUT: Final = timedelta(seconds=30)
# When unbound nominated pods are looked at first, later after as long as the node has been initialized, and until when.
LOOK_SECONDS: Final = 3.0
WATCH_PERIOD: Final = timedelta(minutes=2)


def nominations_of(ports: LifecyclePorts, decision: Decision) -> tuple[NominationRow, ...]:
    """The nomination rows of a decision, which are stored before it counts as acted on."""
    return tuple(nominated_pods.nominations_of(decision)) if nominated_pods.is_enabled(ports.settings) else ()


def with_held_taint(ports: LifecyclePorts, claim: NodeClaim, adoption: NodeUpdate, now: datetime) -> NodeUpdate:
    """The update of a node that admits no pods yet, with the held taint in place of the unregistered taint.

    Not where the claim has startupTaints: a pod that removes them may tolerate no other taint.
    """
    closed = any(taint.key == labels.UNREGISTERED for taint in adoption.node.taints)
    if not closed or claim.startup_taints or HELD_TAINT in adoption.taints or _are_pods_alike(ports, claim):
        return adoption
    if _open(ports, claim, now) is None:
        return adoption
    return msgspec.structs.replace(adoption, taints=(*adoption.taints, HELD_TAINT))


def may_pods_come_first(ports: LifecyclePorts, claim: NodeClaim, adoption: NodeUpdate) -> bool:
    """Whether pods that wait are bound to the node as soon as it is adopted, before it is initialized."""
    return HELD_TAINT not in adoption.taints and _are_pods_alike(ports, claim) and not have_ended(ports, claim)


def release_node(
    ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime
) -> tuple[Node | None, NominationRow | None]:
    """Nominate the pods of a held node and remove the taint once it is Ready; the node and the nomination as they are
    afterwards, None = it was not needed.

    Initialized is not waited for: a missing resource may be registered by a device plugin, which is a pod. A node that
    is initialized without the taint is labeled by the same write.
    """
    if node is None or HELD_TAINT not in node.taints or not node.is_open:
        return node, None
    complete = all(node.allocatable.get(name) for name, size in claim.requests.items() if size > 0)
    row = _open(ports, claim, now) if complete else None
    if row is not None:
        row = _nominate(ports, claim, node, row, now)
    taints = tuple(taint for taint in node.taints if taint != HELD_TAINT)
    is_initialized = initialize(claim, msgspec.structs.replace(node, taints=taints)).log is not None
    metadata = {"labels": {labels.INITIALIZED: "true"}} if is_initialized else {}
    released = ports.cluster.set_taints(node, taints, metadata=metadata)
    if row is not None:
        row = _nominate(ports, claim, node, row, now, again=True)
    return released, row


def await_binding(
    ports: LifecyclePorts,
    claim: NodeClaim,
    node: Node | None,
    pods: Sequence[Pod] | None,
    now: datetime,
    row: NominationRow | None = None,
) -> float | None:
    """Follow the nominated pods of an initialized claim; seconds until the next look, None = the nomination ended.

    ``pods``: those of the node; None = what came to it since it was released is looked at next time. ``row``: the
    nomination as it was written a moment ago.
    """
    initialized = find_condition(claim.conditions, "Initialized")
    since = initialized.last_transition_time if initialized is not None else None
    node, released = release_node(ports, claim, node, now)
    if node is None or (since is not None and now - since > WATCH_PERIOD):
        return None
    row = released or row or _read(ports, claim)
    if row is None:
        return None
    if row.due <= epoch_ms(now):
        expire_nomination(ports, claim.name, now)
        return None
    # A pod that comes to the node rings.
    age = (now - since).total_seconds() if since is not None else 0
    next_look = min(max(LOOK_SECONDS, age), (row.due - epoch_ms(now)) / 1000)
    if not row.node and _are_pods_alike(ports, claim):
        come = sum(1 for pod in pods or () if is_reschedulable(pod))
        places = max(0, len(row.pods) - come)
        # Those that came had been able to before the node was initialized, and so had the others.
        age = _seconds_open(claim, node, now) if come else age
        if places and age < LOOK_SECONDS:
            return next_look
        found = _present(ports, _missing(row, pods or ()))
        unbound = [pod for pod in found if not pod.node_name]
        if not unbound:
            gone = len(_missing(row, (*(pods or ()), *found)))
            _close(ports, row, "done", len(row.pods) - min(gone, places), now)
            return None
        if age < LOOK_SECONDS:
            return next_look
        if len(unbound) > places:
            return _nominate_some(ports, claim, node, row, unbound, places, now)
    if row.node != node.name:
        _nominate(ports, claim, node, row, now)
        return LOOK_SECONDS
    if pods is None:
        return next_look
    missing = _missing(row, pods)
    waiting = ports.cluster.nominate(node.name, missing, again=True) if missing else frozenset()
    displaced = _displaced(ports, node, pods, waiting)
    if displaced:
        ports.cluster.clear_nominations(node.name, {key: uid for key, uid in missing.items() if key in displaced})
    if not waiting - displaced:
        _close(ports, row, "failed" if missing else "done", len(row.pods) - len(missing), now)
    elif displaced:
        left = {key: uid for key, uid in row.pods.items() if key not in displaced}
        ports.state.save(msgspec.structs.replace(row, pods=left))
    if displaced:
        _plan_displaced(ports, claim, node, len(displaced))
    return next_look if waiting - displaced else None


def _seconds_open(claim: NodeClaim, node: Node, now: datetime) -> float:
    """For how long pods may have come to the node: since it has been Ready and registered."""
    found = (find_condition(node.conditions, "Ready"), find_condition(claim.conditions, "Registered"))
    times = [condition.last_transition_time for condition in found if condition is not None]
    return min(((now - time).total_seconds() for time in times if time is not None), default=0)


def _displaced(ports: LifecyclePorts, node: Node, pods: Iterable[Pod], waiting: Collection[str]) -> frozenset[str]:
    """Of pods that wait for the node, by key, those for which it has no room any more, however long they wait.

    kube-scheduler learns of nodes and of nominations by two watches: a pod that was planned for another node may have
    got the place. ``pods``: those of the node; one that stops, after a preemption for example, leaves its place.
    kube-scheduler looks at what a pod requests alone, however much the node lacks of anything else; and it counts pods
    that are nominated for a node as if they were there, so that of two for which there is no room together it binds
    neither.
    """
    if not waiting:
        return frozenset()
    staying = (pod.requests for pod in pods if not pod.is_terminal and pod.metadata.deletion_timestamp is None)
    room = resources.subtract(node.allocatable, resources.add(*staying))
    found = in_parallel(lambda key: ports.cluster.pod(*key.split("/", 1)), sorted(waiting))
    displaced = set()
    for pod in sorted((pod for pod in found if pod is not None), key=lambda pod: -pod.priority):
        if all(size <= room.get(name, 0) for name, size in pod.requests.items() if size > 0):
            room = resources.subtract(room, pod.requests)
        else:
            displaced.add(pod.key)
    return frozenset(displaced)


def _nominate_some(
    ports: LifecyclePorts,
    claim: NodeClaim,
    node: Node,
    row: NominationRow,
    waiting: Sequence[Pod],
    places: int,
    now: datetime,
) -> float | None:
    """Nominate as many pods of those that wait as the node has ``places`` left, as ``await_binding``. Others have taken
    those of the rest, which are planned again: most are alike, and leave their own places to these.
    """
    left = {pod.key: pod.metadata.uid for pod in waiting[:places]}
    if left:
        _nominate(ports, claim, node, msgspec.structs.replace(row, pods=left), now)
    else:
        _close(ports, row, "failed", len(row.pods) - len(waiting), now)
    _plan_displaced(ports, claim, node, len(waiting) - len(left))
    return LOOK_SECONDS if left else None


def _plan_displaced(ports: LifecyclePorts, claim: NodeClaim, node: Node, pods: int) -> None:
    """Not before the row is written: the next plan counts its pods on the node."""
    request_planning(ports)
    log_line(log, log_lines.PODS_DISPLACED, nodeclaim=claim.name, node=node.name, pods=pods)


def _present(ports: LifecyclePorts, pods: Mapping[str, str]) -> list[Pod]:
    """Those of ``pods`` (key → uid) that exist."""
    found = in_parallel(lambda key: ports.cluster.pod(*key.split("/", 1)), sorted(pods))
    return [pod for pod in found if pod is not None and pod.metadata.uid == pods[pod.key]]


def have_ended(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether no pod is awaited on the claim's node any more."""
    return _read(ports, claim) is None


def expire_nomination(ports: LifecyclePorts, claim: str, now: datetime) -> bool:
    """End an overdue nomination: clear it on its pods, and plan those that are not bound again. True if it
    ended now.
    """
    row = ports.state.nomination(claim)
    if row is None or row.phase in ("done", "failed") or row.due > epoch_ms(now):
        return False
    missing = _missing(row, ports.cluster.pods(node=row.node)) if row.node else row.pods
    if row.node and missing:
        ports.cluster.clear_nominations(row.node, missing)
    _close(ports, row, "failed" if missing else "done", len(row.pods) - len(missing), now)
    if missing:
        request_planning(ports)
    return True


def _are_pods_alike(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Whether any node may take any pod that waits; False also when the state table does not answer."""
    try:
        return ports.state.pods_alike()
    except ApiError as failure:
        log_line(log, log_lines.FAILED_NOMINATING_PODS, nodeclaim=claim.name, code=failure.code, error=str(failure))
        return False


def _nominate(
    ports: LifecyclePorts, claim: NodeClaim, node: Node, row: NominationRow, now: datetime, *, again: bool = False
) -> NominationRow:
    """The row afterwards. It is written first, so that a nomination of a pod is known to be Spotwright's."""
    try:
        if row.node != node.name:
            if row.node:
                # Another Node stated the provider id of the claim until this one joined.
                ports.cluster.clear_nominations(row.node, row.pods)
            row = _mark_nominated(ports, claim, node, row, now)
        ports.cluster.nominate(node.name, row.pods, again=again)
    except ApiError as failure:
        log_line(log, log_lines.FAILED_NOMINATING_PODS, nodeclaim=claim.name, code=failure.code, error=str(failure))
    return row


def _mark_nominated(
    ports: LifecyclePorts, claim: NodeClaim, node: Node, row: NominationRow, now: datetime
) -> NominationRow:
    """The row as it was written here, or by another worker, which may have ended before it nominated anything."""
    due = epoch_ms(now + BINDING_TIMEOUT)
    try:
        row = ports.state.save(msgspec.structs.replace(row, phase="nominated", node=node.name, due=due))
    except Conflict:
        current = _open(ports, claim, now)
        if current is None or current.node != node.name:
            raise
        return current
    log_line(log, log_lines.NOMINATED_PODS, nodeclaim=claim.name, node=node.name, pods=len(row.pods))
    return row


def _open(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> NominationRow | None:
    """The claim's nomination until it is overdue."""
    row = _read(ports, claim)
    return row if row is not None and epoch_ms(now) < row.due else None


def _read(ports: LifecyclePorts, claim: NodeClaim) -> NominationRow | None:
    """The claim's nomination until it ended; None also when the state table does not answer."""
    try:
        row = ports.state.nomination(claim.name)
    except ApiError as failure:
        log_line(log, log_lines.FAILED_NOMINATING_PODS, nodeclaim=claim.name, code=failure.code, error=str(failure))
        return None
    if row is None or row.phase in ("done", "failed") or not row.pods:
        return None
    return row if nominated_pods.is_for_claim(row, claim) else None


def _missing(row: NominationRow, bound: Iterable[Pod]) -> dict[str, str]:
    """Pods of a nomination that are not bound to its node, key → uid."""
    there = {(pod.key, pod.metadata.uid) for pod in bound}
    return {key: uid for key, uid in row.pods.items() if (key, uid) not in there}


def _close(ports: LifecyclePorts, row: NominationRow, phase: str, bound: int, now: datetime) -> None:
    """End the nomination of pending pods; pods that still have to move keep their room."""
    ends = nominated_pods.expiry_ms(row.created)
    if row.moving_pods and epoch_ms(now) < ends:
        after = msgspec.structs.replace(row, pods={}, node="", phase="promised", due=ends)
    else:
        # Every plan passes over the nominations of the last day: what is history needs no pods.
        after = msgspec.structs.replace(row, phase=phase, due=0, pods={}, moving_pods={})
    ports.state.save(after)
    if row.pods:
        with log_context(launch=row.launch):
            log_line(log, log_lines.NOMINATION_ENDED, nodeclaim=row.claim, planned=len(row.pods), bound=bound)
