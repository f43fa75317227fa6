"""Nominating: kube-scheduler learns which node each pod was planned for, at the moment at which it can use it.

kube-scheduler takes a nomination back whenever it tries the pod while the node does not admit it. So a registered node
stays held by a taint of ours until it is Ready; then its pods are nominated, the taint goes, and what was taken back
in between is nominated again. A nomination only helps: where the state store or the API fails, the node is let go.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decision import Decision
from spotwright.errors import ApiError
from spotwright.lifecycle.registration import NodeUpdate
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log, request_planning
from spotwright.workflows.planning import nominated_pods
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NominationRow, epoch_ms

HELD_TAINT: Final = Taint(labels.HELD, TaintEffect.NO_SCHEDULE)
# kube-scheduler tries a pod again within 10 s of a change (its longest backoff); three times that is overdue.
BINDING_TIMEOUT: Final = timedelta(seconds=30)
# How often pods that have not landed are looked at, and until how long after initialization a claim has such.
LOOK_SECONDS: Final = 3.0
WATCH_PERIOD: Final = timedelta(minutes=2)
# Taints that the control plane lifts by itself once the kubelet is Ready.
_CONTROL_PLANES: Final = (labels.NOT_READY, labels.UNREACHABLE, labels.UNINITIALIZED)


def create_nominations(ports: LifecyclePorts, decision: Decision) -> None:
    """Rows for the pods that a decision's claims are for; the decision counts as acted on only when all are there."""
    if nominated_pods.is_enabled(ports.settings):
        for row in nominated_pods.nominations_of(decision):
            ports.state.create(row)


def with_held_taint(ports: LifecyclePorts, claim: NodeClaim, adoption: NodeUpdate, now: datetime) -> NodeUpdate:
    """The adoption of a node that still keeps pods off, with our taint in the place of the unregistered one.

    Not where the claim has start-up taints: what lifts them may be a pod that tolerates those alone.
    """
    closed = any(taint.key == labels.UNREGISTERED for taint in adoption.node.taints)
    if not closed or claim.startup_taints or HELD_TAINT in adoption.taints or _open(ports, claim.name, now) is None:
        return adoption
    return msgspec.structs.replace(adoption, taints=(*adoption.taints, HELD_TAINT))


def release_node(ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime) -> Node | None:
    """Let a held node go as soon as it is Ready, its pods nominated; the node as it is afterwards.

    It does not wait for Initialized: a device plugin that registers what is missing may be a pod itself.
    """
    if node is None or HELD_TAINT not in node.taints:
        return node
    if not node.is_ready or any(taint.key in _CONTROL_PLANES for taint in node.taints):
        return node
    complete = all(node.allocatable.get(name) for name, size in claim.requests.items() if size > 0)
    if complete:
        _nominate(ports, claim, node, now)
    ports.cluster.set_taints(node, tuple(taint for taint in node.taints if taint != HELD_TAINT))
    if complete:
        _nominate(ports, claim, node, now)
    return ports.cluster.node(node.name)


def await_binding(ports: LifecyclePorts, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    """Look after the pods of an initialized claim; seconds until the next look, None when there is nothing to do."""
    initialized = find_condition(claim.conditions, "Initialized")
    since = initialized.last_transition_time if initialized is not None else None
    node = release_node(ports, claim, node, now)
    if node is None or (since is not None and now - since > WATCH_PERIOD):
        return None
    row = _read(ports, claim.name)
    if row is None:
        return None
    if row.due <= epoch_ms(now):
        expire_nomination(ports, claim.name, now)
        return None
    if row.phase == "promised":
        _nominate(ports, claim, node, now)
        return LOOK_SECONDS
    missing = _missing(ports, row)
    if missing and ports.cluster.nominate(node.name, missing):
        return LOOK_SECONDS
    _close(ports, row, "failed" if missing else "done", len(row.pods) - len(missing))
    return None


def expire_nomination(ports: LifecyclePorts, claim: str, now: datetime) -> None:
    """An overdue promise counts for nothing: its nominations are cleared, and pods that still wait planned anew."""
    row = ports.state.nomination(claim)
    if row is None or row.phase in ("done", "failed") or row.due > epoch_ms(now):
        return
    missing = _missing(ports, row) if row.node else row.pods
    if row.node and missing:
        ports.cluster.clear_nominations(row.node, missing)
    _close(ports, row, "failed" if missing else "done", len(row.pods) - len(missing))
    if missing:
        request_planning(ports)


def _nominate(ports: LifecyclePorts, claim: NodeClaim, node: Node, now: datetime) -> None:
    """The row first: whatever stands at pods afterwards is known to be ours."""
    row = _open(ports, claim.name, now)
    if row is None:
        return
    try:
        if row.phase == "promised":
            due = epoch_ms(now + BINDING_TIMEOUT)
            row = ports.state.save(msgspec.structs.replace(row, phase="nominated", node=node.name, due=due))
            log_line(log, log_lines.NOMINATED_PODS, nodeclaim=claim.name, node=node.name, pods=len(row.pods))
        ports.cluster.nominate(node.name, row.pods)
    except ApiError as failure:
        log_line(log, log_lines.FAILED_NOMINATING_PODS, nodeclaim=claim.name, code=failure.code, error=str(failure))


def _open(ports: LifecyclePorts, claim: str, now: datetime) -> NominationRow | None:
    """The claim's promise while it counts."""
    row = _read(ports, claim)
    return row if row is not None and epoch_ms(now) < row.due else None


def _read(ports: LifecyclePorts, claim: str) -> NominationRow | None:
    """The claim's promise until it is closed; None also when the state store does not answer."""
    try:
        row = ports.state.nomination(claim)
    except ApiError as failure:
        log_line(log, log_lines.FAILED_NOMINATING_PODS, nodeclaim=claim, code=failure.code, error=str(failure))
        return None
    return row if row is not None and row.phase not in ("done", "failed") else None


def _missing(ports: LifecyclePorts, row: NominationRow) -> dict[str, str]:
    """Pods of a nominated row that are not on its node, key → uid."""
    there = {(pod.key, pod.metadata.uid) for pod in ports.cluster.pods(node=row.node)}
    return {key: uid for key, uid in row.pods.items() if (key, uid) not in there}


def _close(ports: LifecyclePorts, row: NominationRow, phase: str, bound: int) -> None:
    ports.state.save(msgspec.structs.replace(row, phase=phase, due=0))
    log_line(log, log_lines.NOMINATION_ENDED, nodeclaim=row.claim, planned=len(row.pods), bound=bound)
