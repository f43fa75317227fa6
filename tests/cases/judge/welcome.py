"""Whether one more pod could join a host without breaking a rule between pods."""

from collections import Counter
from collections.abc import Iterable

from tests.cases.judge.host import Host
from tests.cases.judge.pod import Pod
from tests.cases.judge.population import Population, Seat, Spread, Term, allows_domain, spreads, terms
from tests.cases.judge.requirement import (
    HOSTNAME,
    Values,
)
from tests.cases.judge.topology import least


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
