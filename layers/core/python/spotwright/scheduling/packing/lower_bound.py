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

from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing import fractional_lp
from spotwright.scheduling.packing.problem import undominated_offerings

# A host in parts, so that shares of it are whole numbers; a share is rounded down, which keeps the bound one.
HOST_UNITS: Final = 2520


class PodGroup:
    """Equal pods. ``offerings``: the choices their labels allow; ``host_shares``: the part of a host that one of them
    takes up, by rule on hosts; the same rules in all lots.
    """

    __slots__ = ("count", "host_shares", "offerings", "size")

    def __init__(self, count: int, size: Vector, mask: int, hosts: Vector = ()) -> None:
        self.count = count
        self.size = size
        self.offerings = mask
        self.host_shares = hosts


def compute_lower_bound(market: OfferingIndex, lots: Sequence[PodGroup]) -> int:
    """No nodes of the market hold all lots for less, in picodollars per hour; limits are left aside."""
    wide = {mask: _anywhere(market, mask) for mask in {one.offerings for one in lots}}
    sold, open_to_any = 0, 0
    for mask, widened in wide.items():
        open_to_any |= widened
        sold |= mask
    first = 0
    for goods in market.pool_types:
        offered = goods.offerings & sold
        first |= offered & -offered
    choices = undominated_offerings(market, open_to_any & first, list(wide.values()))
    if not choices:
        return 0
    host = (HOST_UNITS,) * len(lots[0].host_shares)
    rooms = [market.pool_type_of[choice].free_capacity + host for choice in choices]
    costs = [float(market.prices[choice]) for choice in choices]
    sizes = [one.size + one.host_shares for one in lots]
    demand = [sum(one.count * size[d] for one, size in zip(lots, sizes, strict=True)) for d in range(len(rooms[0]))]
    rates = fractional_lp.compute_shadow_prices(demand, rooms, costs)
    # Shapes by what they ask for what they hold, the most modest first.
    asking = sorted(
        (_share(rates, room, cost), choice) for choice, room, cost in zip(choices, rooms, costs, strict=True)
    )
    total = 0.0
    for pod_group, size in zip(lots, sizes, strict=True):
        suitable = wide[pod_group.offerings] & market.by_capacity.with_room(pod_group.size)
        least = next((share for share, choice in asking if suitable >> choice & 1), None)
        if least is None:
            return 0
        total += pod_group.count * least * sum(map(mul, rates, size))
    # What floats round up must not count.
    return int(total * (1 - 1e-9))


def _anywhere(market: OfferingIndex, mask: int) -> int:
    """A mask with every zone and capacity type of the types in it: a node there costs no less than the cheapest."""
    return sum(goods.offerings for goods in market.pool_types if goods.offerings & mask)


def _share(rates: Sequence[float], room: Sequence[int], cost: float) -> float:
    """The factor by which a shape scales the rates to earn its whole price."""
    earned = sum(map(mul, rates, room))
    return cost / earned if earned > 0 else 0.0
