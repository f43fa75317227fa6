"""A lower bound on what the nodes for some pods cost: how far a plan can be from the best.

Every offering divides its price among its resources, and so sets a price for every pod. A pod is worth the lowest price
that any offering open to it sets. Then no node's pods are worth more than the node costs, so all pods together cost at
least what they are worth (a feasible dual of the fractional packing problem). What no pods can use of a node, such as
cores for which there is no memory, is worth nothing. Prices are divided by the shadow prices of ``fractional_lp``,
scaled so that each offering spends its whole price. The host itself is a further resource, once for each rule by which
a host may hold only few pods of some classes.
"""

from collections.abc import Sequence
from operator import mul
from typing import Final

from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing import fractional_lp
from spotwright.scheduling.packing.problem import undominated_offerings
from spotwright.scheduling.packing.usable_room import UsableRoom

# A host is divided into so many parts, so that shares of it are whole numbers. A share is rounded down, which keeps the
# bound a lower bound.
HOST_UNITS: Final = 2520


class PodGroup:
    """Equal pods. ``offerings``: those their labels allow; ``host_shares``: the part of a host that one of the pods
    takes up, by rule on hosts; all groups have the same rules.
    """

    __slots__ = ("count", "host_shares", "offerings", "size")

    def __init__(self, count: int, size: Vector, offerings: int, host_shares: Vector = ()) -> None:
        self.count = count
        self.size = size
        self.offerings = offerings
        self.host_shares = host_shares


def compute_lower_bound(offering_index: OfferingIndex, pod_groups: Sequence[PodGroup]) -> int:
    """No nodes of the index hold all pods for less, in picodollars per hour; limits are ignored."""
    in_any_zone = {
        offerings: _in_any_zone(offering_index, offerings)
        for offerings in {pod_group.offerings for pod_group in pod_groups}
    }
    candidates = _candidates(offering_index, in_any_zone)
    if not candidates:
        return 0
    host = (HOST_UNITS,) * len(pod_groups[0].host_shares)
    candidates_in = {
        offerings: frozenset([offering for offering in candidates if widened >> offering & 1])
        for offerings, widened in in_any_zone.items()
    }
    usable = UsableRoom(
        [(pod_group.size, candidates_in[pod_group.offerings], _most_on_a_node(pod_group)) for pod_group in pod_groups]
    )
    capacities = [
        usable.of(offering, offering_index.pool_type_of[offering].free_capacity) + host for offering in candidates
    ]
    prices = [float(price) for price in candidates.values()]
    sizes = [pod_group.size + pod_group.host_shares for pod_group in pod_groups]
    demand = [
        sum(pod_group.count * size[d] for pod_group, size in zip(pod_groups, sizes, strict=True))
        for d in range(len(capacities[0]))
    ]
    shadow_prices = fractional_lp.compute_shadow_prices(demand, capacities, prices)
    price_factors = sorted(
        (_price_factor(shadow_prices, capacity, price), offering)
        for offering, capacity, price in zip(candidates, capacities, prices, strict=True)
    )
    total = 0.0
    for pod_group, size in zip(pod_groups, sizes, strict=True):
        suitable = in_any_zone[pod_group.offerings] & offering_index.by_capacity.with_room(pod_group.size)
        least = next((factor for factor, offering in price_factors if suitable >> offering & 1), None)
        if least is None:
            return 0
        total += pod_group.count * least * sum(map(mul, shadow_prices, size))
    # A bound that floating-point errors raised would be no bound.
    return int(total * (1 - 1e-9))


def _most_on_a_node(pod_group: PodGroup) -> int:
    """How many pods of the group a node holds at most by the rules on hosts."""
    return min([pod_group.count, *(HOST_UNITS // share for share in pod_group.host_shares if share)])


def _in_any_zone(offering_index: OfferingIndex, offerings: int) -> int:
    """All zones and capacity types of the instance types that are in ``offerings``."""
    return sum(pool_type.offerings for pool_type in offering_index.pool_types if pool_type.offerings & offerings)


def _candidates(offering_index: OfferingIndex, in_any_zone: dict[int, int]) -> dict[int, int]:
    """The cheapest offering of every instance type that a pod may use, dominated types left out; with its price."""
    allowed, allowed_in_any_zone, cheapest = 0, 0, 0
    for offerings, widened in in_any_zone.items():
        allowed |= offerings
        allowed_in_any_zone |= widened
    for pool_type in offering_index.pool_types:
        of_type = pool_type.offerings & allowed
        cheapest |= of_type & -of_type
    if offering_index.penalized:
        # Numbered by what they count as, not by what they cost: none is known to be dominated, and another offering of
        # the type may cost less.
        return {
            offering: _least_price(offering_index, offering, allowed)
            for offering in iterate_bits(allowed_in_any_zone & cheapest)
        }
    undominated = undominated_offerings(offering_index, allowed_in_any_zone & cheapest, list(in_any_zone.values()))
    return {offering: offering_index.prices[offering] for offering in undominated}


def _least_price(offering_index: OfferingIndex, offering: int, allowed: int) -> int:
    of_type = iterate_bits(offering_index.pool_type_of[offering].offerings & allowed)
    return min(offering_index.offerings[number].price_picousd_per_hour for number in of_type)


def _price_factor(shadow_prices: Sequence[float], capacity: Sequence[int], price: float) -> float:
    """The factor that scales the shadow prices so that they divide the offering's whole price."""
    worth = sum(map(mul, shadow_prices, capacity))
    return price / worth if worth > 0 else 0.0
