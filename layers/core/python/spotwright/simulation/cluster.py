"""A cluster in memory (ClusterPort): objects with uids, resource versions, finalizers and graceful deletion."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from spotwright.errors import Conflict, InvalidRequest, NotFound
from spotwright.model import labels
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.merge_patch import (
    merge_conditions,
    merge_metadata,
    merge_status,
    patch_node_metadata,
    patch_taints,
)
from spotwright.telemetry.rows import Event


class Namespace(msgspec.Struct, frozen=True):
    """A namespace; the model keeps no more of it than its labels."""

    metadata: ObjectMeta


# The longest message of a condition that the CRDs allow.
MESSAGE_LENGTH: Final = 32768
KINDS: Final[Mapping[str, type]] = {
    "pods": Pod, "nodes": Node, "nodepools": NodePool, "ec2nodeclasses": EC2NodeClass, "nodeclaims": NodeClaim,
    "daemonsets": DaemonSet, "poddisruptionbudgets": PodDisruptionBudget, "nodeoverlays": NodeOverlay,
    "namespaces": Namespace, "persistentvolumeclaims": PersistentVolumeClaim, "persistentvolumes": PersistentVolume,
    "storageclasses": StorageClass, "csinodes": CSINode, "capacitybuffers": CapacityBuffer,
}  # fmt: skip


# Plural of the kind, uid, and the object as it is now, None = it is gone.
type Watcher = Callable[[str, str, Any], None]


class RecordedEvent(msgspec.Struct, frozen=True):
    """An Event as it was recorded. ``kind``: plural of the object's kind."""

    at: datetime
    kind: str
    name: str
    type: str
    reason: str
    message: str


class FakeCluster:
    """See ClusterPort. ``put``, ``update`` and ``remove`` are what users, kubelets and controllers do."""

    def __init__(self, name: str, clock: Clock, effects: Effects) -> None:
        self.name = name
        self._clock, self._effects = clock, effects
        self._versions, self._uids = itertools.count(1), itertools.count(1)
        self._objects: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        # Node → PersistentVolumes with a VolumeAttachment; those that detach are in no Node's status any more.
        self.attachments: dict[str, tuple[str, ...]] = {}
        self.detaching: set[str] = set()
        self.events: list[RecordedEvent] = []
        self._recorded_at: dict[str, datetime] = {}
        self._watchers: list[Watcher] = []
        # The Deployment or Lease that shows that Karpenter runs.
        self.karpenter = ""

    # Users, kubelets and controllers

    def put(self, kind: str, obj: Any) -> Any:
        """Create or replace an object; identity and creation time are filled in."""
        if isinstance(obj, NodeWithVolumes):
            obj = Node(**_fields_of(obj))
        metadata: ObjectMeta = obj.metadata
        metadata = msgspec.structs.replace(
            metadata,
            uid=metadata.uid or f"uid-{next(self._uids):06d}",
            creation_timestamp=metadata.creation_timestamp or self._clock.seconds(),
            generation=metadata.generation or 1,
        )
        return self._store(kind, msgspec.structs.replace(obj, metadata=metadata))

    def update(self, kind: str, key: str, **fields: Any) -> Any:
        """Replace fields of an object; ``labels`` and ``annotations`` are merged into its metadata."""
        obj = self._objects[kind][key]
        metadata = obj.metadata
        for name in ("labels", "annotations"):
            if name in fields:
                metadata = msgspec.structs.replace(metadata, **{name: getattr(metadata, name) | fields.pop(name)})
        return self._store(kind, msgspec.structs.replace(obj, metadata=metadata, **fields))

    def remove(self, kind: str, key: str) -> None:
        """Remove the object, with or without finalizers."""
        gone = self._objects[kind].pop(key, None)
        if gone is not None:
            self._report(kind, gone.metadata.uid, None)

    def delete_node(self, obj: Any) -> None:
        """Another client deletes a Node, which stays while it has finalizers."""
        if obj.metadata.finalizers:
            if obj.metadata.deletion_timestamp is None:
                about = msgspec.structs.replace(obj.metadata, deletion_timestamp=self._clock.seconds())
                self._store("nodes", msgspec.structs.replace(obj, metadata=about))
        else:
            self.remove("nodes", obj.name)

    def all(self, kind: str) -> tuple[Any, ...]:
        """As they are at one moment, whatever others change meanwhile."""
        objects = self._objects[kind].copy()
        return tuple(objects[key] for key in sorted(objects))

    def find(self, kind: str, key: str) -> Any:
        """The object of that key as it is now, None = there is none."""
        return self._objects[kind].get(key)

    def watch(self, watcher: Watcher) -> None:
        """Report every change from now on."""
        self._watchers.append(watcher)

    # Reads

    def running_karpenter(self, *, now: datetime) -> str:
        self._effects.before_read("cluster", "running_karpenter")
        return self.karpenter

    def pods(self, *, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        self._effects.before_read("cluster", "pods_of_node" if node else "pending_pods" if pending else "pods")
        pods: tuple[Pod, ...] = self.all("pods")
        if node:
            pods = tuple(pod for pod in pods if pod.node_name == node)
        elif pending:
            pods = tuple(pod for pod in pods if not pod.node_name and pod.phase == "Pending")
        else:
            pods = tuple(pod for pod in pods if not pod.is_terminal)
        return pods[:limit]

    def pod(self, namespace: str, name: str) -> Pod | None:
        self._effects.before_read("cluster", "pod")
        return self._objects["pods"].get(f"{namespace}/{name}")

    def nodes(self, *, limit: int | None = None) -> tuple[Node, ...]:
        self._effects.before_read("cluster", "nodes" if limit is None else "some_nodes")
        return self.all("nodes")[:limit]

    def joining_nodes(self) -> tuple[Node, ...]:
        self._effects.before_read("cluster", "joining_nodes")
        nodes: tuple[Node, ...] = self.all("nodes")
        return tuple(node for node in nodes if labels.REGISTERED not in node.metadata.labels)

    def node(self, name: str) -> Node | None:
        self._effects.before_read("cluster", "node")
        return self._objects["nodes"].get(name)

    def node_with_volumes(self, name: str) -> NodeWithVolumes | None:
        node = self.node(name)
        return None if node is None else self._with_volumes(node)

    def nodepools(self) -> tuple[NodePool, ...]:
        return self.all("nodepools")

    def nodepool(self, name: str) -> NodePool | None:
        self._effects.before_read("cluster", "nodepool")
        return self._objects["nodepools"].get(name)

    def nodeclasses(self) -> tuple[EC2NodeClass, ...]:
        return self.all("ec2nodeclasses")

    def nodeclass(self, name: str) -> EC2NodeClass | None:
        self._effects.before_read("cluster", "nodeclass")
        return self._objects["ec2nodeclasses"].get(name)

    def nodeclaims(self) -> tuple[NodeClaim, ...]:
        self._effects.before_read("cluster", "nodeclaims")
        return self.all("nodeclaims")

    def nodeclaim(self, name: str) -> NodeClaim | None:
        self._effects.before_read("cluster", "nodeclaim")
        return self._objects["nodeclaims"].get(name)

    def nodeclaims_of_instances(self, instances: Collection[str], *, cached: bool = False) -> tuple[NodeClaim, ...]:
        self._effects.before_read("cluster", "nodeclaims_of_instances")
        claims: tuple[NodeClaim, ...] = self.all("nodeclaims")
        return tuple(claim for claim in claims if claim.metadata.labels.get(labels.INSTANCE_ID) in instances)

    def daemonsets(self) -> tuple[DaemonSet, ...]:
        return self.all("daemonsets")

    def pod_disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        self._effects.before_read("cluster", "pod_disruption_budgets")
        return self.stored_budgets()

    def stored_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """As those who watch have them: nobody reads."""
        budgets: tuple[PodDisruptionBudget, ...] = self.all("poddisruptionbudgets")
        return tuple(msgspec.structs.replace(budget, disruptions_allowed=self._allowed(budget)) for budget in budgets)

    def nodeoverlays(self) -> tuple[NodeOverlay, ...]:
        self._effects.before_read("cluster", "nodeoverlays")
        return self.all("nodeoverlays")

    def capacity_buffers(self) -> tuple[CapacityBuffer, ...]:
        return self.all("capacitybuffers")

    def attached_volume(self, attachment: str) -> str | None:
        self._effects.before_read("cluster", "attached_volume")
        volumes = self.attachments.copy()
        attached = {attachment_name(node, name): name for node in volumes for name in volumes[node]}
        return attached.get(attachment)

    def persistent_volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        self._effects.before_read("cluster", "persistent_volume_claim")
        return self._objects["persistentvolumeclaims"].get(f"{namespace}/{name}")

    def storage(self) -> Storage:
        self._effects.before_read("cluster", "storage")
        claims, volumes = self.all("persistentvolumeclaims"), self.all("persistentvolumes")
        return Storage(claims, volumes, self.all("storageclasses"), self.all("csinodes"))

    def namespaces(self) -> dict[str, dict[str, str]]:
        self._effects.before_read("cluster", "namespaces")
        return {namespace.metadata.name: namespace.metadata.labels for namespace in self.all("namespaces")}

    # Writes

    def create_nodeclaim(self, claim: NodeClaim) -> NodeClaim:
        with self._effects.record("cluster", "create_nodeclaim", claim.name):
            if claim.name in self._objects["nodeclaims"]:
                raise Conflict(f"nodeclaims {claim.name} already exists", code="AlreadyExists")
            nodeclaim: NodeClaim = self.put("nodeclaims", claim)
        return nodeclaim

    def patch_metadata(self, kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        with self._effects.record("cluster", "patch_metadata", f"{kind}/{metadata.name}"):
            obj = self._current(kind, metadata, versioned="finalizers" in change)
            after = merge_metadata(obj.metadata, change)
            self._store_patched(kind, msgspec.structs.replace(obj, metadata=after))

    def patch_nodeclaim(self, claim: NodeClaim, change: Mapping[str, Any]) -> NodeClaim:
        self.patch_metadata("nodeclaims", claim.metadata, change)
        after: NodeClaim = self._objects["nodeclaims"].get(claim.name, claim)
        return after

    def patch_status(self, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]) -> None:
        with self._effects.record("cluster", "patch_status", f"{kind}/{metadata.name}"):
            obj = self._current(kind, metadata, versioned=True)
            self._store(kind, merge_status(obj, status))

    def set_conditions(
        self,
        kind: str,
        metadata: ObjectMeta,
        conditions: Sequence[Condition],
        *,
        removed: Collection[str] = (),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        with self._effects.record("cluster", "set_conditions", f"{kind}/{metadata.name}"):
            self._write_status(kind, metadata, conditions, removed=removed, seen=seen, status={})

    def write_nodeclaim_status(
        self,
        claim: NodeClaim,
        conditions: Sequence[Condition],
        *,
        status: Mapping[str, Any] = MappingProxyType({}),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> NodeClaim:
        with self._effects.record("cluster", "write_nodeclaim_status", f"nodeclaims/{claim.name}"):
            after = self._write_status("nodeclaims", claim.metadata, conditions, removed=(), seen=seen, status=status)
        return cast("NodeClaim", after)

    def _write_status(
        self,
        kind: str,
        metadata: ObjectMeta,
        conditions: Sequence[Condition],
        *,
        removed: Collection[str],
        seen: Mapping[str, str],
        status: Mapping[str, Any],
    ) -> Any:
        obj = self._current(kind, metadata, versioned=False)
        if any(len(condition.message) > MESSAGE_LENGTH for condition in conditions):
            raise InvalidRequest(f"{kind} {metadata.name}: a message of its conditions is too long", code="Invalid")
        statuses = {condition.type: condition.status for condition in obj.conditions}
        if changed := sorted(type for type, known in seen.items() if statuses.get(type, "") != known):
            raise Conflict(f"{kind} {metadata.name} has another {', '.join(changed)} by now", code="Conflict")
        merged = merge_conditions(obj.conditions, conditions, now=self._clock.seconds())
        kept = tuple(condition for condition in merged if condition.type not in removed)
        after = msgspec.structs.replace(merge_status(obj, status) if status else obj, conditions=kept)
        return self._store(kind, after) if after != obj else obj

    def set_taints(
        self, node: Node, taints: Sequence[Taint], *, metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> NodeWithVolumes:
        with self._effects.record("cluster", "set_taints", node.name):
            current: Node = self._current("nodes", node.metadata, versioned=False)
            try:
                after = msgspec.structs.replace(
                    current,
                    metadata=patch_node_metadata(node.metadata, metadata, current.metadata),
                    taints=patch_taints(node.taints, taints, current.taints),
                )
            except InvalidRequest as refused:
                if current.metadata.resource_version == node.metadata.resource_version:
                    raise
                raise Conflict(f"nodes {node.name} has changed: {refused}", code="Conflict") from refused
            return self._with_volumes(self._store_patched("nodes", after))

    def delete(
        self, kind: str, metadata: ObjectMeta, *, grace_seconds: int | None = None, as_read: bool = False
    ) -> None:
        with self._effects.record("cluster", "delete", f"{kind}/{metadata.key}"):
            obj = self._objects[kind].get(metadata.key)
            if as_read and obj is not None:
                self._current(kind, metadata, versioned=True)
            if obj is None or (metadata.uid and obj.metadata.uid != metadata.uid):
                return
            if kind == "pods":
                self._delete_pod(obj, grace_seconds)
            elif not obj.metadata.finalizers:
                self.remove(kind, metadata.key)
            elif obj.metadata.deletion_timestamp is None:
                about = msgspec.structs.replace(obj.metadata, deletion_timestamp=self._clock.seconds())
                self._store(kind, msgspec.structs.replace(obj, metadata=about))

    def evict(self, pod: Pod) -> bool:
        with self._effects.record("cluster", "evict", pod.key):
            current: Pod | None = self._objects["pods"].get(pod.key)
            if current is None or current.metadata.uid != pod.metadata.uid:
                return True
            # Budgets are asked only for pods that run.
            is_running = current.is_active and current.phase != "Pending"
            if is_running and eviction.eviction_refusal(current, self.stored_budgets()):
                return False
            self._delete_pod(current, None)
        return True

    def nominate(self, node: str, pods: Mapping[str, str], *, again: bool = False) -> frozenset[str]:
        with self._effects.record("cluster", "nominate", node):
            for pod in self._waiting(pods):
                if not pod.nominated_node_name:
                    self._store("pods", msgspec.structs.replace(pod, nominated_node_name=node))
        return frozenset(pod.key for pod in self._waiting(pods) if pod.nominated_node_name == node)

    def clear_nominations(self, node: str, pods: Mapping[str, str]) -> None:
        with self._effects.record("cluster", "clear_nominations", node):
            for pod in self._waiting(pods):
                if pod.nominated_node_name == node:
                    self._store("pods", msgspec.structs.replace(pod, nominated_node_name=""))

    def _waiting(self, pods: Mapping[str, str]) -> tuple[Pod, ...]:
        """Those of ``pods`` (key → uid) that exist with that uid and have no node."""
        existing: Iterable[Pod] = filter(None, map(self._objects["pods"].get, sorted(pods)))
        return tuple(pod for pod in existing if pod.metadata.uid == pods[pod.key] and not pod.node_name)

    def record_event(self, kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        key = f"{metadata.uid or metadata.key}/{event.reason}/{event.message}"
        with self._effects.changing:
            if key not in self._recorded_at or now - self._recorded_at[key] >= event.row.repeat_after:
                self._recorded_at[key] = now
                self.events.append(RecordedEvent(now, kind, metadata.name, event.type, event.reason, event.message))

    # Inside

    def _with_volumes(self, node: Node) -> NodeWithVolumes:
        detaching, volumes = self.detaching, self.attachments.get(node.name, ())
        names = tuple(attachment_name(node.name, volume) for volume in volumes if volume not in detaching)
        return NodeWithVolumes(**_fields_of(node), volume_attachments=names)

    def _store(self, kind: str, obj: Any) -> Any:
        about = msgspec.structs.replace(obj.metadata, resource_version=str(next(self._versions)))
        stored = msgspec.structs.replace(obj, metadata=about)
        before, self._objects[kind][about.key] = self._objects[kind].get(about.key), stored
        if before is not None and before.metadata.uid != about.uid:
            self._report(kind, before.metadata.uid, None)
        self._report(kind, about.uid, stored)
        return stored

    def _report(self, kind: str, uid: str, obj: Any) -> None:
        for watcher in self._watchers:
            watcher(kind, uid, obj)

    def _store_patched[T: Any](self, kind: str, obj: T) -> T:
        """The object afterwards, which is gone where it was deleted and has no finalizer any more."""
        if obj.metadata.deletion_timestamp is not None and not obj.metadata.finalizers:
            self.remove(kind, obj.metadata.key)
            return obj
        stored: T = self._store(kind, obj)
        return stored

    def _current(self, kind: str, metadata: ObjectMeta, *, versioned: bool) -> Any:
        obj = self._objects[kind].get(metadata.key)
        if obj is None:
            raise NotFound(f"{kind} {metadata.name} is not there", code="NotFound")
        if metadata.uid and obj.metadata.uid != metadata.uid:
            raise Conflict(f"{kind} {metadata.name} has another uid", code="Conflict")
        if versioned and metadata.resource_version not in ("", obj.metadata.resource_version):
            raise Conflict(f"{kind} {metadata.name} has been modified", code="Conflict")
        return obj

    def _delete_pod(self, pod: Pod, grace_seconds: int | None) -> None:
        grace = pod.termination_grace_period_seconds if grace_seconds is None else grace_seconds
        ends = self._clock.seconds() + timedelta(seconds=grace)
        if grace == 0 or not pod.node_name:
            self.remove("pods", pod.key)
        elif pod.metadata.deletion_timestamp is None or ends < pod.metadata.deletion_timestamp:
            about = msgspec.structs.replace(pod.metadata, deletion_timestamp=ends)
            self._store("pods", msgspec.structs.replace(pod, metadata=about))

    def _allowed(self, budget: PodDisruptionBudget) -> int:
        """``disruptionsAllowed`` as the disruption controller computes it."""
        if budget.min_available is None and budget.max_unavailable is None:
            return budget.disruptions_allowed
        pods = [pod for pod in self.all("pods") if eviction.select_budgets(pod, [budget]) and not pod.is_terminal]
        healthy = sum(1 for pod in pods if pod.is_ready and pod.metadata.deletion_timestamp is None)
        if budget.min_available is not None:
            return max(0, healthy - _share(budget.min_available, len(pods)))
        return max(0, healthy - (len(pods) - _share(budget.max_unavailable or 0, len(pods))))


def attachment_name(node: str, volume: str) -> str:
    return f"csi-{volume}-{node}"


def _share(size: str | int, total: int) -> int:
    """A count, or a percentage of ``total`` rounded up."""
    text = str(size)
    return -(-int(text[:-1]) * total // 100) if text.endswith("%") else int(text)


def _fields_of(node: Node) -> dict[str, Any]:
    """Those of a Node that is listed."""
    return {field: getattr(node, field) for field in Node.__struct_fields__}
