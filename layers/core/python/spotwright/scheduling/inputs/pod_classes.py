"""Pods that are equal for scheduling form one class; work is per class, not per pod."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import HostPort, PodAffinityTerm, TopologySpreadConstraint
from spotwright.model.kubernetes.taints import TaintEffect, Toleration
from spotwright.model.requirements import (
    NodeSelectorRequirement,
    Requirement,
    RequirementError,
    Requirements,
    conjunction,
    from_labels,
)

_SOFT_TAINTS: Final = Toleration(operator="Exists", effect=TaintEffect.PREFER_NO_SCHEDULE)


class PodRequirements(msgspec.Struct, frozen=True):
    """What a class asks of a node and its company, at one step of its patience.

    ``strict_requirements``: without the node preference; ``requirements``: with it.
    """

    requirements: Requirements
    strict_requirements: Requirements
    tolerations: tuple[Toleration, ...]
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = ()


class PreferencePolicy(msgspec.Struct, frozen=True):
    """How preferences are read. ``selected_label_keys``: the pod labels that some rule looks at; None = there is no
    rule.

    ``has_prefer_no_schedule_taints``: there are PreferNoSchedule taints to give in to.
    """

    respects_preferences: bool = True
    has_prefer_no_schedule_taints: bool = False
    selected_label_keys: tuple[str, ...] | None = None


class PodClass:
    """Equal pods. ``pod_keys`` is sorted; ``requirement_levels`` goes from what they would like best to what they can
    live with.

    ``index`` orders classes and is the same for any order of the pods.
    """

    __slots__ = ("index", "node_terms", "pod", "pod_keys", "requests", "requirement_levels")

    def __init__(self, index: int, pod: Pod, keys: list[str], taste: PreferencePolicy) -> None:
        self.index = index
        self.pod = pod
        self.pod_keys = keys
        self.requests = {name: size for name, size in pod.requests.items() if size > 0}
        self.node_terms = tuple(_terms(pod))
        self.requirement_levels = tuple(_demands(pod, self.node_terms, taste))

    def __len__(self) -> int:
        return len(self.pod_keys)

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        return self.pod.host_ports

    def allows(self, key: str, value: str) -> bool:
        """Whether some alternative of its node affinity lets it into nodes with this label."""
        return any(requirements.get(key).has(value) for requirements in self.node_terms)


class PodCount(msgspec.Struct, frozen=True):
    """Pods of a class on a node, with the requirements they were placed by."""

    pod_class: PodClass
    pod_requirements: PodRequirements
    count: int


def group_pods(pods: Iterable[Pod], preference_policy: PreferencePolicy) -> list[PodClass]:
    """Classes, largest requests first, then by what they ask for."""
    by_look: dict[object, list[Pod]] = {}
    for pod in pods:
        by_look.setdefault(_look(pod, preference_policy.selected_label_keys), []).append(pod)
    by_shape: dict[bytes, list[Pod]] = {}
    for alike in by_look.values():
        by_shape.setdefault(_shape(alike[0], preference_policy.selected_label_keys), []).extend(alike)
    ordered = sorted(by_shape.items(), key=lambda item: (*_size(item[1][0]), item[0]))
    return [
        PodClass(index, alike[0], sorted([one.key for one in alike]), preference_policy)
        for index, (_, alike) in enumerate(ordered)
    ]


def _size(pod: Pod) -> tuple[int, int]:
    return -pod.requests.get("cpu", 0), -pod.requests.get("memory", 0)


def _look(pod: Pod, label_keys: Sequence[str] | None) -> object:
    """A quick key: pods with the same are equal, equal pods may still differ in it (order within maps)."""
    selector = tuple(pod.node_selector.items()) if pod.node_selector else ()
    asked = (tuple(pod.requests.items()), selector, pod.node_affinity, pod.tolerations, pod.preferred_node_affinity)
    if label_keys is None and not pod.volume_claim_names:
        return (asked, pod.host_ports, pod.priority)
    company = (
        *pod.topology_spread_constraints,
        *pod.pod_affinity,
        *pod.pod_anti_affinity,
        *pod.preferred_pod_affinity,
        *pod.preferred_pod_anti_affinity,
    )
    return (asked, pod.host_ports, pod.priority, pod.volume_claim_names, company, _identity(pod, label_keys))


def _identity(pod: Pod, label_keys: Sequence[str] | None) -> tuple[str | None, ...]:
    """What rules between pods see of a pod."""
    if label_keys is None and not pod.volume_claim_names:
        return ()
    return (pod.metadata.namespace, *(pod.metadata.labels.get(key) for key in label_keys or ()))


def _shape(pod: Pod, label_keys: Sequence[str] | None) -> bytes:
    """The whole of what tells pods apart, in a canonical order."""
    asked = (
        pod.priority,
        pod.requests,
        pod.node_selector,
        pod.node_affinity,
        pod.tolerations,
        pod.preferred_node_affinity,
    )
    company = (
        pod.topology_spread_constraints,
        pod.pod_affinity,
        pod.pod_anti_affinity,
        pod.preferred_pod_affinity,
        pod.preferred_pod_anti_affinity,
        pod.host_ports,
        pod.volume_claim_names,
    )
    return msgspec.json.encode((asked, company, _identity(pod, label_keys)), order="deterministic")


def node_selector_terms(pod: Pod) -> tuple[tuple[NodeSelectorRequirement, ...], ...]:
    """The terms of the required node affinity; a term that says nothing matches no node (Kubernetes core/v1)."""
    return tuple(term for term in pod.node_affinity if term) if pod.node_affinity else ((),)


def _terms(pod: Pod) -> Iterator[Requirements]:
    """Each alternative of the required node affinity; those that contradict themselves are left out."""
    for term in node_selector_terms(pod):
        wanted = _together(pod.node_selector, term)
        if wanted is not None:
            yield wanted


def _together(labels: dict[str, str], term: tuple[NodeSelectorRequirement, ...]) -> Requirements | None:
    try:
        return conjunction((*from_labels(labels), *(expression.requirement() for expression in term)))
    except RequirementError:
        return None


def _demands(pod: Pod, terms: Sequence[Requirements], taste: PreferencePolicy) -> Iterator[PodRequirements]:
    """All wishes with every alternative, then fewer and fewer wishes; at last, soft taints are tolerated."""
    for spreads, near, apart, preference in _patience(pod) if taste.respects_preferences else [_bare(pod)]:
        for term in terms:
            wanted = term if preference is None else _preferring(term, preference)
            if wanted is not None:
                yield PodRequirements(wanted, term, pod.tolerations, spreads, near, apart)
    if taste.has_prefer_no_schedule_taints:
        spreads, near, apart, _ = _bare(pod)
        for term in terms:
            yield PodRequirements(term, term, (*pod.tolerations, _SOFT_TAINTS), spreads, near, apart)


type _Wishes = tuple[
    tuple[TopologySpreadConstraint, ...],
    tuple[PodAffinityTerm, ...],
    tuple[PodAffinityTerm, ...],
    tuple[NodeSelectorRequirement, ...] | None,
]


def _bare(pod: Pod) -> _Wishes:
    """What is required, and no wish."""
    return (
        tuple(constraint for constraint in pod.topology_spread_constraints if constraint.do_not_schedule),
        pod.pod_affinity,
        pod.pod_anti_affinity,
        None,
    )


def _patience(pod: Pod) -> Iterator[_Wishes]:
    """Wishes are given up one by one: near, apart, node labels (each the heaviest first), then soft spreads.

    Of the node preferences one counts at a time, the heaviest that is left.
    """
    near = [
        weighted_term.pod_affinity_term
        for weighted_term in sorted(pod.preferred_pod_affinity, key=lambda weighted_term: -weighted_term.weight)
    ]
    apart = [
        weighted_term.pod_affinity_term
        for weighted_term in sorted(pod.preferred_pod_anti_affinity, key=lambda weighted_term: -weighted_term.weight)
    ]
    labels = [term for _, term in sorted(pod.preferred_node_affinity, key=lambda one: -one[0])]
    spreads = list(pod.topology_spread_constraints)
    while True:
        yield (
            tuple(spreads),
            (*pod.pod_affinity, *near),
            (*pod.pod_anti_affinity, *apart),
            labels[0] if labels else None,
        )
        soft = next((constraint for constraint in spreads if not constraint.do_not_schedule), None)
        if near:
            near.pop(0)
        elif apart:
            apart.pop(0)
        elif labels:
            labels.pop(0)
        elif soft is not None:
            spreads.remove(soft)
        else:
            return


def _preferring(term: Requirements, preference: tuple[NodeSelectorRequirement, ...]) -> Requirements | None:
    """An alternative narrowed by a preference; None if they contradict each other."""
    try:
        wished: list[Requirement] = [expression.requirement() for expression in preference]
    except RequirementError:
        return None
    return conjunction((*term, *wished))
