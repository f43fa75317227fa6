"""What pods ask of the domains they may join, given where the others are."""

from collections.abc import Iterable
from typing import Protocol

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import TopologySpreadConstraint
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.topology.groups import TopologyGroup, TopologyTerm


class DomainRule(Protocol):
    """One demand on a domain. ``rank``: domains with less of it are the better choice."""

    @property
    def topology_key(self) -> str: ...

    def allows(self, domain: str | None) -> bool: ...

    def rank(self, domain: str) -> int: ...


class TopologySpreadRule:
    """No more than ``max_skew`` pods above the emptiest domain the pod may be in."""

    def __init__(
        self, spread: TopologySpreadConstraint, tally: TopologyGroup, cls: PodClass, domains: Iterable[str]
    ) -> None:
        self.topology_key = spread.topology_key
        self._tally = tally
        self._max_skew = spread.max_skew
        self._own = int(tally.selects(cls))
        self._domains = frozenset(domains)
        self._few = len(self._domains) < spread.min_domains
        self._min_domains = spread.min_domains

    def allows(self, domain: str | None) -> bool:
        if domain is None:
            return False
        if self.topology_key == labels.HOSTNAME:
            # One more host is always possible, so the emptiest has none.
            return self._tally.count(domain) + self._own <= self._max_skew
        if domain not in self._domains:
            return False
        least = 0 if self._few else min(self._tally.count(one) for one in self._domains)
        return self._tally.count(domain) + self._own - least <= self._max_skew

    def rank(self, domain: str) -> int:
        return self._tally.count(domain)

    def __str__(self) -> str:
        counts = ", ".join(f"{domain}={self._tally.count(domain)}" for domain in sorted(self._domains))
        few = f", minDomains {self._min_domains} of which {len(self._domains)} can be had" if self._few else ""
        found = counts or "no domain is known"
        return f"topology spread over {self.topology_key} with maxSkew {self._max_skew}{few} ({found})"


class PodAffinityRule:
    """Where pods of the circle are; anywhere for the first of a circle that holds the pod itself."""

    def __init__(self, tally: TopologyGroup, cls: PodClass) -> None:
        self.topology_key = tally.term.topology_key
        self._tally = tally
        self._cls = cls

    def allows(self, domain: str | None) -> bool:
        if domain is None:
            return False
        return self._tally.count(domain) > 0 or self._founds()

    def _founds(self) -> bool:
        if not self._tally.selects(self._cls):
            return False
        filled = (one for one, count in self._tally.counts.items() if count)
        return not any(
            self.topology_key == labels.HOSTNAME or self._cls.allows(self.topology_key, one) for one in filled
        )

    def rank(self, domain: str) -> int:
        return 0

    def __str__(self) -> str:
        return f"pod affinity over {self.topology_key} to {_shown(self._tally.term)}"


class PodAntiAffinityRule:
    """Where no pod of the circle is."""

    def __init__(self, tally: TopologyGroup, *, inverse: bool) -> None:
        self.topology_key = tally.term.topology_key
        self._tally = tally
        self._inverse = inverse

    def allows(self, domain: str | None) -> bool:
        return domain is None or self._tally.count(domain) == 0

    def rank(self, domain: str) -> int:
        return 0

    def __str__(self) -> str:
        whose = "of other pods " if self._inverse else ""
        return f"pod anti-affinity {whose}over {self.topology_key} to {_shown(self._tally.term)}"


class KnownDomainRule:
    """Any domain, but a certain one: somebody wants to be near."""

    def __init__(self, key: str) -> None:
        self.topology_key = key

    def allows(self, domain: str | None) -> bool:
        return True

    def rank(self, domain: str) -> int:
        return 0


def _shown(circle: TopologyTerm) -> str:
    if circle.label_selector is None:
        return "no pod"
    return ", ".join(str(expression.requirement()) for expression in circle.label_selector) or "every pod"
