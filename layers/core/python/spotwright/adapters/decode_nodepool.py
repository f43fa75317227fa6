"""NodePools and NodeClaims, as the API server or a manifest states them, into the model.

A bad value raises DecodeError naming object, field and value.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from spotwright.adapters import decode, fields
from spotwright.adapters.decode import Json
from spotwright.model import quantity, resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget, NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition

_DURATION: Final = re.compile(r"([0-9]+)(h|m|s)")
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


class DecodeError(ValueError):
    """An object that cannot be read; the message names kind, name, field, value and what is allowed."""


def nodepool(obj: Json) -> NodePool:
    """A NodePool with its defaults; raises DecodeError."""
    reader = _Reader(obj)
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    given, about, disruption = template.get("spec") or {}, template.get("metadata") or {}, spec.get("disruption") or {}
    status = obj.get("status") or {}
    made = NodePool(
        metadata=decode.metadata(obj),
        node_class_ref=_class_reference(given),
        labels={key: str(value) for key, value in (about.get("labels") or {}).items()},
        annotations=dict(about.get("annotations") or {}),
        requirements=decode.selectors(given.get("requirements")),
        taints=decode.taints(given.get("taints")),
        startup_taints=decode.taints(given.get("startupTaints")),
        expire_after_seconds=reader.duration("spec.template.spec.expireAfter", given.get("expireAfter") or "720h"),
        termination_grace_period_seconds=reader.optional_duration(
            "spec.template.spec.terminationGracePeriod", given.get("terminationGracePeriod")
        ),
        limits=reader.amounts("spec.limits", spec.get("limits") or {}),
        weight=spec.get("weight") or 0,
        replicas=spec.get("replicas"),
        consolidation_policy=disruption.get("consolidationPolicy") or "WhenEmptyOrUnderutilized",
        consolidate_after_seconds=reader.duration(
            "spec.disruption.consolidateAfter", disruption.get("consolidateAfter") or "0s"
        ),
        budgets=_budgets(disruption.get("budgets")),
        conditions=decode.conditions(obj),
        resources=reader.amounts("status.resources", status.get("resources") or {}),
        node_count=int(status.get("nodes") or 0),
        problems=fields.problems(obj),
        explicitly_empty=_stated_empty(about, given),
    )
    return reader.sound(made)


def _stated_empty(template_metadata: Json, template_spec: Json) -> tuple[str, ...]:
    """Which of the hashed lists and maps are there and empty."""
    places = (
        ("labels", template_metadata),
        ("annotations", template_metadata),
        ("taints", template_spec),
        ("startupTaints", template_spec),
    )
    return tuple(name for name, where in places if where.get(name) in ([], {}))


def readable_nodepool(obj: Json) -> NodePool:
    """A NodePool that the API server let pass; what cannot be read is said in ``unreadable`` and stops no other."""
    try:
        return nodepool(obj)
    except decode.MALFORMED as error:
        return NodePool(
            decode.sound(decode.metadata(obj)),
            _stated_class(obj),
            conditions=_conditions(obj),
            read_error=decode.unread(error),
        )


def readable_nodeclaim(obj: Json) -> NodeClaim:
    """A NodeClaim that the API server let pass; what cannot be read is said in ``unreadable`` and stops no other."""
    try:
        return nodeclaim(obj)
    except decode.MALFORMED as error:
        return NodeClaim(
            decode.sound(decode.metadata(obj)),
            NodeClassReference("", "", ""),
            provider_id=decode.stated(obj, "status", "providerID"),
            node_name=decode.stated(obj, "status", "nodeName"),
            read_error=decode.unread(error),
        )


def _stated_class(obj: Json) -> NodeClassReference:
    try:
        return decode.sound(_class_reference(obj["spec"]["template"]["spec"]))
    except decode.MALFORMED:
        return NodeClassReference("", "", "")


def _conditions(obj: Json) -> tuple[Condition, ...]:
    try:
        return tuple(map(decode.sound, decode.conditions(obj)))
    except decode.MALFORMED:
        return ()


def _budgets(items: list[Json] | None) -> tuple[Budget, ...]:
    if items is None:
        return (Budget(),)
    return tuple(
        Budget(
            nodes=str(one.get("nodes") or "10%"),
            reasons=tuple(one.get("reasons") or ()),
            schedule=one.get("schedule") or "",
            duration=one.get("duration") or "",
        )
        for one in items
    )


def _class_reference(spec: Json) -> NodeClassReference:
    ref = spec.get("nodeClassRef") or {}
    return NodeClassReference(ref.get("group") or "", ref.get("kind") or "", ref.get("name") or "")


def nodeclaim(obj: Json) -> NodeClaim:
    reader = _Reader(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    made = NodeClaim(
        metadata=decode.metadata(obj),
        node_class_ref=_class_reference(spec),
        requirements=decode.selectors(spec.get("requirements")),
        requests=reader.amounts("spec.resources.requests", (spec.get("resources") or {}).get("requests") or {}),
        taints=decode.taints(spec.get("taints")),
        startup_taints=decode.taints(spec.get("startupTaints")),
        expire_after_seconds=reader.duration("spec.expireAfter", spec.get("expireAfter") or "720h"),
        termination_grace_period_seconds=reader.optional_duration(
            "spec.terminationGracePeriod", spec.get("terminationGracePeriod")
        ),
        provider_id=status.get("providerID") or "",
        node_name=status.get("nodeName") or "",
        image_id=status.get("imageID") or "",
        capacity=reader.amounts("status.capacity", status.get("capacity") or {}),
        allocatable=reader.amounts("status.allocatable", status.get("allocatable") or {}),
        last_pod_event_time=decode.moment(status.get("lastPodEventTime")),
        conditions=decode.conditions(obj),
    )
    return reader.sound(made)


class _Reader:
    """Reads single fields of one object, so that errors can name it."""

    def __init__(self, obj: Json) -> None:
        self._who = f"{obj.get('kind') or 'object'} {(obj.get('metadata') or {}).get('name') or '(no name)'}"

    def sound[Value](self, made: Value) -> Value:
        """The object read, if every field of it is of its type."""
        try:
            return decode.sound(made)
        except decode.MALFORMED as error:
            raise DecodeError(f"{self._who}: {error}") from None

    def duration(self, field: str, text: str) -> int | None:
        try:
            return duration_seconds(str(text))
        except ValueError as error:
            raise DecodeError(f"{self._who}: {field}: {error}") from None

    def optional_duration(self, field: str, text: str | None) -> int | None:
        return None if text is None else self.duration(field, text)

    def amounts(self, field: str, given: Mapping[str, Any]) -> dict[str, int]:
        try:
            return resources.parse(given)
        except quantity.QuantityError as error:
            raise DecodeError(f"{self._who}: {field}.{error}") from None


def duration_seconds(text: str) -> int | None:
    """``1h30m`` in seconds; None for Never. Raises ValueError."""
    if text == "Never":
        return None
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m, 1h30m or Never")
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)
