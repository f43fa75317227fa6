"""The Kubernetes API of a cluster as the workflows use it (ClusterPort)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import batched
from types import MappingProxyType
from typing import Any, Final

import msgspec

from spotwright.adapters.kubernetes import node_patch, nominations
from spotwright.adapters.kubernetes.codecs.capacity_buffer import decode_capacity_buffer
from spotwright.adapters.kubernetes.codecs.listed_objects import node_decoder, object_decoder
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim, decode_nodeclaim_strict, encode_nodeclaim
from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass, decode_nodeclass_strict
from spotwright.adapters.kubernetes.codecs.nodeoverlay import decode_nodeoverlay
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool
from spotwright.adapters.kubernetes.codecs.objects import decode_metadata
from spotwright.adapters.kubernetes.codecs.pages import ListDecoder
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    attachment_names,
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from spotwright.adapters.kubernetes.conditions import write_conditions
from spotwright.adapters.kubernetes.events import EventRecorder
from spotwright.adapters.kubernetes.karpenter import running_karpenter
from spotwright.adapters.kubernetes.object_path import is_label_value, is_name, object_path
from spotwright.adapters.kubernetes.transport import JSON_PATCH, MERGE_PATCH, JsonObject, Transport
from spotwright.errors import ApiError, Conflict, InvalidRequest, NotFound, Throttled
from spotwright.model import labels
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim, Storage
from spotwright.telemetry.rows import Event
from spotwright.workflows.batched_calls import BatchedCalls

_PATHS: Final = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "nodeclaims": "/apis/karpenter.sh/v1/nodeclaims",
    "nodepools": "/apis/karpenter.sh/v1/nodepools",
    "nodeoverlays": "/apis/karpenter.sh/v1alpha1/nodeoverlays",
    "ec2nodeclasses": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "capacitybuffers": "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers",
}
_PENDING: Final = "spec.nodeName=,status.phase=Pending"
# Pods of Jobs may stay for days after they have ended.
_NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
# EKS labels the nodes of managed node groups, of Fargate, Auto Mode and hybrid nodes.
_JOINING: Final = f"!{labels.REGISTERED},!eks.amazonaws.com/nodegroup,!eks.amazonaws.com/compute-type"
# A request that selects this many ids has some 2 KB.
_INSTANCES_SELECTED: Final = 100
# Any version, as the API server's cache has it: it does not wait until the cache has caught up.
_CACHED: Final = {"resourceVersion": "0"}
# Kinds that a CapacityBuffer may refer to.
_SCALABLE_PATHS: Final = {
    "PodTemplate": "/api/v1/podtemplates",
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
}


class KubernetesCluster:
    """See ClusterPort."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self._api = transport
        self._events = EventRecorder(transport)
        # The steps of an invocation ask for one instance each, side by side.
        self._claims_together = BatchedCalls(self._cached_claims)

    def pods(self, *, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if node and not is_name(node):
            return ()
        selector = f"spec.nodeName={node}" if node else _PENDING if pending else _NOT_ENDED
        query = {"fieldSelector": selector}
        return tuple(self._api.items(_PATHS["pods"], pod_decoder(), query, limit=limit, protobuf=_pods_in_protobuf))

    def pod(self, namespace: str, name: str) -> Pod | None:
        document = self._get(_PATHS["pods"], name, namespace)
        return None if document is None else decode_pod(document)

    def nodes(self, *, limit: int | None = None) -> tuple[Node, ...]:
        return tuple(self._api.items(_PATHS["nodes"], node_decoder(), limit=limit))

    def joining_nodes(self) -> tuple[Node, ...]:
        return tuple(self._api.items(_PATHS["nodes"], node_decoder(), {"labelSelector": _JOINING}))

    def node(self, name: str) -> Node | None:
        document = self._get(_PATHS["nodes"], name)
        return None if document is None else decode_node(document)

    def node_with_volumes(self, name: str) -> NodeWithVolumes | None:
        document = self._get(_PATHS["nodes"], name)
        return None if document is None else _decode_with_volumes(document)

    def nodepools(self) -> tuple[NodePool, ...]:
        return self._list(_PATHS["nodepools"], decode_nodepool, "NodePool")

    def nodepool(self, name: str) -> NodePool | None:
        document = self._get(_PATHS["nodepools"], name)
        return None if document is None else decode_nodepool(document | {"kind": "NodePool"})

    def nodeclasses(self) -> tuple[EC2NodeClass, ...]:
        return self._list(_PATHS["ec2nodeclasses"], decode_nodeclass, "EC2NodeClass")

    def nodeclaims(self) -> tuple[NodeClaim, ...]:
        return self._list(_PATHS["nodeclaims"], decode_nodeclaim, "NodeClaim")

    def nodeclass(self, name: str) -> EC2NodeClass | None:
        document = self._get(_PATHS["ec2nodeclasses"], name)
        return None if document is None else decode_nodeclass_strict(document | {"kind": "EC2NodeClass"})

    def nodeclaim(self, name: str) -> NodeClaim | None:
        document = self._get(_PATHS["nodeclaims"], name)
        return None if document is None else decode_nodeclaim(document | {"kind": "NodeClaim"})

    def nodeclaims_of_instances(self, instances: Collection[str], *, cached: bool = False) -> tuple[NodeClaim, ...]:
        selected = sorted(filter(is_label_value, instances))
        if cached and len(selected) == 1:
            return self._claims_together(selected[0])
        return self._claims_of(selected, _CACHED if cached else {})

    def _cached_claims(self, instances: Sequence[str]) -> dict[str, tuple[NodeClaim, ...]]:
        """The claims of each of these instances, by one list."""
        found = self._claims_of(instances, _CACHED)
        return {
            id: tuple(claim for claim in found if claim.metadata.labels[labels.INSTANCE_ID] == id) for id in instances
        }

    def _claims_of(self, instances: Sequence[str], query: Mapping[str, str]) -> tuple[NodeClaim, ...]:
        found: list[NodeClaim] = []
        for ids in batched(instances, _INSTANCES_SELECTED, strict=False):
            selector = {"labelSelector": f"{labels.INSTANCE_ID} in ({','.join(ids)})"}
            found += self._list(_PATHS["nodeclaims"], decode_nodeclaim, "NodeClaim", selector | dict(query))
        return tuple(found)

    def daemonsets(self) -> tuple[DaemonSet, ...]:
        return self._list("/apis/apps/v1/daemonsets", decode_daemonset)

    def pod_disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return self._list("/apis/policy/v1/poddisruptionbudgets", decode_pod_disruption_budget)

    def nodeoverlays(self) -> tuple[NodeOverlay, ...]:
        try:
            return self._list(_PATHS["nodeoverlays"], decode_nodeoverlay)
        except NotFound:
            return ()

    def capacity_buffers(self) -> tuple[CapacityBuffer, ...]:
        def lookup(kind: str, namespace: str, name: str) -> JsonObject | None:
            return self._get(_SCALABLE_PATHS[kind], name, namespace)

        try:
            documents = self._list(_PATHS["capacitybuffers"], dict[str, Any])
        except NotFound:
            return ()
        return tuple(decode_capacity_buffer(document, lookup) for document in documents)

    def attached_volume(self, attachment: str) -> str | None:
        document = self._get("/apis/storage.k8s.io/v1/volumeattachments", attachment)
        if document is None:
            return None
        return (document["spec"].get("source") or {}).get("persistentVolumeName") or attachment

    def persistent_volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        document = self._get(_PATHS["persistentvolumeclaims"], name, namespace)
        return None if document is None else decode_persistent_volume_claim(document)

    def storage(self) -> Storage:
        """Claims are listed before volumes, so that a claim that is bound meanwhile names a volume in the list."""
        return Storage(
            self._list(_PATHS["persistentvolumeclaims"], decode_persistent_volume_claim),
            self._list("/api/v1/persistentvolumes", decode_persistent_volume),
            self._list("/apis/storage.k8s.io/v1/storageclasses", decode_storage_class),
            self._list("/apis/storage.k8s.io/v1/csinodes", decode_csi_node),
        )

    def namespaces(self) -> dict[str, dict[str, str]]:
        listed = self._list("/api/v1/namespaces", decode_metadata)
        return {metadata.name: metadata.labels for metadata in listed}

    def running_karpenter(self, *, now: datetime) -> str:
        return running_karpenter(self._api, now=now)

    def create_nodeclaim(self, claim: NodeClaim) -> NodeClaim:
        return decode_nodeclaim_strict(self._api.call("POST", _PATHS["nodeclaims"], body=encode_nodeclaim(claim)))

    def patch_metadata(self, kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        self._patch_metadata(kind, metadata, change)

    def patch_nodeclaim(self, claim: NodeClaim, change: Mapping[str, Any]) -> NodeClaim:
        return decode_nodeclaim_strict(self._patch_metadata("nodeclaims", claim.metadata, change))

    def patch_status(self, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]) -> None:
        preconditions: JsonObject = {"uid": metadata.uid}
        if metadata.resource_version:
            preconditions["resourceVersion"] = metadata.resource_version
        self._patch(f"{_path(kind, metadata)}/status", {"metadata": preconditions, "status": dict(status)})

    def set_conditions(
        self,
        kind: str,
        metadata: ObjectMeta,
        conditions: Sequence[Condition],
        *,
        removed: Collection[str] = (),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        path = _path(kind, metadata)
        write_conditions(self._api, path, metadata, conditions, removed=removed, seen=seen, now=datetime.now(UTC))

    def write_nodeclaim_status(
        self,
        claim: NodeClaim,
        conditions: Sequence[Condition],
        *,
        status: Mapping[str, Any] = MappingProxyType({}),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> NodeClaim:
        path, now = _path("nodeclaims", claim.metadata), datetime.now(UTC)
        written = write_conditions(
            self._api, path, claim.metadata, conditions, seen=seen, now=now, status=status, known=claim.conditions
        )
        return decode_nodeclaim_strict(written | {"kind": "NodeClaim"}) if written is not None else claim

    def set_taints(
        self, node: Node, taints: Sequence[Taint], *, metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> NodeWithVolumes:
        changes = [
            node_patch.precondition(node),
            *node_patch.taints(node, taints),
            *node_patch.metadata(node, metadata),
        ]
        path = _path("nodes", node.metadata)
        try:
            return _decode_with_volumes(self._api.call("PATCH", path, body=changes, content_type=JSON_PATCH))
        except InvalidRequest as refused:
            # A taint, an owner or a finalizer is not what it was.
            current = self.node(node.name)
            if current is None:
                raise NotFound(f"nodes {node.name} is gone: {refused}", code="NotFound") from refused
            if current.metadata.resource_version == node.metadata.resource_version:
                raise
            raise Conflict(f"nodes {node.name} has changed: {refused}", code="Conflict") from refused

    def delete(
        self, kind: str, metadata: ObjectMeta, *, grace_seconds: int | None = None, as_read: bool = False
    ) -> None:
        body: JsonObject = {"preconditions": {"uid": metadata.uid}} if metadata.uid else {}
        if as_read:
            body.setdefault("preconditions", {})["resourceVersion"] = metadata.resource_version
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self._api.call("DELETE", _path(kind, metadata), body=body)
        except NotFound:
            return
        except Conflict:
            if as_read:
                raise

    def evict(self, pod: Pod) -> bool:
        metadata = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        try:
            self._api.call("POST", f"{_path('pods', metadata)}/eviction", body=body, attempts=1)
        except (NotFound, Conflict):
            return True
        except Throttled:
            return False
        except ApiError as error:
            # Two PodDisruptionBudgets over a pod are a 500 with this text, and refuse the eviction like a 429.
            if "more than one PodDisruptionBudget" in str(error):
                return False
            raise
        return True

    def nominate(self, node: str, pods: Mapping[str, str], *, again: bool = False) -> frozenset[str]:
        return nominations.nominate(self._api, node, pods, again=again)

    def clear_nominations(self, node: str, pods: Mapping[str, str]) -> None:
        nominations.clear_nominations(self._api, node, pods)

    def record_event(self, kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        self._events.record(kind, metadata, event, now=now)

    def _list[Value](
        self,
        path: str,
        decode: Callable[[Mapping[str, Any]], Value],
        kind: str = "",
        query: Mapping[str, str] | None = None,
    ) -> tuple[Value, ...]:
        """All objects of a kind. ``kind``: for decoders that name it."""
        return tuple(self._api.items(path, object_decoder(decode, kind=kind), query))

    def _get(self, collection: str, name: str, namespace: str = "") -> JsonObject | None:
        try:
            return self._api.call("GET", object_path(collection, name, namespace))
        except NotFound:
            return None

    def _patch_metadata(self, kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> JsonObject:
        preconditions: JsonObject = {"uid": metadata.uid} | dict(change)
        if "finalizers" in change and metadata.resource_version:
            preconditions["resourceVersion"] = metadata.resource_version
        return self._patch(_path(kind, metadata), {"metadata": preconditions})

    def _patch(self, path: str, body: JsonObject) -> JsonObject:
        return self._api.call("PATCH", path, body=body, content_type=MERGE_PATCH)


def _decode_with_volumes(document: JsonObject) -> NodeWithVolumes:
    node, attached = decode_node(document), (document.get("status") or {}).get("volumesAttached") or ()
    return NodeWithVolumes(**msgspec.structs.asdict(node), volume_attachments=attachment_names(node.name, attached))


def _pods_in_protobuf() -> ListDecoder[Pod]:
    """Imported by lists of many pages alone: it takes longer than a page."""
    from spotwright.adapters.kubernetes.codecs.protobuf_pods import ProtobufPods

    return ProtobufPods()


def _path(kind: str, metadata: ObjectMeta) -> str:
    """The path of an object that was read or is to be written. Raises NotFound."""
    return object_path(_PATHS[kind], metadata.name, metadata.namespace)
