"""Nodes, from JSON into the model."""

from contextlib import suppress

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, describe_error
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    decode_conditions,
    decode_metadata,
    decode_taints,
    text_field,
    validate,
)
from spotwright.model import quantity, resources
from spotwright.model.kubernetes.node import Node


def decode_node(obj: Json) -> Node:
    """A Node; if it cannot be read, ``read_error`` says why and no pods are placed on it."""
    try:
        return validate(_node(obj))
    except DECODE_ERRORS as error:
        metadata = validate(decode_metadata(obj))
        node = Node(
            metadata, text_field(obj, "spec", "providerID"), unschedulable=True, read_error=describe_error(error)
        )
        # Whoever writes its taints writes all of them.
        with suppress(*DECODE_ERRORS):
            node = validate(msgspec.structs.replace(node, taints=decode_taints(obj["spec"].get("taints"))))
        return node


def _node(obj: Json) -> Node:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return Node(
        metadata=decode_metadata(obj),
        provider_id=spec.get("providerID") or "",
        taints=decode_taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=_resource_list("status.allocatable", status),
        capacity=_resource_list("status.capacity", status),
        conditions=decode_conditions(obj),
    )


def _resource_list(where: str, status: Json) -> dict[str, int]:
    try:
        return resources.parse(status.get(where.partition(".")[2]) or {})
    except quantity.QuantityError as error:
        raise quantity.QuantityError(f"{where}.{error}") from None
