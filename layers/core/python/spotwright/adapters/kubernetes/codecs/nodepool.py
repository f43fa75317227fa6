"""NodePools, from JSON into the model."""

from collections.abc import Iterator

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, describe_error
from spotwright.adapters.kubernetes.codecs.fields import FieldReader
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    decode_conditions,
    decode_metadata,
    decode_node_selector_requirements,
    decode_taints,
    validate,
)
from spotwright.adapters.kubernetes.codecs.unknown_fields import field_problems
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import Budget, NodeClassReference, NodePool, RebalancePolicy
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.quoting import quote


def decode_nodepool_strict(obj: Json) -> NodePool:
    """A NodePool with its defaults; raises DecodeError."""
    reader = FieldReader(obj)
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    node_spec, template_metadata, disruption = (
        template.get("spec") or {},
        template.get("metadata") or {},
        spec.get("disruption") or {},
    )
    status = obj.get("status") or {}
    nodepool = NodePool(
        metadata=decode_metadata(obj),
        node_class_ref=decode_nodeclass_reference(node_spec),
        labels={key: str(value) for key, value in (template_metadata.get("labels") or {}).items()},
        annotations=dict(template_metadata.get("annotations") or {}),
        requirements=decode_node_selector_requirements(node_spec.get("requirements")),
        taints=decode_taints(node_spec.get("taints")),
        startup_taints=decode_taints(node_spec.get("startupTaints")),
        expire_after_seconds=reader.duration("spec.template.spec.expireAfter", node_spec.get("expireAfter") or "720h"),
        termination_grace_period_seconds=reader.optional_duration(
            "spec.template.spec.terminationGracePeriod", node_spec.get("terminationGracePeriod")
        ),
        limits=reader.resource_list("spec.limits", spec.get("limits") or {}),
        weight=spec.get("weight") or 0,
        replicas=spec.get("replicas"),
        consolidation_policy=disruption.get("consolidationPolicy") or "WhenEmptyOrUnderutilized",
        consolidate_after_seconds=reader.duration(
            "spec.disruption.consolidateAfter", disruption.get("consolidateAfter") or "0s"
        ),
        budgets=_budgets(disruption.get("budgets")),
        conditions=decode_conditions(obj),
        resources=reader.resource_list("status.resources", status.get("resources") or {}),
        node_count=int(status.get("nodes") or 0),
        problems=(*field_problems(obj), *_annotation_problems(obj)),
        explicitly_empty=_explicitly_empty(template_metadata, node_spec),
    )
    return reader.validate(nodepool)


def _annotation_problems(obj: Json) -> Iterator[str]:
    """Annotations of the NodePool itself that say nothing."""
    key, allowed = labels.REBALANCE_RECOMMENDATION, ", ".join(RebalancePolicy)
    value = ((obj.get("metadata") or {}).get("annotations") or {}).get(key)
    if value is not None and value not in list(RebalancePolicy):
        yield (
            f"metadata.annotations[{key}]: {quote(value)} is not one of {allowed}; recommendations are ignored until"
            " it is"
        )


def _explicitly_empty(template_metadata: Json, template_spec: Json) -> tuple[str, ...]:
    """The hashed lists and maps that the manifest states as empty."""
    places = (
        ("labels", template_metadata),
        ("annotations", template_metadata),
        ("taints", template_spec),
        ("startupTaints", template_spec),
    )
    return tuple(name for name, where in places if where.get(name) in ([], {}))


def decode_nodepool(obj: Json) -> NodePool:
    """A NodePool; if it cannot be read, ``read_error`` says why."""
    try:
        return decode_nodepool_strict(obj)
    except DECODE_ERRORS as error:
        return NodePool(
            validate(decode_metadata(obj)),
            _decode_class_or_none(obj),
            conditions=_conditions(obj),
            read_error=describe_error(error),
        )


def _decode_class_or_none(obj: Json) -> NodeClassReference:
    try:
        return validate(decode_nodeclass_reference(obj["spec"]["template"]["spec"]))
    except DECODE_ERRORS:
        return NodeClassReference("", "", "")


def _conditions(obj: Json) -> tuple[Condition, ...]:
    try:
        return tuple(map(validate, decode_conditions(obj)))
    except DECODE_ERRORS:
        return ()


def _budgets(items: list[Json] | None) -> tuple[Budget, ...]:
    if items is None:
        return (Budget(),)
    return tuple(
        Budget(
            nodes=str(item.get("nodes") or "10%"),
            reasons=tuple(item.get("reasons") or ()),
            schedule=item.get("schedule") or "",
            duration=item.get("duration") or "",
        )
        for item in items
    )


def decode_nodeclass_reference(spec: Json) -> NodeClassReference:
    ref = spec.get("nodeClassRef") or {}
    return NodeClassReference(ref.get("group") or "", ref.get("kind") or "", ref.get("name") or "")
