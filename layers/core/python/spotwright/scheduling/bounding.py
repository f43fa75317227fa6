"""What the pods of a plan cost at least, whoever packs them: how far a plan can be from the best.

Every shape divides its price among its resources and so asks a price of every pod; a pod is worth the least that a
shape open to it asks. No node's pods are then worth more than its price, whatever the division, so all pods together
cost at least what they are worth: a feasible dual of the fluid assignment problem. The division is what the
resources are worth while all pods are packed (see ``prices``), scaled up to each shape's whole price. Further
resources are the host itself, once for each rule by which it may hold few pods of some classes.
"""

from collections.abc import Sequence
from operator import mul
from typing import Final

from spotwright.scheduling import prices
from spotwright.scheduling.market import Market, Vector
from spotwright.scheduling.problem import skyline

# A host in parts, so that shares of it are whole numbers; a share is rounded down, which keeps the bound one.
HOST: Final = 2520


class Lot:
    """Equal pods. ``mask``: the choices their labels allow; ``hosts``: the part of a host that one of them takes up, by
    rule on hosts; the same rules in all lots."""

    __slots__ = ("count", "hosts", "mask", "size")

    def __init__(self, count: int, size: Vector, mask: int, hosts: Vector = ()) -> None:
        self.count = count
        self.size = size
        self.mask = mask
        self.hosts = hosts


def bound(market: Market, lots: Sequence[Lot]) -> int:
    """No nodes of the market hold all lots for less, in picodollars per hour; limits are left aside."""
    wide = {mask: _anywhere(market, mask) for mask in {one.mask for one in lots}}
    sold, open_to_any = 0, 0
    for mask, widened in wide.items():
        open_to_any |= widened
        sold |= mask
    first = 0
    for goods in market.goods:
        offered = goods.mask & sold
        first |= offered & -offered
    choices = skyline(market, open_to_any & first, list(wide.values()))
    if not choices:
        return 0
    host = (HOST,) * len(lots[0].hosts)
    rooms = [market.goods_of[choice].room + host for choice in choices]
    costs = [float(market.prices[choice]) for choice in choices]
    sizes = [one.size + one.hosts for one in lots]
    demand = [sum(one.count * size[d] for one, size in zip(lots, sizes, strict=True)) for d in range(len(rooms[0]))]
    rates = prices.worth(demand, rooms, costs)
    # Shapes by what they ask for what they hold, the most modest first.
    asking = sorted(
        (_share(rates, room, cost), choice) for choice, room, cost in zip(choices, rooms, costs, strict=True)
    )
    total = 0.0
    for one, size in zip(lots, sizes, strict=True):
        suitable = wide[one.mask] & market.fitting(one.size)
        least = next((share for share, choice in asking if suitable >> choice & 1), None)
        if least is None:
            return 0
        total += one.count * least * sum(map(mul, rates, size))
    # What floats round up must not count.
    return int(total * (1 - 1e-9))


def _anywhere(market: Market, mask: int) -> int:
    """A mask with every zone and capacity type of the types in it: a node there costs no less than the cheapest."""
    return sum(goods.mask for goods in market.goods if goods.mask & mask)


def _share(rates: Sequence[float], room: Sequence[int], cost: float) -> float:
    """The factor by which a shape scales the rates to earn its whole price."""
    earned = sum(map(mul, rates, room))
    return cost / earned if earned > 0 else 0.0
