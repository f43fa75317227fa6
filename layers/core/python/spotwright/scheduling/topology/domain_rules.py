"""What pods ask of the domains they may join, given where other pods are."""

from collections.abc import Iterable
from typing import Protocol

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import TopologySpreadConstraint
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.topology.groups import TopologyGroup, TopologyTerm


class DomainRule(Protocol):
    """A rule on the domain of a pod. Rules read the counts when they are asked."""

    @property
    def topology_key(self) -> str: ...

    def allows(self, domain: str | None) -> bool:
        """``domain`` None: the node lacks the label, or its value is not certain yet."""
        ...

    def rank(self, domain: str) -> int:
        """The domain with the lowest rank is the best choice."""
        ...


class TopologySpreadRule:
    """No more than ``max_skew`` pods above the emptiest domain that the pod may be in."""

    def __init__(
        self,
        constraint: TopologySpreadConstraint,
        group: TopologyGroup,
        pod_class: PodClass,
        domains: Iterable[str],
    ) -> None:
        self.topology_key = constraint.topology_key
        self.group = group
        self._max_skew = constraint.max_skew
        self._own_count = int(group.selects(pod_class))
        self._domains = frozenset(domains)
        self._too_few_domains = len(self._domains) < constraint.min_domains
        self._min_domains = constraint.min_domains

    def allows(self, domain: str | None) -> bool:
        if domain is None:
            return False
        if self.topology_key == labels.HOSTNAME:
            # A new host is always possible, so the emptiest host has no pod.
            return self.group.count(domain) + self._own_count <= self._max_skew
        if domain not in self._domains:
            return False
        least = 0 if self._too_few_domains else min(map(self.group.count, self._domains))
        return self.group.count(domain) + self._own_count - least <= self._max_skew

    def rank(self, domain: str) -> int:
        return self.group.count(domain)

    def changes_within_skew(self) -> dict[str, tuple[int, int]]:
        """By domain, how many pods fewer and more it may have, whatever the others have within what they may."""
        counts = {domain: self.group.count(domain) for domain in self._domains}
        spare = self._max_skew - (max(counts.values(), default=0) - min(counts.values(), default=0))
        if self._too_few_domains or spare < 0:
            return {}
        least = max(min(counts.values(), default=0) - spare // 2, 0)
        return {domain: (count - least, least + self._max_skew - count) for domain, count in counts.items()}

    def __str__(self) -> str:
        counts = ", ".join(f"{domain}={self.group.count(domain)}" for domain in sorted(self._domains))
        few = (
            f", minDomains {self._min_domains} of which {len(self._domains)} can be had"
            if self._too_few_domains
            else ""
        )
        return (
            f"topology spread over {self.topology_key} with maxSkew {self._max_skew}{few}"
            f" ({counts or 'no domain is known'})"
        )


class PodAffinityRule:
    """Domains with pods of the term; any domain for the first pod of a term that selects the pod itself."""

    def __init__(self, group: TopologyGroup, pod_class: PodClass) -> None:
        self.topology_key = group.term.topology_key
        self._group = group
        self._pod_class = pod_class

    def allows(self, domain: str | None) -> bool:
        if domain is None:
            return False
        return self._group.count(domain) > 0 or self._is_first()

    def _is_first(self) -> bool:
        if not self._group.selects(self._pod_class):
            return False
        return not any(
            self.topology_key == labels.HOSTNAME or self._pod_class.allows(self.topology_key, domain)
            for domain, count in self._group.counts.items()
            if count
        )

    def rank(self, domain: str) -> int:
        return 0

    def __str__(self) -> str:
        return f"pod affinity over {self.topology_key} to {_describe_pods(self._group.term)}"


class PodAntiAffinityRule:
    """Domains without pods of the term. ``inverse``: the term is another pod's, which keeps this pod away."""

    def __init__(self, group: TopologyGroup, *, inverse: bool) -> None:
        self.topology_key = group.term.topology_key
        self._group = group
        self._inverse = inverse

    def allows(self, domain: str | None) -> bool:
        return domain is None or self._group.count(domain) == 0

    def rank(self, domain: str) -> int:
        return 0

    def __str__(self) -> str:
        whose = "of other pods " if self._inverse else ""
        return f"pod anti-affinity {whose}over {self.topology_key} to {_describe_pods(self._group.term)}"


class KnownDomainRule:
    """Any domain, but a certain one, since other pods want to be near the pod."""

    def __init__(self, key: str) -> None:
        self.topology_key = key

    def allows(self, domain: str | None) -> bool:
        return True

    def rank(self, domain: str) -> int:
        return 0


def _describe_pods(term: TopologyTerm) -> str:
    if term.label_selector is None:
        return "no pod"
    return ", ".join(str(expression.requirement()) for expression in term.label_selector) or "every pod"
