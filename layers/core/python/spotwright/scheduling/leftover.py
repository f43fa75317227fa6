"""Room that is left on nodes in the making, for pods that come later: none of these nodes gets larger by it."""

from collections.abc import Sequence

from spotwright.scheduling.bonds import Household, bonds
from spotwright.scheduling.classes import Demand
from spotwright.scheduling.openkeys import FREE
from spotwright.scheduling.sites import Site, State
from spotwright.scheduling.topology import Topology
from spotwright.scheduling.waiting import Share, Waiting


def top_up(sites: Sequence[Site], waiting: Sequence[Waiting], topology: Topology) -> int:
    """Give pods to nodes that are made anyway, largest classes first; the work it took."""
    ours = [one for one in waiting if one.keys and one.demand is not None]
    if not ours or not sites:
        return 0
    there = [(cls, demand) for site in sites for (cls, _), (demand, _) in zip(site.members, site.seated, strict=True)]
    known = bonds([*((one.cls, _demand(one)) for one in ours), *there], topology)
    place = len(ours)
    for site in sites:
        household = Household(known)
        for at, (_, count) in enumerate(site.members, place):
            household.took(at, count)
        place += len(site.members)
        _top_up(site, ours, household, topology)
    return len(sites) * len(ours)


def _top_up(site: Site, ours: Sequence[Waiting], household: Household, topology: Topology) -> None:
    market = site.tier.market
    for j, one in enumerate(ours):
        free = [size - used for size, used in zip(market.goods_of[site.choice].room, site.used, strict=True)]
        most = min((have // size for have, size in zip(free, one.size, strict=True) if size), default=len(one.keys))
        count = household.most(j, min(most, len(one.keys))) if most > 0 else 0
        if count > 0:
            state = _narrowed(site, one, _demand(one))
            if state is not None and _holds(site, one, count, state):
                topology.note(site)
                site.top_up(one, _demand(one), count, state)
                # A share's domains were counted when it got them.
                (topology.adopt if isinstance(one, Share) else topology.note)(site)
                household.took(j, count)


def _narrowed(site: Site, waiting: Waiting, demand: Demand) -> State | None:
    """What a node can still become with a class on it, as the same type under the same capacity type."""
    tier = site.tier
    fields = site.state.fields & tier.keys.asked(demand.requirements)
    mask = site.state.mask & tier.mask(demand) & tier.without_ports(waiting.cls.host_ports)
    mask = tier.keys.narrow(mask, fields) if fields != FREE else mask
    return State(mask, fields, site.state.pins) if mask & site.alike() else None


def _holds(site: Site, waiting: Waiting, count: int, state: State) -> bool:
    """Whether enough kinds of instances stay possible."""
    market = site.tier.market
    if not market.least[site.template]:
        return True
    used = [one + count * size for one, size in zip(site.used, waiting.size, strict=True)]
    return bool(market.enough(state.mask & market.fitting(used)))


def _demand(waiting: Waiting) -> Demand:
    assert waiting.demand is not None
    return waiting.demand
