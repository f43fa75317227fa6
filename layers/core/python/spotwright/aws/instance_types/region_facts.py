"""The instance types that EC2 sells in a region, with zones and prices."""

from typing import Final

import msgspec

from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.model import labels

# A region read by older code is read again.
REGION_SCHEMA: Final = 2


class RegionFacts(msgspec.Struct, frozen=True):
    """The instance types that EC2 sells in a region. Prices in picodollars per hour.

    ``zones``: type → zones where EC2 offers it. ``spot``: type → zone → price; None = spot prices were never read, and
    the on-demand price stands in. ``on_demand``: a type that is missing has no known price. ``notes``: sentences about
    what could not be read.
    """

    name: str
    types: tuple[InstanceTypeInfo, ...]
    zones: dict[str, tuple[str, ...]]
    on_demand: dict[str, int]
    spot: dict[str, dict[str, int]] | None = None
    notes: tuple[str, ...] = ()
    schema: int = REGION_SCHEMA


def offering_price(region: RegionFacts, name: str, capacity_type: str, zone: str) -> int:
    """Picodollars per hour; 0 = not known."""
    on_demand = region.on_demand.get(name, 0)
    if capacity_type == labels.ON_DEMAND or region.spot is None:
        return on_demand
    return region.spot.get(name, {}).get(zone, 0)
