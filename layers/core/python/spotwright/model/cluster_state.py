"""The state of a cluster as the forwarder ships it: what a decision looks at, and how current it is."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, Storage, StorageClass

SCHEMA: Final = 1

# Kind → the field of ClusterObjects that holds its objects.
KIND_FIELDS: Final[Mapping[str, str]] = {
    "Pod": "pods",
    "Node": "nodes",
    "NodePool": "nodepools",
    "EC2NodeClass": "nodeclasses",
    "NodeClaim": "nodeclaims",
    "DaemonSet": "daemonsets",
    "PodDisruptionBudget": "pod_disruption_budgets",
    "PersistentVolumeClaim": "persistent_volume_claims",
    "PersistentVolume": "persistent_volumes",
    "StorageClass": "storage_classes",
    "CSINode": "csi_nodes",
    "NodeOverlay": "nodeoverlays",
    "CapacityBuffer": "capacity_buffers",
}
# The kind of ``namespaces``, which are labels by name instead of objects.
NAMESPACE: Final = "Namespace"


class ClusterStateError(ValueError):
    """A cluster state that must not be used; the message names what is wrong with it.

    ``code``: CutShort, Malformed, TooLarge, OtherSchema, OtherCluster, OtherBody, BadResourceVersion, InTheFuture or
    Outdated.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ClusterObject(Protocol):
    """An object of any kind."""

    @property
    def metadata(self) -> ObjectMeta: ...


class KindState(msgspec.Struct, frozen=True):
    """How current the objects of a kind are.

    ``resource_version``: of its last list, event or bookmark; ``contacted``: when that came, aware UTC.
    """

    resource_version: str
    contacted: datetime


class ClusterObjects(msgspec.Struct, frozen=True):
    """The objects of a cluster by kind, each in the order of ``in_order``.

    ``pods``: those that have not finished. ``namespaces``: name → labels, by name.
    """

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    nodepools: tuple[NodePool, ...] = ()
    nodeclasses: tuple[EC2NodeClass, ...] = ()
    nodeclaims: tuple[NodeClaim, ...] = ()
    daemonsets: tuple[DaemonSet, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    nodeoverlays: tuple[NodeOverlay, ...] = ()
    capacity_buffers: tuple[CapacityBuffer, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}

    @property
    def storage(self) -> Storage:
        return Storage(self.persistent_volume_claims, self.persistent_volumes, self.storage_classes, self.csi_nodes)

    def of_kind(self, kind: str) -> tuple[ClusterObject, ...]:
        """The objects of a kind of KIND_FIELDS."""
        objects: tuple[ClusterObject, ...] = getattr(self, KIND_FIELDS[kind])
        return objects


class ClusterStateVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Which state of which cluster it is.

    ``epoch``: when the forwarder's process started, in epoch milliseconds; ``sequence``: grows within an epoch.
    ``taken``: when the objects were as they are here, aware UTC. ``kinds``: kind → how current its objects are.
    """

    cluster: str
    epoch: int
    sequence: int
    taken: datetime
    kinds: dict[str, KindState]


class ClusterState(ClusterStateVersion, frozen=True, kw_only=True):
    """All objects of a cluster at one time."""

    objects: ClusterObjects = ClusterObjects()


class ClusterStateChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from an earlier state of the cluster.

    ``full``: sha256 of the body of the earlier state. ``changed``: objects that are new or have another value.
    ``gone``: kind → the identities (see ``identity``) of objects that exist no more; of a Namespace, its name.
    """

    cluster: str
    full: str
    changed: ClusterObjects = ClusterObjects()
    gone: dict[str, tuple[str, ...]] = {}


class ClusterStateHead(ClusterStateVersion, frozen=True, kw_only=True):
    """What the newest state consists of.

    ``full``: key of a body with all objects; ``changes``: key of a body with what differs from it, "" = nothing does.
    ``full_bytes`` and ``changes_bytes``: the sizes of the bodies.
    """

    full: str
    changes: str = ""
    full_bytes: int = 0
    changes_bytes: int = 0
    schema: int = SCHEMA


def identity(obj: ClusterObject) -> str:
    """What tells an object from all others of its kind: its uid; without one, namespace and name."""
    return obj.metadata.uid or obj.metadata.key


def in_order(objects: ClusterObjects) -> ClusterObjects:
    """The objects by namespace, name and uid, as the API server lists them; namespaces by name."""
    ordered: dict[str, Any] = {
        field: tuple(sorted(objects.of_kind(kind), key=_order)) for kind, field in KIND_FIELDS.items()
    }
    return ClusterObjects(**ordered, namespaces=dict(sorted(objects.namespaces.items())))


def apply_changes(objects: ClusterObjects, changes: ClusterStateChanges) -> ClusterObjects:
    """The objects with the changes laid over them."""
    fields: dict[str, Any] = {}
    for kind, field in KIND_FIELDS.items():
        changed, gone = changes.changed.of_kind(kind), changes.gone.get(kind, ())
        if changed or gone:
            left_out = {identity(obj) for obj in changed}.union(gone)
            kept = (obj for obj in objects.of_kind(kind) if identity(obj) not in left_out)
            fields[field] = tuple(sorted((*kept, *changed), key=_order))
    gone_namespaces = set(changes.gone.get(NAMESPACE, ()))
    namespaces = {name: value for name, value in objects.namespaces.items() if name not in gone_namespaces}
    namespaces = dict(sorted((namespaces | changes.changed.namespaces).items()))
    return msgspec.structs.replace(objects, namespaces=namespaces, **fields)


def changes_between(before: ClusterObjects, after: ClusterState, *, full: str) -> ClusterStateChanges:
    """What makes ``after`` of ``before``. ``full``: sha256 of the body that holds ``before``."""
    changed: dict[str, Any] = {}
    gone: dict[str, tuple[str, ...]] = {}
    for kind, field in KIND_FIELDS.items():
        known = {identity(obj): obj for obj in before.of_kind(kind)}
        current = after.objects.of_kind(kind)
        changed[field] = tuple(obj for obj in current if known.get(identity(obj)) != obj)
        if missing := known.keys() - map(identity, current):
            gone[kind] = tuple(sorted(missing))
    old, new = before.namespaces, after.objects.namespaces
    changed["namespaces"] = {name: value for name, value in new.items() if old.get(name) != value}
    if missing := old.keys() - new.keys():
        gone[NAMESPACE] = tuple(sorted(missing))
    return ClusterStateChanges(cluster=after.cluster, full=full, changed=ClusterObjects(**changed), gone=gone)


def _order(obj: ClusterObject) -> tuple[str, str, str]:
    metadata = obj.metadata
    return metadata.namespace, metadata.name, metadata.uid
