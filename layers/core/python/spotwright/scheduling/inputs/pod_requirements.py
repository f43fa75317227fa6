"""What a pod asks for, with all of its preferences, then with fewer and fewer.

Source: Karpenter v1.14 ``scheduling/preferences.go``.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import (
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from spotwright.model.kubernetes.taints import TaintEffect, Toleration
from spotwright.model.requirements import (
    NodeSelectorRequirement,
    RequirementError,
    Requirements,
    conjunction,
    from_labels,
)

_TOLERATE_PREFER_NO_SCHEDULE: Final = Toleration(operator="Exists", effect=TaintEffect.PREFER_NO_SCHEDULE)

type NodeSelectorTerm = tuple[NodeSelectorRequirement, ...]


class PodRequirements(msgspec.Struct, frozen=True):
    """What a pod asks of its node and of the pods around it, once it has given up some of its preferences.

    ``strict_requirements``: without the node preference; ``requirements``: with it.
    """

    requirements: Requirements
    strict_requirements: Requirements
    tolerations: tuple[Toleration, ...]
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()


class PreferencePolicy(msgspec.Struct, frozen=True):
    """How preferences are read, and what tells pods apart.

    ``has_prefer_no_schedule_taints``: some node has such a taint, which pods tolerate in the end.
    ``selected_label_keys``: the pod labels that some rule between pods looks at; None = there is no such rule.
    """

    respects_preferences: bool = True
    has_prefer_no_schedule_taints: bool = False
    selected_label_keys: tuple[str, ...] | None = None


class _Preferences(msgspec.Struct, frozen=True):
    """The preferences that a pod still has, among what it requires."""

    topology_spread_constraints: tuple[TopologySpreadConstraint, ...]
    pod_affinity: tuple[PodAffinityTerm, ...]
    pod_anti_affinity: tuple[PodAffinityTerm, ...]
    node_preference: NodeSelectorTerm | None = None


def node_selector_terms(pod: Pod) -> tuple[NodeSelectorTerm, ...]:
    """The terms of the required node affinity; an empty term matches no node (Kubernetes core/v1)."""
    return tuple(term for term in pod.node_affinity if term) if pod.node_affinity else ((),)


def node_terms(pod: Pod) -> Iterator[Requirements]:
    """nodeSelector with each term of the required node affinity, without terms that contradict themselves."""
    for term in node_selector_terms(pod):
        try:
            requirements = conjunction(
                (*from_labels(pod.node_selector), *(expression.requirement() for expression in term))
            )
        except RequirementError:
            continue
        if requirements is not None:
            yield requirements


def requirement_levels(pod: Pod, terms: Sequence[Requirements], policy: PreferencePolicy) -> Iterator[PodRequirements]:
    """All preferences with every node term, then fewer and fewer; at last, PreferNoSchedule taints are tolerated."""
    for preferences in _relaxations(pod) if policy.respects_preferences else [_without_preferences(pod)]:
        for term in terms:
            requirements = _with_preference(term, preferences.node_preference)
            if requirements is not None:
                yield _pod_requirements(preferences, requirements, term, pod.tolerations)
    if policy.has_prefer_no_schedule_taints:
        for term in terms:
            tolerations = (*pod.tolerations, _TOLERATE_PREFER_NO_SCHEDULE)
            yield _pod_requirements(_without_preferences(pod), term, term, tolerations)


def _pod_requirements(
    preferences: _Preferences, requirements: Requirements, term: Requirements, tolerations: tuple[Toleration, ...]
) -> PodRequirements:
    return PodRequirements(
        requirements,
        term,
        tolerations,
        preferences.topology_spread_constraints,
        preferences.pod_affinity,
        preferences.pod_anti_affinity,
    )


def _without_preferences(pod: Pod) -> _Preferences:
    spreads = tuple(constraint for constraint in pod.topology_spread_constraints if constraint.do_not_schedule)
    return _Preferences(spreads, pod.pod_affinity, pod.pod_anti_affinity)


def _relaxations(pod: Pod) -> Iterator[_Preferences]:
    """Preferences are given up one by one: pod affinity, pod anti-affinity, node affinity (each the heaviest first),
    then ScheduleAnyway spreads.

    Of the node preferences one counts at a time, the heaviest that is left.
    """
    affinity, anti_affinity = (
        _heaviest_first(pod.preferred_pod_affinity),
        _heaviest_first(pod.preferred_pod_anti_affinity),
    )
    node_preferences = [term for _, term in sorted(pod.preferred_node_affinity, key=lambda weighted: -weighted[0])]
    spreads = list(pod.topology_spread_constraints)
    while True:
        yield _Preferences(
            tuple(spreads),
            (*pod.pod_affinity, *affinity),
            (*pod.pod_anti_affinity, *anti_affinity),
            node_preferences[0] if node_preferences else None,
        )
        schedule_anyway = next((constraint for constraint in spreads if not constraint.do_not_schedule), None)
        if preferences := affinity or anti_affinity or node_preferences:
            preferences.pop(0)
        elif schedule_anyway is not None:
            spreads.remove(schedule_anyway)
        else:
            return


def _heaviest_first(weighted_terms: Sequence[WeightedPodAffinityTerm]) -> list[PodAffinityTerm]:
    ordered = sorted(weighted_terms, key=lambda weighted_term: -weighted_term.weight)
    return [weighted_term.pod_affinity_term for weighted_term in ordered]


def _with_preference(term: Requirements, preference: NodeSelectorTerm | None) -> Requirements | None:
    """A node term narrowed by a preference; None if they contradict each other."""
    if preference is None:
        return term
    try:
        return conjunction((*term, *[expression.requirement() for expression in preference]))
    except RequirementError:
        return None
