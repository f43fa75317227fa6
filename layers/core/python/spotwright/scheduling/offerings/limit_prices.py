"""Limits as prices: offerings dearer by what they count of a scarce limit.

Where a limit keeps pods out, a core that counts against it is worth more than it costs. With a price for it (in papers:
the Lagrange multiplier of the limit) the search that minimizes money uses limits up with less waste: types that have
little room for what they count, or nodes that are not filled, become dear.
"""

from collections.abc import Mapping, Sequence

from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType

type LimitPrices = Mapping[str, Mapping[str, float]]
"""NodePool → resource → picodollars per hour for a unit of it that counts against the limit."""


def add_limit_prices(index: OfferingIndex, daemons: Sequence[DaemonSetPod], limit_prices: LimitPrices) -> OfferingIndex:
    """The same offerings, numbered and priced with what they count."""
    prices = [limit_prices.get(template.nodepool.name, {}) for template in index.templates]
    surcharges = {
        pool_type.key: _surcharge(pool_type, prices[pool_type.template_index]) for pool_type in index.pool_types
    }
    priced = OfferingIndex(index.templates, daemons, index.dimensions, surcharges)
    counted = {pool_type.key: pool_type.counted_capacity for pool_type in index.pool_types}
    for pool_type in priced.pool_types:
        pool_type.counted_capacity = counted[pool_type.key]
    return priced


def _surcharge(pool_type: PoolInstanceType, prices: Mapping[str, float]) -> int:
    return int(sum(price * pool_type.counted(name) for name, price in prices.items()))


def numbers_in(other: OfferingIndex, index: OfferingIndex) -> list[int]:
    """The numbers that the offerings of ``index`` have in another index of the same templates."""
    if other is index:
        return list(range(len(index.offerings)))
    number_of = {
        (pool_type.key, id(offering)): number
        for number, (pool_type, offering) in enumerate(zip(other.pool_type_of, other.offerings, strict=True))
    }
    return [
        number_of[pool_type.key, id(offering)]
        for pool_type, offering in zip(index.pool_type_of, index.offerings, strict=True)
    ]
