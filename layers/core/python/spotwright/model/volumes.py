"""Storage as far as it decides about nodes: which volumes can be attached where, and how many to one node.

Source: Kubernetes ``core/v1`` PersistentVolume(Claim), ``storage/v1`` StorageClass and CSINode.
"""

from typing import Final

import msgspec

from spotwright.model.objects import Metadata
from spotwright.model.requirements import Selector

type Alternatives = tuple[tuple[Selector, ...], ...]
"""Conjunctions of which one must hold; () = anywhere."""


class VolumeClaim(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim. ``storage_class`` None = not stated; ``bound``: the controller says so.

    ``unreadable``, here and below: why the rest of the object cannot be read, naming field and value.
    """

    metadata: Metadata
    volume: str = ""
    storage_class: str | None = None
    bound: bool = False
    phase: str = ""
    unreadable: str = ""


class Volume(msgspec.Struct, frozen=True):
    """A PersistentVolume. ``driver``: its CSI driver, "" for volumes that need no attachment."""

    metadata: Metadata
    reachable: Alternatives = ()
    driver: str = ""
    unreadable: str = ""


class StorageClass(msgspec.Struct, frozen=True):
    """A StorageClass. ``waits``: binds a claim when its first pod is scheduled."""

    metadata: Metadata
    provisioner: str = ""
    waits: bool = False
    topologies: Alternatives = ()
    unreadable: str = ""


EBS: Final = "ebs.csi.aws.com"
# Volumes where nothing limits them.
ENDLESS: Final = 2**20
_SLOT: Final = "attachable-volumes-csi-"


def slot(driver: str) -> str:
    """What a volume takes up on a node, as a resource; the name is kube-scheduler's."""
    return _SLOT + driver


def driver_of(resource: str) -> str:
    """The CSI driver whose volumes a resource counts; "" for every other resource."""
    return resource.removeprefix(_SLOT) if resource.startswith(_SLOT) else ""


class CsiNode(msgspec.Struct, frozen=True):
    """A CSINode, named like its node. ``attachable``: driver → how many volumes; without a limit it is missing."""

    metadata: Metadata
    attachable: dict[str, int] = {}
    unreadable: str = ""


class Storage(msgspec.Struct, frozen=True):
    """Everything about storage in one snapshot."""

    claims: tuple[VolumeClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    nodes: tuple[CsiNode, ...] = ()
