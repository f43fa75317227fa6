"""Who goes first in another attempt, so that pods without a place may get one.

Limits and anti-affinity serve those who come first: so pods that were left come first. Pods that must be near others
can come no earlier than these: so one of the others comes first, and where they can follow.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
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


class Ahead(msgspec.Struct, frozen=True):
    """``pods``: to serve before all others, by name. ``leaders``: those of them that shall be where others can follow,
    with the pod whose class asked for it."""

    pods: tuple[Pod, ...]
    leaders: dict[str, str]


def first(placement: Placement, pods: Sequence[Pod], alone: Set[str] = frozenset()) -> Ahead:
    """Who shall come first; nobody if that would change nothing for those who were left.

    Pods that others must follow ask for the domains of these too. ``alone``: pods whose classes nobody waits for.
    """
    by_key = {pod.key: pod for pod in pods}
    found: dict[str, Pod] = {}
    leaders: dict[str, str] = {}
    for one in placement.waiting:
        if one.keys and one.demand is not None:
            asked = one.cls.keys[0]
            free = {key: pod for key, pod in by_key.items() if key not in leaders} if one.demand.near else {}
            leading = list(_leaders(one, one.demand, placement, free)) if asked not in alone else []
            if leading or _comes_late(one, one.demand, placement):
                found |= {key: by_key[key] for key in one.keys}
            found |= {pod.key: pod for pod in leading}
            leaders |= dict.fromkeys((pod.key for pod in leading), asked)
    return Ahead(tuple(found[key] for key in sorted(found)), leaders)


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
    """Pods of each company that a class must join, which now prefer to be where the class can follow.

    A wish, because what a pod demands also decides which nodes count for its spread.
    """
    left = placement.left()
    for company in demand.near:
        wanted = _where(waiting, demand, company, placement)
        keys = sorted(by_key) if wanted else ()
        invited = (by_key[key] for key in keys if key not in left and placement.topology.invites(company, by_key[key]))
        for wish, leader in zip(wanted, invited, strict=False):
            yield msgspec.structs.replace(leader, node_preferences=((_ABOVE_ALL, wish), *leader.node_preferences))


def _where(waiting: Waiting, demand: Demand, company: Company, placement: Placement) -> list[tuple[Selector, ...]]:
    """What a pod must ask for so that the class can join it; nothing when there is such a pod, or can be none.

    A class that spreads over these very domains, or keeps apart there, needs a pod to join in each of them.
    """
    pod = waiting.cls.pod
    if company.key == HOSTNAME:
        own = (Selector(key, "In", (value,)) for key, value in sorted(pod.node_selector.items()))
        return [(*own, *alternatives(pod)[0])]
    there = _domains(waiting, demand, company.key, placement)
    joined = there & placement.topology.joined(company)
    parted = {one.key for one in demand.spreads}.union(one.key for one in demand.apart)
    if company.key in parted:
        return [(Selector(company.key, "In", (one,)),) for one in sorted(there - joined)[: len(waiting.keys)]]
    return [(Selector(company.key, "In", tuple(sorted(there))),)] if there and not joined else []


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
