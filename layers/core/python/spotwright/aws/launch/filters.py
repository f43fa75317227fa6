"""Which offerings a launch may ask for: compatible, available, not exotic without need, not spot above on-demand.

Capacity reservations come first (``aws.launch.capacity_reservations``). Source: the filters of Karpenter's AWS provider
(``pkg/providers/instance/filter``).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from spotwright.aws.instance_types import unavailable_offerings
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import capacity_reservations
from spotwright.aws.launch.capacity_reservations import ReservationTarget
from spotwright.aws.refusal import Refusal
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import InstanceType, Offering, is_exotic
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_expressions

# Types in one request: enough choice for EC2, small enough for its limits. Karpenter's figure.
MAX_INSTANCE_TYPES: Final = 60

_NONE_LEFT: Final = "InsufficientCapacity"


class NodeToLaunch(Protocol):
    """The node that a launch is for; ``scheduling.plan.NewNode`` has these fields."""

    @property
    def nodepool(self) -> str: ...
    @property
    def instance_types(self) -> tuple[str, ...]: ...
    @property
    def requirements(self) -> tuple[NodeSelectorRequirement, ...]: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def taints(self) -> tuple[Taint, ...]: ...
    @property
    def startup_taints(self) -> tuple[Taint, ...]: ...
    @property
    def requests(self) -> dict[str, int]: ...
    @property
    def zones(self) -> tuple[str, ...]: ...
    @property
    def reason(self) -> str: ...


class LaunchOffering(msgspec.Struct, frozen=True):
    """An offering that a launch can ask for, and the subnet of its instance.

    ``risk_adjusted_price``: its price, raised for recent failures and interruptions; orders the offerings.
    ``reservation``: the capacity reservation of a reserved offering, None = spot or on-demand.
    """

    instance_type: InstanceType
    zone: str
    capacity_type: str
    price_picousd_per_hour: int
    subnet_id: str
    risk_adjusted_price: int = 0
    reservation: ReservationTarget | None = None


def select_offerings(
    node: NodeToLaunch,
    nodeclass: EC2NodeClass,
    types: Iterable[InstanceType],
    unavailable: UnavailableOfferings,
) -> tuple[str, tuple[LaunchOffering, ...]] | Refusal:
    """(capacity type, its offerings, cheapest first), or why no offering is left.

    Of the capacity types that are left, reserved comes before spot, and spot before on-demand.
    """
    requirements = from_expressions(node.requirements)
    offerings = _prefer_reservations(_compatible_offerings(node, requirements, nodeclass, types, unavailable))
    if not offerings:
        return Refusal(_NONE_LEFT, "no compatible instance type has an available offering")
    if not any(requirement.min_values for requirement in requirements):
        offerings = _filter_expensive_spot(_filter_exotic_types(offerings))
    kept = _cheapest_types(offerings, requirements)
    unmet = _unmet_minimum(requirements, kept)
    if unmet is not None:
        return Refusal(_NONE_LEFT, f"minValues of {unmet.key} cannot be met with {MAX_INSTANCE_TYPES} types")
    capacity_types = {offering.capacity_type for offering in kept}
    capacity_type = next(
        capacity_type
        for capacity_type in (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)
        if capacity_type in capacity_types
    )
    chosen = tuple(offering for offering in kept if offering.capacity_type == capacity_type)
    return capacity_type, _avoid_full_subnets(chosen, requirements, unavailable)


def _compatible_offerings(
    node: NodeToLaunch,
    requirements: Requirements,
    nodeclass: EC2NodeClass,
    types: Iterable[InstanceType],
    unavailable: UnavailableOfferings,
) -> list[LaunchOffering]:
    names = frozenset(node.instance_types)
    subnets, group = subnet_by_zone(nodeclass, unavailable), unavailable_offerings.placement_group_id(nodeclass)
    return _distinct_pools(
        _launch_offering(instance_type, offering, subnets[offering.zone], unavailable)
        for instance_type in types
        if instance_type.name in names
        and instance_type.requirements.intersects(requirements)
        and resources.fits(node.requests, instance_type.allocatable)
        for offering in instance_type.offerings
        if _is_allowed(offering, node, requirements)
        and offering.zone in subnets
        and unavailable_offerings.apply_to_offering(
            instance_type, offering, unavailable, placement_group=group
        ).available
    )


def _distinct_pools(offerings: Iterable[LaunchOffering]) -> list[LaunchOffering]:
    """The offerings without duplicates of a capacity pool, which a fleet may not name twice: the partitions of a
    placement group have offerings of their own, and a pool in common."""
    pools: dict[tuple[str, str, str, str], LaunchOffering] = {}
    for offering in offerings:
        reservation_id = offering.reservation.id if offering.reservation else ""
        pools.setdefault((offering.instance_type.name, offering.zone, offering.capacity_type, reservation_id), offering)
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


def _is_allowed(offering: Offering, node: NodeToLaunch, requirements: Requirements) -> bool:
    return (
        offering.available
        and (not node.zones or offering.zone in node.zones)
        and requirements.get(labels.ZONE).has(offering.zone)
        and requirements.get(labels.CAPACITY_TYPE).has(offering.capacity_type)
        and offering.requirements.intersects(requirements)
    )


def subnet_by_zone(nodeclass: EC2NodeClass, unavailable: UnavailableOfferings) -> dict[str, str]:
    """Zone → the class's subnet with most free addresses, without subnets that have none.

    The status lists subnets with most free addresses first; what launches took since is not in it.
    """
    known = unavailable.free_addresses
    usable = [subnet for subnet in nodeclass.subnets if unavailable.has_free_addresses(subnet.id, subnet.zone)]
    # A subnet of which nothing is known has many.
    ordered = sorted(usable, key=lambda subnet: -known[subnet.id].expected if subnet.id in known else -math.inf)
    return {subnet.zone: subnet.id for subnet in reversed(ordered)}


def _avoid_full_subnets(
    offerings: tuple[LaunchOffering, ...], requirements: Requirements, unavailable: UnavailableOfferings
) -> tuple[LaunchOffering, ...]:
    """Without subnets whose addresses are expected to be taken by nodes that join, unless no others remain.

    Where ``minValues`` asks for variety, every offering counts.
    """
    if any(requirement.min_values for requirement in requirements):
        return offerings
    roomy = tuple(offering for offering in offerings if unavailable.expects_free_addresses(offering.subnet_id))
    return roomy or offerings


def _prefer_reservations(offerings: list[LaunchOffering]) -> list[LaunchOffering]:
    """The reserved offerings that a single request may name; without reserved offerings all offerings."""
    reserved = [
        (offering.instance_type.name, offering.zone, offering.price_picousd_per_hour, offering.reservation)
        for offering in offerings
        if offering.reservation
    ]
    if not reserved:
        return offerings
    reservation_ids = capacity_reservations.select_reservations(reserved)
    return [offering for offering in offerings if offering.reservation and offering.reservation.id in reservation_ids]


def _filter_exotic_types(offerings: list[LaunchOffering]) -> list[LaunchOffering]:
    """Without metal and accelerated types, unless no other types remain."""
    generic = [offering for offering in offerings if not is_exotic(offering.instance_type)]
    return generic or offerings


def _filter_expensive_spot(offerings: list[LaunchOffering]) -> list[LaunchOffering]:
    """Without spot offerings that cost more than the cheapest on-demand offering, where both are allowed."""
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
    """The offerings of the cheapest types, cheapest first by risk-adjusted price; ties by name and zone.

    Types that ``minValues`` needs come before cheaper types.
    """
    ordered = sorted(
        offerings, key=lambda offering: (offering.risk_adjusted_price, offering.instance_type.name, offering.zone)
    )
    types = {id(offering.instance_type): offering.instance_type for offering in ordered}
    by_price = (instance_type.name for instance_type in types.values())
    allowed = frozenset(
        [*dict.fromkeys((*_types_for_min_values(types.values(), requirements), *by_price))][:MAX_INSTANCE_TYPES]
    )
    return tuple(offering for offering in ordered if offering.instance_type.name in allowed)


def _types_for_min_values(types: Iterable[InstanceType], requirements: Requirements) -> Iterator[str]:
    """Names of types, in their order, that have a value which a ``minValues`` still lacks."""
    covered: dict[Requirement, set[str]] = {
        requirement: set() for requirement in requirements if requirement.min_values
    }
    for instance_type in types:
        new_values = {
            requirement: _values(instance_type, requirement) - values
            for requirement, values in covered.items()
            if len(values) < (requirement.min_values or 0)
        }
        if any(new_values.values()):
            yield instance_type.name
            for requirement, values in new_values.items():
                covered[requirement] |= values


def _values(instance_type: InstanceType, requirement: Requirement) -> set[str]:
    """The values of a label that a type can have and that the requirement allows."""
    return {value for value in instance_type.requirements.get(requirement.key).values if requirement.has(value)}


def _unmet_minimum(requirements: Requirements, kept: Sequence[LaunchOffering]) -> Requirement | None:
    """The first requirement whose ``min_values`` the remaining types do not reach."""
    for requirement in requirements:
        values = (
            {value for offering in kept for value in _values(offering.instance_type, requirement)}
            if requirement.min_values
            else ()
        )
        if len(values) < (requirement.min_values or 0):
            return requirement
    return None
