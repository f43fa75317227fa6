"""What can be bought: zones × capacity types of every instance type for a class, with prices.

An offering is available when the type can run the class (an image, network interfaces, processor and placement fit),
EC2 offers the type in a zone where the class has a subnet and from which traffic is not shifted away, and its price is
known. A decision leaves out offerings that EC2 lately had no capacity for (``unavailable_offerings``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.aws.images import amis, families
from spotwright.aws.instance_types import capacity, compatibility, type_labels
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.instance_types.region_facts import RegionFacts, offering_price
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.karpenter.nodeclass import AMI, CapacityReservation, EC2NodeClass, PlacementGroup
from spotwright.model.requirements import Requirement, Requirements

# What an instance of a reservation costs besides what the reservation costs anyway: next to nothing, but in the order
# of the types' own prices.
RESERVED_PRICE_DIVISOR: Final = 10_000_000


class OfferingContext(msgspec.Struct, frozen=True):
    """What offerings depend on in an EC2NodeClass: AMI family, images, and zone → requirements of the zone's offerings.

    ``shifted_zone_ids``: ids of zones that traffic was shifted away from. ``discovered_memory``: (type, image) → bytes
    that such nodes reported.
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
    sold = (info for info in region.types if _zones(info, region, context) and _capacity_types(info) and info.arch)
    return tuple(instance_type(info, region, context, overheads) for info in sorted(sold, key=lambda info: info.name))


def _zones(info: InstanceTypeInfo, region: RegionFacts, context: OfferingContext) -> list[str]:
    return [zone for zone in context.zones if zone in region.zones.get(info.name, ())]


def _capacity_types(info: InstanceTypeInfo) -> list[str]:
    return [kind for kind in (labels.ON_DEMAND, labels.SPOT) if kind in info.usage_classes]


def instance_type(
    info: InstanceTypeInfo, region: RegionFacts, context: OfferingContext, overheads: capacity.Overheads
) -> InstanceType:
    """A type with its offerings, which may be none. Raises QuantityError and KubeletError."""
    zones, kinds = _zones(info, region, context), _capacity_types(info)
    reservations = [
        reservation for reservation in context.nodeclass.capacity_reservations if reservation.instance_type == info.name
    ]
    reachable = [reservation for reservation in reservations if reservation.zone in context.zones]
    labelled = InstanceType(
        name=info.name,
        requirements=type_labels.type_requirements(
            info,
            region=region.name,
            zones=zones,
            capacity_types=[*kinds, labels.RESERVED] if reachable else kinds,
            windows_build=families.WINDOWS_BUILDS.get(context.family.name, ""),
            reservations=reachable,
            placement_group=context.nodeclass.placement_group,
        ),
        capacity={},
        allocatable={},
        offerings=(),
    )
    image = amis.ami_for_type(context.images, labelled)
    memory_bytes = context.discovered_memory.get((info.name, image.id)) if image else None
    size = capacity.node_resources(info, context.nodeclass, context.family, overheads, memory_bytes)
    runs = image is not None and not compatibility.incompatibilities(info, context.nodeclass, context.family)
    unreserved = _unreserved_offerings(
        info.name, region, context, zones, kinds, runs=runs, has_reservations=bool(reachable)
    )
    reserved_offerings = (_reserved_offering(reservation, region, context, runs=runs) for reservation in reachable)
    offerings = tuple(_split_by_partition((*unreserved, *reserved_offerings), context.nodeclass.placement_group))
    return msgspec.structs.replace(
        labelled,
        capacity=size.capacity,
        allocatable=size.allocatable,
        offerings=offerings,
        kubelet_reserved=size.kubelet,
        attachable_volumes=size.attachable_volumes,
    )


def _unreserved_offerings(
    name: str,
    region: RegionFacts,
    context: OfferingContext,
    zones: Sequence[str],
    kinds: Sequence[str],
    *,
    runs: bool,
    has_reservations: bool,
) -> Iterator[Offering]:
    """On-demand and spot. ``has_reservations``: the requirements of these offerings exclude reservations then."""
    for kind in kinds:
        for zone in zones:
            price = offering_price(region, name, kind, zone)
            requirements = (
                _add_labels(context.zones[zone], _NO_RESERVATION) if has_reservations else context.zones[zone]
            )
            usable = runs and _gets_traffic(context, zone)
            yield Offering(zone, kind, price, usable and price > 0, requirements, lacks_price=usable and price == 0)


def _reserved_offering(
    reservation: CapacityReservation, region: RegionFacts, context: OfferingContext, *, runs: bool
) -> Offering:
    """The offering of a capacity reservation: as many instances as it has left, until it ends."""
    reservation_labels = {
        labels.RESERVATION_ID: reservation.id,
        labels.RESERVATION_TYPE: reservation.reservation_type,
        labels.RESERVATION_INTERRUPTIBLE: "true" if reservation.interruptible else "false",
    }
    usable = (
        runs
        and reservation.available_instance_count > 0
        and reservation.state == "active"
        and _gets_traffic(context, reservation.zone)
    )
    return Offering(
        zone=reservation.zone,
        capacity_type=labels.RESERVED,
        price_picousd_per_hour=region.on_demand.get(reservation.instance_type, 0) // RESERVED_PRICE_DIVISOR,
        available=usable,
        requirements=_add_labels(context.zones[reservation.zone], reservation_labels),
        reservation_capacity=reservation.available_instance_count,
    )


def _split_by_partition(offerings: Iterable[Offering], group: PlacementGroup | None) -> Iterator[Offering]:
    """In a partition placement group an offering for every partition, so that pods can be spread over partitions."""
    names = group.partition_names if group else ()
    for offering in offerings:
        for name in names:
            requirements = _add_labels(offering.requirements, {labels.PLACEMENT_GROUP_PARTITION: name})
            yield msgspec.structs.replace(offering, requirements=requirements)
        if not names:
            yield offering


_NO_RESERVATION: Final = dict.fromkeys(labels.RESERVATION_LABELS, "")


def _add_labels(zone: Requirements, added: Mapping[str, str]) -> Requirements:
    """The requirements and these labels; "" = the label is absent."""
    own = (Requirement(key, False, frozenset((value,) if value else ())) for key, value in added.items())
    return Requirements({requirement.key: requirement for requirement in (*zone, *own)})


def _gets_traffic(context: OfferingContext, zone: str) -> bool:
    """Whether traffic is not shifted away from the zone."""
    return (
        context.zones[zone].get(labels.ZONE_ID).sole_value not in context.shifted_zone_ids
        if context.shifted_zone_ids
        else True
    )
