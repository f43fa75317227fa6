"""Rules between pods: which domains of a label a pod may join, given where the others are.

A *domain* is a value of a label of nodes (a zone, a host). Spread, affinity and anti-affinity are counts of pods per
domain. Source: Karpenter v1.14 ``scheduling/topology*.go`` and Kubernetes' PodTopologySpread and InterPodAffinity;
unlike Karpenter we fix the domain of a node when a rule first needs it, and ask all rules on one label together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spotwright.model import labels
from spotwright.model.company import Company, Spread, selects
from spotwright.model.pod import Pod
from spotwright.scheduling.circles import Circles
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.hosts import Host
from spotwright.scheduling.rules import ApartRule, FixedRule, NearRule, Rule, SpreadRule
from spotwright.scheduling.tally import Circle, Place, Residents, Tally, repelled
from spotwright.scheduling.templates import Template


class Topology:
    """Counts and rules of one plan."""

    def __init__(
        self,
        hosts: Sequence[Host],
        templates: Sequence[Template],
        namespaces: Mapping[str, Mapping[str, str]],
        residents: Residents,
    ) -> None:
        self._hosts = hosts
        self._templates = templates
        self._namespaces = namespaces
        self._residents = residents
        self._tallies: dict[object, Tally] = {}
        self._apart: dict[Circle, Tally] = {}
        self._near: set[Circle] = set()
        # The same tallies by the pods they count, avoid or attract.
        self._counting = Circles[Tally]()
        self._avoiding = Circles[Tally]()
        self._attracting = Circles[Circle]()
        self._keys: set[str] = set()
        self._universes: dict[object, frozenset[str]] = {}
        for host, pod in self._owners():
            for company in pod.apart:
                self._owned(self._circle(company), host)

    def learn(self, classes: Iterable[PodClass]) -> None:
        """Set up the counts of every rule these classes may state, before any of them is placed."""
        for cls in classes:
            for company in cls.pod.apart:
                self._avoided(self._circle(company))
            for demand in cls.demands:
                for spread in demand.spreads:
                    self._spread_tally(spread, cls)
                for company in (*demand.near, *demand.apart):
                    self._tally(self._circle(company))
                for circle in map(self._circle, demand.near):
                    if circle not in self._near:
                        self._near.add(circle)
                        self._attracting.add(circle, circle)

    def entangled(self, cls: PodClass, demand: Demand) -> bool:
        """True when the pods around it decide where the class may go, or others wait for it."""
        if demand.spreads or demand.near or demand.apart or cls.host_ports or cls.pod.volume_claims:
            return True
        return bool(self._avoiding.holding(cls) or self._attracting.holding(cls))

    def parts(self, cls: PodClass, demand: Demand) -> bool:
        """True when pods keep others out of a zone or other domain that holds many: the class others, or they it."""
        if any(one.key != labels.HOSTNAME for one in demand.apart):
            return True
        return any(one.circle.key != labels.HOSTNAME for one in self._avoiding.holding(cls))

    def joined(self, company: Company) -> frozenset[str]:
        """The domains with a pod of the company."""
        return frozenset(one for one, count in self._tally(self._circle(company)).counts.items() if count)

    def invites(self, company: Company, pod: Pod) -> bool:
        """True when the pod is one of those that the company is about."""
        return self._circle(company).holds(pod)

    def tight(self, cls: PodClass, demand: Demand) -> bool:
        """True when somebody must share a very host: the class with others, or others with it."""
        if any(one.key == labels.HOSTNAME for one in demand.near):
            return True
        return self.wanted_on_host(cls)

    def wanted_on_host(self, cls: PodClass) -> bool:
        """True when others want to share a host with pods of this class."""
        return any(one.key == labels.HOSTNAME for one in self._attracting.holding(cls))

    def spread_circles(self, cls: PodClass, demand: Demand, key: str) -> list[tuple[Circle, int]]:
        """The circles a class is spread by over one label, with the skew."""
        ours = (one for one in demand.spreads if one.key == key)
        return [(self._spread_tally(one, cls).circle, one.max_skew) for one in ours]

    def avoided_circles(self, demand: Demand, key: str) -> list[Circle]:
        """The circles a demand avoids over one label."""
        return [self._circle(one) for one in demand.apart if one.key == key]

    def rules(self, cls: PodClass, demand: Demand) -> list[Rule]:
        """What the class asks of domains now; the rules read the counts when they are asked."""
        found: list[Rule] = []
        for spread in demand.spreads:
            tally = self._spread_tally(spread, cls)
            # Hosts are without number: one more can always be had, so nobody asks which there are.
            universe = tally.counts if spread.key == labels.HOSTNAME else self.universe(spread.key, tally)
            domains = (one for one in universe if demand.strict.get(spread.key).has(one))
            found.append(SpreadRule(spread, tally, cls, domains))
        found += [NearRule(self._tally(self._circle(one)), cls) for one in demand.near]
        found += [ApartRule(self._tally(self._circle(one)), inverse=False) for one in demand.apart]
        found += [ApartRule(tally, inverse=True) for tally in self._avoiding.holding(cls)]
        found += [FixedRule(key) for key in sorted({one.key for one in self._attracting.holding(cls)})]
        return found

    def keys(self) -> dict[str, set[str]]:
        """Labels that some rule looks at, with the domains known of them."""
        found: dict[str, set[str]] = {}
        for tally in (*self._tallies.values(), *self._apart.values()):
            if tally.circle.key != labels.HOSTNAME:
                found.setdefault(tally.circle.key, set()).update(self.universe(tally.circle.key, tally))
        return found

    def note(self, place: Place) -> None:
        """Count what a place holds, for every label whose value has become certain."""
        for key in self._keys:
            domain = place.domain(key)
            done = place.counted.get(key, 0)
            if domain is not None and done < len(place.members):
                for cls, count in place.members[done:]:
                    self._count(key, domain, place, cls, count)
                place.counted[key] = len(place.members)

    def adopt(self, place: Place) -> None:
        """Count what a place holds by its host alone: other domains of these pods were counted when they got them."""
        for key in self._keys:
            if key != labels.HOSTNAME:
                place.counted[key] = len(place.members)
        self.note(place)

    def _count(self, key: str, domain: str, place: Place, cls: PodClass, count: int) -> None:
        for tally in self._counting.holding(cls):
            if tally.circle.key == key and tally.counts_on(place):
                tally.add(domain, count)
        for company in cls.pod.apart:
            if company.key == key:
                self._apart[self._circle(company)].add(domain, count)

    def universe(self, key: str, tally: Tally) -> frozenset[str]:
        """The domains there are: values that open NodePools can make, and labels of nodes that count."""
        known = (key, tuple(map(str, tally.honored)) if tally.honored is not None else None, tally.tolerations)
        if known not in self._universes:
            found: set[str] = set()
            for template in self._templates:
                if tally.tolerations is None or not repelled(template.taints, tally.tolerations):
                    found |= template.domains(key)
            for host in self._hosts:
                value = host.labels.get(key)
                if value is not None and not host.in_flight and tally.counts_on(host):
                    found.add(value)
            self._universes[known] = frozenset(found)
        return self._universes[known]

    def _circle(self, company: Company) -> Circle:
        if company.namespace_selector is None:
            return Circle(company.key, company.selector, frozenset(company.namespaces))
        if not company.namespace_selector:
            return Circle(company.key, company.selector, None)
        chosen = (
            name for name, values in self._namespaces.items() if selects(company.namespace_selector, dict(values))
        )
        return Circle(company.key, company.selector, frozenset((*company.namespaces, *chosen)))

    def _tally(self, circle: Circle) -> Tally:
        if circle not in self._tallies:
            self._add(circle, Tally(circle, None, None))
        return self._tallies[circle]

    def _add(self, name: object, tally: Tally) -> None:
        self._tallies[name] = self._filled(tally)
        self._counting.add(tally.circle, tally)
        self._keys.add(tally.circle.key)

    def _avoided(self, circle: Circle) -> Tally:
        """The count of pods that keep a circle away, by where they are."""
        tally = self._apart.get(circle)
        if tally is None:
            tally = self._apart[circle] = Tally(circle, None, None)
            self._avoiding.add(circle, tally)
            self._keys.add(circle.key)
        return tally

    def _spread_tally(self, spread: Spread, cls: PodClass) -> Tally:
        circle = Circle(spread.key, spread.selector, frozenset((cls.pod.metadata.namespace,)))
        honored = cls.terms if spread.honors_affinity and any(cls.terms) else None
        tolerations = cls.pod.tolerations if spread.honors_taints else None
        key = (circle, tuple(map(str, honored)) if honored is not None else None, tolerations)
        if key not in self._tallies:
            self._add(key, Tally(circle, honored, tolerations))
        return self._tallies[key]

    def _filled(self, tally: Tally) -> Tally:
        """With the pods that run already."""
        for pod, hosts in self._residents.near(tally.circle):
            if tally.circle.holds(pod):
                for host, count in hosts:
                    domain = host.domain(tally.circle.key)
                    if domain is not None and tally.counts_on(host):
                        tally.add(domain, count)
        return tally

    def _owners(self) -> Iterator[tuple[Host, Pod]]:
        return ((host, pod) for pod, hosts in self._residents.every if pod.apart for host, _ in hosts)

    def _owned(self, circle: Circle, host: Host) -> None:
        tally = self._avoided(circle)
        domain = host.domain(circle.key)
        if domain is not None:
            tally.add(domain, 1)
