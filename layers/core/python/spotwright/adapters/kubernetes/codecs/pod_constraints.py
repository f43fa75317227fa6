"""What a pod's spec says about other pods and about its volumes: spread, affinity, host ports, claims."""

from collections.abc import Iterable, Iterator

from spotwright.adapters.kubernetes.codecs.objects import Json
from spotwright.model.kubernetes.pod_constraints import (
    HostPort,
    LabelSelector,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from spotwright.model.requirements import NodeSelectorRequirement, Operator


def decode_label_selector(selector: Json) -> tuple[NodeSelectorRequirement, ...]:
    """A LabelSelector as selectors; () selects everything."""
    equal = (
        NodeSelectorRequirement(key, Operator.IN, (str(value),))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    return (*equal, *decode_match_expressions(selector.get("matchExpressions")))


def decode_match_expressions(items: Iterable[Json] | None) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(
        NodeSelectorRequirement(
            item.get("key") or "", item.get("operator") or "", tuple(str(value) for value in item.get("values") or ())
        )
        for item in items or ()
    )


def _selector(one: Json, labels: Json) -> LabelSelector:
    """The term's own selector, with the pod's values of matchLabelKeys and mismatchLabelKeys."""
    given = one.get("labelSelector")
    if given is None:
        return None
    same = (
        NodeSelectorRequirement(key, Operator.IN, (labels[key],))
        for key in one.get("matchLabelKeys") or ()
        if key in labels
    )
    other_expressions = (
        NodeSelectorRequirement(key, Operator.NOT_IN, (labels[key],))
        for key in one.get("mismatchLabelKeys") or ()
        if key in labels
    )
    return (*decode_label_selector(given), *same, *other_expressions)


_OF_LABELS = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def constraint_problems(spec: Json) -> Iterator[str]:
    """What the rules about other pods say that means nothing, each with its field and value."""
    for number, one in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread_problems(f"spec.topologySpreadConstraints[{number}]", one)
    for kind in ("podAffinity", "podAntiAffinity"):
        for when in _TERMS:
            for number, one in enumerate(_affinity(spec, kind).get(when) or ()):
                term = one if when == _TERMS[0] else one.get("podAffinityTerm") or {}
                where = f"spec.affinity.{kind}.{when}[{number}]"
                if not term.get("topologyKey"):
                    yield f"{where}.topologyKey is empty: a label key is needed"
                for name in ("labelSelector", "namespaceSelector"):
                    yield from _selector_problems(f"{where}.{name}", term.get(name) or {})


def _spread_problems(where: str, one: Json) -> Iterator[str]:
    if not one.get("topologyKey"):
        yield f"{where}.topologyKey is empty: a label key is needed"
    for name in ("maxSkew", "minDomains"):
        value = one.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            yield f"{where}.{name}: {value!r} is not a whole number of at least 1"
    allowed = {
        "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
        "nodeAffinityPolicy": ("Honor", "Ignore"),
        "nodeTaintsPolicy": ("Honor", "Ignore"),
    }
    for name, values in allowed.items():
        if one.get(name) and one[name] not in values:
            yield f"{where}.{name}: {one[name]!r} is not one of {', '.join(values)}"
    yield from _selector_problems(f"{where}.labelSelector", one.get("labelSelector") or {})


def _selector_problems(where: str, selector: Json) -> Iterator[str]:
    for number, one in enumerate(selector.get("matchExpressions") or ()):
        operator, values = one.get("operator"), one.get("values") or ()
        at = f"{where}.matchExpressions[{number}]"
        if operator not in _OF_LABELS:
            yield f"{at}.operator: {operator!r} is not one of {', '.join(_OF_LABELS)}"
        elif operator in (Operator.IN, Operator.NOT_IN) and not values:
            yield f"{at}.values: {operator} needs at least one value"
        elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
            yield f"{at}.values: {operator} takes no values, found {list(values)}"


def decode_topology_spread(spec: Json, labels: Json) -> tuple[TopologySpreadConstraint, ...]:
    return tuple(
        TopologySpreadConstraint(
            topology_key=topology_spread_constraint.get("topologyKey") or "",
            max_skew=topology_spread_constraint.get("maxSkew") or 1,
            label_selector=_selector(topology_spread_constraint, labels),
            do_not_schedule=(topology_spread_constraint.get("whenUnsatisfiable") or "DoNotSchedule") == "DoNotSchedule",
            min_domains=topology_spread_constraint.get("minDomains") or 0,
            honors_node_affinity=(topology_spread_constraint.get("nodeAffinityPolicy") or "Honor") == "Honor",
            honors_node_taints=(topology_spread_constraint.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )
        for topology_spread_constraint in spec.get("topologySpreadConstraints") or ()
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
        (term.get("weight") or 1, decode_match_expressions((term.get("preference") or {}).get("matchExpressions")))
        for term in terms
    )


def _affinity(spec: Json, kind: str) -> Json:
    return (spec.get("affinity") or {}).get(kind) or {}


def _pod_affinity_term(one: Json, labels: Json, namespace: str) -> PodAffinityTerm:
    named, chosen = tuple(sorted(one.get("namespaces") or ())), one.get("namespaceSelector")
    return PodAffinityTerm(
        topology_key=one.get("topologyKey") or "",
        label_selector=_selector(one, labels),
        namespaces=named if named or chosen is not None else (namespace,),
        namespace_selector=None if chosen is None else decode_label_selector(chosen),
    )


def decode_host_ports(spec: Json) -> tuple[HostPort, ...]:
    """Ports of the node that the containers bind; with hostNetwork every container port is one."""
    found = []
    for container in spec.get("containers") or ():
        for one in container.get("ports") or ():
            port = one.get("hostPort") or (one.get("containerPort") if spec.get("hostNetwork") else 0)
            if port:
                found.append(HostPort(int(port), one.get("protocol") or "TCP", one.get("hostIP") or ""))
    return tuple(found)


def volume_claim_names(spec: Json, pod: str) -> Iterator[str]:
    """Names of the PersistentVolumeClaims behind the volumes, those of ephemeral volumes included."""
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"].get("claimName") or ""
        elif volume.get("ephemeral"):
            yield f"{pod}-{volume.get('name')}"
