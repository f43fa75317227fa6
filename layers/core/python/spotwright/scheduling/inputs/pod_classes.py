"""Pods that are equal for scheduling form one class; work is per class, not per pod."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import HostPort, LabelSelector
from spotwright.scheduling.inputs.pod_requirements import (
    PodRequirements,
    PreferencePolicy,
    node_terms,
    requirement_levels,
)


class PodClass:
    """Equal pods. ``pod_keys`` is sorted.

    ``requirement_levels``: what the pods ask for, first with all of their preferences, then with fewer and fewer; empty
    when node selector and node affinity contradict each other. ``first_required_level``: the first of them without
    preferences. ``node_terms``: alternatives of which one must hold. ``index`` orders classes and is the same for any
    order of the pods.
    """

    __slots__ = (
        "first_required_level",
        "index",
        "node_terms",
        "pod",
        "pod_keys",
        "requests",
        "requirement_levels",
    )

    def __init__(self, index: int, pod: Pod, pod_keys: list[str], preference_policy: PreferencePolicy) -> None:
        self.index = index
        self.pod = pod
        self.pod_keys = pod_keys
        self.requests = {name: size for name, size in pod.requests.items() if size > 0}
        self.node_terms = tuple(node_terms(pod))
        self.requirement_levels = tuple(requirement_levels(pod, self.node_terms, preference_policy))
        required_levels = len(self.node_terms) * (2 if preference_policy.has_prefer_no_schedule_taints else 1)
        self.first_required_level = len(self.requirement_levels) - required_levels

    def __len__(self) -> int:
        return len(self.pod_keys)

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        return self.pod.host_ports

    def allows(self, key: str, value: str) -> bool:
        """Whether some term of its node affinity allows nodes with this label."""
        return any(requirements.get(key).has(value) for requirements in self.node_terms)


class PodCount(msgspec.Struct, frozen=True):
    """Pods of a class on a node, with the requirements they were placed by."""

    pod_class: PodClass
    pod_requirements: PodRequirements
    count: int


def group_pods(pods: Iterable[Pod], preference_policy: PreferencePolicy) -> list[PodClass]:
    """Classes, largest requests first, then by what they ask for."""
    label_keys = preference_policy.selected_label_keys
    by_quick_key: dict[object, list[Pod]] = {}
    for pod in pods:
        by_quick_key.setdefault(_quick_key(pod, label_keys), []).append(pod)
    by_key: dict[bytes, list[Pod]] = {}
    for equal_pods in by_quick_key.values():
        by_key.setdefault(_canonical_key(equal_pods[0], label_keys), []).extend(equal_pods)
    largest_first = sorted(by_key.items(), key=lambda item: (*_size(item[1][0]), item[0]))
    return [
        PodClass(index, equal_pods[0], sorted([pod.key for pod in equal_pods]), preference_policy)
        for index, (_, equal_pods) in enumerate(largest_first)
    ]


def are_equal(pods: Iterable[Pod], label_keys: Sequence[str] | None) -> bool:
    """Whether all pods are of one class, so that whatever takes one of them takes any. ``label_keys``: those that rules
    between pods look at, None = there is no such rule.
    """
    by_quick_key = {_quick_key(pod, label_keys): pod for pod in pods}
    return len({_canonical_key(pod, label_keys) for pod in by_quick_key.values()}) <= 1


def selected_label_keys(pods: Iterable[Pod]) -> tuple[str, ...] | None:
    """Pod labels that some rule between pods looks at; None if there is no such rule."""
    with_rules = [
        pod
        for pod in pods
        if pod.pod_anti_affinity
        or pod.topology_spread_constraints
        or pod.pod_affinity
        or pod.preferred_pod_affinity
        or pod.preferred_pod_anti_affinity
    ]
    if not with_rules:
        return None
    selectors = (selector for pod in with_rules for selector in _selectors(pod))
    return tuple(sorted({expression.key for selector in selectors for expression in selector or ()}))


def _selectors(pod: Pod) -> Iterator[LabelSelector]:
    yield from (constraint.label_selector for constraint in pod.topology_spread_constraints)
    yield from (term.label_selector for term in (*pod.pod_affinity, *pod.pod_anti_affinity))
    for weighted_term in (*pod.preferred_pod_affinity, *pod.preferred_pod_anti_affinity):
        yield weighted_term.pod_affinity_term.label_selector


def _size(pod: Pod) -> tuple[int, int]:
    return -pod.requests.get("cpu", 0), -pod.requests.get("memory", 0)


def _quick_key(pod: Pod, label_keys: Sequence[str] | None) -> object:
    """Pods with the same key are equal; equal pods may still differ in it (order within maps)."""
    node_selector = tuple(pod.node_selector.items()) if pod.node_selector else ()
    of_node = (
        tuple(pod.requests.items()),
        node_selector,
        pod.node_affinity,
        pod.tolerations,
        pod.preferred_node_affinity,
    )
    if label_keys is None and not pod.volume_claim_names:
        return (of_node, pod.host_ports, pod.priority)
    of_pods = (
        *pod.topology_spread_constraints,
        *pod.pod_affinity,
        *pod.pod_anti_affinity,
        *pod.preferred_pod_affinity,
        *pod.preferred_pod_anti_affinity,
    )
    return (of_node, pod.host_ports, pod.priority, pod.volume_claim_names, of_pods, _selected_labels(pod, label_keys))


def _selected_labels(pod: Pod, label_keys: Sequence[str] | None) -> tuple[str | None, ...]:
    """What rules between pods look at: namespace and labels."""
    if label_keys is None and not pod.volume_claim_names:
        return ()
    return (pod.metadata.namespace, *(pod.metadata.labels.get(key) for key in label_keys or ()))


def _canonical_key(pod: Pod, label_keys: Sequence[str] | None) -> bytes:
    """All that tells pods apart, in a canonical order. Its order is that of equally large classes."""
    of_node = (
        pod.priority,
        pod.requests,
        pod.node_selector,
        pod.node_affinity,
        pod.tolerations,
        pod.preferred_node_affinity,
    )
    of_pods = (
        pod.topology_spread_constraints,
        pod.pod_affinity,
        pod.pod_anti_affinity,
        pod.preferred_pod_affinity,
        pod.preferred_pod_anti_affinity,
        pod.host_ports,
        pod.volume_claim_names,
    )
    return msgspec.json.encode((of_node, of_pods, _selected_labels(pod, label_keys)), order="deterministic")
