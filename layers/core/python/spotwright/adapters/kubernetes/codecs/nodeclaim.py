"""NodeClaims, from JSON into the model and back."""

from collections.abc import Iterable

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, describe_error
from spotwright.adapters.kubernetes.codecs.fields import FieldReader
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodeclass_reference
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    JsonObject,
    decode_conditions,
    decode_metadata,
    decode_node_selector_requirements,
    decode_taints,
    decode_time,
    encode_duration,
    encode_metadata,
    encode_node_selector_requirement,
    encode_taint,
    text_field,
    validate,
)
from spotwright.model import resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference


def decode_nodeclaim(obj: Json) -> NodeClaim:
    """A NodeClaim; if it cannot be read, ``read_error`` says why."""
    try:
        return decode_nodeclaim_strict(obj)
    except DECODE_ERRORS as error:
        return NodeClaim(
            validate(decode_metadata(obj)),
            NodeClassReference("", "", ""),
            provider_id=text_field(obj, "status", "providerID"),
            node_name=text_field(obj, "status", "nodeName"),
            read_error=describe_error(error),
        )


def decode_nodeclaim_strict(obj: Json) -> NodeClaim:
    reader = FieldReader(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    nodeclaim = NodeClaim(
        metadata=decode_metadata(obj),
        node_class_ref=decode_nodeclass_reference(spec),
        requirements=decode_node_selector_requirements(spec.get("requirements")),
        requests=reader.resource_list("spec.resources.requests", (spec.get("resources") or {}).get("requests") or {}),
        taints=decode_taints(spec.get("taints")),
        startup_taints=decode_taints(spec.get("startupTaints")),
        expire_after_seconds=reader.duration("spec.expireAfter", spec.get("expireAfter") or "720h"),
        termination_grace_period_seconds=reader.optional_duration(
            "spec.terminationGracePeriod", spec.get("terminationGracePeriod")
        ),
        provider_id=status.get("providerID") or "",
        node_name=status.get("nodeName") or "",
        image_id=status.get("imageID") or "",
        capacity=reader.resource_list("status.capacity", status.get("capacity") or {}),
        allocatable=reader.resource_list("status.allocatable", status.get("allocatable") or {}),
        last_pod_event_time=decode_time(status.get("lastPodEventTime")),
        conditions=decode_conditions(obj),
    )
    return reader.validate(nodeclaim)


def encode_nodeclaim(claim: NodeClaim) -> JsonObject:
    """A NodeClaim to create, without status."""
    ref = claim.node_class_ref
    spec: JsonObject = {
        "nodeClassRef": {"group": ref.group, "kind": ref.kind, "name": ref.name},
        "requirements": [encode_node_selector_requirement(expression) for expression in claim.requirements],
        "resources": {"requests": resources.text(claim.requests)},
        "expireAfter": encode_duration(claim.expire_after_seconds),
    }
    spec |= _if_any("taints", map(encode_taint, claim.taints)) | _if_any(
        "startupTaints", map(encode_taint, claim.startup_taints)
    )
    if claim.termination_grace_period_seconds is not None:
        spec["terminationGracePeriod"] = encode_duration(claim.termination_grace_period_seconds)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": encode_metadata(claim.metadata),
        "spec": spec,
    }


def _if_any(name: str, items: Iterable[JsonObject]) -> JsonObject:
    documents = list(items)
    return {name: documents} if documents else {}
