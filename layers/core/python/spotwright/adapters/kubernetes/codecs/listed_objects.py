"""Objects of a list or a watch but pods, from JSON into the model, without the fields that are not used.

What remains of an object is decoded as JSON by the kind's own decoder.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from spotwright.adapters.kubernetes.codecs.listed_metadata import ABSENT
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.objects import Json
from spotwright.adapters.kubernetes.codecs.pages import PageDecoder
from spotwright.model.kubernetes.node import Node


class _Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All but managedFields, which are half of a small object."""

    name: Raw = ABSENT
    namespace: Raw = ABSENT
    uid: Raw = ABSENT
    generation: Raw = ABSENT
    resource_version: Raw = ABSENT
    creation_timestamp: Raw = ABSENT
    deletion_timestamp: Raw = ABSENT
    labels: Raw = ABSENT
    annotations: Raw = ABSENT
    finalizers: Raw = ABSENT
    owner_references: Raw = ABSENT


class ObjectFields(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object of any kind. ``provisioner`` and the two after it: of a StorageClass."""

    metadata: _Metadata = _Metadata()
    spec: Raw = ABSENT
    status: Raw = ABSENT
    provisioner: Raw = ABSENT
    volume_binding_mode: Raw = ABSENT
    allowed_topologies: Raw = ABSENT


class _NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    providerID: Raw = ABSENT
    taints: Raw = ABSENT
    unschedulable: Raw = ABSENT


class _NodeCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    type: Raw = ABSENT
    status: Raw = ABSENT
    reason: Raw = ABSENT
    message: Raw = ABSENT
    last_transition_time: Raw = ABSENT
    observed_generation: Raw = ABSENT


class _NodeStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    allocatable: Raw = ABSENT
    capacity: Raw = ABSENT
    conditions: tuple[_NodeCondition, ...] | None = None


class NodeFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Node without its images, which are most of it."""

    metadata: _Metadata = _Metadata()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


def object_decoder[Value](decode: Callable[[Json], Value], *, kind: str = "") -> PageDecoder[ObjectFields, Value]:
    """Decodes objects with the same result as ``decode``. ``kind``: stated in each object, which lists leave out."""

    def decode_kind(obj: Json) -> Value:
        return decode({**obj, "kind": kind} if kind else obj)

    return PageDecoder(ObjectFields, lambda fields: decode_kind(_as_json(fields)), decode_kind)


def node_decoder() -> PageDecoder[NodeFields, Node]:
    """Decodes Nodes, with the same result as ``decode_node``."""
    return PageDecoder(NodeFields, lambda fields: decode_node(_as_json(fields)), decode_node)


def _as_json(fields: msgspec.Struct) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(fields))
    return decoded
