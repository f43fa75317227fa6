"""Running pods as rules between pods count them."""

from collections.abc import Iterable, Iterator

from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.topology.groups import TopologyTerm

type PodsOnNodes = tuple[Pod, list[tuple[StateNode, int]]]
"""A pod that stands for all pods equal to it, and how many of them each node has."""


class BoundPods:
    """Running pods, grouped where rules cannot tell them apart. ``moving``: keys of pods that get another node."""

    def __init__(self, state_nodes: Iterable[StateNode], moving: frozenset[str]) -> None:
        groups: dict[object, tuple[Pod, dict[str, tuple[StateNode, int]]]] = {}
        for state_node in state_nodes:
            for pod in state_node.pods:
                if pod.metadata.deletion_timestamp is None and not (moving and pod.key in moving):
                    key = (pod.metadata.namespace, tuple(pod.metadata.labels.items()), pod.pod_anti_affinity)
                    on_nodes = groups.setdefault(key, (pod, {}))[1]
                    count = on_nodes[state_node.name][1] if state_node.name in on_nodes else 0
                    on_nodes[state_node.name] = (state_node, count + 1)
        self.pod_groups: list[PodsOnNodes] = [(pod, list(on_nodes.values())) for pod, on_nodes in groups.values()]
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for place, (pod, _) in enumerate(self.pod_groups):
            for label in pod.metadata.labels.items():
                self._by_label.setdefault(label, []).append(place)

    def candidates(self, term: TopologyTerm) -> Iterator[PodsOnNodes]:
        """Groups that may belong to a term: no group that does is left out."""
        listed = term.listed_values
        if listed is None:
            yield from self.pod_groups
            return
        for value in sorted(set(listed.values)):
            yield from map(self.pod_groups.__getitem__, self._by_label.get((listed.key, value), ()))
