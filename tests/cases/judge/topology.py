"""Rules between pods: topology spread, pod affinity and anti-affinity, judged on where everything ends up.

A plan does not say in which order its pods are placed, so a rule counts as kept if some order keeps it. A node
under
construction may still come out in several domains; then the rule has to hold for each of them, or the plan has to
pin one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.cases.judge.cluster import Cluster, NodePool, Pod
from tests.cases.judge.host import ExistingNode, Host
from tests.cases.judge.quantity import Raw
from tests.cases.judge.requirement import (
    HOSTNAME,
    LabelSelector,
    Requirement,
    Values,
    conceivable,
    selector,
    untolerated,
)

Found = Iterator[tuple[str, str]]
Domain = str | int
"""A value of a topology key, or the id() of a host that does not pin one."""


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
            mine = [r for r in pool.requirements if r.key == key]
            found = {
                v
                for t in self.cluster.types.values()
                for v in t.values.get(key, ())
                if v is not None and all(r.allows(v) for r in mine)
            }
            found |= {v for r in mine if r.operator == "In" for v in r.values if all(other.allows(v) for other in mine)}
            self._universe[pool.name, key] = found
        return self._universe[pool.name, key]


# -- topology spread --------------------------------------------------------------------------------------------------


def check_spread(population: Population) -> Found:
    """Every hard spread constraint of a placed pod.

    If all pods of a group state the constraint, an order that keeps it exists exactly when every domain that
    receives one
    ends at most maxSkew above the final minimum; imbalance that was there before is nobody's fault. Pods that are
    merely
    counted may have come last where they raise the maximum and first where they raise the minimum. Of several node
    affinity terms the plan may have committed to any one, which decides over which domains the minimum is taken.
    """
    owners: dict[Spread, list[Seat]] = defaultdict(list)
    for seat in population.seats:
        if seat.placed:
            for rule in spreads(seat.pod):
                owners[rule].append(seat)
    for rule, seats in owners.items():
        yield from _spread(rule, seats, population)


def _spread(rule: Spread, owners: list[Seat], population: Population) -> Found:
    homeless = [s for s in owners if None in s.host.possible(rule.key)]
    for seat in homeless:
        yield "spread", f"{seat.pod.key} on {seat.host}: {rule}, but the node has no such label"
    owners = [s for s in owners if None not in s.host.possible(rule.key)]
    before = Counter(
        s.host.fixed(rule.key) for s in population.matching(rule) if not s.placed and rule.counts_on(s.host)
    )
    counts = final_counts(rule, population)
    minimum = max(least(rule, counts, population, (term,)) for term in rule.terms)
    at_most, pinned = Counter(before), Counter(before)
    for seat in owners:
        own = int(rule.selects(seat.pod))
        for domain in seat.host.possible(rule.key):
            at_most[domain] += own
            pinned[domain] += own if len(seat.host.possible(rule.key)) == 1 else 0
    for domain in sorted({d for s in owners for d in s.host.possible(rule.key)}, key=str):
        if pinned[domain] - minimum > rule.max_skew:
            yield "spread", _spread_text(rule, owners, domain, pinned[domain], minimum)
        elif at_most[domain] - minimum > rule.max_skew:
            yield (
                "not-pinned",
                _spread_text(rule, owners, domain, at_most[domain], minimum)
                + "; a node that may be there does not pin one value",
            )


def _spread_text(rule: Spread, owners: list[Seat], domain: str | None, count: int, minimum: int) -> str:
    here = sorted(s.pod.key for s in owners if domain in s.host.possible(rule.key))
    who = ", ".join(here[:3]) + (" ..." if here[3:] else "")
    return f"{rule} of {who}: {domain} has up to {count} matching pods, the emptiest domain {minimum}"


def final_counts(rule: Spread, population: Population) -> Counter[str]:
    """Matching pods per domain in the end; pods whose domain is open are left out."""
    counts: Counter[str] = Counter()
    for seat in population.matching(rule):
        domain = seat.host.fixed(rule.key)
        if domain is not None and rule.counts_on(seat.host):
            counts[domain] += 1
    return counts


def least(
    rule: Spread, counts: Mapping[str, int], population: Population, node_terms: Iterable[tuple[Requirement, ...]]
) -> int:
    """The count of the emptiest domain that a node term leaves open; 0 for hosts (one can always be added) and
    below minDomains."""
    if rule.key == HOSTNAME:
        return 0
    domains = [d for d in population.universe(rule) | set(counts) if allows_domain(node_terms, rule.key, d)]
    if len(domains) < rule.min_domains:
        return 0
    return min((counts.get(d, 0) for d in domains), default=10**9)


# -- pod affinity -----------------------------------------------------------------------------------------------------


def check_affinity(population: Population) -> Found:
    """Every required affinity term of a placed pod: company in the same domain, or the right to be the first."""
    for term, seats in population.with_terms("podAffinity"):
        owners = [s for s in seats if s.placed]
        if owners:
            yield from _affinity(term, owners, population)


def _affinity(term: Term, owners: list[Seat], population: Population) -> Found:
    matching = population.matching(term)
    by_host: dict[int, set[int]] = defaultdict(set)
    by_domain: dict[str | None, set[int]] = defaultdict(set)
    for seat in matching:
        by_host[id(seat.host)].add(id(seat.pod))
        by_domain[seat.host.fixed(term.key)].add(id(seat.pod))
    residents: set[Domain] = {domain for s in matching if not s.placed and (domain := s.host.fixed(term.key))}
    stated = {id(s.pod) for s in owners}
    founders: dict[Domain, list[Seat]] = defaultdict(list)
    for seat in owners:
        values = seat.host.possible(term.key)
        company = by_host[id(seat.host)] - {id(seat.pod)}
        if None in values:
            yield "affinity", f"{seat.pod.key} on {seat.host}: affinity {term}, but the node has no such label"
        elif any(i not in stated for i in company) or all(any(i not in stated for i in by_domain[v]) for v in values):
            continue  # someone is there who does not wait for us
        else:
            founders[seat.host.fixed(term.key) or id(seat.host)].append(seat)
    yield from _founders(term, founders, residents)


def _founders(term: Term, founders: Mapping[Domain, list[Seat]], residents: set[Domain]) -> Found:
    """Domains that only pods stating the term fill: each needs a first pod, one that selects itself and could not
    have
    joined any domain filled before. Searched from the last such domain backwards."""
    open_domains = dict(founders)
    while open_domains:
        last = next(
            (d for d, seats in open_domains.items() if _may_found(term, seats, (set(open_domains) | residents) - {d})),
            None,
        )
        if last is None:
            for _domain, seats in open_domains.items():
                pinned = seats[0].host.fixed(term.key) is not None
                rule = "affinity" if pinned or (len(open_domains) == 1 and not residents) else "not-pinned"
                yield (
                    rule,
                    (
                        f"{seats[0].pod.key} on {seats[0].host}: affinity {term} finds no company"
                        f"{'' if pinned else ', as the node does not pin one domain'} and may not be the first"
                    ),
                )
            return
        del open_domains[last]


def _may_found(term: Term, seats: list[Seat], filled: set[Domain]) -> bool:
    return any(
        term.selects(s.pod) and not any(isinstance(d, int) or allows_domain(s.pod.terms, term.key, d) for d in filled)
        for s in seats
    )


# -- pod anti-affinity ------------------------------------------------------------------------------------------------


def check_anti_affinity(population: Population) -> Found:
    """Required anti-affinity in both directions: of placed pods against all, and of resident pods against placed
    ones."""
    for term, owners in population.with_terms("podAntiAffinity"):
        targets: dict[str | None, list[Seat]] = defaultdict(list)
        for seat in population.matching(term):
            for value in seat.host.possible(term.key) - {None}:
                targets[value].append(seat)
        for owner in owners:
            clash = next(
                (
                    t
                    for v in owner.host.possible(term.key) - {None}
                    for t in targets[v]
                    if t.pod is not owner.pod and (owner.placed or t.placed)
                ),
                None,
            )
            if clash:
                yield from _clash(term, owner, clash)


def _clash(term: Term, owner: Seat, target: Seat) -> Found:
    certain = (
        len(owner.host.possible(term.key)) == len(target.host.possible(term.key)) == 1 or owner.host is target.host
    )
    text = f"{owner.pod.key} on {owner.host}: anti-affinity {term}, but {target.pod.key} is on {target.host}"
    yield ("anti-affinity", text) if certain else ("not-pinned", text + " and both may come out in one domain")


# -- one more pod -----------------------------------------------------------------------------------------------------


def keys_that_matter(pod: Pod, population: Population) -> set[str]:
    """Topology keys some rule would look at if the pod were placed, the hostname aside."""
    found = {r.key for r in spreads(pod)}
    found |= {t.key for kind in ("podAffinity", "podAntiAffinity") for t in terms(pod, kind, population.cluster)}
    found |= {t.key for t, _ in population.with_terms("podAntiAffinity") if t.selects(pod)}
    return found - {HOSTNAME}


def welcome(pod: Pod, host: Host, population: Population) -> bool:
    """Whether one more pod could join the host with everything else as it is; in doubt, no."""
    return (
        all(_spread_leaves_room(r, pod, host, population) for r in spreads(pod))
        and all(_company(t, pod, host, population) for t in terms(pod, "podAffinity", population.cluster))
        and not any(
            _meets(t.key, host, population.matching(t)) for t in terms(pod, "podAntiAffinity", population.cluster)
        )
        and not any(
            _meets(t.key, host, owners) for t, owners in population.with_terms("podAntiAffinity") if t.selects(pod)
        )
    )


def _spread_leaves_room(rule: Spread, pod: Pod, host: Host, population: Population) -> bool:
    domain = host.fixed(rule.key)
    if domain is None or rule.selector.nothing or (rule.key != HOSTNAME and domain not in population.universe(rule)):
        return False
    seats = [s for s in population.matching(rule) if rule.counts_on(s.host)]
    here = sum(domain in s.host.possible(rule.key) for s in seats)
    counts = Counter(pinned for s in seats if (pinned := s.host.pinned(rule.key)))
    return here + int(rule.selects(pod)) - least(rule, counts, population, rule.terms) <= rule.max_skew


def _company(term: Term, pod: Pod, host: Host, population: Population) -> bool:
    domain = host.fixed(term.key)
    matching = population.matching(term)
    if domain is None:
        return False
    if any(s.host.pinned(term.key) == domain for s in matching):
        return True
    return term.selects(pod) and not any(
        allows_domain(pod.terms, term.key, v) for s in matching for v in s.host.possible(term.key) if v is not None
    )


def _meets(key: str, host: Host, seats: Iterable[Seat]) -> bool:
    values: Values = host.possible(key)
    return None in values or any(values & s.host.possible(key) - {None} for s in seats)
