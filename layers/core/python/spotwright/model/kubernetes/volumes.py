"""Storage: where volumes can be attached, and how many to a node.

Source: Kubernetes ``core/v1`` PersistentVolume(Claim), ``storage/v1`` StorageClass and CSINode.
"""

from typing import Final

import msgspec

from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement

type NodeSelectorTerms = tuple[tuple[NodeSelectorRequirement, ...], ...]
"""Conjunctions of which at least one must hold; () = anywhere."""


class PersistentVolumeClaim(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim. ``storage_class_name`` None = not stated; ``bind_completed``: the controller says so.

    ``read_error``, here and below: why the rest of the object cannot be read, naming field and value.
    """

    metadata: ObjectMeta
    volume_name: str = msgspec.field(default="", name="volume")
    storage_class_name: str | None = msgspec.field(default=None, name="storage_class")
    bind_completed: bool = msgspec.field(default=False, name="bound")
    phase: str = ""
    read_error: str = msgspec.field(default="", name="unreadable")


class PersistentVolume(msgspec.Struct, frozen=True):
    """A PersistentVolume. ``driver``: its CSI driver, "" for volumes that need no attachment."""

    metadata: ObjectMeta
    node_affinity: NodeSelectorTerms = msgspec.field(default=(), name="reachable")
    driver: str = ""
    read_error: str = msgspec.field(default="", name="unreadable")


class StorageClass(msgspec.Struct, frozen=True):
    """A StorageClass. ``waits_for_first_consumer``: binds a claim when its first pod is scheduled."""

    metadata: ObjectMeta
    provisioner: str = ""
    waits_for_first_consumer: bool = msgspec.field(default=False, name="waits")
    allowed_topologies: NodeSelectorTerms = msgspec.field(default=(), name="topologies")
    read_error: str = msgspec.field(default="", name="unreadable")


EBS_CSI_DRIVER: Final = "ebs.csi.aws.com"
# How many volumes a node takes where it has no limit.
UNLIMITED_VOLUMES: Final = 2**20
_VOLUME_PREFIX: Final = "attachable-volumes-csi-"


def volume_resource(driver: str) -> str:
    """The resource that counts a driver's volumes on a node, under kube-scheduler's name."""
    return _VOLUME_PREFIX + driver


def csi_driver(resource: str) -> str:
    """The CSI driver whose volumes a resource counts; "" for every other resource."""
    return resource.removeprefix(_VOLUME_PREFIX) if resource.startswith(_VOLUME_PREFIX) else ""


class CSINode(msgspec.Struct, frozen=True):
    """A CSINode, named like its node. ``attachable_volumes``: driver → how many volumes; without a limit it is
    missing.
    """

    metadata: ObjectMeta
    attachable_volumes: dict[str, int] = msgspec.field(default_factory=dict, name="attachable")
    read_error: str = msgspec.field(default="", name="unreadable")


class Storage(msgspec.Struct, frozen=True):
    """The storage objects of a snapshot."""

    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = msgspec.field(default=(), name="claims")
    persistent_volumes: tuple[PersistentVolume, ...] = msgspec.field(default=(), name="volumes")
    storage_classes: tuple[StorageClass, ...] = msgspec.field(default=(), name="classes")
    csi_nodes: tuple[CSINode, ...] = msgspec.field(default=(), name="nodes")
