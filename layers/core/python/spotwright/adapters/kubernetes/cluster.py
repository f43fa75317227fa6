"""One cluster's Kubernetes API as the workflows need it (ClusterPort)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.capacity_buffer import decode_capacity_buffer
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim, decode_nodeclaim_strict, encode_nodeclaim
from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass, decode_nodeclass_strict
from spotwright.adapters.kubernetes.codecs.nodeoverlay import decode_nodeoverlay
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool
from spotwright.adapters.kubernetes.codecs.objects import (
    decode_metadata,
    decode_taints,
    decode_time,
    encode_condition,
    encode_taint,
    encode_time,
)
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from spotwright.adapters.kubernetes.transport import JSON_PATCH, MERGE_PATCH, JsonObject, Transport
from spotwright.errors import ApiError, Conflict, InvalidRequest, NotFound, Throttled
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import Storage
from spotwright.telemetry.rows import Event

_PATHS: Final = {
    "nodes": "/api/v1/nodes",
    "nodeclaims": "/apis/karpenter.sh/v1/nodeclaims",
    "nodepools": "/apis/karpenter.sh/v1/nodepools",
    "nodeoverlays": "/apis/karpenter.sh/v1alpha1/nodeoverlays",
    "ec2nodeclasses": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "capacitybuffers": "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers",
}
# What a CapacityBuffer may refer to.
_REFERRED: Final = {
    "PodTemplate": "/api/v1/podtemplates",
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
}
_KINDS: Final = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "nodeclaims": ("karpenter.sh/v1", "NodeClaim"),
    "nodepools": ("karpenter.sh/v1", "NodePool"),
    "nodeoverlays": ("karpenter.sh/v1alpha1", "NodeOverlay"),
    "ec2nodeclasses": ("karpenter.k8s.aws/v1", "EC2NodeClass"),
}
# How often a read-change-write of conditions is tried against other writers.
CONDITION_ATTEMPTS: Final = 4
# Nominations are written side by side: until all stand, kube-scheduler may give their room away.
PODS_AT_ONCE: Final = 8


class KubernetesCluster:
    """See ClusterPort for what each method promises."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self._api = transport
        # What this process told, and when: most repeats are known without a request.
        self._told: dict[str, datetime] = {}

    def pods(self, *, node: str = "", pending: bool = False) -> tuple[Pod, ...]:
        wanted = f"spec.nodeName={node}" if node else "spec.nodeName=,status.phase=Pending" if pending else ""
        return tuple(map(decode_pod, self._api.items("/api/v1/pods", {"fieldSelector": wanted} if wanted else {})))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(map(decode_node, self._api.items(_PATHS["nodes"])))

    def node(self, name: str) -> Node | None:
        found = self._get(f"{_PATHS['nodes']}/{name}")
        return None if found is None else decode_node(found)

    def nodepools(self) -> tuple[NodePool, ...]:
        return tuple(decode_nodepool(one | {"kind": "NodePool"}) for one in self._api.items(_PATHS["nodepools"]))

    def nodeclasses(self) -> tuple[EC2NodeClass, ...]:
        listed = self._api.items(_PATHS["ec2nodeclasses"])
        return tuple(decode_nodeclass(one | {"kind": "EC2NodeClass"}) for one in listed)

    def nodeclaims(self) -> tuple[NodeClaim, ...]:
        return tuple(decode_nodeclaim(one | {"kind": "NodeClaim"}) for one in self._api.items(_PATHS["nodeclaims"]))

    def nodeclass(self, name: str) -> EC2NodeClass | None:
        found = self._get(f"{_PATHS['ec2nodeclasses']}/{name}")
        return None if found is None else decode_nodeclass_strict(found | {"kind": "EC2NodeClass"})

    def nodeclaim(self, name: str) -> NodeClaim | None:
        found = self._get(f"{_PATHS['nodeclaims']}/{name}")
        return None if found is None else decode_nodeclaim(found | {"kind": "NodeClaim"})

    def daemonsets(self) -> tuple[DaemonSet, ...]:
        return tuple(map(decode_daemonset, self._api.items("/apis/apps/v1/daemonsets")))

    def pod_disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return tuple(map(decode_pod_disruption_budget, self._api.items("/apis/policy/v1/poddisruptionbudgets")))

    def nodeoverlays(self) -> tuple[NodeOverlay, ...]:
        try:
            return tuple(map(decode_nodeoverlay, self._api.items(_PATHS["nodeoverlays"])))
        except NotFound:
            return ()

    def capacity_buffers(self) -> tuple[CapacityBuffer, ...]:
        def lookup(kind: str, namespace: str, name: str) -> JsonObject | None:
            return self._get(_address(_REFERRED[kind], ObjectMeta(name, namespace)))

        try:
            listed = tuple(self._api.items(_PATHS["capacitybuffers"]))
        except NotFound:
            return ()
        return tuple(decode_capacity_buffer(one, lookup) for one in listed)

    def volume_attachments(self, node: str) -> tuple[str, ...]:
        listed = self._api.items("/apis/storage.k8s.io/v1/volumeattachments")
        return tuple(
            (one["spec"].get("source") or {}).get("persistentVolumeName") or one["metadata"]["name"]
            for one in listed
            if one["spec"].get("nodeName") == node
        )

    def storage(self) -> Storage:
        """Claims before volumes: a claim that is bound in between still names a volume that is listed."""
        claims = tuple(map(decode_persistent_volume_claim, self._api.items("/api/v1/persistentvolumeclaims")))
        return Storage(
            persistent_volume_claims=claims,
            persistent_volumes=tuple(map(decode_persistent_volume, self._api.items("/api/v1/persistentvolumes"))),
            storage_classes=tuple(map(decode_storage_class, self._api.items("/apis/storage.k8s.io/v1/storageclasses"))),
            csi_nodes=tuple(map(decode_csi_node, self._api.items("/apis/storage.k8s.io/v1/csinodes"))),
        )

    def namespaces(self) -> dict[str, dict[str, str]]:
        listed = map(decode_metadata, self._api.items("/api/v1/namespaces"))
        return {metadata.name: metadata.labels for metadata in listed}

    def create_nodeclaim(self, claim: NodeClaim) -> NodeClaim:
        return decode_nodeclaim_strict(self._api.call("POST", _PATHS["nodeclaims"], body=encode_nodeclaim(claim)))

    def patch_metadata(self, kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        about: JsonObject = {"uid": metadata.uid} | dict(change)
        if "finalizers" in change and metadata.resource_version:
            about["resourceVersion"] = metadata.resource_version
        self._patch(f"{_PATHS[kind]}/{metadata.name}", {"metadata": about})

    def patch_status(self, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]) -> None:
        about: JsonObject = {"uid": metadata.uid}
        if metadata.resource_version:
            about["resourceVersion"] = metadata.resource_version
        self._patch(f"{_address(_PATHS[kind], metadata)}/status", {"metadata": about, "status": dict(status)})

    def set_conditions(
        self, kind: str, metadata: ObjectMeta, conditions: Sequence[Condition], *, removed: Collection[str] = ()
    ) -> None:
        for attempt in range(1, CONDITION_ATTEMPTS + 1):
            try:
                self._set_conditions(kind, metadata, conditions, removed)
                return
            except Conflict:
                if attempt == CONDITION_ATTEMPTS:
                    raise

    def _set_conditions(
        self, kind: str, metadata: ObjectMeta, conditions: Sequence[Condition], removed: Collection[str]
    ) -> None:
        path = _address(_PATHS[kind], metadata)
        current = self._api.call("GET", path)
        if metadata.uid and current["metadata"]["uid"] != metadata.uid:
            raise NotFound(f"{kind} {metadata.name} with uid {metadata.uid} is gone", code="NotFound")
        before = (current.get("status") or {}).get("conditions") or []
        after = [
            condition
            for condition in merge_conditions(before, conditions, now=datetime.now(UTC))
            if condition["type"] not in removed
        ]
        if after != before:
            about = {"uid": current["metadata"]["uid"], "resourceVersion": current["metadata"]["resourceVersion"]}
            self._patch(f"{path}/status", {"metadata": about, "status": {"conditions": after}})

    def set_taints(self, node: Node, taints: Sequence[Taint]) -> None:
        current = self._api.call("GET", f"{_PATHS['nodes']}/{node.name}")
        known = {decode_taints([taint])[0]: taint for taint in current["spec"].get("taints") or ()}
        listed = [known.get(taint) or encode_taint(taint) for taint in taints]
        about = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
        self._patch(f"{_PATHS['nodes']}/{node.name}", {"metadata": about, "spec": {"taints": listed}})

    def delete(self, kind: str, metadata: ObjectMeta, *, grace_seconds: int | None = None) -> None:
        path = f"/api/v1/namespaces/{metadata.namespace}/pods" if kind == "pods" else _PATHS[kind]
        body: JsonObject = {"preconditions": {"uid": metadata.uid}} if metadata.uid else {}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self._api.call("DELETE", f"{path}/{metadata.name}", body=body)
        except (NotFound, Conflict):
            return

    def evict(self, pod: Pod) -> bool:
        about = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": about.name, "namespace": about.namespace},
            "deleteOptions": {"preconditions": {"uid": about.uid}},
        }
        try:
            self._api.call(
                "POST", f"/api/v1/namespaces/{about.namespace}/pods/{about.name}/eviction", body=body, attempts=1
            )
        except (NotFound, Conflict):
            return True
        except Throttled:
            return False
        except ApiError as error:
            # Two budgets over one pod are a 500 with this text, and mean "not now" just as well.
            if "more than one PodDisruptionBudget" in str(error):
                return False
            raise
        return True

    def nominate(self, node: str, pods: Mapping[str, str]) -> frozenset[str]:
        wanted: list[JsonObject] = [
            {"op": "test", "path": "/spec/nodeName", "value": None},
            {"op": "test", "path": "/status/nominatedNodeName", "value": None},
            {"op": "add", "path": "/status/nominatedNodeName", "value": node},
        ]
        return frozenset(
            key for key, made in self._change_each(pods, wanted) if made or self._stands(key, pods[key], node)
        )

    def clear_nominations(self, node: str, pods: Mapping[str, str]) -> None:
        wanted: list[JsonObject] = [
            {"op": "test", "path": "/spec/nodeName", "value": None},
            {"op": "test", "path": "/status/nominatedNodeName", "value": node},
            {"op": "remove", "path": "/status/nominatedNodeName"},
        ]
        self._change_each(pods, wanted)

    def _change_each(self, pods: Mapping[str, str], changes: list[JsonObject]) -> list[tuple[str, bool]]:
        """Patch the status of each pod (key → uid), several at once; whether its tests held."""
        if not pods:
            return []
        with ThreadPoolExecutor(min(len(pods), PODS_AT_ONCE)) as threads:
            return list(threads.map(lambda key: (key, self._change(key, pods[key], changes)), sorted(pods)))

    def _change(self, key: str, uid: str, changes: list[JsonObject]) -> bool:
        """False when a test does not hold (422), or the pod is gone."""
        same: JsonObject = {"op": "test", "path": "/metadata/uid", "value": uid}
        try:
            self._api.call("PATCH", f"{_pod_path(key)}/status", body=[same, *changes], content_type=JSON_PATCH)
        except (NotFound, InvalidRequest):
            return False
        return True

    def _stands(self, key: str, uid: str, node: str) -> bool:
        found = self._get(_pod_path(key))
        if found is None or found["metadata"]["uid"] != uid or found["spec"].get("nodeName"):
            return False
        return (found.get("status") or {}).get("nominatedNodeName") == node

    def record_event(self, kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        version, name = _KINDS[kind]
        digest = hashlib.sha256(f"{metadata.uid}/{event.reason}/{event.message}".encode()).hexdigest()[:16]
        if digest in self._told and now - self._told[digest] < event.row.repeat_after:
            return
        self._told[digest] = now
        namespace = metadata.namespace or "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        stamp = encode_time(now)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata.name}.{digest}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": version, "kind": name, "name": metadata.name, "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "type": event.type, "reason": event.reason, "message": event.message[:1024], "count": 1,
            "firstTimestamp": stamp, "lastTimestamp": stamp,
            "source": {"component": "spotwright"}, "reportingComponent": "spotwright",
        }  # fmt: skip
        try:
            self._api.call("POST", path, body=body)
        except Conflict:
            self._repeat(f"{path}/{body['metadata']['name']}", event, now)  # type: ignore[index]
        except ApiError:
            return

    def _repeat(self, path: str, event: Event, now: datetime) -> None:
        """One more of an event that is there, unless another process told it just now."""
        try:
            before = self._api.call("GET", path)
            last = decode_time(before.get("lastTimestamp"))
            if last is None or now - last >= event.row.repeat_after:
                self._patch(path, {"count": (before.get("count") or 1) + 1, "lastTimestamp": encode_time(now)})
        except ApiError:
            return

    def _get(self, path: str) -> JsonObject | None:
        try:
            return self._api.call("GET", path)
        except NotFound:
            return None

    def _patch(self, path: str, body: JsonObject) -> None:
        self._api.call("PATCH", path, body=body, content_type=MERGE_PATCH)


def _address(listed: str, about: ObjectMeta) -> str:
    """Where an object is; ``listed``: where all of its kind are."""
    root, _, plural = listed.rpartition("/")
    return f"{root}/namespaces/{about.namespace}/{plural}/{about.name}" if about.namespace else f"{listed}/{about.name}"


def _pod_path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def merge_conditions(before: Sequence[JsonObject], changes: Sequence[Condition], *, now: datetime) -> list[JsonObject]:
    """``before`` with the named conditions replaced; the transition time moves only when the status does."""
    after = [dict(one) for one in before]
    for change in changes:
        new = encode_condition(change, since=now)
        old = next((one for one in after if one["type"] == change.type), None)
        if old is None:
            after.append(new)
            continue
        if old["status"] == new["status"]:
            new["lastTransitionTime"] = old["lastTransitionTime"]
        old.clear()
        old.update(new)
    return after
