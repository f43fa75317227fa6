"""Constraints of a pod's spec: topology spread, affinity, host ports, volume claims."""

from collections.abc import Iterator

from spotwright.adapters.kubernetes.codecs.objects import Json, decode_node_selector_requirements
from spotwright.model.kubernetes.pod_constraints import (
    HostPort,
    LabelSelector,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from spotwright.model.quoting import quote
from spotwright.model.requirements import NodeSelectorRequirement, Operator


def decode_label_selector(selector: Json) -> tuple[NodeSelectorRequirement, ...]:
    """A LabelSelector as expressions; () selects everything."""
    equal = (
        NodeSelectorRequirement(key, Operator.IN, (str(value),))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    return (*equal, *decode_node_selector_requirements(selector.get("matchExpressions")))


def _selector(term: Json, labels: Json) -> LabelSelector:
    """The selector of a term, with the pod's values of matchLabelKeys and mismatchLabelKeys."""
    selector = term.get("labelSelector")
    if selector is None:
        return None
    matching = (
        NodeSelectorRequirement(key, Operator.IN, (labels[key],))
        for key in term.get("matchLabelKeys") or ()
        if key in labels
    )
    mismatching = (
        NodeSelectorRequirement(key, Operator.NOT_IN, (labels[key],))
        for key in term.get("mismatchLabelKeys") or ()
        if key in labels
    )
    return (*decode_label_selector(selector), *matching, *mismatching)


_LABEL_OPERATORS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def constraint_problems(spec: Json) -> Iterator[str]:
    """Errors in constraints between pods, each with field and value."""
    for number, entry in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread_problems(f"spec.topologySpreadConstraints[{number}]", entry)
    for kind in ("podAffinity", "podAntiAffinity"):
        for when in _TERMS:
            for number, entry in enumerate(_affinity(spec, kind).get(when) or ()):
                term = entry if when == _TERMS[0] else entry.get("podAffinityTerm") or {}
                where = f"spec.affinity.{kind}.{when}[{number}]"
                if not term.get("topologyKey"):
                    yield f"{where}.topologyKey is empty: a label key is needed"
                for name in ("labelSelector", "namespaceSelector"):
                    yield from selector_problems(f"{where}.{name}", term.get(name) or {})


def _spread_problems(where: str, constraint: Json) -> Iterator[str]:
    if not constraint.get("topologyKey"):
        yield f"{where}.topologyKey is empty: a label key is needed"
    for name in ("maxSkew", "minDomains"):
        value = constraint.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            yield f"{where}.{name}: {quote(value)} is not a whole number of at least 1"
    allowed = {
        "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
        "nodeAffinityPolicy": ("Honor", "Ignore"),
        "nodeTaintsPolicy": ("Honor", "Ignore"),
    }
    for name, values in allowed.items():
        if constraint.get(name) and constraint[name] not in values:
            yield f"{where}.{name}: {quote(constraint[name])} is not one of {', '.join(values)}"
    yield from selector_problems(f"{where}.labelSelector", constraint.get("labelSelector") or {})


def selector_problems(where: str, selector: Json) -> Iterator[str]:
    """Errors in the expressions of a LabelSelector, each with field and value."""
    for number, expression in enumerate(selector.get("matchExpressions") or ()):
        operator, values = expression.get("operator"), expression.get("values") or ()
        path = f"{where}.matchExpressions[{number}]"
        if operator not in _LABEL_OPERATORS:
            yield f"{path}.operator: {quote(operator)} is not one of {', '.join(_LABEL_OPERATORS)}"
        elif operator in (Operator.IN, Operator.NOT_IN) and not values:
            yield f"{path}.values: {operator} needs at least one value"
        elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
            yield f"{path}.values: {operator} takes no values, found {quote(list(values))}"


def decode_topology_spread(spec: Json, labels: Json) -> tuple[TopologySpreadConstraint, ...]:
    return tuple(
        TopologySpreadConstraint(
            topology_key=constraint.get("topologyKey") or "",
            max_skew=constraint.get("maxSkew") or 1,
            label_selector=_selector(constraint, labels),
            do_not_schedule=(constraint.get("whenUnsatisfiable") or "DoNotSchedule") == "DoNotSchedule",
            min_domains=constraint.get("minDomains") or 0,
            honors_node_affinity=(constraint.get("nodeAffinityPolicy") or "Honor") == "Honor",
            honors_node_taints=(constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )
        for constraint in spec.get("topologySpreadConstraints") or ()
    )


def decode_required_terms(spec: Json, kind: str, labels: Json, namespace: str) -> tuple[PodAffinityTerm, ...]:
    """Required terms of ``podAffinity`` or ``podAntiAffinity``."""
    terms = _affinity(spec, kind).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(_pod_affinity_term(term, labels, namespace) for term in terms)


def decode_preferred_terms(spec: Json, kind: str, labels: Json, namespace: str) -> tuple[WeightedPodAffinityTerm, ...]:
    terms = _affinity(spec, kind).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(
        WeightedPodAffinityTerm(
            term.get("weight") or 1, _pod_affinity_term(term.get("podAffinityTerm") or {}, labels, namespace)
        )
        for term in terms
    )


def decode_node_preferences(spec: Json) -> tuple[tuple[int, tuple[NodeSelectorRequirement, ...]], ...]:
    """(weight, conjunction) of the preferred node affinity."""
    terms = _affinity(spec, "nodeAffinity").get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(
        (
            term.get("weight") or 1,
            decode_node_selector_requirements((term.get("preference") or {}).get("matchExpressions")),
        )
        for term in terms
    )


def _affinity(spec: Json, kind: str) -> Json:
    return (spec.get("affinity") or {}).get(kind) or {}


def _pod_affinity_term(term: Json, labels: Json, pod_namespace: str) -> PodAffinityTerm:
    namespaces, namespace_selector = tuple(sorted(term.get("namespaces") or ())), term.get("namespaceSelector")
    return PodAffinityTerm(
        topology_key=term.get("topologyKey") or "",
        label_selector=_selector(term, labels),
        namespaces=namespaces if namespaces or namespace_selector is not None else (pod_namespace,),
        namespace_selector=None if namespace_selector is None else decode_label_selector(namespace_selector),
    )


def decode_host_ports(spec: Json) -> tuple[HostPort, ...]:
    """Ports of the node that the containers bind; with hostNetwork all container ports are."""
    host_ports = []
    for container in spec.get("containers") or ():
        for container_port in container.get("ports") or ():
            number = container_port.get("hostPort") or (
                container_port.get("containerPort") if spec.get("hostNetwork") else 0
            )
            if number:
                host_ports.append(
                    HostPort(int(number), container_port.get("protocol") or "TCP", container_port.get("hostIP") or "")
                )
    return tuple(host_ports)


def volume_claim_names(spec: Json, pod: str) -> Iterator[str]:
    """Names of the PersistentVolumeClaims of the pod's volumes, with those of ephemeral volumes."""
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"].get("claimName") or ""
        elif volume.get("ephemeral"):
            yield f"{pod}-{volume.get('name')}"
