"""Which preferences pods gave up for the place they got."""

from collections.abc import Iterable, Iterator

from spotwright.model import labels
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements


def relaxed_preferences(members: Iterable[tuple[PodClass, PodRequirements, int]]) -> tuple[str, ...]:
    """One sentence for each preference of a class that its demand no longer holds, sorted; pods are counted."""
    counts: dict[str, int] = {}
    for cls, demand, count in members:
        for wish in _lost(cls.requirement_levels[0], demand):
            counts[wish] = counts.get(wish, 0) + count
    return tuple(f"{wish} ({counts[wish]} {'pod' if counts[wish] == 1 else 'pods'})" for wish in sorted(counts))


def _lost(first: PodRequirements, last: PodRequirements) -> Iterator[str]:
    for requirement in first.requirements:
        if first.strict_requirements.by_key.get(requirement.key) != requirement:
            kept = last.requirements.by_key.get(requirement.key)
            if kept is None or kept.intersection(requirement) != kept:
                yield f"node preference {requirement}"
    for company in first.pod_affinity:
        if company not in last.pod_affinity:
            yield f"preferred pod affinity over {_domain(company.topology_key)}"
    for company in first.pod_anti_affinity:
        if company not in last.pod_anti_affinity:
            yield f"preferred pod anti-affinity over {_domain(company.topology_key)}"
    for spread in first.topology_spread_constraints:
        if not spread.do_not_schedule and spread not in last.topology_spread_constraints:
            yield f"ScheduleAnyway spread over {_domain(spread.topology_key)}"
    if len(last.tolerations) > len(first.tolerations):
        yield "keeping away from PreferNoSchedule taints"


def _domain(key: str) -> str:
    return {labels.HOSTNAME: "hosts", labels.ZONE: "zones", labels.CAPACITY_TYPE: "capacity types"}.get(key, key)
