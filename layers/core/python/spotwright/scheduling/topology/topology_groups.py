"""The counts of one plan: for every rule that some pod states, how many pods each domain has."""

from collections.abc import Mapping, Sequence

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm, TopologySpreadConstraint, selects
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.topology.bound_pods import BoundPods
from spotwright.scheduling.topology.groups import CountedNode, TopologyGroup, TopologyTerm, has_untolerated_taint
from spotwright.scheduling.topology.term_index import TopologyTermIndex


class TopologyGroups:
    """Groups by the rule they are for. A group starts with the running pods.

    ``avoiding``: for every anti-affinity term, where the pods are that state it, by the pods that it keeps away.
    """

    def __init__(
        self,
        state_nodes: Sequence[StateNode],
        templates: Sequence[NodeClaimTemplate],
        namespaces: Mapping[str, Mapping[str, str]],
        bound_pods: BoundPods,
    ) -> None:
        self.avoiding = TopologyTermIndex[TopologyGroup]()
        self._state_nodes = state_nodes
        self._templates = templates
        self._namespaces = namespaces
        self._bound_pods = bound_pods
        self._groups: dict[object, TopologyGroup] = {}
        self._counting = TopologyTermIndex[TopologyGroup]()
        self._avoiding_groups: dict[TopologyTerm, TopologyGroup] = {}
        self._topology_keys: set[str] = set()
        self._domains: dict[object, frozenset[str]] = {}
        for pod, on_nodes in bound_pods.pod_groups:
            for state_node, _ in on_nodes if pod.pod_anti_affinity else ():
                for pod_affinity_term in pod.pod_anti_affinity:
                    group = self.avoiding_group(self.term(pod_affinity_term))
                    domain = state_node.domain(pod_affinity_term.topology_key)
                    if domain is not None:
                        group.record(domain, 1)

    def term(self, pod_affinity_term: PodAffinityTerm) -> TopologyTerm:
        """A term with the namespaces that it means."""
        key, label_selector = pod_affinity_term.topology_key, pod_affinity_term.label_selector
        selector = pod_affinity_term.namespace_selector
        if selector is None:
            return TopologyTerm(key, label_selector, frozenset(pod_affinity_term.namespaces))
        if not selector:
            return TopologyTerm(key, label_selector, None)
        selected = (name for name, values in self._namespaces.items() if selects(selector, dict(values)))
        return TopologyTerm(key, label_selector, frozenset((*pod_affinity_term.namespaces, *selected)))

    def group(self, term: TopologyTerm) -> TopologyGroup:
        """Where the pods are that an affinity or anti-affinity term selects."""
        if term not in self._groups:
            self._add(term, TopologyGroup(term))
        return self._groups[term]

    def spread_group(self, constraint: TopologySpreadConstraint, pod_class: PodClass) -> TopologyGroup:
        """Where the pods are that a spread constraint selects, on the nodes that count for the class."""
        term = TopologyTerm(
            constraint.topology_key, constraint.label_selector, frozenset((pod_class.pod.metadata.namespace,))
        )
        honors_affinity = constraint.honors_node_affinity and any(pod_class.node_terms)
        node_terms = pod_class.node_terms if honors_affinity else None
        tolerations = pod_class.pod.tolerations if constraint.honors_node_taints else None
        key = (term, _text(node_terms), tolerations)
        if key not in self._groups:
            self._add(key, TopologyGroup(term, node_terms, tolerations))
        return self._groups[key]

    def groups_counting(self, pod_class: PodClass) -> tuple[TopologyGroup, ...]:
        """The groups whose terms select the class."""
        return self._counting.items_selecting(pod_class)

    def avoiding_group(self, term: TopologyTerm) -> TopologyGroup:
        """Where the pods are that keep a term's pods away."""
        if term not in self._avoiding_groups:
            self._avoiding_groups[term] = TopologyGroup(term)
            self.avoiding.add(term, self._avoiding_groups[term])
            self._topology_keys.add(term.topology_key)
        return self._avoiding_groups[term]

    def _add(self, key: object, group: TopologyGroup) -> None:
        term = group.term
        for pod, on_nodes in self._bound_pods.candidates(term):
            for state_node, count in on_nodes if term.selects(pod) else ():
                domain = state_node.domain(term.topology_key)
                if domain is not None and group.includes(state_node):
                    group.record(domain, count)
        self._groups[key] = group
        self._counting.add(term, group)
        self._topology_keys.add(term.topology_key)

    def domains(self, group: TopologyGroup) -> frozenset[str]:
        """The domains there are for a group: values that NodePools can make, and labels of nodes that count."""
        topology_key = group.term.topology_key
        key = (topology_key, _text(group.node_terms), group.tolerations)
        if key not in self._domains:
            domains: set[str] = set()
            for template in self._templates:
                if group.tolerations is None or not has_untolerated_taint(template.taints, group.tolerations):
                    domains |= template.domains(topology_key)
            for state_node in self._state_nodes:
                domain = state_node.labels.get(topology_key)
                if domain is not None and not state_node.is_in_flight and group.includes(state_node):
                    domains.add(domain)
            self._domains[key] = frozenset(domains)
        return self._domains[key]

    def known_domains(self) -> dict[str, set[str]]:
        """Labels that some rule looks at, with the domains that there are."""
        domains: dict[str, set[str]] = {}
        for group in (*self._groups.values(), *self._avoiding_groups.values()):
            if group.term.topology_key != labels.HOSTNAME:
                domains.setdefault(group.term.topology_key, set()).update(self.domains(group))
        return domains

    def record(self, node: CountedNode) -> None:
        """Count the pods of a node, for every label whose value has become certain."""
        for key in self._topology_keys:
            domain = node.domain(key)
            done = node.recorded_counts.get(key, 0)
            if domain is not None and done < len(node.pod_counts):
                for pods in node.pod_counts[done:]:
                    self._count(key, domain, node, pods.pod_class, pods.count)
                node.recorded_counts[key] = len(node.pod_counts)

    def record_host(self, node: CountedNode) -> None:
        """Count the pods of a node by its host alone: their other domains were counted when the pods got them."""
        for key in self._topology_keys:
            if key != labels.HOSTNAME:
                node.recorded_counts[key] = len(node.pod_counts)
        self.record(node)

    def _count(self, key: str, domain: str, node: CountedNode, pod_class: PodClass, count: int) -> None:
        for group in self._counting.items_selecting(pod_class):
            if group.term.topology_key == key and group.includes(node):
                group.record(domain, count)
        for pod_affinity_term in pod_class.pod.pod_anti_affinity:
            if pod_affinity_term.topology_key == key:
                self._avoiding_groups[self.term(pod_affinity_term)].record(domain, count)


def _text(node_terms: Sequence[object] | None) -> tuple[str, ...] | None:
    """Requirements as a key."""
    return tuple(map(str, node_terms)) if node_terms is not None else None
