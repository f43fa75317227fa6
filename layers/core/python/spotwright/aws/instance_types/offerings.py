"""What can be bought: zones × capacity types of every instance type for a class, with prices.

An offering is available when the type can run the class (an image fits, and what the class asks of interfaces,
processor and placement), EC2 offers it in a zone where the class has a subnet and that is not shifted away from, and
its price is known. Offerings that are known to be empty are taken out when a decision is made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.aws.images import amis, families
from spotwright.aws.instance_types import capacity, compatibility, type_labels
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.karpenter.nodeclass import AMI, CapacityReservation, EC2NodeClass, PlacementGroup
from spotwright.model.requirements import Requirement, Requirements

# A region read by older code is read again.
REGION_SCHEMA: Final = 2
# What an instance of a reservation costs besides what the reservation costs anyway: next to nothing, but in the order
# of the types' own prices.
RESERVED_PRICE_DIVISOR: Final = 10_000_000


class RegionFacts(msgspec.Struct, frozen=True):
    """What EC2 sells in a region. Prices in picodollars per hour.

    ``zones``: type → zones where EC2 offers it. ``spot``: type → zone → price; None = never asked successfully, then
    the on-demand price stands in. ``on_demand``: a type that is missing has no known price. ``notes``: what could not
    be learned, for people.
    """

    name: str
    types: tuple[InstanceTypeInfo, ...]
    zones: dict[str, tuple[str, ...]]
    on_demand: dict[str, int]
    spot: dict[str, dict[str, int]] | None = None
    notes: tuple[str, ...] = ()
    schema: int = REGION_SCHEMA


class OfferingContext(msgspec.Struct, frozen=True):
    """A class as buying sees it: family, images with their requirements read, zone → requirements of that zone.

    ``shifted_zone_ids``: ids of zones that traffic was shifted away from. ``discovered_memory``: (type, image) → bytes
    that such nodes were seen to have.
    """

    nodeclass: EC2NodeClass
    family: families.AMIFamily
    images: tuple[tuple[AMI, Requirements], ...]
    zones: dict[str, Requirements]
    shifted_zone_ids: frozenset[str] = frozenset()
    discovered_memory: dict[tuple[str, str], int] = {}


def offering_context(
    nodeclass: EC2NodeClass,
    family: families.AMIFamily,
    *,
    shifted_zone_ids: frozenset[str] = frozenset(),
    discovered_memory: Mapping[tuple[str, str], int] | None = None,
) -> OfferingContext:
    zones = {
        subnet.zone: _zone_id(subnet.zone_id) for subnet in sorted(nodeclass.subnets, key=lambda subnet: subnet.zone)
    }
    return OfferingContext(
        nodeclass,
        family,
        amis.amis_with_requirements(nodeclass.amis),
        zones,
        shifted_zone_ids,
        dict(discovered_memory or {}),
    )


def _zone_id(zone_id: str) -> Requirements:
    if not zone_id:
        return Requirements()
    return Requirements({labels.ZONE_ID: Requirement(labels.ZONE_ID, False, frozenset((zone_id,)))})


def instance_types(
    region: RegionFacts, context: OfferingContext, overheads: capacity.Overheads
) -> tuple[InstanceType, ...]:
    """Every type that EC2 offers where the class has subnets, ordered by name; raises QuantityError, KubeletError."""
    sold = (info for info in region.types if _where(info, region, context) and _kinds(info) and info.arch)
    return tuple(instance_type(info, region, context, overheads) for info in sorted(sold, key=lambda info: info.name))


def _where(info: InstanceTypeInfo, region: RegionFacts, context: OfferingContext) -> list[str]:
    return [zone for zone in context.zones if zone in region.zones.get(info.name, ())]


def _kinds(info: InstanceTypeInfo) -> list[str]:
    return [kind for kind in (labels.ON_DEMAND, labels.SPOT) if kind in info.usage_classes]


def instance_type(
    info: InstanceTypeInfo, region: RegionFacts, context: OfferingContext, overheads: capacity.Overheads
) -> InstanceType:
    """One type; without offerings where it is not sold. Raises QuantityError and KubeletError."""
    here, kinds = _where(info, region, context), _kinds(info)
    own = [
        reservation for reservation in context.nodeclass.capacity_reservations if reservation.instance_type == info.name
    ]
    reserved = [reservation for reservation in own if reservation.zone in context.zones]
    made = InstanceType(
        name=info.name,
        requirements=type_labels.type_requirements(
            info,
            region=region.name,
            zones=here,
            capacity_types=[*kinds, labels.RESERVED] if reserved else kinds,
            windows_build=families.WINDOWS_BUILDS.get(context.family.name, ""),
            reservations=reserved,
            placement_group=context.nodeclass.placement_group,
        ),
        capacity={},
        allocatable={},
        offerings=(),
    )
    image = amis.ami_for_type(context.images, made)
    seen = context.discovered_memory.get((info.name, image.id)) if image else None
    size = capacity.node_resources(info, context.nodeclass, context.family, overheads, seen)
    runs = image is not None and not compatibility.incompatibilities(info, context.nodeclass, context.family)
    bought = _bought(info.name, region, context, here, kinds, runs=runs, told_apart=bool(reserved))
    taken = (_reserved(reservation, region, context, runs=runs) for reservation in reserved)
    offerings = tuple(_partitioned((*bought, *taken), context.nodeclass.placement_group))
    return msgspec.structs.replace(
        made,
        capacity=size.capacity,
        allocatable=size.allocatable,
        offerings=offerings,
        kubelet_reserved=size.kubelet,
        attachable_volumes=size.attachable_volumes,
    )


def _bought(
    name: str,
    region: RegionFacts,
    context: OfferingContext,
    zones: Sequence[str],
    kinds: Sequence[str],
    *,
    runs: bool,
    told_apart: bool,
) -> Iterator[Offering]:
    """On-demand and spot. ``told_apart``: the type has reservations, so these say that they are none."""
    for kind in kinds:
        for zone in zones:
            price = offering_price(region, name, kind, zone)
            stated = _with(context.zones[zone], _UNRESERVED) if told_apart else context.zones[zone]
            usable = runs and _served(context, zone)
            yield Offering(zone, kind, price, usable and price > 0, stated, lacks_price=usable and price == 0)


def _reserved(
    reservation: CapacityReservation, region: RegionFacts, context: OfferingContext, *, runs: bool
) -> Offering:
    """A reservation's own offering: as many instances as it has left, until it ends."""
    told = {
        labels.RESERVATION_ID: reservation.id,
        labels.RESERVATION_TYPE: reservation.reservation_type,
        labels.RESERVATION_INTERRUPTIBLE: "true" if reservation.interruptible else "false",
    }
    usable = (
        runs
        and reservation.available_instance_count > 0
        and reservation.state == "active"
        and _served(context, reservation.zone)
    )
    return Offering(
        zone=reservation.zone,
        capacity_type=labels.RESERVED,
        price_picousd_per_hour=region.on_demand.get(reservation.instance_type, 0) // RESERVED_PRICE_DIVISOR,
        available=usable,
        requirements=_with(context.zones[reservation.zone], told),
        reservation_capacity=reservation.available_instance_count,
    )


def _partitioned(offerings: Iterable[Offering], group: PlacementGroup | None) -> Iterator[Offering]:
    """In a partition group each offering once for each partition, so that pods can be spread over them."""
    names = group.partition_names if group else ()
    for offering in offerings:
        for name in names:
            requirements = _with(offering.requirements, {labels.PLACEMENT_GROUP_PARTITION: name})
            yield msgspec.structs.replace(offering, requirements=requirements)
        if not names:
            yield offering


_UNRESERVED: Final = dict.fromkeys(labels.RESERVATION_LABELS, "")


def _with(zone: Requirements, told: Mapping[str, str]) -> Requirements:
    """A zone's requirements and these labels; "" = the label is absent."""
    own = (Requirement(key, False, frozenset((value,) if value else ())) for key, value in told.items())
    return Requirements({requirement.key: requirement for requirement in (*zone, *own)})


def _served(context: OfferingContext, zone: str) -> bool:
    """Whether the zone is one that traffic still goes to."""
    return (
        context.zones[zone].get(labels.ZONE_ID).sole_value not in context.shifted_zone_ids
        if context.shifted_zone_ids
        else True
    )


def offering_price(region: RegionFacts, name: str, capacity_type: str, zone: str) -> int:
    """Picodollars per hour; 0 = not known."""
    on_demand = region.on_demand.get(name, 0)
    if capacity_type == labels.ON_DEMAND or region.spot is None:
        return on_demand
    return region.spot.get(name, {}).get(zone, 0)
