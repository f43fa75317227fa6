"""What can be bought: zones × capacity types of every instance type for a class, with prices.

An offering is available when the type can run the class (an image fits), EC2 offers it in a zone where the class has
a subnet, and its price is known. Offerings that are known to be empty are taken out when a decision is made.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from spotwright.aws import amis, families, sizing, typelabels
from spotwright.aws.described import Described
from spotwright.model import labels
from spotwright.model.instancetype import InstanceType, Offering
from spotwright.model.nodeclass import Ami, EC2NodeClass
from spotwright.model.requirements import Requirement, Requirements

# A region read by older code is read again.
REGION_SCHEMA: Final = 1


class Region(msgspec.Struct, frozen=True):
    """What EC2 sells in a region. Prices in picodollars per hour.

    ``zones``: type → zones where EC2 offers it. ``spot``: type → zone → price; None = never asked successfully, then
    the on-demand price stands in. ``on_demand``: a type that is missing has no known price. ``notes``: what could not
    be learned, for people.
    """

    name: str
    types: tuple[Described, ...]
    zones: dict[str, tuple[str, ...]]
    on_demand: dict[str, int]
    spot: dict[str, dict[str, int]] | None = None
    notes: tuple[str, ...] = ()
    schema: int = REGION_SCHEMA


class Buyer(msgspec.Struct, frozen=True):
    """A class as buying sees it: family, images with their requirements read, zone → requirements of that zone."""

    node_class: EC2NodeClass
    family: families.Family
    images: tuple[tuple[Ami, Requirements], ...]
    zones: dict[str, Requirements]


def buyer(node_class: EC2NodeClass, family: families.Family) -> Buyer:
    zones = {one.zone: _zone_id(one.zone_id) for one in sorted(node_class.subnets, key=lambda one: one.zone)}
    return Buyer(node_class, family, amis.demands(node_class.amis), zones)


def _zone_id(zone_id: str) -> Requirements:
    if not zone_id:
        return Requirements()
    return Requirements({labels.ZONE_ID: Requirement(labels.ZONE_ID, False, frozenset((zone_id,)))})


def instance_types(region: Region, who: Buyer, overheads: sizing.Overheads) -> tuple[InstanceType, ...]:
    """Every type that EC2 offers where the class has subnets, ordered by name; raises QuantityError."""
    sold = (one for one in region.types if _where(one, region, who) and _kinds(one) and one.arch)
    return tuple(instance_type(one, region, who, overheads) for one in sorted(sold, key=lambda one: one.name))


def _where(described: Described, region: Region, who: Buyer) -> list[str]:
    return [zone for zone in who.zones if zone in region.zones.get(described.name, ())]


def _kinds(described: Described) -> list[str]:
    return [kind for kind in (labels.ON_DEMAND, labels.SPOT) if kind in described.usage_classes]


def instance_type(described: Described, region: Region, who: Buyer, overheads: sizing.Overheads) -> InstanceType:
    """One type; without offerings where it is not sold. Raises QuantityError."""
    here, kinds = _where(described, region, who), _kinds(described)
    size = sizing.size(described, who.node_class, who.family, overheads)
    made = InstanceType(
        name=described.name,
        requirements=typelabels.requirements(
            described,
            region=region.name,
            zones=here,
            capacity_types=kinds,
            windows_build=families.WINDOWS.get(who.family.name, ""),
        ),
        capacity=size.capacity,
        allocatable=size.allocatable,
        offerings=(),
    )
    runs = _runs(made, who)
    offerings = tuple(_offerings(described.name, region, who, here, kinds, runs=runs))
    return msgspec.structs.replace(made, offerings=offerings)


def _runs(instance_type: InstanceType, who: Buyer) -> bool:
    """Whether the class can run on the type at all. Amazon Linux 2023 does not boot on the first Graviton."""
    if who.family.name == families.AL2023 and instance_type.name.startswith("a1."):
        return False
    return amis.for_type(who.images, instance_type) is not None


def _offerings(
    name: str, region: Region, who: Buyer, zones: Sequence[str], kinds: Sequence[str], *, runs: bool
) -> Iterator[Offering]:
    for kind in kinds:
        for zone in zones:
            price = price_of(region, name, kind, zone)
            yield Offering(zone, kind, price, runs and price > 0, who.zones[zone])


def price_of(region: Region, name: str, capacity_type: str, zone: str) -> int:
    """Picodollars per hour; 0 = not known."""
    on_demand = region.on_demand.get(name, 0)
    if capacity_type == labels.ON_DEMAND or region.spot is None:
        return on_demand
    return region.spot.get(name, {}).get(zone, 0)
