"""Who goes first in another attempt, so that pods without a place may get one.

Limits and anti-affinity serve those who come first: so pods that were left come first. Pods that must be near others
can come no earlier than these: so one of the others comes first, and where they can follow.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.model.company import Company
from spotwright.model.labels import HOSTNAME
from spotwright.model.pod import Pod
from spotwright.model.requirements import Requirements, Selector, conjunction
from spotwright.scheduling.classes import Demand, alternatives
from spotwright.scheduling.placement import Placement
from spotwright.scheduling.rooms import Welcome
from spotwright.scheduling.tiers import Tier
from spotwright.scheduling.waiting import Waiting

# Weights end at a hundred.
_ABOVE_ALL: Final = 101


def first(placement: Placement, pods: Sequence[Pod]) -> list[Pod]:
    """Pods to serve before all others, sorted by name; none if that would change nothing for those who were left.

    Pods that others must follow ask for the domains of these too.
    """
    by_key = {pod.key: pod for pod in pods}
    found: dict[str, Pod] = {}
    for one in placement.waiting:
        if one.keys and one.demand is not None:
            leaders = list(_leaders(one, one.demand, placement, by_key))
            if leaders or _comes_late(one, one.demand, placement):
                found |= {key: by_key[key] for key in one.keys}
            found |= {pod.key: pod for pod in leaders}
    return [found[key] for key in sorted(found)]


def _comes_late(waiting: Waiting, demand: Demand, placement: Placement) -> bool:
    """True when others have the place it could have: a node within the limits, room on a node, or a domain."""
    if placement.topology.parts(waiting.cls, demand):
        return True
    for tier in placement.tiers:
        mask = tier.mask(demand) & tier.market.fitting(waiting.size)
        if mask and any(tier.before.left) and mask & tier.before.open(tier.market):
            return True
    welcome = Welcome([waiting])
    return any(
        resources.fits(waiting.cls.requests, room.host.free) and welcome.of(room.host)
        for room in placement.rooms
        if room.given
    )


def _leaders(waiting: Waiting, demand: Demand, placement: Placement, by_key: Mapping[str, Pod]) -> Iterator[Pod]:
    """One pod for each company that a class must join, which now prefers to be where the class can follow.

    A wish, because what a pod demands also decides which nodes count for its spread.
    """
    left = placement.left()
    for company in demand.near:
        wanted = _where(waiting, demand, company, placement)
        invited = (by_key[key] for key in sorted(by_key) if key not in left)
        leader = next((pod for pod in invited if placement.topology.invites(company, pod)), None) if wanted else None
        if leader is not None:
            yield msgspec.structs.replace(leader, node_preferences=((_ABOVE_ALL, wanted), *leader.node_preferences))


def _where(waiting: Waiting, demand: Demand, company: Company, placement: Placement) -> tuple[Selector, ...]:
    """What a pod must ask for so that the class can join it; nothing when there is such a pod, or can be none."""
    pod = waiting.cls.pod
    if company.key == HOSTNAME:
        own = (Selector(key, "In", (value,)) for key, value in sorted(pod.node_selector.items()))
        return (*own, *alternatives(pod)[0])
    there = _domains(waiting, demand, company.key, placement)
    if not there or there & placement.topology.joined(company):
        return ()
    return (Selector(company.key, "In", tuple(sorted(there))),)


def _domains(waiting: Waiting, demand: Demand, key: str, placement: Placement) -> set[str]:
    """Where nodes for a class exist or can be made, rules between pods aside."""
    found = {room.domain(key) for room in placement.seating.open_rooms(waiting)}
    for reachable in placement.seating.disks.reachable(waiting.cls.pod) or (Requirements(),):
        wanted = conjunction((*demand.requirements, *reachable))
        if wanted is not None:
            narrowed = msgspec.structs.replace(demand, requirements=wanted)
            for tier in placement.tiers:
                found.update(_sold(tier, narrowed, waiting, key))
    return {one for one in found if one is not None}


def _sold(tier: Tier, demand: Demand, waiting: Waiting, key: str) -> Iterator[str | None]:
    fields = tier.keys.asked(demand.requirements)
    mask = tier.mask(demand) & tier.market.fitting(waiting.size) & tier.without_ports(waiting.cls.host_ports)
    mask = tier.keys.narrow(mask, fields)
    return tier.values(key, mask, fields) if mask else iter(())
