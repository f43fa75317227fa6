"""Which preferences pods gave up for the place they got."""

from collections.abc import Iterable, Iterator

from spotwright.model import labels
from spotwright.scheduling.classes import Demand, PodClass


def given_up(members: Iterable[tuple[PodClass, Demand, int]]) -> tuple[str, ...]:
    """One sentence for each preference of a class that its demand no longer holds, sorted; pods are counted."""
    counts: dict[str, int] = {}
    for cls, demand, count in members:
        for wish in _lost(cls.demands[0], demand):
            counts[wish] = counts.get(wish, 0) + count
    return tuple(f"{wish} ({counts[wish]} {'pod' if counts[wish] == 1 else 'pods'})" for wish in sorted(counts))


def _lost(first: Demand, last: Demand) -> Iterator[str]:
    for one in first.requirements:
        if first.strict.by_key.get(one.key) != one:
            kept = last.requirements.by_key.get(one.key)
            if kept is None or kept.intersection(one) != kept:
                yield f"node preference {one}"
    for company in first.near:
        if company not in last.near:
            yield f"preferred pod affinity over {_domain(company.key)}"
    for company in first.apart:
        if company not in last.apart:
            yield f"preferred pod anti-affinity over {_domain(company.key)}"
    for spread in first.spreads:
        if not spread.hard and spread not in last.spreads:
            yield f"ScheduleAnyway spread over {_domain(spread.key)}"
    if len(last.tolerations) > len(first.tolerations):
        yield "keeping away from PreferNoSchedule taints"


def _domain(key: str) -> str:
    return {labels.HOSTNAME: "hosts", labels.ZONE: "zones", labels.CAPACITY_TYPE: "capacity types"}.get(key, key)
