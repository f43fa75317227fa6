"""Rules between pods: topology spread, pod affinity and anti-affinity, judged on where everything ends up.

A plan does not say in which order its pods are placed, so a rule counts as kept if some order keeps it. A node under
construction may still come out in several domains; then the rule has to hold for each of them, or the plan has to
pin one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.cases.judge.population import Population, Seat, Spread, Term, allows_domain, spreads
from tests.cases.judge.requirement import (
    HOSTNAME,
    Requirement,
)

Found = Iterator[tuple[str, str]]
Domain = str | int
"""A value of a topology key, or the id() of a host that does not pin one."""


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
