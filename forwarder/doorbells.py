"""Which change of an object rings which doorbell. The functions decide whether anything is to be done."""

from collections.abc import Mapping

import msgspec

from forwarder.kinds import ClusterObject
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.karpenter.repair_policies import unhealthy_condition
from spotwright.model.kubernetes.meta import Condition, find_condition
from spotwright.model.kubernetes.node import CONTROL_PLANE_TAINTS, Node
from spotwright.model.kubernetes.pod import Pod


class QueuedDoorbell(msgspec.Struct, frozen=True, order=True):
    """A doorbell of this cluster, with its queue."""

    queue: str
    kind: str
    key: str = ""


PODS = QueuedDoorbell("provision", "pods")
NODEPOOLS = QueuedDoorbell("lifecycle", "nodepools")
# Lifecycle takes these off in the step that goes on without them.
_STEP_TAINTS = frozenset({labels.UNREGISTERED, labels.HELD})
_STARTING_TAINTS = _STEP_TAINTS | frozenset(CONTROL_PLANE_TAINTS)


def pods_first(doorbell: QueuedDoorbell) -> tuple[bool, QueuedDoorbell]:
    """The order in which doorbells leave."""
    return doorbell != PODS, doorbell


def node_doorbell(name: str) -> QueuedDoorbell:
    return QueuedDoorbell("lifecycle", "node", name)


def doorbells_for_change(before: ClusterObject | None, after: ClusterObject | None) -> frozenset[QueuedDoorbell]:
    """Doorbells for an object that was created (``before`` None), changed, or deleted (``after`` None).

    Without the doorbell for a pod that came to or left a node: see ``pod_event_node``. Kinds that are not named here
    ring nothing.
    """
    match after or before:
        case Pod():
            return frozenset({PODS}) if _starts_waiting(before, after) else frozenset()
        case Node(name=name):
            return _ring_if(_node_rings(before, after), node_doorbell(name))
        case NodeClaim(name=name):
            return _ring_if(_claim_rings(before, after), QueuedDoorbell("lifecycle", "claim", name))
        case NodePool():
            # A pool that became ready or was changed may have a place for pods that had none.
            rung = (NODEPOOLS, PODS) if after is not None else (NODEPOOLS,)
            return _ring_if(_spec_and_ready(before) != _spec_and_ready(after), *rung)
        case EC2NodeClass(name=name):
            return _nodeclass(name, before, after)
        case NodeOverlay():
            # Its status is written with that of the NodePools; pods may have a place at last, or a cheaper one.
            return _ring_if(_generation(before) != _generation(after), NODEPOOLS, PODS)
        case _:
            return frozenset()


def changes_room(before: ClusterObject | None, after: ClusterObject | None) -> bool:
    """Whether a CapacityBuffer may find more or less room on nodes of NodePools: one comes, goes or is another.

    Without pods that came to or left a node: see ``pod_event_node``.
    """
    match after or before:
        case Node() as node:
            return is_claimed(node) and _room(before) != _room(after)
        case NodeClaim():
            return before is None or after is None or _is_deleting(before) != _is_deleting(after)
        case _:
            return False


def pod_event_node(before: ClusterObject | None, after: ClusterObject | None) -> str:
    """The node to which a pod was bound, or on which it was terminated or deleted, or keeps it no more; "" = none.

    DaemonSet pods do not count: a node that runs nothing else is empty.
    """
    pod = after or before
    if not isinstance(pod, Pod) or not pod.node_name or pod.is_owned_by("DaemonSet"):
        return ""
    was, now = _pod_stage(before), _pod_stage(after)
    return pod.node_name if was != now else ""


def is_bound_now(before: ClusterObject | None, after: ClusterObject | None) -> bool:
    """Whether a pod was bound to its node, which it still has to start on."""
    return not _pod_stage(before)[0] and _pod_stage(after)[:3] == (True, False, False)


def drain_event_node(before: ClusterObject | None, after: ClusterObject | None) -> str:
    """The node on which a drain need not wait for a pod any more, or may evict it now; "" = none.

    DaemonSet pods count, too. That a pod begins to stop changes nothing for a drain.
    """
    pod = after or before
    if not isinstance(pod, Pod) or not isinstance(before, Pod) or not pod.node_name:
        return ""
    (_, _, was_terminal, kept), (is_bound, _, is_terminal, is_kept) = _pod_stage(before), _pod_stage(after)
    ended = not was_terminal and (is_terminal or not is_bound)
    return pod.node_name if ended or kept != is_kept else ""


def is_claimed(node: Node) -> bool:
    """Whether the node belongs to a NodeClaim of a pool."""
    return labels.NODEPOOL in node.metadata.labels


def is_waiting(obj: ClusterObject | None) -> bool:
    """Whether it is a pod that kube-scheduler found no node for. Not one of a DaemonSet, nor with a nominated node."""
    return (
        isinstance(obj, Pod)
        and obj.unschedulable
        and not (obj.node_name or obj.nominated_node_name or obj.metadata.deletion_timestamp)
        and not obj.is_owned_by("DaemonSet")
    )


def _ring_if(rings: bool, *doorbells: QueuedDoorbell) -> frozenset[QueuedDoorbell]:
    return frozenset(doorbells) if rings else frozenset()


def _pod_stage(obj: ClusterObject | None) -> tuple[bool, bool, bool, str]:
    """Whether a pod is bound, being deleted, terminated, and what keeps its node; empty for one that does not exist."""
    if not isinstance(obj, Pod):
        return (False, False, False, "")
    deleting, kept = obj.metadata.deletion_timestamp is not None, obj.metadata.annotations.get(labels.DO_NOT_DISRUPT)
    return (bool(obj.node_name), deleting, obj.is_terminal, kept or "")


def _starts_waiting(before: ClusterObject | None, after: ClusterObject | None) -> bool:
    return is_waiting(after) and not is_waiting(before)


def is_closed(node: ClusterObject | None) -> bool:
    """Whether it is a Node that is drained, or waits to be."""
    return isinstance(node, Node) and any(taint.key == labels.DISRUPTED for taint in node.taints)


def missing_step(node: ClusterObject | None) -> str:
    """What lifecycle has not done yet with a Node that is open, though it had only to see it: the taint that it takes
    off then; "" = nothing.
    """
    if not isinstance(node, Node) or not node.is_open or is_closed(node):
        return ""
    if _is_unregistered(node):
        return labels.UNREGISTERED
    return labels.HELD if any(taint.key == labels.HELD for taint in node.taints) else ""


def is_to_be_initialized(node: ClusterObject | None) -> bool:
    """Whether it is a Node of a NodeClaim that pods may come to, and that only has to be initialized."""
    return (
        isinstance(node, Node)
        and is_claimed(node)
        and node.is_open
        and node.is_registered
        and not (node.is_initialized or _is_deleting(node))
        and not any(taint.key in _STEP_TAINTS for taint in node.taints)
    )


def _node_rings(before: ClusterObject | None, after: ClusterObject | None) -> bool:
    """Whether lifecycle may have something to do that it does not know of.

    What it writes itself while a node becomes ready, or is drained, does not ring: the step that writes it goes on. For
    a Node that is gone no step can be taken.
    """
    if not isinstance(before, Node) or not isinstance(after, Node):
        return after is not None
    sick = unhealthy_condition(after)
    if is_closed(after):
        # Its kubelet stops with its instance, of which EC2 tells.
        is_sick = sick not in (None, unhealthy_condition(before)) and sick.type != "Ready"
        return is_sick or _identity(before) != _identity(after)
    is_sick = sick not in (None, unhealthy_condition(before))
    starts = not (before.is_initialized and after.is_initialized)
    return (
        is_sick
        or (before.is_open != after.is_open and starts and not _is_unregistered(after))
        or _node_facts(before, starts) != _node_facts(after, starts)
        or _labels_ring(before, after, starts)
    )


def _is_unregistered(node: Node) -> bool:
    """Whether the step that registers it is still to come: it goes on if the node is open when it is written."""
    return not node.is_registered and any(taint.key == labels.UNREGISTERED for taint in node.taints)


def _node_facts(node: Node, starts: bool) -> object:
    """What of a node lifecycle looks at, without its labels: readiness, deletion, taints, what keeps it, resources.

    Of a node that starts it counts whether it is open: before the control plane has taken its taints off as well,
    nothing can be done. One that is initialized may have become healthy again.
    """
    passed_over = _STARTING_TAINTS if starts else _STEP_TAINTS
    return (
        None if starts else (node.is_ready, unhealthy_condition(node)),
        _identity(node),
        frozenset(taint for taint in node.taints if taint.key not in passed_over),
        node.metadata.annotations.get(labels.DO_NOT_DISRUPT),
        node.capacity,
        node.allocatable,
    )


def _identity(node: Node) -> object:
    return node.metadata.deletion_timestamp is not None, node.provider_id


def _labels_ring(before: Node, after: Node, starts: bool) -> bool:
    """The labels of a node that starts come from its claim, its kubelet and the cloud's controller."""
    if (before.is_registered and not after.is_registered) or (before.is_initialized and not after.is_initialized):
        return True
    return not starts and before.metadata.labels != after.metadata.labels


def _room(node: ClusterObject | None) -> object:
    """What of a node decides which pods have room there."""
    if not isinstance(node, Node):
        return None
    return node.is_ready, _is_deleting(node), frozenset(node.taints), node.unschedulable, node.allocatable


def _claim_rings(before: ClusterObject | None, after: ClusterObject | None) -> bool:
    """Created by a user, or being deleted; lifecycle has the claims of decisions already, and nothing to do for one
    that is gone."""
    if not isinstance(after, NodeClaim):
        return False
    if before is None and labels.DECISION not in after.metadata.annotations:
        return True
    return _is_deleting(after) and not _is_deleting(before)


def _is_deleting(obj: ClusterObject | None) -> bool:
    return obj is not None and obj.metadata.deletion_timestamp is not None


def _spec_and_ready(obj: ClusterObject | None) -> object:
    """The spec of a NodePool or EC2NodeClass by its generation, its deletion, and its condition Ready."""
    if not isinstance(obj, NodePool | EC2NodeClass):
        return None
    return obj.metadata.uid, obj.metadata.generation, _is_deleting(obj), _ready(obj.conditions)


def _generation(obj: ClusterObject | None) -> object:
    return (obj.metadata.uid, obj.metadata.generation, _is_deleting(obj)) if obj is not None else None


def _ready(conditions: tuple[Condition, ...]) -> str:
    ready = find_condition(conditions, "Ready")
    return ready.status if ready else ""


def _nodeclass(name: str, before: ClusterObject | None, after: ClusterObject | None) -> frozenset[QueuedDoorbell]:
    """A change of the spec is for catalog; NodePools and pods wait for a change of Ready."""
    if _spec_and_ready(before) == _spec_and_ready(after):
        return frozenset()
    if isinstance(before, EC2NodeClass) and isinstance(after, EC2NodeClass) and _same_spec(before, after):
        return frozenset({NODEPOOLS, PODS})
    return frozenset({QueuedDoorbell("catalog", "nodeclasses", name), NODEPOOLS})


def _same_spec(before: EC2NodeClass, after: EC2NodeClass) -> bool:
    return before.metadata.generation == after.metadata.generation and _is_deleting(before) == _is_deleting(after)


def doorbells_at_start(objects_by_kind: Mapping[str, Mapping[str, ClusterObject]]) -> frozenset[QueuedDoorbell]:
    """Doorbells for the objects that exist when the forwarder starts, whose changes it may have missed.

    Bound pods ring nothing: each restart would restart every consolidateAfter.
    """
    return frozenset(
        doorbell for objects in objects_by_kind.values() for found in objects.values() for doorbell in _at_start(found)
    )


def _at_start(obj: ClusterObject) -> frozenset[QueuedDoorbell]:
    match obj:
        case Node(name=name):
            unsettled = not obj.is_ready or _is_deleting(obj) or bool(obj.taints) or is_to_be_initialized(obj)
            return _ring_if(unsettled, node_doorbell(name))
        case NodeClaim(name=name):
            return _ring_if(_is_deleting(obj) or not obj.node_name, QueuedDoorbell("lifecycle", "claim", name))
        case Pod():
            return _ring_if(is_waiting(obj), PODS)
        case NodePool():
            return frozenset({NODEPOOLS})
        case EC2NodeClass(name=name):
            return frozenset({QueuedDoorbell("catalog", "nodeclasses", name)})
        case _:
            return frozenset()
