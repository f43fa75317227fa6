"""What can be bought: zones × capacity types of every instance type for a class, with prices.

An offering is available when the type can run the class (an image fits, and what the class asks of interfaces,
processor and placement), EC2 offers it in a zone where the class has a subnet and that is not shifted away from, and
its price is known. Offerings that are known to be empty are taken out when a decision is made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.aws import amis, compatibility, families, sizing, typelabels
from spotwright.aws.described import Described
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.karpenter.nodeclass import AMI, CapacityReservation, EC2NodeClass, PlacementGroup
from spotwright.model.requirements import Requirement, Requirements

# A region read by older code is read again.
REGION_SCHEMA: Final = 2
# What an instance of a reservation costs besides what the reservation costs anyway: next to nothing, but in the order
# of the types' own prices.
RESERVED_SHARE: Final = 10_000_000


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
    """A class as buying sees it: family, images with their requirements read, zone → requirements of that zone.

    ``shifted``: ids of zones that traffic was shifted away from. ``memory``: (type, image) → bytes that such nodes
    were seen to have.
    """

    node_class: EC2NodeClass
    family: families.Family
    images: tuple[tuple[AMI, Requirements], ...]
    zones: dict[str, Requirements]
    shifted: frozenset[str] = frozenset()
    memory: dict[tuple[str, str], int] = {}


def buyer(
    node_class: EC2NodeClass,
    family: families.Family,
    *,
    shifted: frozenset[str] = frozenset(),
    memory: Mapping[tuple[str, str], int] | None = None,
) -> Buyer:
    zones = {one.zone: _zone_id(one.zone_id) for one in sorted(node_class.subnets, key=lambda one: one.zone)}
    return Buyer(node_class, family, amis.demands(node_class.amis), zones, shifted, dict(memory or {}))


def _zone_id(zone_id: str) -> Requirements:
    if not zone_id:
        return Requirements()
    return Requirements({labels.ZONE_ID: Requirement(labels.ZONE_ID, False, frozenset((zone_id,)))})


def instance_types(region: Region, who: Buyer, overheads: sizing.Overheads) -> tuple[InstanceType, ...]:
    """Every type that EC2 offers where the class has subnets, ordered by name; raises QuantityError, KubeletError."""
    sold = (one for one in region.types if _where(one, region, who) and _kinds(one) and one.arch)
    return tuple(instance_type(one, region, who, overheads) for one in sorted(sold, key=lambda one: one.name))


def _where(described: Described, region: Region, who: Buyer) -> list[str]:
    return [zone for zone in who.zones if zone in region.zones.get(described.name, ())]


def _kinds(described: Described) -> list[str]:
    return [kind for kind in (labels.ON_DEMAND, labels.SPOT) if kind in described.usage_classes]


def instance_type(described: Described, region: Region, who: Buyer, overheads: sizing.Overheads) -> InstanceType:
    """One type; without offerings where it is not sold. Raises QuantityError and KubeletError."""
    here, kinds = _where(described, region, who), _kinds(described)
    own = [one for one in who.node_class.capacity_reservations if one.instance_type == described.name]
    reserved = [one for one in own if one.zone in who.zones]
    made = InstanceType(
        name=described.name,
        requirements=typelabels.requirements(
            described,
            region=region.name,
            zones=here,
            capacity_types=[*kinds, labels.RESERVED] if reserved else kinds,
            windows_build=families.WINDOWS.get(who.family.name, ""),
            reservations=reserved,
            group=who.node_class.placement_group,
        ),
        capacity={},
        allocatable={},
        offerings=(),
    )
    image = amis.for_type(who.images, made)
    seen = who.memory.get((described.name, image.id)) if image else None
    size = sizing.size(described, who.node_class, who.family, overheads, seen)
    runs = image is not None and not compatibility.problems(described, who.node_class, who.family)
    bought = _bought(described.name, region, who, here, kinds, runs=runs, told_apart=bool(reserved))
    taken = (_reserved(one, region, who, runs=runs) for one in reserved)
    offerings = tuple(_partitioned((*bought, *taken), who.node_class.placement_group))
    return msgspec.structs.replace(
        made,
        capacity=size.capacity,
        allocatable=size.allocatable,
        offerings=offerings,
        kubelet_reserved=size.kubelet,
        attachable_volumes=size.attachable,
    )


def _bought(
    name: str,
    region: Region,
    who: Buyer,
    zones: Sequence[str],
    kinds: Sequence[str],
    *,
    runs: bool,
    told_apart: bool,
) -> Iterator[Offering]:
    """On-demand and spot. ``told_apart``: the type has reservations, so these say that they are none."""
    for kind in kinds:
        for zone in zones:
            price = price_of(region, name, kind, zone)
            stated = _with(who.zones[zone], _UNRESERVED) if told_apart else who.zones[zone]
            usable = runs and _served(who, zone)
            yield Offering(zone, kind, price, usable and price > 0, stated, lacks_price=usable and price == 0)


def _reserved(one: CapacityReservation, region: Region, who: Buyer, *, runs: bool) -> Offering:
    """A reservation's own offering: as many instances as it has left, until it ends."""
    told = {
        labels.RESERVATION_ID: one.id,
        labels.RESERVATION_TYPE: one.reservation_type,
        labels.RESERVATION_INTERRUPTIBLE: "true" if one.interruptible else "false",
    }
    usable = runs and one.available_instance_count > 0 and one.state == "active" and _served(who, one.zone)
    return Offering(
        zone=one.zone,
        capacity_type=labels.RESERVED,
        price_picousd_per_hour=region.on_demand.get(one.instance_type, 0) // RESERVED_SHARE,
        available=usable,
        requirements=_with(who.zones[one.zone], told),
        reservation_capacity=one.available_instance_count,
    )


def _partitioned(offerings: Iterable[Offering], group: PlacementGroup | None) -> Iterator[Offering]:
    """In a partition group each offering once for each partition, so that pods can be spread over them."""
    names = group.partition_names if group else ()
    for one in offerings:
        for name in names:
            told = _with(one.requirements, {labels.PLACEMENT_GROUP_PARTITION: name})
            yield msgspec.structs.replace(one, requirements=told)
        if not names:
            yield one


_UNRESERVED: Final = dict.fromkeys(labels.RESERVATION_LABELS, "")


def _with(zone: Requirements, told: Mapping[str, str]) -> Requirements:
    """A zone's requirements and these labels; "" = the label is absent."""
    own = (Requirement(key, False, frozenset((value,) if value else ())) for key, value in told.items())
    return Requirements({one.key: one for one in (*zone, *own)})


def _served(who: Buyer, zone: str) -> bool:
    """Whether the zone is one that traffic still goes to."""
    return who.zones[zone].get(labels.ZONE_ID).sole_value not in who.shifted if who.shifted else True


def price_of(region: Region, name: str, capacity_type: str, zone: str) -> int:
    """Picodollars per hour; 0 = not known."""
    on_demand = region.on_demand.get(name, 0)
    if capacity_type == labels.ON_DEMAND or region.spot is None:
        return on_demand
    return region.spot.get(name, {}).get(zone, 0)
