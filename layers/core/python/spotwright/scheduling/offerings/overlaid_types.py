"""Instance types as NodeOverlays change them."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType, Offering
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.offerings.overlay_requirements import PRICE_ADJUSTMENT

_HUGEPAGES: Final = "hugepages-"


def overlay_type(
    instance_type: InstanceType,
    price_overlays: Mapping[int, NodeOverlay],
    capacities: Mapping[int, Mapping[str, int]],
) -> list[InstanceType]:
    """A type's entries, one for each amount of resources that it has somewhere; that of EC2's first.

    ``price_overlays`` and ``capacities``: by the place of the offering that they change.
    """
    offerings = [
        _with_price(offering, price_overlays[place]) if place in price_overlays else offering
        for place, offering in enumerate(instance_type.offerings)
    ]
    by_capacity: dict[tuple[tuple[str, int], ...], list[Offering]] = {}
    for place, offering in enumerate(offerings):
        capacity = tuple(sorted(capacities.get(place, {}).items()))
        by_capacity.setdefault(capacity, []).append(offering)
    overlaid = msgspec.structs.replace(
        instance_type,
        price_overlay_applied=tuple(offerings) != instance_type.offerings,
        capacity_overlay_applied=any(by_capacity),
    )
    if len(by_capacity) == 1:
        (capacity,) = by_capacity
        return [_with_capacity(overlaid, dict(capacity), offerings)]
    return [
        _with_capacity(_with_labels_of(overlaid, of_entry), dict(capacity), of_entry)
        for capacity, of_entry in sorted(by_capacity.items(), key=lambda item: bool(item[0]))
    ]


def _with_price(offering: Offering, overlay: NodeOverlay) -> Offering:
    """The offering at the overlay's price: never below nothing, to the nearest picodollar.

    An overlay that names instance types and nothing else also makes an offering available that only lacked a price.
    """
    price = Fraction(offering.price_picousd_per_hour)
    if overlay.price:
        price = Fraction(overlay.price) * PICOUSD
    elif adjustment := PRICE_ADJUSTMENT.match(overlay.price_adjustment):
        change = Fraction(adjustment["number"])
        price = price * (1 + change / 100) if adjustment["percent"] else price + change * PICOUSD
    stated = [(expression.key, expression.operator) for expression in overlay.requirements]
    names_types = stated == [(labels.INSTANCE_TYPE, "In")]
    available = offering.available or (offering.lacks_price and names_types and bool(overlay.price))
    return msgspec.structs.replace(offering, price_picousd_per_hour=max(0, round(price)), available=available)


def _with_capacity(
    instance_type: InstanceType, capacity: dict[str, int], offerings: Sequence[Offering]
) -> InstanceType:
    """A type where it has these resources besides its own."""
    return msgspec.structs.replace(
        instance_type,
        capacity=instance_type.capacity | capacity,
        allocatable=_allocatable(instance_type, capacity),
        offerings=tuple(offerings),
    )


def _with_labels_of(instance_type: InstanceType, offerings: Sequence[Offering]) -> InstanceType:
    """A type whose labels of zone, capacity type and reservation state what these offerings state."""
    values: dict[str, set[str]] = {
        labels.ZONE: {offering.zone for offering in offerings},
        labels.CAPACITY_TYPE: {offering.capacity_type for offering in offerings},
    }
    for key in instance_type.requirements.by_key:
        stated = [offering.requirements.by_key[key] for offering in offerings if key in offering.requirements]
        if len(stated) == len(offerings) and not any(requirement.complement for requirement in stated):
            values[key] = {value for requirement in stated for value in requirement.values}
    narrowed = {key: Requirement(key, False, frozenset(of_key)) for key, of_key in values.items() if "" not in of_key}
    merged = instance_type.requirements.by_key | narrowed
    return msgspec.structs.replace(
        instance_type, requirements=Requirements({key: merged[key] for key in sorted(merged)})
    )


def _allocatable(instance_type: InstanceType, capacity: Mapping[str, int]) -> dict[str, int]:
    """What pods may use once the type has these resources. Huge pages are taken from memory, as kubelet counts."""
    hugepages = [name for name in capacity if name.startswith(_HUGEPAGES)]
    taken = sum(capacity[name] - instance_type.capacity.get(name, 0) for name in hugepages)
    allocatable = instance_type.allocatable | dict(capacity)
    if taken:
        allocatable[resources.MEMORY] = max(0, allocatable.get(resources.MEMORY, 0) - taken)
    return allocatable
