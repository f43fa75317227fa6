"""What all Kubernetes objects have in common, from JSON into the model and back.

A decoder does not fail for an object that cannot be read: the value says why in its field ``read_error``. Decoders
whose name ends in ``_strict`` raise instead.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference, bounded_time, format_time
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.quoting import quote
from spotwright.model.requirements import NodeSelectorRequirement

type JsonObject = dict[str, Any]

type Json = Mapping[str, Any]


def validate[Value](value: Value) -> Value:
    """The value itself, if every field is of its type; raises one of DECODE_ERRORS, naming the field."""
    msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    return value


def decode_metadata(obj: Json) -> ObjectMeta:
    """The metadata of an object; the caller checks the types of its fields with ``validate``."""
    metadata = obj.get("metadata") or {}
    return ObjectMeta(
        name=metadata.get("name") or "",
        namespace=metadata.get("namespace") or "",
        uid=metadata.get("uid") or "",
        generation=metadata.get("generation") or 0,
        resource_version=metadata.get("resourceVersion") or "",
        creation_timestamp=decode_time(metadata.get("creationTimestamp")),
        deletion_timestamp=decode_time(metadata.get("deletionTimestamp")),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        finalizers=tuple(metadata.get("finalizers") or ()),
        owner_references=tuple(
            OwnerReference(
                owner_reference.get("kind", ""),
                owner_reference.get("name", ""),
                owner_reference.get("uid", ""),
                owner_reference.get("apiVersion", ""),
            )
            for owner_reference in metadata.get("ownerReferences") or ()
        ),
    )


def select(texts: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    """Those of these keys."""
    return {key: text for key, text in texts.items() if key in keys}


def decode_time(text: Any) -> datetime | None:
    """An RFC 3339 time as aware UTC; one beyond EARLIEST_TIME or LATEST_TIME is read as that."""
    if isinstance(text, datetime):
        return bounded_time(text if text.tzinfo else text.replace(tzinfo=UTC))
    try:
        at = datetime.fromisoformat(text) if text else None
        return at if at is None else bounded_time(at if at.tzinfo is UTC else at.astimezone(UTC))
    except (OverflowError, TypeError, ValueError):
        raise DecodeError(f"{quote(text)} is not a time such as 2026-01-01T12:00:00Z") from None


def decode_node_selector_requirements(items: Iterable[Json] | None) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(
        NodeSelectorRequirement(
            key=item.get("key") or "",
            operator=item.get("operator") or "",
            values=tuple(str(value) for value in item.get("values") or ()),
            min_values=item.get("minValues"),
        )
        for item in items or ()
    )


def decode_taints(items: Iterable[Json] | None) -> tuple[Taint, ...]:
    return tuple(Taint(item["key"], item.get("effect") or "", str(item.get("value") or "")) for item in items or ())


def decode_conditions(obj: Json) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=condition["type"],
            status=condition.get("status", "Unknown"),
            reason=condition.get("reason") or "",
            message=condition.get("message") or "",
            last_transition_time=decode_time(condition.get("lastTransitionTime")),
            observed_generation=condition.get("observedGeneration") or 0,
        )
        for condition in (obj.get("status") or {}).get("conditions") or ()
    )


def text_field(obj: Json, part: str, name: str) -> str:
    """A text field of an object that cannot be read as a whole; "" = it has none."""
    section = obj.get(part)
    value = section.get(name) if isinstance(section, Mapping) else None
    return value if isinstance(value, str) else ""


def encode_time(at: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time."""
    return format_time(at)


def encode_duration(seconds: int | None) -> str:
    """A duration as the CRDs take it; None is Never."""
    if seconds is None:
        return "Never"
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{size}{unit}" for size, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if size]
    return "".join(parts) or "0s"


def encode_node_selector_requirement(expression: NodeSelectorRequirement) -> JsonObject:
    return (
        {"key": expression.key, "operator": str(expression.operator)}
        | ({"values": list(expression.values)} if expression.values else {})
        | ({"minValues": expression.min_values} if expression.min_values is not None else {})
    )


def encode_taint(taint: Taint) -> JsonObject:
    return {"key": taint.key, "effect": str(taint.effect)} | ({"value": taint.value} if taint.value else {})


def encode_condition(condition: Condition, *, since: datetime) -> JsonObject:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or condition.type,
        "message": condition.message,
        "lastTransitionTime": encode_time(condition.last_transition_time or since),
        "observedGeneration": condition.observed_generation,
    }


def encode_metadata(metadata: ObjectMeta) -> JsonObject:
    """The metadata that a client may set."""
    return {
        "name": metadata.name,
        "labels": dict(metadata.labels),
        "annotations": dict(metadata.annotations),
        "finalizers": list(metadata.finalizers),
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "blockOwnerDeletion": True,
            }
            for owner in metadata.owner_references
        ],
    }
