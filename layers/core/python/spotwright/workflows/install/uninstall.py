"""How a cluster is emptied, or left to Karpenter. Nothing else deletes a NodeClaim that nobody asked to delete.

Both begin with a pause: what the functions would launch or disrupt from now on would only be in the way.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from spotwright.errors import NotFound
from spotwright.model import labels
from spotwright.workflows.ports.installation import DeadlinePort, Document, DocumentPort, PausePort

POLL_SECONDS = 3.0
# A launch that was decided before the pause may still make a claim: empty is what stays empty this long.
SETTLE_SECONDS = 12.0
_SYSTEM_NAMESPACE = "kube-system"
_CLAIM = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}


class UninstallResult(msgspec.Struct, frozen=True):
    """``remaining``: what is still there when the patience ended, one line each; empty = all done."""

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
    """Delete every NodeClaim and wait until its instance is gone. NodePools, classes and definitions stay.

    All nodes are cordoned first, so that no pod moves from one doomed node to the next. Nodes that carry the
    cluster's own add-ons go last: pods that end still need DNS. ``force_at``: from then on pods are deleted without
    regard to budgets; None = budgets are obeyed, whatever that takes.
    """
    pause.pause("spotwright uninstall --drain")
    report("provisioning and disruption are paused")
    seen: set[str] = set()
    quiet, said = 0.0, ""
    while True:
        claims = objects.list(_CLAIM["apiVersion"], _CLAIM["kind"])
        seen.update(_name(one) for one in claims)
        quiet = 0.0 if claims else quiet + POLL_SECONDS
        if quiet >= SETTLE_SECONDS:
            return UninstallResult(finished=tuple(sorted(seen)))
        _cordon(objects, claims)
        for claim in _next_to_go(claims, objects.list("v1", "Pod")):
            _delete(objects, claim, force_at)
        said = _progress(claims, len(seen), said, report)
        if deadline.remaining_seconds() < POLL_SECONDS:
            gone = seen - {_name(one) for one in claims}
            return UninstallResult(tuple(sorted(gone)), tuple(_waits_for(one) for one in claims))
        deadline.pause(POLL_SECONDS)


def hand_back(
    objects: DocumentPort,
    pause: PausePort,
    deadline: DeadlinePort,
    report: Callable[[str], None],
    *,
    parts: Sequence[Document],
) -> UninstallResult:
    """Take Spotwright's Deployment and rights away and leave nodes, claims, pools, classes and definitions.

    Waits until every claim has its instance, which whoever comes next would launch again, and no node is held by a
    taint that nobody else knows.
    ``parts``: what was installed, in the order in which it was applied.
    """
    pause.pause("spotwright uninstall --hand-back")
    report("provisioning and disruption are paused")
    while True:
        claims = objects.list(_CLAIM["apiVersion"], _CLAIM["kind"])
        launching = sorted(_name(claim) for claim in claims if not (claim.get("status") or {}).get("providerID"))
        held = sorted(_name(one) for one in objects.list("v1", "Node") if _is_held(one))
        if not launching and not held:
            break
        if deadline.remaining_seconds() < POLL_SECONDS:
            without = (f"nodeclaim {name} has no instance yet" for name in launching)
            return UninstallResult(remaining=(*without, *(f"node {name} is not Ready yet" for name in held)))
        report(f"waiting for {', '.join((*launching, *held))}")
        deadline.pause(POLL_SECONDS)
    for part in reversed(parts):
        objects.delete(part)
        report(f"deleted {part['kind'].lower()} {part['metadata']['name']}")
    return UninstallResult(finished=tuple(sorted(_name(claim) for claim in claims)))


def _cordon(objects: DocumentPort, claims: Iterable[Document]) -> None:
    """Let no pod onto the nodes of claims any more."""
    names = {(claim.get("status") or {}).get("nodeName") for claim in claims} - {None, ""}
    for node in objects.list("v1", "Node") if names else ():
        if _name(node) in names and not (node.get("spec") or {}).get("unschedulable"):
            _merge(objects, {**node, "apiVersion": "v1", "kind": "Node"}, {"spec": {"unschedulable": True}})


def _next_to_go(claims: Sequence[Document], pods: Iterable[Document]) -> tuple[Document, ...]:
    """The claims to delete now: those without add-ons while there are any, then the others; by name."""
    of_system = {
        pod["spec"].get("nodeName")
        for pod in pods
        if pod["metadata"]["namespace"] == _SYSTEM_NAMESPACE and not _of_daemon_set(pod)
    } - {None, ""}
    ordinary = [claim for claim in claims if (claim.get("status") or {}).get("nodeName") not in of_system]
    return tuple(sorted((one for one in ordinary or claims if not _is_deleting(one)), key=_name))


def _delete(objects: DocumentPort, claim: Document, force_at: datetime | None) -> None:
    """Delete this very claim. A time to force that it has already is never moved."""
    document = {**_CLAIM, "metadata": {"name": _name(claim), "uid": claim["metadata"]["uid"]}}
    annotations = claim["metadata"].get("annotations") or {}
    if force_at is not None and labels.TERMINATION_TIMESTAMP not in annotations:
        stamp = force_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        _merge(objects, document, {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: stamp}}})
    objects.delete(document)


def _merge(objects: DocumentPort, document: Document, change: Document) -> None:
    try:
        objects.merge(document, change)
    except NotFound:
        return


def _progress(claims: Sequence[Document], total: int, said: str, tell: Callable[[str], None]) -> str:
    """Tell how far it is when that has changed; returns what was told last."""
    waiting = "; ".join(_waits_for(claim) for claim in sorted(claims, key=_name))
    line = f"{total - len(claims)} of {total} nodeclaims gone" + (f"; {waiting}" if waiting else "")
    if line != said:
        tell(line)
    return line


def _waits_for(claim: Document) -> str:
    """The claim, and what its end waits for, in its own conditions' words."""
    name = _name(claim)
    if not _is_deleting(claim):
        return f"{name}: not deleted yet"
    conditions = {one["type"]: one for one in (claim.get("status") or {}).get("conditions") or ()}
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
