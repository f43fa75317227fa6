"""Objects as the API server gives them, with what a test is about."""

from typing import Any

import msgspec

from forwarder.kinds import WATCHED_KINDS, ClusterObject

type Object = dict[str, Any]


def decoded(kind: str, value: Object) -> ClusterObject:
    """The object as the forwarder keeps it."""
    (watched,) = (one for one in WATCHED_KINDS if one.name == kind)
    return watched.decode(msgspec.Raw(msgspec.json.encode(value)))


def pod(name: str = "p", *, node: str = "", owner: str = "ReplicaSet", phase: str = "", **more: Any) -> Object:
    """A pod; ``unschedulable``, ``deleting``, ``nominated`` and ``ready`` in ``more`` say what has become of it.

    ``kept``: whether it may be disrupted.
    """
    conditions = []
    if more.get("unschedulable"):
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    if more.get("ready"):
        conditions.append({"type": "Ready", "status": "True"})
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    metadata["ownerReferences"] = [{"kind": owner, "name": "owner"}]
    if more.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if more.get("kept"):
        metadata["annotations"] = {"karpenter.sh/do-not-disrupt": more["kept"]}
    status: Object = {"phase": phase or ("Running" if node else "Pending"), "conditions": conditions}
    if more.get("nominated"):
        status["nominatedNodeName"] = "n"
    containers = [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}]
    return {"metadata": metadata, "spec": {"nodeName": node or None, "containers": containers}, "status": status}


def node(
    name: str = "n",
    *,
    ready: bool = True,
    pool: str = "default",
    taints: tuple[str, ...] = (),
    reported: tuple[Object, ...] = (),
    further_labels: tuple[str, ...] = (),
    deleting: bool = False,
) -> Object:
    """``reported``: conditions beside Ready; ``further_labels``: keys of labels whose value is true."""
    of_pool = {"karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": "m5.large"} if pool else {}
    of_pool |= dict.fromkeys(further_labels, "true")
    metadata: Object = {"name": name, "uid": f"uid-{name}", "labels": of_pool}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}, *reported],
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "1930m", "memory": "7Gi", "pods": "29"},
        },
    }


def claim(
    name: str = "c",
    *,
    decided: bool = False,
    deleting: bool = False,
    node_name: str = "",
    nodeclass: str = "default",
    group: str = "karpenter.k8s.aws",
) -> Object:
    """``group``: that of its class."""
    metadata: Object = {"name": name, "uid": f"uid-{name}", "annotations": {}}
    if decided:
        metadata["annotations"]["spotwright.dev/decision"] = "d"
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reference = {**_CLASS, "name": nodeclass, "group": group}
    return {"metadata": metadata, "spec": {"nodeClassRef": reference}, "status": {"nodeName": node_name}}


def wish(name: str = "w", *, generation: int = 1, ready: str = "", deleting: bool = False) -> Object:
    """A NodePool or an EC2NodeClass."""
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": generation, **deleted},
        "spec": {"template": {"spec": {"nodeClassRef": _CLASS, "requirements": []}}},
        "status": {"conditions": conditions},
    }


_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
