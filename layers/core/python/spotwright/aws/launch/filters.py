"""Which offerings a launch may ask for: compatible, available, not exotic without need, not spot above on-demand.

What is reserved comes first (``aws.launch.capacity_reservations``). Source: the filters of Karpenter's AWS provider, in
our words.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from spotwright.aws.instance_types import unavailable_offerings
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import capacity_reservations
from spotwright.aws.launch.capacity_reservations import ReservationTarget
from spotwright.aws.refusal import Refusal
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_expressions

# Types in one request: enough choice for EC2, small enough for its limits. Karpenter's figure.
MAX_INSTANCE_TYPES: Final = 60
EXOTIC_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron")

_NONE_LEFT: Final = "InsufficientCapacity"


class LaunchConstraints(Protocol):
    @property
    def instance_types(self) -> tuple[str, ...]: ...
    @property
    def requirements(self) -> tuple[NodeSelectorRequirement, ...]: ...
    @property
    def requests(self) -> dict[str, int]: ...
    @property
    def zones(self) -> tuple[str, ...]: ...


class LaunchOffering(msgspec.Struct, frozen=True):
    """An offering that can be asked for, and the subnet it would use.

    ``risk_adjusted_price``: its price, and dearer by how often it failed or was taken back lately; orders the
    offerings. ``reservation``: the reservation it comes out of, None = it is bought.
    """

    instance_type: InstanceType
    zone: str
    capacity_type: str
    price_picousd_per_hour: int
    subnet_id: str
    risk_adjusted_price: int = 0
    reservation: ReservationTarget | None = None


def select_offerings(
    constraints: LaunchConstraints,
    nodeclass: EC2NodeClass,
    types: Iterable[InstanceType],
    unavailable: UnavailableOfferings,
) -> tuple[str, tuple[LaunchOffering, ...]] | Refusal:
    """(capacity type, candidates cheapest first) or why nothing is left.

    What is reserved comes before spot, and spot before on-demand, where they are allowed.
    """
    requirements = from_expressions(constraints.requirements)
    offerings = _reserved_first(_compatible(constraints, requirements, nodeclass, types, unavailable))
    if not offerings:
        return Refusal(_NONE_LEFT, "no compatible instance type has an available offering")
    if not any(requirement.min_values for requirement in requirements):
        offerings = _filter_expensive_spot(_filter_exotic_types(offerings))
    kept = _cheapest_types(offerings, requirements)
    unmet = _unmet_minimum(requirements, kept)
    if unmet is not None:
        return Refusal(_NONE_LEFT, f"minValues of {unmet.key} cannot be met with {MAX_INSTANCE_TYPES} types")
    offered = {offering.capacity_type for offering in kept}
    capacity_type = next(one for one in (labels.RESERVED, labels.SPOT, labels.ON_DEMAND) if one in offered)
    return capacity_type, tuple(offering for offering in kept if offering.capacity_type == capacity_type)


def _compatible(
    constraints: LaunchConstraints,
    requirements: Requirements,
    nodeclass: EC2NodeClass,
    types: Iterable[InstanceType],
    unavailable: UnavailableOfferings,
) -> list[LaunchOffering]:
    names = frozenset(constraints.instance_types)
    subnets, group = subnet_by_zone(nodeclass, unavailable), unavailable_offerings.placement_group_id(nodeclass)
    return _distinct_pools(
        _launch_offering(instance_type, offering, subnets[offering.zone], unavailable)
        for instance_type in types
        if instance_type.name in names
        and instance_type.requirements.intersects(requirements)
        and resources.fits(constraints.requests, instance_type.allocatable)
        for offering in instance_type.offerings
        if _is_allowed(offering, constraints, requirements)
        and offering.zone in subnets
        and unavailable_offerings.apply_to_offering(
            instance_type, offering, unavailable, placement_group=group
        ).available
    )


def _distinct_pools(offerings: Iterable[LaunchOffering]) -> list[LaunchOffering]:
    """Each pool once, for a fleet may not name it twice: partitions of a placement group are all of one pool."""
    pools: dict[tuple[str, str, str, str], LaunchOffering] = {}
    for offering in offerings:
        into = offering.reservation.id if offering.reservation else ""
        pools.setdefault((offering.instance_type.name, offering.zone, offering.capacity_type, into), offering)
    return list(pools.values())


def _launch_offering(
    instance_type: InstanceType, offering: Offering, subnet: str, unavailable: UnavailableOfferings
) -> LaunchOffering:
    price = offering.price_picousd_per_hour
    risk = unavailable.risk_percent(offering.capacity_type, instance_type.name, offering.zone)
    weight = price * (100 + risk) // 100
    return LaunchOffering(
        instance_type,
        offering.zone,
        offering.capacity_type,
        price,
        subnet,
        weight,
        capacity_reservations.reservation_target(offering),
    )


def _is_allowed(offering: Offering, constraints: LaunchConstraints, requirements: Requirements) -> bool:
    return (
        offering.available
        and (not constraints.zones or offering.zone in constraints.zones)
        and requirements.get(labels.ZONE).has(offering.zone)
        and requirements.get(labels.CAPACITY_TYPE).has(offering.capacity_type)
        and offering.requirements.intersects(requirements)
    )


def subnet_by_zone(nodeclass: EC2NodeClass, unavailable: UnavailableOfferings) -> dict[str, str]:
    """Per zone the class's first subnet that is not out of addresses; the status lists the emptiest first."""
    chosen: dict[str, str] = {}
    for subnet in nodeclass.subnets:
        if unavailable.has_free_addresses(subnet.id, subnet.zone):
            chosen.setdefault(subnet.zone, subnet.id)
    return chosen


def _reserved_first(offerings: list[LaunchOffering]) -> list[LaunchOffering]:
    """Of what is reserved that which one request may name; everything else where nothing is reserved."""
    offers = [
        (offering.instance_type.name, offering.zone, offering.price_picousd_per_hour, offering.reservation)
        for offering in offerings
        if offering.reservation
    ]
    if not offers:
        return offerings
    named = capacity_reservations.select_reservations(offers)
    return [offering for offering in offerings if offering.reservation and offering.reservation.id in named]


def _filter_exotic_types(offerings: list[LaunchOffering]) -> list[LaunchOffering]:
    """Without metal and accelerated types, unless nothing else remains."""
    generic = [offering for offering in offerings if not is_exotic(offering.instance_type)]
    return generic or offerings


def is_exotic(instance_type: InstanceType) -> bool:
    """Metal, or with GPUs or accelerators: dear, slow to start, and rarely what a generic pod needs."""
    accelerated = any(instance_type.capacity.get(name) for name in EXOTIC_RESOURCES)
    return accelerated or "metal" in instance_type.name.partition(".")[2]


def _filter_expensive_spot(offerings: list[LaunchOffering]) -> list[LaunchOffering]:
    """Without spot offerings that cost more than the cheapest on-demand one, where both are allowed."""
    on_demand = [
        offering.price_picousd_per_hour for offering in offerings if offering.capacity_type == labels.ON_DEMAND
    ]
    if not on_demand:
        return offerings
    ceiling = min(on_demand)
    return [
        offering
        for offering in offerings
        if offering.capacity_type != labels.SPOT or offering.price_picousd_per_hour <= ceiling
    ]


def _cheapest_types(offerings: Iterable[LaunchOffering], requirements: Requirements) -> tuple[LaunchOffering, ...]:
    """The offerings of the cheapest types, cheapest offering first, by weight; ties by name and zone.

    Types that ``minValues`` needs come before cheaper ones that add nothing to it.
    """
    ordered = sorted(
        offerings, key=lambda offering: (offering.risk_adjusted_price, offering.instance_type.name, offering.zone)
    )
    types = {id(offering.instance_type): offering.instance_type for offering in ordered}
    by_price = (instance_type.name for instance_type in types.values())
    allowed = frozenset([*dict.fromkeys((*_needed(types.values(), requirements), *by_price))][:MAX_INSTANCE_TYPES])
    return tuple(offering for offering in ordered if offering.instance_type.name in allowed)


def _needed(types: Iterable[InstanceType], requirements: Requirements) -> Iterator[str]:
    """Names of types, in their order, that bring a value which some ``minValues`` still lacks."""
    lacking: dict[Requirement, set[str]] = {one: set() for one in requirements if one.min_values}
    for instance_type in types:
        news = {
            one: _values(instance_type, one) - seen
            for one, seen in lacking.items()
            if len(seen) < (one.min_values or 0)
        }
        if any(news.values()):
            yield instance_type.name
            for requirement, values in news.items():
                lacking[requirement] |= values


def _values(instance_type: InstanceType, requirement: Requirement) -> set[str]:
    """The values of a label that a type can have and that are allowed."""
    return {value for value in instance_type.requirements.get(requirement.key).values if requirement.has(value)}


def _unmet_minimum(requirements: Requirements, kept: Sequence[LaunchOffering]) -> Requirement | None:
    """The first requirement whose ``min_values`` the remaining types do not reach."""
    for requirement in requirements:
        found = (
            {value for offering in kept for value in _values(offering.instance_type, requirement)}
            if requirement.min_values
            else ()
        )
        if len(found) < (requirement.min_values or 0):
            return requirement
    return None
