"""Pods, DaemonSets and PodDisruptionBudgets, from JSON into the model."""

from collections.abc import Iterable

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, DecodeError, describe_error
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    decode_metadata,
    decode_node_selector_requirements,
    decode_time,
    select,
    text_field,
    validate,
)
from spotwright.adapters.kubernetes.codecs.pod_constraints import (
    constraint_problems,
    decode_host_ports,
    decode_label_selector,
    decode_node_preferences,
    decode_preferred_terms,
    decode_required_terms,
    decode_topology_spread,
    selector_problems,
    volume_claim_names,
)
from spotwright.adapters.kubernetes.codecs.pod_requests import pod_requests
from spotwright.model import quantity, resources
from spotwright.model.kubernetes.meta import LONGEST_DURATION_SECONDS, ObjectMeta
from spotwright.model.kubernetes.pod import RESOURCE_CLAIMS, USED_ANNOTATIONS, DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Toleration


def decode_pod(obj: Json) -> Pod:
    """A pod; if it cannot be read, ``read_error`` says why and most fields are left out."""
    stated = decode_metadata(obj)
    annotations = select(stated.annotations, USED_ANNOTATIONS)
    metadata = msgspec.structs.replace(stated, namespace=stated.namespace or "default", annotations=annotations)
    try:
        return decode_pod_strict(obj, metadata)
    except DECODE_ERRORS as error:
        node = text_field(obj, "spec", "nodeName")
        return Pod(
            validate(metadata),
            requests={resources.PODS: 1},
            node_name=node,
            unschedulable=not node,
            read_error=describe_error(error),
        )


def decode_pod_strict(obj: Json, metadata: ObjectMeta) -> Pod:
    """A pod with this metadata. Raises one of DECODE_ERRORS."""
    return validate(_pod(obj, metadata))


def _pod(obj: Json, metadata: ObjectMeta) -> Pod:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    try:
        requests, problem = pod_requests(spec, status), ""
    except quantity.QuantityError as error:
        requests, problem = {resources.PODS: 1}, str(error)
    problem = problem or next(constraint_problems(spec), "")
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    scheduled = _condition(status, "PodScheduled")
    return Pod(
        metadata=metadata,
        requests=requests,
        node_selector={key: str(value) for key, value in (spec.get("nodeSelector") or {}).items()},
        node_affinity=tuple(
            decode_node_selector_requirements(term.get("matchExpressions"))
            for term in required.get("nodeSelectorTerms") or ()
        ),
        tolerations=tuple(
            Toleration(
                toleration.get("key") or "",
                toleration.get("operator") or "Equal",
                str(toleration.get("value") or ""),
                toleration.get("effect") or "",
            )
            for toleration in spec.get("tolerations") or ()
        ),
        priority=spec.get("priority") or 0,
        priority_class_name=spec.get("priorityClassName") or "",
        scheduler_name=spec.get("schedulerName") or "default-scheduler",
        node_name=spec.get("nodeName") or "",
        nominated_node_name=status.get("nominatedNodeName") or "",
        phase=status.get("phase") or "Pending",
        unschedulable=scheduled.get("reason") == "Unschedulable",
        start_time=decode_time(status.get("startTime")),
        termination_grace_period_seconds=_grace_seconds(spec.get("terminationGracePeriodSeconds")),
        is_ready=_condition(status, "Ready").get("status") == "True",
        unsupported_fields=tuple(_unsupported_fields(spec, required)),
        read_error=problem,
        preferred_node_affinity=decode_node_preferences(spec),
        topology_spread_constraints=decode_topology_spread(spec, metadata.labels),
        pod_affinity=decode_required_terms(spec, "podAffinity", metadata.labels, metadata.namespace),
        pod_anti_affinity=decode_required_terms(spec, "podAntiAffinity", metadata.labels, metadata.namespace),
        preferred_pod_affinity=decode_preferred_terms(spec, "podAffinity", metadata.labels, metadata.namespace),
        preferred_pod_anti_affinity=decode_preferred_terms(
            spec, "podAntiAffinity", metadata.labels, metadata.namespace
        ),
        host_ports=decode_host_ports(spec),
        volume_claim_names=tuple(volume_claim_names(spec, metadata.name)),
    )


def _unsupported_fields(spec: Json, required: Json) -> Iterable[str]:
    """Field paths of hard constraints that the planner does not handle."""
    if any(term.get("matchFields") for term in required.get("nodeSelectorTerms") or ()):
        yield "spec.affinity.nodeAffinity.matchFields"
    if spec.get("resourceClaims"):
        yield RESOURCE_CLAIMS


def decode_daemonset(obj: Json) -> DaemonSet:
    """A DaemonSet; its template pod has its name, and says in ``read_error`` why it cannot be read."""
    metadata = validate(decode_metadata(obj))
    identity = {"name": metadata.name, "namespace": metadata.namespace}
    try:
        template = dict((obj.get("spec") or {}).get("template") or {})
        template["metadata"] = dict(template.get("metadata") or {}) | identity
        return DaemonSet(metadata=metadata, template=decode_pod(template))
    except DECODE_ERRORS as error:
        return DaemonSet(
            metadata, Pod(validate(decode_metadata({"metadata": identity})), read_error=describe_error(error))
        )


def decode_pod_disruption_budget(obj: Json) -> PodDisruptionBudget:
    """A PodDisruptionBudget; if it cannot be read, it allows no eviction in its namespace."""
    try:
        return validate(_pod_disruption_budget(obj))
    except DECODE_ERRORS as error:
        return PodDisruptionBudget(validate(decode_metadata(obj)), (), read_error=describe_error(error))


def _pod_disruption_budget(obj: Json) -> PodDisruptionBudget:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    selector = spec.get("selector")
    for problem in selector_problems("spec.selector", selector or {}):
        raise DecodeError(problem)
    return PodDisruptionBudget(
        metadata=decode_metadata(obj),
        selector=None if selector is None else decode_label_selector(selector),
        disruptions_allowed=status.get("disruptionsAllowed") or 0,
        min_available=spec.get("minAvailable"),
        max_unavailable=spec.get("maxUnavailable"),
        unhealthy_pod_eviction_policy=spec.get("unhealthyPodEvictionPolicy") or "IfHealthyBudget",
    )


def _condition(status: Json, kind: str) -> Json:
    return next((condition for condition in status.get("conditions") or () if condition.get("type") == kind), {})


def _grace_seconds(stated: int | None) -> int:
    """30 where none is stated; 1 for a negative one, as the API server reads it. ``validate`` refuses another type."""
    if stated is None:
        return 30
    if not isinstance(stated, int):
        return stated
    return min(stated, LONGEST_DURATION_SECONDS) if stated >= 0 else 1
