"""The kinds that the forwarder watches, and how their objects are decoded: all that a planner reads of a cluster."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from spotwright.adapters.kubernetes.codecs.listed_objects import node_decoder, object_decoder
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim
from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass
from spotwright.adapters.kubernetes.codecs.nodeoverlay import decode_nodeoverlay
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool
from spotwright.adapters.kubernetes.codecs.objects import decode_metadata
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass


class Namespace(msgspec.Struct, frozen=True):
    """A namespace; its labels are in ``metadata``, its uid is its name, as in the cluster state."""

    metadata: ObjectMeta


class Manifest(msgspec.Struct, frozen=True):
    """A CapacityBuffer, or an object that one refers to, undecoded: its pod is made of both. ``content``: JSON."""

    metadata: ObjectMeta
    content: bytes


type ClusterObject = (
    Pod
    | Node
    | NodeClaim
    | NodePool
    | EC2NodeClass
    | DaemonSet
    | PodDisruptionBudget
    | Namespace
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | NodeOverlay
    | Manifest
)


class WatchedKind(msgspec.Struct, frozen=True):
    """A kind to watch. ``path``: of its collection; ``decode``: an object's JSON into the model.

    ``optional``: its definition may be missing; then there are none.
    """

    name: str
    path: str
    decode: Callable[[msgspec.Raw], ClusterObject]
    optional: bool = False


def from_json(
    decode: Callable[[Mapping[str, Any]], ClusterObject], kind: str = ""
) -> Callable[[msgspec.Raw], ClusterObject]:
    """A decoder of JSON. ``kind``: objects of a list do not say it, and sentences about them name it."""
    return object_decoder(decode, kind=kind).object


def decode_manifest(content: msgspec.Raw) -> Manifest:
    fields = msgspec.json.decode(content, type=dict[str, Any])
    fields["metadata"].pop("managedFields", None)
    return Manifest(decode_metadata(fields), msgspec.json.encode(fields))


def _decode_namespace(fields: Mapping[str, Any]) -> Namespace:
    metadata = decode_metadata(fields)
    return Namespace(msgspec.structs.replace(metadata, uid=metadata.name))


_APPS, _STORAGE = "/apis/apps/v1", "/apis/storage.k8s.io/v1"

#: Pods come last: when they are known, so are the nodes that some of them run on.
WATCHED_KINDS: Final = (
    WatchedKind("NodeClaim", "/apis/karpenter.sh/v1/nodeclaims", from_json(decode_nodeclaim, "NodeClaim")),
    WatchedKind("Node", "/api/v1/nodes", node_decoder().object),
    WatchedKind("NodePool", "/apis/karpenter.sh/v1/nodepools", from_json(decode_nodepool, "NodePool")),
    WatchedKind(
        "EC2NodeClass", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses", from_json(decode_nodeclass, "EC2NodeClass")
    ),
    WatchedKind("DaemonSet", f"{_APPS}/daemonsets", from_json(decode_daemonset)),
    WatchedKind("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets", from_json(decode_pod_disruption_budget)),
    WatchedKind("Namespace", "/api/v1/namespaces", from_json(_decode_namespace)),
    WatchedKind("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", from_json(decode_persistent_volume_claim)),
    WatchedKind("PersistentVolume", "/api/v1/persistentvolumes", from_json(decode_persistent_volume)),
    WatchedKind("StorageClass", f"{_STORAGE}/storageclasses", from_json(decode_storage_class)),
    WatchedKind("CSINode", f"{_STORAGE}/csinodes", from_json(decode_csi_node)),
    WatchedKind(
        "NodeOverlay", "/apis/karpenter.sh/v1alpha1/nodeoverlays", from_json(decode_nodeoverlay), optional=True
    ),
    WatchedKind("CapacityBuffer", "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers", decode_manifest, optional=True),
    WatchedKind("Pod", "/api/v1/pods", pod_decoder().object),
)

#: Kinds that a CapacityBuffer may refer to; watched in its namespace while one does.
SCALABLE_KINDS: Final = {
    "PodTemplate": "/api/v1/namespaces/{}/podtemplates",
    "Deployment": _APPS + "/namespaces/{}/deployments",
    "StatefulSet": _APPS + "/namespaces/{}/statefulsets",
    "ReplicaSet": _APPS + "/namespaces/{}/replicasets",
}


def scalable_name(kind: str, namespace: str) -> str:
    """The name of a kind of SCALABLE_KINDS in a namespace."""
    return f"{kind} {namespace}"


def scalable_kind(kind: str, namespace: str) -> WatchedKind:
    """A kind of SCALABLE_KINDS in a namespace."""
    return WatchedKind(scalable_name(kind, namespace), SCALABLE_KINDS[kind].format(namespace), decode_manifest)
