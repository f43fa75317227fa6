"""Nodes and pods of a realistic size, as an API server takes them from whoever creates them."""

from typing import Any, Final

from bench.realistic_objects import Object, listed_node, listed_pod

NAMESPACES: Final = tuple(f"team-{number}" for number in range(20))
# What the API server sets itself; ownerReferences, because there are no ReplicaSets that the pods could belong to.
_SERVER_METADATA: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


def new_pod(number: int) -> tuple[Object, Object]:
    """A bound pod to create, and the status that its kubelet would then write."""
    pod = listed_pod(number)
    metadata = _without(pod["metadata"], *_SERVER_METADATA, "ownerReferences")
    # The API server mounts the service account's token.
    containers = [_without(container, "volumeMounts") for container in pod["spec"]["containers"]]
    spec = _without(pod["spec"], "volumes") | {"containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, pod["status"]


def pod_path(number: int) -> str:
    """Where the API server has the pod of this number."""
    metadata = listed_pod(number)["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def new_node(number: int) -> Object:
    """A node that no NodeClaim stands for, as one of a managed node group: nobody but its users removes it."""
    node = listed_node(number)
    metadata = _without(node["metadata"], *_SERVER_METADATA, "finalizers")
    metadata["labels"] = _without(metadata["labels"], "karpenter.sh/nodepool") | {"eks.amazonaws.com/nodegroup": "all"}
    spec = _without(node["spec"], "podCIDR")
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": node["status"]}


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
