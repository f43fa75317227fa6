"""Rules between pods: which domains of a label a pod may join, given where other pods are.

A *domain* is a value of a label of nodes (a zone, a host). Spread, affinity and anti-affinity are counts of pods per
domain. Source: Karpenter v1.14 ``scheduling/topology*.go`` and Kubernetes' PodTopologySpread and InterPodAffinity.
Unlike Karpenter, the domain of a node is fixed when a rule first needs it, and all rules on one label are asked
together.
"""

from collections.abc import Iterable, Mapping, Sequence

from spotwright.model import labels
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.topology.bound_pods import BoundPods
from spotwright.scheduling.topology.domain_rules import (
    DomainRule,
    KnownDomainRule,
    PodAffinityRule,
    PodAntiAffinityRule,
    TopologySpreadRule,
)
from spotwright.scheduling.topology.groups import CountedNode, TopologyTerm
from spotwright.scheduling.topology.term_index import TopologyTermIndex
from spotwright.scheduling.topology.topology_groups import TopologyGroups


class Topology:
    """The rules of one plan. ``namespaces``: labels by name."""

    def __init__(
        self,
        state_nodes: Sequence[StateNode],
        templates: Sequence[NodeClaimTemplate],
        namespaces: Mapping[str, Mapping[str, str]],
        bound_pods: BoundPods,
    ) -> None:
        self._groups = TopologyGroups(state_nodes, templates, namespaces, bound_pods)
        # Affinity terms, by the pods that other pods want to be near.
        self._attracting = TopologyTermIndex[TopologyTerm]()
        self._attracting_terms: set[TopologyTerm] = set()

    def register_classes(self, pod_classes: Iterable[PodClass]) -> None:
        """Set up the counts of every rule that these classes may state, before any of them is placed."""
        for pod_class in pod_classes:
            for pod_affinity_term in pod_class.pod.pod_anti_affinity:
                self._groups.avoiding_group(self._groups.term(pod_affinity_term))
            for pod_requirements in pod_class.requirement_levels:
                for constraint in pod_requirements.topology_spread_constraints:
                    self._groups.spread_group(constraint, pod_class)
                for pod_affinity_term in (*pod_requirements.pod_affinity, *pod_requirements.pod_anti_affinity):
                    self._groups.group(self._groups.term(pod_affinity_term))
                for term in map(self._groups.term, pod_requirements.pod_affinity):
                    if term not in self._attracting_terms:
                        self._attracting_terms.add(term)
                        self._attracting.add(term, term)

    def is_constrained(self, pod_class: PodClass, pod_requirements: PodRequirements) -> bool:
        """True when other pods decide where the class may go, or wait for it."""
        if (
            pod_requirements.topology_spread_constraints
            or pod_requirements.pod_affinity
            or pod_requirements.pod_anti_affinity
            or pod_class.host_ports
            or pod_class.pod.volume_claim_names
        ):
            return True
        return bool(self._groups.avoiding.items_selecting(pod_class) or self._attracting.items_selecting(pod_class))

    def separates_domains(self, pod_class: PodClass, pod_requirements: PodRequirements) -> bool:
        """True when pods of the class keep other pods out of a zone or other domain with many nodes, or these it."""
        own = (term.topology_key for term in pod_requirements.pod_anti_affinity)
        of_other_pods = (group.term.topology_key for group in self._groups.avoiding.items_selecting(pod_class))
        return any(key != labels.HOSTNAME for key in (*own, *of_other_pods))

    def domains_with_pods(self, pod_affinity_term: PodAffinityTerm) -> frozenset[str]:
        """The domains with a pod that the term selects."""
        group = self._groups.group(self._groups.term(pod_affinity_term))
        return frozenset(domain for domain, count in group.counts.items() if count)

    def selects(self, pod_affinity_term: PodAffinityTerm, pod: Pod) -> bool:
        """True when the term selects the pod."""
        return self._groups.term(pod_affinity_term).selects(pod)

    def needs_shared_host(self, pod_class: PodClass, pod_requirements: PodRequirements) -> bool:
        """True when pods of the class must share a very host with other pods, or other pods with them."""
        if any(term.topology_key == labels.HOSTNAME for term in pod_requirements.pod_affinity):
            return True
        return self.is_host_affinity_target(pod_class)

    def is_host_affinity_target(self, pod_class: PodClass) -> bool:
        """True when other pods want to share a host with pods of this class."""
        return any(term.topology_key == labels.HOSTNAME for term in self._attracting.items_selecting(pod_class))

    def spread_terms(
        self, pod_class: PodClass, pod_requirements: PodRequirements, key: str
    ) -> list[tuple[TopologyTerm, int]]:
        """The terms that a class is spread by over one label, with the skew."""
        return [
            (self._groups.spread_group(constraint, pod_class).term, constraint.max_skew)
            for constraint in pod_requirements.topology_spread_constraints
            if constraint.topology_key == key
        ]

    def anti_affinity_terms(self, pod_requirements: PodRequirements, key: str) -> list[TopologyTerm]:
        """The terms that a class avoids over one label."""
        return [
            self._groups.term(pod_affinity_term)
            for pod_affinity_term in pod_requirements.pod_anti_affinity
            if pod_affinity_term.topology_key == key
        ]

    def domain_rules(self, pod_class: PodClass, pod_requirements: PodRequirements) -> list[DomainRule]:
        """What the class asks of its domains. The rules read the counts when they are asked."""
        groups = self._groups
        attracting = {term.topology_key for term in self._attracting.items_selecting(pod_class)}
        return [
            *self._spread_rules(pod_class, pod_requirements),
            *(PodAffinityRule(groups.group(groups.term(term)), pod_class) for term in pod_requirements.pod_affinity),
            *(
                PodAntiAffinityRule(groups.group(groups.term(term)), inverse=False)
                for term in pod_requirements.pod_anti_affinity
            ),
            *(PodAntiAffinityRule(group, inverse=True) for group in groups.avoiding.items_selecting(pod_class)),
            *(KnownDomainRule(key) for key in sorted(attracting)),
        ]

    def _spread_rules(self, pod_class: PodClass, pod_requirements: PodRequirements) -> list[TopologySpreadRule]:
        rules = []
        for constraint in pod_requirements.topology_spread_constraints:
            group, key = self._groups.spread_group(constraint, pod_class), constraint.topology_key
            # A new host can always be made, so only hosts with pods matter.
            domains = group.counts if key == labels.HOSTNAME else self._groups.domains(group)
            allowed = pod_requirements.strict_requirements.get(key)
            reachable = (domain for domain in domains if allowed.has(domain))
            rules.append(TopologySpreadRule(constraint, group, pod_class, reachable))
        return rules

    def exchangeable_spread(self, pod_class: PodClass, pod_requirements: PodRequirements) -> TopologySpreadRule | None:
        """The spread over a label of nodes with many hosts that alone decides, and alone counts, in which domains the
        pods of a class are; None where other rules look at these, or where the pods have volumes."""
        rules = [
            rule for rule in self.domain_rules(pod_class, pod_requirements) if rule.topology_key != labels.HOSTNAME
        ]
        if len(rules) != 1 or not isinstance(rules[0], TopologySpreadRule) or pod_class.pod.volume_claim_names:
            return None
        counting = self._groups.groups_counting(pod_class)
        is_alone = all(group is rules[0].group for group in counting if group.term.topology_key != labels.HOSTNAME)
        return rules[0] if is_alone and rules[0].group.selects(pod_class) else None

    def known_domains(self) -> dict[str, set[str]]:
        """Labels that some rule looks at, with the domains that there are."""
        return self._groups.known_domains()

    def record(self, node: CountedNode) -> None:
        """Count the pods of a node, for every label whose value has become certain."""
        self._groups.record(node)

    def record_host(self, node: CountedNode) -> None:
        """Count the pods of a node by its host alone: their other domains were counted when the pods got them."""
        self._groups.record_host(node)
