"""What all attempts at one plan share."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import LabelSelector
from spotwright.model.kubernetes.taints import TaintEffect
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.capacity.weight_groups import OfferingIndexCache
from spotwright.scheduling.inputs.cluster_state import ClusterState
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_requirements import PreferencePolicy
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.topology.bound_pods import BoundPods

# Every namespace has this label (Kubernetes "Automatic labelling").
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class PlanningContext(msgspec.Struct, frozen=True, dict=True):
    """The snapshot and what follows from it alone. ``pods_to_place``: keys of the pods to place."""

    snapshot: Snapshot
    cluster_state: ClusterState
    templates: Sequence[NodeClaimTemplate]
    daemonset_pods: Sequence[DaemonSetPod]
    volume_topology: VolumeTopology
    pods_to_place: frozenset[str]

    @property
    def settings(self) -> Settings:
        return self.snapshot.settings

    @cached_property
    def namespaces(self) -> dict[str, dict[str, str]]:
        """Labels of every namespace that was read or has a pod."""
        read = self.snapshot.namespaces
        names = {pod.metadata.namespace for pod in self.snapshot.pods}.union(read)
        return {name: {_NAMESPACE_NAME: name} | read.get(name, {}) for name in sorted(names)}

    @cached_property
    def bound_pods(self) -> BoundPods:
        """The pods that stay where they are."""
        return BoundPods((*self.cluster_state.nodes, *self.cluster_state.deleting_nodes), self.pods_to_place)

    @cached_property
    def offering_index_cache(self) -> OfferingIndexCache:
        return OfferingIndexCache(self.daemonset_pods)

    @cached_property
    def preference_policy(self) -> PreferencePolicy:
        taints = [
            *(taint for state_node in self.cluster_state.nodes for taint in state_node.taints),
            *(taint for template in self.templates for taint in template.taints),
        ]
        return PreferencePolicy(
            respects_preferences=self.settings.preference_policy != "Ignore",
            has_prefer_no_schedule_taints=any(taint.effect == TaintEffect.PREFER_NO_SCHEDULE for taint in taints),
            selected_label_keys=_selected_label_keys(self.snapshot.pods),
        )


def _selected_label_keys(pods: Iterable[Pod]) -> tuple[str, ...] | None:
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
