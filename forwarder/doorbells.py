"""Which change rings which doorbell: pure, and never "should something be done?", only "who might want to look?"."""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from forwarder.views import NodeClaimView, NodeClassView, NodePoolView, NodeView, PodView, View
from spotwright.model import labels


class QueuedDoorbell(msgspec.Struct, frozen=True, order=True):
    """A doorbell of this cluster, and the queue it is for."""

    queue: str
    kind: str
    key: str = ""


PODS = QueuedDoorbell("provision", "pods")
NODEPOOLS = QueuedDoorbell("lifecycle", "nodepools")


def doorbells_for_change(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    """Bells for one object that came (``before`` None), changed, or went (``after`` None).

    The bell for a pod that came to or went from a node is not among them: see ``pod_event_node``.
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
    """The node that a pod was bound to, ended on, was told to leave or left; "" = none.

    DaemonSet pods do not count: a node that runs nothing else is empty.
    """
    view = after or before
    if not isinstance(view, PodView) or view.of_daemonset or not view.node:
        return ""
    was, now = _pod_stage(before), _pod_stage(after)
    return view.node if was != now else ""


def is_claimed(node: NodeView) -> bool:
    """Does the node belong to a NodeClaim of a pool?"""
    return labels.NODEPOOL in node.labels


def _pod_stage(view: View | None) -> tuple[bool, bool, bool]:
    """How far a pod's stay on its node has come: bound, told to go, ended. Gone counts as ended."""
    if not isinstance(view, PodView):
        return (False, False, False)
    return (bool(view.node), view.deleting, view.terminal)


def _starts_waiting(before: View | None, after: View | None) -> bool:
    was = isinstance(before, PodView) and before.unschedulable
    return isinstance(after, PodView) and after.unschedulable and not was


def _node(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    """Anything of a node's view that changed, metrics aside: readiness, taints, labels, resources, deletion."""
    view = after or before
    assert isinstance(view, NodeView)
    return frozenset({QueuedDoorbell("lifecycle", "node", view.name)}) if before != after else frozenset()


def _claim(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    view = after or before
    assert isinstance(view, NodeClaimView)
    made_by_others = before is None and not view.decided_by_us
    told_to_go = view.deleting and not (isinstance(before, NodeClaimView) and before.deleting)
    went = after is None
    return (
        frozenset({QueuedDoorbell("lifecycle", "claim", view.name)})
        if made_by_others or told_to_go or went
        else frozenset()
    )


def _pool(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    if before == after:
        return frozenset()
    # A pool that became ready or was changed may have a place for pods that had none.
    return frozenset({NODEPOOLS, PODS}) if after is not None else frozenset({NODEPOOLS})


def _class(before: View | None, after: View | None) -> frozenset[QueuedDoorbell]:
    """The user's changes are for catalog; its own change of Ready is what pools and pods wait for."""
    if before == after:
        return frozenset()
    view = after or before
    assert isinstance(view, NodeClassView)
    if isinstance(before, NodeClassView) and isinstance(after, NodeClassView) and _same_spec(before, after):
        return frozenset({NODEPOOLS, PODS})
    return frozenset({QueuedDoorbell("catalog", "nodeclasses", view.name), NODEPOOLS})


def _same_spec(before: NodeClassView, after: NodeClassView) -> bool:
    return msgspec.structs.replace(before, ready=after.ready) == after


def doorbells_at_start(found: Mapping[str, Mapping[str, View]]) -> frozenset[QueuedDoorbell]:
    """Bells for what stands in the cluster when the forwarder starts: who was away must look once.

    Pods that are bound ring nothing, or each restart would start every consolidateAfter anew.
    """
    rung: set[QueuedDoorbell] = set()
    for views in found.values():
        for view in views.values():
            match view:
                case NodeView() if not view.ready or view.deleting or view.taints:
                    rung.add(QueuedDoorbell("lifecycle", "node", view.name))
                case NodeClaimView() if view.deleting or not view.node:
                    rung.add(QueuedDoorbell("lifecycle", "claim", view.name))
                case PodView() if view.unschedulable:
                    rung.add(PODS)
                case NodePoolView():
                    rung.add(NODEPOOLS)
                case NodeClassView():
                    rung.add(QueuedDoorbell("catalog", "nodeclasses", view.name))
                case _:
                    pass
    return frozenset(rung)
