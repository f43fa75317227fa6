"""Room that is left on nodes in the making, once the pods with rules are seated, for pods without."""

from collections.abc import Sequence

from spotwright.scheduling.classes import Demand
from spotwright.scheduling.openkeys import Company
from spotwright.scheduling.packing import Items, Lanes, Node, fill
from spotwright.scheduling.sites import Site, State
from spotwright.scheduling.waiting import Waiting


def top_up(sites: Sequence[Site], waiting: Sequence[Waiting]) -> int:
    """Give pods to nodes that are made anyway, none of which gets larger by it; the work it took."""
    ours = [one for one in waiting if one.keys and one.demand is not None]
    if not ours:
        return 0
    items = Items([one.size for one in ours])
    counts = [len(one.keys) for one in ours]
    return sum(_top_up(site, ours, items, counts) for site in sites)


def _top_up(site: Site, ours: Sequence[Waiting], items: Items, counts: list[int]) -> int:
    tier, demands = site.tier, [_demand(one) for one in ours]
    free = tuple(size - used for size, used in zip(tier.market.goods_of[site.choice].room, site.used, strict=True))
    masks = [tier.mask(demand) for demand in demands]
    lanes = Lanes(items, free, lambda j: counts[j] and masks[j] >> site.choice & 1)
    if not lanes:
        return 1
    asked = [tier.keys.asked(demand.requirements) for demand in demands]
    company = Company(tier.keys, asked, tier.keys.start(site.choice) & site.state.fields) if tier.keys else None
    node = Node(free, company)
    units = fill(node, lanes, items, counts)
    for j, count in sorted(node.taken.items()):
        state = State(site.state.mask & masks[j], site.state.fields & asked[j], site.state.pins)
        site.top_up(ours[j], demands[j], count, state)
        counts[j] -= count
    return units


def _demand(waiting: Waiting) -> Demand:
    assert waiting.demand is not None
    return waiting.demand
