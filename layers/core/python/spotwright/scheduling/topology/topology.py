"""Rules between pods: which domains of a label a pod may join, given where the others are.

A *domain* is a value of a label of nodes (a zone, a host). Spread, affinity and anti-affinity are counts of pods per
domain. Source: Karpenter v1.14 ``scheduling/topology*.go`` and Kubernetes' PodTopologySpread and InterPodAffinity;
unlike Karpenter we fix the domain of a node when a rule first needs it, and ask all rules on one label together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spotwright.model import labels
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm, TopologySpreadConstraint, selects
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.topology.domain_rules import (
    DomainRule,
    KnownDomainRule,
    PodAffinityRule,
    PodAntiAffinityRule,
    TopologySpreadRule,
)
from spotwright.scheduling.topology.groups import (
    BoundPods,
    CountedNode,
    TopologyGroup,
    TopologyTerm,
    has_untolerated_taint,
)
from spotwright.scheduling.topology.term_index import TopologyTermIndex


class Topology:
    """Counts and rules of one plan."""

    def __init__(
        self,
        hosts: Sequence[StateNode],
        templates: Sequence[NodeClaimTemplate],
        namespaces: Mapping[str, Mapping[str, str]],
        residents: BoundPods,
    ) -> None:
        self._hosts = hosts
        self._templates = templates
        self._namespaces = namespaces
        self._residents = residents
        self._tallies: dict[object, TopologyGroup] = {}
        self._apart: dict[TopologyTerm, TopologyGroup] = {}
        self._near: set[TopologyTerm] = set()
        # The same tallies by the pods they count, avoid or attract.
        self._counting = TopologyTermIndex[TopologyGroup]()
        self._avoiding = TopologyTermIndex[TopologyGroup]()
        self._attracting = TopologyTermIndex[TopologyTerm]()
        self._keys: set[str] = set()
        self._universes: dict[object, frozenset[str]] = {}
        for host, pod in self._owners():
            for company in pod.pod_anti_affinity:
                self._owned(self._circle(company), host)

    def register_classes(self, classes: Iterable[PodClass]) -> None:
        """Set up the counts of every rule these classes may state, before any of them is placed."""
        for cls in classes:
            for company in cls.pod.pod_anti_affinity:
                self._avoided(self._circle(company))
            for demand in cls.requirement_levels:
                for spread in demand.topology_spread_constraints:
                    self._spread_tally(spread, cls)
                for company in (*demand.pod_affinity, *demand.pod_anti_affinity):
                    self._tally(self._circle(company))
                for circle in map(self._circle, demand.pod_affinity):
                    if circle not in self._near:
                        self._near.add(circle)
                        self._attracting.add(circle, circle)

    def is_constrained(self, cls: PodClass, demand: PodRequirements) -> bool:
        """True when the pods around it decide where the class may go, or others wait for it."""
        if (
            demand.topology_spread_constraints
            or demand.pod_affinity
            or demand.pod_anti_affinity
            or cls.host_ports
            or cls.pod.volume_claim_names
        ):
            return True
        return bool(self._avoiding.items_selecting(cls) or self._attracting.items_selecting(cls))

    def separates_domains(self, cls: PodClass, demand: PodRequirements) -> bool:
        """True when pods keep others out of a zone or other domain that holds many: the class others, or they it."""
        if any(pod_affinity_term.topology_key != labels.HOSTNAME for pod_affinity_term in demand.pod_anti_affinity):
            return True
        return any(
            topology_group.term.topology_key != labels.HOSTNAME
            for topology_group in self._avoiding.items_selecting(cls)
        )

    def domains_with_pods(self, company: PodAffinityTerm) -> frozenset[str]:
        """The domains with a pod of the company."""
        return frozenset(one for one, count in self._tally(self._circle(company)).counts.items() if count)

    def selects(self, company: PodAffinityTerm, pod: Pod) -> bool:
        """True when the pod is one of those that the company is about."""
        return self._circle(company).selects(pod)

    def needs_shared_host(self, cls: PodClass, demand: PodRequirements) -> bool:
        """True when somebody must share a very host: the class with others, or others with it."""
        if any(pod_affinity_term.topology_key == labels.HOSTNAME for pod_affinity_term in demand.pod_affinity):
            return True
        return self.is_host_affinity_target(cls)

    def is_host_affinity_target(self, cls: PodClass) -> bool:
        """True when others want to share a host with pods of this class."""
        return any(
            topology_term.topology_key == labels.HOSTNAME for topology_term in self._attracting.items_selecting(cls)
        )

    def spread_terms(self, cls: PodClass, demand: PodRequirements, key: str) -> list[tuple[TopologyTerm, int]]:
        """The circles a class is spread by over one label, with the skew."""
        constraints = (
            constraint for constraint in demand.topology_spread_constraints if constraint.topology_key == key
        )
        return [(self._spread_tally(constraint, cls).term, constraint.max_skew) for constraint in constraints]

    def anti_affinity_terms(self, demand: PodRequirements, key: str) -> list[TopologyTerm]:
        """The circles a demand avoids over one label."""
        return [
            self._circle(pod_affinity_term)
            for pod_affinity_term in demand.pod_anti_affinity
            if pod_affinity_term.topology_key == key
        ]

    def domain_rules(self, cls: PodClass, demand: PodRequirements) -> list[DomainRule]:
        """What the class asks of domains now; the rules read the counts when they are asked."""
        domain_rules: list[DomainRule] = []
        for spread in demand.topology_spread_constraints:
            tally = self._spread_tally(spread, cls)
            # Hosts are without number: one more can always be had, so nobody asks which there are.
            universe = (
                tally.counts if spread.topology_key == labels.HOSTNAME else self.domains(spread.topology_key, tally)
            )
            domains = (one for one in universe if demand.strict_requirements.get(spread.topology_key).has(one))
            domain_rules.append(TopologySpreadRule(spread, tally, cls, domains))
        domain_rules += [
            PodAffinityRule(self._tally(self._circle(pod_affinity_term)), cls)
            for pod_affinity_term in demand.pod_affinity
        ]
        domain_rules += [
            PodAntiAffinityRule(self._tally(self._circle(pod_affinity_term)), inverse=False)
            for pod_affinity_term in demand.pod_anti_affinity
        ]
        domain_rules += [PodAntiAffinityRule(tally, inverse=True) for tally in self._avoiding.items_selecting(cls)]
        domain_rules += [
            KnownDomainRule(key)
            for key in sorted({topology_term.topology_key for topology_term in self._attracting.items_selecting(cls)})
        ]
        return domain_rules

    def known_domains(self) -> dict[str, set[str]]:
        """Labels that some rule looks at, with the domains known of them."""
        found: dict[str, set[str]] = {}
        for tally in (*self._tallies.values(), *self._apart.values()):
            if tally.term.topology_key != labels.HOSTNAME:
                found.setdefault(tally.term.topology_key, set()).update(self.domains(tally.term.topology_key, tally))
        return found

    def record(self, place: CountedNode) -> None:
        """Count what a place holds, for every label whose value has become certain."""
        for key in self._keys:
            domain = place.domain(key)
            done = place.recorded_counts.get(key, 0)
            if domain is not None and done < len(place.pod_counts):
                for pods in place.pod_counts[done:]:
                    self._count(key, domain, place, pods.pod_class, pods.count)
                place.recorded_counts[key] = len(place.pod_counts)

    def record_host(self, place: CountedNode) -> None:
        """Count what a place holds by its host alone: other domains of these pods were counted when they got them."""
        for key in self._keys:
            if key != labels.HOSTNAME:
                place.recorded_counts[key] = len(place.pod_counts)
        self.record(place)

    def _count(self, key: str, domain: str, place: CountedNode, cls: PodClass, count: int) -> None:
        for tally in self._counting.items_selecting(cls):
            if tally.term.topology_key == key and tally.includes(place):
                tally.record(domain, count)
        for company in cls.pod.pod_anti_affinity:
            if company.topology_key == key:
                self._apart[self._circle(company)].record(domain, count)

    def domains(self, key: str, tally: TopologyGroup) -> frozenset[str]:
        """The domains there are: values that open NodePools can make, and labels of nodes that count."""
        known = (key, tuple(map(str, tally.node_terms)) if tally.node_terms is not None else None, tally.tolerations)
        if known not in self._universes:
            found: set[str] = set()
            for template in self._templates:
                if tally.tolerations is None or not has_untolerated_taint(template.taints, tally.tolerations):
                    found |= template.domains(key)
            for host in self._hosts:
                value = host.labels.get(key)
                if value is not None and not host.is_in_flight and tally.includes(host):
                    found.add(value)
            self._universes[known] = frozenset(found)
        return self._universes[known]

    def _circle(self, company: PodAffinityTerm) -> TopologyTerm:
        if company.namespace_selector is None:
            return TopologyTerm(company.topology_key, company.label_selector, frozenset(company.namespaces))
        if not company.namespace_selector:
            return TopologyTerm(company.topology_key, company.label_selector, None)
        chosen = (
            name for name, values in self._namespaces.items() if selects(company.namespace_selector, dict(values))
        )
        return TopologyTerm(company.topology_key, company.label_selector, frozenset((*company.namespaces, *chosen)))

    def _tally(self, circle: TopologyTerm) -> TopologyGroup:
        if circle not in self._tallies:
            self._add(circle, TopologyGroup(circle, None, None))
        return self._tallies[circle]

    def _add(self, name: object, tally: TopologyGroup) -> None:
        self._tallies[name] = self._filled(tally)
        self._counting.add(tally.term, tally)
        self._keys.add(tally.term.topology_key)

    def _avoided(self, circle: TopologyTerm) -> TopologyGroup:
        """The count of pods that keep a circle away, by where they are."""
        tally = self._apart.get(circle)
        if tally is None:
            tally = self._apart[circle] = TopologyGroup(circle, None, None)
            self._avoiding.add(circle, tally)
            self._keys.add(circle.topology_key)
        return tally

    def _spread_tally(self, spread: TopologySpreadConstraint, cls: PodClass) -> TopologyGroup:
        circle = TopologyTerm(spread.topology_key, spread.label_selector, frozenset((cls.pod.metadata.namespace,)))
        honored = cls.node_terms if spread.honors_node_affinity and any(cls.node_terms) else None
        tolerations = cls.pod.tolerations if spread.honors_node_taints else None
        key = (circle, tuple(map(str, honored)) if honored is not None else None, tolerations)
        if key not in self._tallies:
            self._add(key, TopologyGroup(circle, honored, tolerations))
        return self._tallies[key]

    def _filled(self, tally: TopologyGroup) -> TopologyGroup:
        """With the pods that run already."""
        for pod, hosts in self._residents.candidates(tally.term):
            if tally.term.selects(pod):
                for host, count in hosts:
                    domain = host.domain(tally.term.topology_key)
                    if domain is not None and tally.includes(host):
                        tally.record(domain, count)
        return tally

    def _owners(self) -> Iterator[tuple[StateNode, Pod]]:
        return ((host, pod) for pod, hosts in self._residents.pod_groups if pod.pod_anti_affinity for host, _ in hosts)

    def _owned(self, circle: TopologyTerm, host: StateNode) -> None:
        tally = self._avoided(circle)
        domain = host.domain(circle.topology_key)
        if domain is not None:
            tally.record(domain, 1)
