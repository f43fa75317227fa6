"""Kubernetes' own objects, as the API server or a manifest states them, into the model.

Tolerant where one object must not stop the others: a pod that cannot be read carries ``problem``. What a user writes
for us is read by ``decode_nodepool`` and ``decode_nodeclass``.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from spotwright.adapters import pod_company, pod_requests
from spotwright.model import quantity, resources
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import RESOURCE_CLAIMS, DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.requirements import NodeSelectorRequirement

type Json = Mapping[str, Any]

# What reading an object raises whose fields are not of their type.
MALFORMED: Final = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)


def sound[Value](made: Value) -> Value:
    """The value itself, if every field of it is of its type; raises one of MALFORMED, naming the field."""
    msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=type(made))
    return made


def metadata(obj: Json) -> ObjectMeta:
    """What every object has; its fields are as the API server checks them, see ``sound``."""
    given = obj.get("metadata") or {}
    return ObjectMeta(
        name=given.get("name") or "",
        namespace=given.get("namespace") or "",
        uid=given.get("uid") or "",
        generation=given.get("generation") or 0,
        resource_version=given.get("resourceVersion") or "",
        creation_timestamp=moment(given.get("creationTimestamp")),
        deletion_timestamp=moment(given.get("deletionTimestamp")),
        labels=dict(given.get("labels") or {}),
        annotations=dict(given.get("annotations") or {}),
        finalizers=tuple(given.get("finalizers") or ()),
        owner_references=tuple(
            OwnerReference(one.get("kind", ""), one.get("name", ""), one.get("uid", ""), one.get("apiVersion", ""))
            for one in given.get("ownerReferences") or ()
        ),
    )


def moment(text: Any) -> datetime | None:
    """An RFC 3339 time as aware UTC."""
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def selectors(items: Iterable[Json] | None) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(
        NodeSelectorRequirement(
            key=one.get("key") or "",
            operator=one.get("operator") or "",
            values=tuple(str(value) for value in one.get("values") or ()),
            min_values=one.get("minValues"),
        )
        for one in items or ()
    )


def taints(items: Iterable[Json] | None) -> tuple[Taint, ...]:
    return tuple(Taint(one["key"], one.get("effect") or "", str(one.get("value") or "")) for one in items or ())


def conditions(obj: Json) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=one["type"],
            status=one.get("status", "Unknown"),
            reason=one.get("reason") or "",
            message=one.get("message") or "",
            last_transition_time=moment(one.get("lastTransitionTime")),
            observed_generation=one.get("observedGeneration") or 0,
        )
        for one in (obj.get("status") or {}).get("conditions") or ()
    )


def pod(obj: Json) -> Pod:
    """A pod; what cannot be read is said in ``problem``, and then the rest of it is left out."""
    about = metadata(obj)
    if not about.namespace:
        about = msgspec.structs.replace(about, namespace="default")
    try:
        return sound(_pod(obj, about))
    except MALFORMED as error:
        node = stated(obj, "spec", "nodeName")
        return Pod(
            sound(about),
            requests={resources.PODS: 1},
            node_name=node,
            unschedulable=not node,
            read_error=f"its spec or status is malformed: {type(error).__name__}: {error}",
        )


def _pod(obj: Json, about: ObjectMeta) -> Pod:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    try:
        requests, problem = pod_requests.requests(spec, status), ""
    except quantity.QuantityError as error:
        requests, problem = {resources.PODS: 1}, str(error)
    problem = problem or next(pod_company.problems(spec), "")
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    placed = _condition(status, "PodScheduled")
    return Pod(
        metadata=about,
        requests=requests,
        node_selector={key: str(value) for key, value in (spec.get("nodeSelector") or {}).items()},
        node_affinity=tuple(
            selectors(term.get("matchExpressions")) for term in required.get("nodeSelectorTerms") or ()
        ),
        tolerations=tuple(
            Toleration(
                one.get("key") or "",
                one.get("operator") or "Equal",
                str(one.get("value") or ""),
                one.get("effect") or "",
            )
            for one in spec.get("tolerations") or ()
        ),
        priority=spec.get("priority") or 0,
        priority_class_name=spec.get("priorityClassName") or "",
        scheduler_name=spec.get("schedulerName") or "default-scheduler",
        node_name=spec.get("nodeName") or "",
        nominated_node_name=status.get("nominatedNodeName") or "",
        phase=status.get("phase") or "Pending",
        unschedulable=placed.get("reason") == "Unschedulable",
        start_time=moment(status.get("startTime")),
        termination_grace_period_seconds=_or(spec.get("terminationGracePeriodSeconds"), 30),
        is_ready=_condition(status, "Ready").get("status") == "True",
        unsupported_fields=tuple(_unhandled(spec, required)),
        read_error=problem,
        preferred_node_affinity=pod_company.node_preferences(spec),
        topology_spread_constraints=pod_company.spreads(spec, about.labels),
        pod_affinity=pod_company.required(spec, "podAffinity", about.labels, about.namespace),
        pod_anti_affinity=pod_company.required(spec, "podAntiAffinity", about.labels, about.namespace),
        preferred_pod_affinity=pod_company.preferred(spec, "podAffinity", about.labels, about.namespace),
        preferred_pod_anti_affinity=pod_company.preferred(spec, "podAntiAffinity", about.labels, about.namespace),
        host_ports=pod_company.host_ports(spec),
        volume_claim_names=tuple(pod_company.volume_claims(spec, about.name)),
    )


def _unhandled(spec: Json, required: Json) -> Iterable[str]:
    """Field paths of hard constraints that the planner does not handle."""
    if any(term.get("matchFields") for term in required.get("nodeSelectorTerms") or ()):
        yield "spec.affinity.nodeAffinity.matchFields"
    if spec.get("resourceClaims"):
        yield RESOURCE_CLAIMS


def daemonset(obj: Json) -> DaemonSet:
    """A DaemonSet; its template pod is named after it and says what of it cannot be read."""
    about = sound(metadata(obj))
    named = {"name": about.name, "namespace": about.namespace}
    try:
        template = dict((obj.get("spec") or {}).get("template") or {})
        template["metadata"] = dict(template.get("metadata") or {}) | named
        return DaemonSet(metadata=about, template=pod(template))
    except MALFORMED as error:
        return DaemonSet(about, Pod(sound(metadata({"metadata": named})), read_error=unread(error)))


def pod_disruption_budget(obj: Json) -> PodDisruptionBudget:
    """A budget; one that cannot be read allows no disruption in its namespace, and says so in ``unreadable``."""
    try:
        return sound(_pod_disruption_budget(obj))
    except MALFORMED as error:
        return PodDisruptionBudget(sound(metadata(obj)), (), read_error=unread(error))


def _pod_disruption_budget(obj: Json) -> PodDisruptionBudget:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    selector = spec.get("selector")
    return PodDisruptionBudget(
        metadata=metadata(obj),
        selector=None if selector is None else pod_company.label_selector(selector),
        disruptions_allowed=status.get("disruptionsAllowed") or 0,
        min_available=spec.get("minAvailable"),
        max_unavailable=spec.get("maxUnavailable"),
        unhealthy_pod_eviction_policy=spec.get("unhealthyPodEvictionPolicy") or "IfHealthyBudget",
    )


def node(obj: Json) -> Node:
    """A Node; what cannot be read is said in ``unreadable`` and stops no other."""
    try:
        return sound(_node(obj))
    except MALFORMED as error:
        about = sound(metadata(obj))
        return Node(about, stated(obj, "spec", "providerID"), unschedulable=True, read_error=unread(error))


def stated(obj: Json, part: str, name: str) -> str:
    """A text that an object which cannot be read states nevertheless; "" where it does not."""
    given = obj.get(part)
    value = given.get(name) if isinstance(given, Mapping) else None
    return value if isinstance(value, str) else ""


def unread(error: Exception) -> str:
    """What is wrong with an object that cannot be read."""
    return str(error) if isinstance(error, ValueError) else f"it is malformed: {type(error).__name__}: {error}"


def _node(obj: Json) -> Node:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return Node(
        metadata=metadata(obj),
        provider_id=spec.get("providerID") or "",
        taints=taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=_amounts("status.allocatable", status),
        capacity=_amounts("status.capacity", status),
        conditions=conditions(obj),
    )


def _amounts(where: str, status: Json) -> dict[str, int]:
    try:
        return resources.parse(status.get(where.partition(".")[2]) or {})
    except quantity.QuantityError as error:
        raise quantity.QuantityError(f"{where}.{error}") from None


def _condition(status: Json, kind: str) -> Json:
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), {})


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
