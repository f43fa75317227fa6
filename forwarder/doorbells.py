"""Which change of an object rings which doorbell. The functions decide whether anything is to be done."""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from forwarder.views import NodeClaimView, NodeClassView, NodePoolView, NodeView, PodView, View
from spotwright.model import labels


class QueuedDoorbell(msgspec.Struct, frozen=True, order=True):
    """A doorbell of this cluster, with its queue."""

    queue: str
    kind: str
    key: str = ""


PODS = QueuedDoorbell("provision", "pods")
NODEPOOLS = QueuedDoorbell("lifecycle", "nodepools")


def doorbells_for_change(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    """Doorbells for an object that was created (``before`` None), changed, or deleted (``after`` None).

    Without the doorbell for a pod that came to or left a node: see ``pod_event_node``.
    """
    view = after or before
    match view:
        case PodView():
            return frozenset({PODS}) if _starts_waiting(before, after) else frozenset()
        case NodeView():
            return _node(before, after)
        case NodeClaimView():
            return _claim(before, after)
        case NodePoolView():
            return _pool(before, after)
        case NodeClassView():
            return _class(before, after)
        case None:
            return frozenset()
        case _:
            assert_never(view)


def pod_event_node(before: View | None, after: View | None) -> str:
    """The node to which a pod was bound, or on which it was terminated or deleted; "" = none.

    DaemonSet pods do not count: a node that runs nothing else is empty.
    """
    view = after or before
    if not isinstance(view, PodView) or view.of_daemonset or not view.node:
        return ""
    was, now = _pod_stage(before), _pod_stage(after)
    return view.node if was != now else ""


def is_claimed(node: NodeView) -> bool:
    """Whether the node belongs to a NodeClaim of a pool."""
    return labels.NODEPOOL in node.labels


def _pod_stage(view: View | None) -> tuple[bool, bool, bool]:
    """Whether a pod is bound, being deleted, terminated; all False for a pod that does not exist."""
    if not isinstance(view, PodView):
        return (False, False, False)
    return (bool(view.node), view.deleting, view.terminal)


def _starts_waiting(before: View | None, after: View | None) -> bool:
    was = isinstance(before, PodView) and before.unschedulable
    return isinstance(after, PodView) and after.unschedulable and not was


def _node(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    """Any change of a node's view: readiness, taints, labels, resources, deletion."""
    view = after or before
    assert isinstance(view, NodeView)
    return frozenset({QueuedDoorbell("lifecycle", "node", view.name)}) if before != after else frozenset()


def _claim(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    view = after or before
    assert isinstance(view, NodeClaimView)
    created_by_user = before is None and not view.of_decision
    deleted = after is None or (view.deleting and not (isinstance(before, NodeClaimView) and before.deleting))
    return frozenset({QueuedDoorbell("lifecycle", "claim", view.name)}) if created_by_user or deleted else frozenset()


def _pool(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    if before == after:
        return frozenset()
    # A pool that became ready or was changed may have a place for pods that had none.
    return frozenset({NODEPOOLS, PODS}) if after is not None else frozenset({NODEPOOLS})


def _class(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    """A change of the spec is for catalog; NodePools and pods wait for a change of Ready."""
    if before == after:
        return frozenset()
    view = after or before
    assert isinstance(view, NodeClassView)
    if isinstance(before, NodeClassView) and isinstance(after, NodeClassView) and _same_spec(before, after):
        return frozenset({NODEPOOLS, PODS})
    return frozenset({QueuedDoorbell("catalog", "nodeclasses", view.name), NODEPOOLS})


def _same_spec(before: NodeClassView, after: NodeClassView) -> bool:
    return msgspec.structs.replace(before, ready=after.ready) == after


def doorbells_at_start(views_by_kind: Mapping[str, Mapping[str, View]]) -> frozenset[QueuedDoorbell]:
    """Doorbells for the objects that exist when the forwarder starts, whose changes it may have missed.

    Bound pods ring nothing: each restart would restart every consolidateAfter.
    """
    doorbells: set[QueuedDoorbell] = set()
    for views in views_by_kind.values():
        for view in views.values():
            match view:
                case NodeView() if not view.ready or view.deleting or view.taints:
                    doorbells.add(QueuedDoorbell("lifecycle", "node", view.name))
                case NodeClaimView() if view.deleting or not view.node:
                    doorbells.add(QueuedDoorbell("lifecycle", "claim", view.name))
                case PodView() if view.unschedulable:
                    doorbells.add(PODS)
                case NodePoolView():
                    doorbells.add(NODEPOOLS)
                case NodeClassView():
                    doorbells.add(QueuedDoorbell("catalog", "nodeclasses", view.name))
                case _:
                    pass
    return frozenset(doorbells)
