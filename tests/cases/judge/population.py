"""Who is where, and the rules between pods: topology spread, pod affinity and anti-affinity."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.cases.judge.cluster import Cluster, NodePool
from tests.cases.judge.host import ExistingNode, Host
from tests.cases.judge.pod import Pod
from tests.cases.judge.quantity import Raw
from tests.cases.judge.requirement import (
    LabelSelector,
    Requirement,
    conceivable,
    selector,
    untolerated,
)


@dataclass(eq=False)
class Seat:
    """A pod on a host; `placed` if the plan put it there."""

    pod: Pod
    host: Host
    placed: bool


@dataclass(frozen=True)
class Term:
    """A pod (anti-)affinity term: pods of these namespaces that the selector selects, per value of the key."""

    key: str
    namespaces: frozenset[str]
    selector: LabelSelector

    def selects(self, pod: Pod) -> bool:
        return pod.namespace in self.namespaces and self.selector.selects(pod.labels)

    def __str__(self) -> str:
        return f"{self.key} to {', '.join(map(str, self.selector.requirements)) or 'any pod'}"


@dataclass(frozen=True)
class Spread:
    """A DoNotSchedule topology spread constraint together with what its pod's node filter needs to know."""

    key: str
    max_skew: int
    min_domains: int
    namespace: str
    selector: LabelSelector
    honors_affinity: bool
    honors_taints: bool
    terms: tuple[tuple[Requirement, ...], ...]
    tolerations: str

    def selects(self, pod: Pod) -> bool:
        return pod.namespace == self.namespace and self.selector.selects(pod.labels)

    def tolerated(self, taints: Iterable[Raw]) -> bool:
        return not self.honors_taints or not untolerated(taints, json.loads(self.tolerations), hard_only=False)

    def counts_on(self, host: Host) -> bool:
        """Whether pods on the node count: its labels match the pod's node terms, its taints are tolerated, as far
        as honored."""
        matches = not self.honors_affinity or any(conceivable(t, host.possible) for t in self.terms)
        return matches and self.tolerated(host.taints)

    def __str__(self) -> str:
        least = f", minDomains {self.min_domains}" if self.min_domains else ""
        return f"{self.key} spread (maxSkew {self.max_skew}{least})"


def allows_domain(terms: Iterable[tuple[Requirement, ...]], key: str, domain: str) -> bool:
    """Whether some node affinity term lets a pod into nodes with this value of the key."""
    return any(all(r.allows(domain) for r in term if r.key == key) for term in terms)


def spreads(pod: Pod) -> list[Spread]:
    """The pod's hard topology spread constraints."""
    tolerations = json.dumps(pod.tolerations, sort_keys=True)
    found = []
    for c in pod.hard_spread:
        extra = [Requirement(k, "In", (pod.labels[k],)) for k in c.get("matchLabelKeys") or [] if k in pod.labels]
        found.append(
            Spread(
                c["topologyKey"],
                int(c.get("maxSkew") or 1),
                int(c.get("minDomains") or 0),
                pod.namespace,
                selector(c.get("labelSelector"), extra),
                c.get("nodeAffinityPolicy") != "Ignore",
                c.get("nodeTaintsPolicy") == "Honor",
                pod.terms,
                tolerations,
            )
        )
    return found


def terms(pod: Pod, kind: str, cluster: Cluster) -> list[Term]:
    """Required terms of podAffinity or podAntiAffinity, their namespaces resolved."""
    found = []
    for raw in pod.affinity(kind):
        extra = [Requirement(k, "In", (pod.labels[k],)) for k in raw.get("matchLabelKeys") or [] if k in pod.labels]
        extra += [
            Requirement(k, "NotIn", (pod.labels[k],)) for k in raw.get("mismatchLabelKeys") or [] if k in pod.labels
        ]
        found.append(
            Term(raw["topologyKey"], _namespaces(raw, pod, cluster), selector(raw.get("labelSelector"), extra))
        )
    return found


def _namespaces(raw: Raw, pod: Pod, cluster: Cluster) -> frozenset[str]:
    named, chosen = raw.get("namespaces") or [], raw.get("namespaceSelector")
    if chosen is None:
        return frozenset(named or [pod.namespace])
    by_label = selector(chosen)
    return frozenset(named) | {name for name, labels in cluster.namespaces.items() if by_label.selects(labels)}


class Population:
    """Every pod that counts for topology, with where it is. Finished and terminating pods do not count."""

    def __init__(self, hosts: Iterable[Host], cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = list(hosts)
        self.seats = [
            Seat(p, h, placed)
            for h in self.hosts
            for placed, pods in ((False, h.residents), (True, h.placed))
            for p in pods
            if placed or not p.terminating
        ]
        self._classes: dict[tuple[str, frozenset[tuple[str, str]]], list[Seat]] = defaultdict(list)
        for seat in self.seats:
            self._classes[seat.pod.namespace, frozenset(seat.pod.labels.items())].append(seat)
        self._matching: dict[Spread | Term, list[Seat]] = {}
        self._terms: dict[str, list[tuple[Term, list[Seat]]]] = {}
        self._universe: dict[tuple[str, str], set[str]] = {}

    def matching(self, rule: Spread | Term) -> list[Seat]:
        """Seats whose pod the rule selects, wherever they are."""
        if rule not in self._matching:
            self._matching[rule] = [s for seats in self._classes.values() if rule.selects(seats[0].pod) for s in seats]
        return self._matching[rule]

    def with_terms(self, kind: str) -> list[tuple[Term, list[Seat]]]:
        """Distinct required terms of a kind, each with the seats whose pods state it."""
        if kind not in self._terms:
            found: dict[Term, list[Seat]] = defaultdict(list)
            for seat in self.seats:
                for term in terms(seat.pod, kind, self.cluster) if seat.pod.affinity(kind) else ():
                    found[term].append(seat)
            self._terms[kind] = list(found.items())
        return self._terms[kind]

    def universe(self, rule: Spread) -> set[str]:
        """The domains that exist for a spread: values open NodePools can launch, and labels of nodes that pass its
        filter."""
        found: set[str] = set()
        for pool in self.cluster.universe_pools:
            if rule.tolerated(pool.taints):
                found |= self._pool_domains(pool, rule.key)
        for host in self.hosts:
            if isinstance(host, ExistingNode) and not host.leaving and not host.in_flight and rule.counts_on(host):
                found |= {v for v in host.possible(rule.key) if v is not None}
        return found

    def _pool_domains(self, pool: NodePool, key: str) -> set[str]:
        if (pool.name, key) not in self._universe:
            requirements = [r for r in pool.requirements if r.key == key]
            found = {
                v
                for t in self.cluster.types.values()
                for v in t.values.get(key, ())
                if v is not None and all(r.allows(v) for r in requirements)
            }
            found |= {
                v
                for r in requirements
                if r.operator == "In"
                for v in r.values
                if all(other_requirement.allows(v) for other_requirement in requirements)
            }
            self._universe[pool.name, key] = found
        return self._universe[pool.name, key]
