"""How a cluster is emptied, or left to Karpenter.

Both begin with a pause, so that the functions launch and disrupt nothing meanwhile.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from spotwright.errors import NotFound
from spotwright.model import labels
from spotwright.model.kubernetes.meta import format_time
from spotwright.workflows.ports.installation import DeadlinePort, Document, DocumentPort, PausePort

POLL_SECONDS = 3.0
# A launch that was decided before the pause may still create a claim: the cluster must stay empty for this long.
SETTLE_SECONDS = 12.0
_SYSTEM_NAMESPACE = "kube-system"
_CLAIM = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}


class UninstallResult(msgspec.Struct, frozen=True):
    """``remaining``: what was left at the deadline, one line for each object; empty = all done."""

    finished: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


def drain(
    objects: DocumentPort,
    pause: PausePort,
    deadline: DeadlinePort,
    report: Callable[[str], None],
    *,
    force_at: datetime | None = None,
) -> UninstallResult:
    """Delete every NodeClaim and wait until its instance is terminated. NodePools, classes and CRDs stay.

    All nodes are cordoned first, so that no pod moves to a node that will be deleted too. Nodes with add-ons are
    deleted last: pods that are stopping still need DNS. ``force_at``: from then on pods are deleted whatever their
    disruption budgets; None = budgets are respected, however long that takes.
    """
    pause.pause("spotwright uninstall --drain")
    report("provisioning and disruption are paused")
    names: set[str] = set()
    empty_seconds, progress = 0.0, ""
    while True:
        claims = objects.list(_CLAIM["apiVersion"], _CLAIM["kind"])
        names.update(_name(claim) for claim in claims)
        empty_seconds = 0.0 if claims else empty_seconds + POLL_SECONDS
        if empty_seconds >= SETTLE_SECONDS:
            return UninstallResult(finished=tuple(sorted(names)))
        _cordon(objects, claims)
        for claim in _next_to_go(claims, objects.list("v1", "Pod")):
            _delete(objects, claim, force_at)
        progress = _progress(claims, len(names), progress, report)
        if deadline.remaining_seconds() < POLL_SECONDS:
            left = objects.list(_CLAIM["apiVersion"], _CLAIM["kind"])
            deleted = names - {_name(claim) for claim in left}
            return UninstallResult(tuple(sorted(deleted)), tuple(_waits_for(claim) for claim in left))
        deadline.pause(POLL_SECONDS)


def hand_back(
    objects: DocumentPort,
    pause: PausePort,
    deadline: DeadlinePort,
    report: Callable[[str], None],
    *,
    parts: Sequence[Document],
) -> UninstallResult:
    """Delete Spotwright's Deployment and RBAC; nodes, NodeClaims, NodePools, classes and CRDs stay.

    Waits until every claim has its instance, which Karpenter would launch again, and until no node has the taint
    spotwright.dev/held, which Karpenter does not know.
    ``parts``: what was installed, in the order in which it was applied.
    """
    pause.pause("spotwright uninstall --hand-back")
    report("provisioning and disruption are paused")
    while True:
        claims = objects.list(_CLAIM["apiVersion"], _CLAIM["kind"])
        launching = sorted(_name(claim) for claim in claims if not (claim.get("status") or {}).get("providerID"))
        held_nodes = sorted(_name(node) for node in objects.list("v1", "Node") if _is_held(node))
        if not launching and not held_nodes:
            break
        if deadline.remaining_seconds() < POLL_SECONDS:
            without = (f"nodeclaim {name} has no instance yet" for name in launching)
            return UninstallResult(remaining=(*without, *(f"node {name} is not Ready yet" for name in held_nodes)))
        report(f"waiting for {', '.join((*launching, *held_nodes))}")
        deadline.pause(POLL_SECONDS)
    for part in reversed(parts):
        objects.delete(part)
        report(f"deleted {part['kind'].lower()} {part['metadata']['name']}")
    return UninstallResult(finished=tuple(sorted(_name(claim) for claim in claims)))


def _cordon(objects: DocumentPort, claims: Iterable[Document]) -> None:
    """Make the claims' nodes unschedulable."""
    names = {(claim.get("status") or {}).get("nodeName") for claim in claims} - {None, ""}
    for node in objects.list("v1", "Node") if names else ():
        if _name(node) in names and not (node.get("spec") or {}).get("unschedulable"):
            _merge(objects, {**node, "apiVersion": "v1", "kind": "Node"}, {"spec": {"unschedulable": True}})


def _next_to_go(claims: Sequence[Document], pods: Iterable[Document]) -> tuple[Document, ...]:
    """The claims to delete now, by name: first those of nodes without add-ons, then the others."""
    system_nodes = {
        pod["spec"].get("nodeName")
        for pod in pods
        if pod["metadata"]["namespace"] == _SYSTEM_NAMESPACE and not _of_daemon_set(pod)
    } - {None, ""}
    ordinary = [claim for claim in claims if (claim.get("status") or {}).get("nodeName") not in system_nodes]
    return tuple(sorted((claim for claim in ordinary or claims if not _is_deleting(claim)), key=_name))


def _delete(objects: DocumentPort, claim: Document, force_at: datetime | None) -> None:
    """Delete the claim by its uid. A termination time that it has already is not changed."""
    document = {**_CLAIM, "metadata": {"name": _name(claim), "uid": claim["metadata"]["uid"]}}
    annotations = claim["metadata"].get("annotations") or {}
    if force_at is not None and labels.TERMINATION_TIMESTAMP not in annotations:
        stamp = format_time(force_at)
        _merge(objects, document, {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: stamp}}})
    objects.delete(document)


def _merge(objects: DocumentPort, document: Document, change: Document) -> None:
    try:
        objects.merge(document, change)
    except NotFound:
        return


def _progress(claims: Sequence[Document], total: int, previous: str, report: Callable[[str], None]) -> str:
    """Report the progress when it has changed; returns it."""
    waiting = "; ".join(_waits_for(claim) for claim in sorted(claims, key=_name))
    line = f"{total - len(claims)} of {total} nodeclaims deleted" + (f"; {waiting}" if waiting else "")
    if line != previous:
        report(line)
    return line


def _waits_for(claim: Document) -> str:
    """The claim, and what its termination waits for, as its conditions say."""
    name = _name(claim)
    if not _is_deleting(claim):
        return f"{name}: not deleted yet"
    conditions = {condition["type"]: condition for condition in (claim.get("status") or {}).get("conditions") or ()}
    for kind in ("Drained", "VolumesDetached", "InstanceTerminating"):
        condition = conditions.get(kind, {})
        if condition and condition["status"] != "True":
            return f"{name}: {condition.get('message') or condition.get('reason') or kind}"
    return f"{name}: instance terminating"


def _is_held(node: Document) -> bool:
    return any(taint["key"] == labels.HELD for taint in (node.get("spec") or {}).get("taints") or ())


def _is_deleting(document: Document) -> bool:
    return "deletionTimestamp" in document["metadata"]


def _of_daemon_set(pod: Document) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])
