"""Storage as far as it decides about nodes: which volumes can be attached where, and how many to one node.

Source: Kubernetes ``core/v1`` PersistentVolume(Claim), ``storage/v1`` StorageClass and CSINode.
"""

import msgspec

from spotwright.model.objects import Metadata
from spotwright.model.requirements import Selector

type Alternatives = tuple[tuple[Selector, ...], ...]
"""Conjunctions of which one must hold; () = anywhere."""


class VolumeClaim(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim. ``storage_class`` None = not stated; ``bound``: the controller says so."""

    metadata: Metadata
    volume: str = ""
    storage_class: str | None = None
    bound: bool = False
    phase: str = ""


class Volume(msgspec.Struct, frozen=True):
    """A PersistentVolume. ``driver``: its CSI driver, "" for volumes that need no attachment."""

    metadata: Metadata
    reachable: Alternatives = ()
    driver: str = ""


class StorageClass(msgspec.Struct, frozen=True):
    """A StorageClass. ``waits``: binds a claim when its first pod is scheduled."""

    metadata: Metadata
    provisioner: str = ""
    waits: bool = False
    topologies: Alternatives = ()


class CsiNode(msgspec.Struct, frozen=True):
    """A CSINode, named like its node. ``attachable``: driver → how many volumes; without a limit it is missing."""

    metadata: Metadata
    attachable: dict[str, int] = {}


class Storage(msgspec.Struct, frozen=True):
    """Everything about storage in one snapshot."""

    claims: tuple[VolumeClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    nodes: tuple[CsiNode, ...] = ()
