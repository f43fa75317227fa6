"""Limits as prices: offerings dearer by what they count of a scarce limit.

Where a limit keeps pods out, a core that counts against it is worth more than it costs. With a price for it (in papers:
the Lagrange multiplier of the limit) the search that minimizes money uses limits up with less waste: types that have
little room for what they count, or nodes that are not filled, become dear.
"""

from collections.abc import Mapping, Sequence

from spotwright.model import resources
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.offerings.counted_capacity import Bundle
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType, PoolTypeKey, TypeAdjustment

type LimitPrices = Mapping[str, Mapping[str, float]]
"""NodePool → resource → picodollars per hour for a unit of it that counts against the limit."""


def add_limit_prices(
    index: OfferingIndex,
    daemons: Sequence[DaemonSetPod],
    limit_prices: LimitPrices,
    bundles: Mapping[PoolTypeKey, Bundle],
) -> OfferingIndex:
    """The same offerings, numbered and priced with what they count; a type with a bundle counts and holds what its
    bundle does."""
    prices = [limit_prices.get(template.nodepool.name, {}) for template in index.templates]
    adjustments = {
        pool_type.key: _adjust(pool_type, prices[pool_type.template_index], bundles.get(pool_type.key))
        for pool_type in index.pool_types
    }
    return OfferingIndex(index.templates, daemons, index.dimensions, adjustments)


def _adjust(pool_type: PoolInstanceType, prices: Mapping[str, float], bundle: Bundle | None) -> TypeAdjustment:
    counted = bundle.counted_capacity if bundle else pool_type.counted_capacity
    surcharge = sum(price * (1 if name == resources.NODES else counted.get(name, 0)) for name, price in prices.items())
    free_capacity = bundle.free_capacity if bundle else pool_type.free_capacity
    return TypeAdjustment(int(surcharge), free_capacity, counted)


def numbers_in(other: OfferingIndex, index: OfferingIndex) -> list[int]:
    """The numbers that the offerings of ``index`` have in another index of the same templates."""
    if other is index:
        return list(range(len(index.offerings)))
    number_of = other.number_of_key
    return [number_of[key] for key in index.offering_keys]
