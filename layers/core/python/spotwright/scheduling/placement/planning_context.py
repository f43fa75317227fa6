"""What all attempts at one plan share."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from spotwright.model.kubernetes.taints import TaintEffect
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.capacity.weight_groups import OfferingIndexCache
from spotwright.scheduling.inputs.cluster_state import ClusterState
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import selected_label_keys
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
            selected_label_keys=selected_label_keys(self.snapshot.pods),
        )
