"""Which offerings a launch may ask for: compatible, available, not exotic without need, not spot above on-demand.

What is reserved comes first (``aws.reserved``). Source: the filters of Karpenter's AWS provider, in our words.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from spotwright.aws import health, reserved
from spotwright.aws.health import Health
from spotwright.aws.refusal import Refusal
from spotwright.aws.reserved import Reserved
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_expressions

# Types in one request: enough choice for EC2, small enough for its limits. Karpenter's figure.
MAXIMUM_TYPES: Final = 60
EXOTIC_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron")

_NONE_LEFT: Final = "InsufficientCapacity"


class Demand(Protocol):
    @property
    def instance_types(self) -> tuple[str, ...]: ...
    @property
    def requirements(self) -> tuple[NodeSelectorRequirement, ...]: ...
    @property
    def requests(self) -> dict[str, int]: ...
    @property
    def zones(self) -> tuple[str, ...]: ...


class Candidate(msgspec.Struct, frozen=True):
    """An offering that can be asked for, and the subnet it would use.

    ``weight``: its price, and dearer by how often it failed or was taken back lately; orders the offerings.
    ``reserved``: the reservation it comes out of, None = it is bought.
    """

    instance_type: InstanceType
    zone: str
    capacity_type: str
    price_picousd_per_hour: int
    subnet_id: str
    weight: int = 0
    reserved: Reserved | None = None


def candidates(
    wanted: Demand, node_class: EC2NodeClass, types: Iterable[InstanceType], known: Health
) -> tuple[str, tuple[Candidate, ...]] | Refusal:
    """(capacity type, candidates cheapest first) or why nothing is left.

    What is reserved comes before spot, and spot before on-demand, where they are allowed.
    """
    requirements = from_expressions(wanted.requirements)
    found = _reserved_first(_compatible(wanted, requirements, node_class, types, known))
    if not found:
        return Refusal(_NONE_LEFT, "no compatible instance type has an available offering")
    if not any(one.min_values for one in requirements):
        found = _no_dear_spot(_no_exotic(found))
    kept = _cheapest_types(found, requirements)
    unmet = _unmet_minimum(requirements, kept)
    if unmet is not None:
        return Refusal(_NONE_LEFT, f"minValues of {unmet.key} cannot be met with {MAXIMUM_TYPES} types")
    offered = {one.capacity_type for one in kept}
    capacity_type = next(one for one in (labels.RESERVED, labels.SPOT, labels.ON_DEMAND) if one in offered)
    return capacity_type, tuple(one for one in kept if one.capacity_type == capacity_type)


def _compatible(
    wanted: Demand, requirements: Requirements, node_class: EC2NodeClass, types: Iterable[InstanceType], known: Health
) -> list[Candidate]:
    names = frozenset(wanted.instance_types)
    subnets, group = subnet_by_zone(node_class, known), health.group_of(node_class)
    return _once(
        _candidate(one, offering, subnets[offering.zone], known)
        for one in types
        if one.name in names
        and one.requirements.intersects(requirements)
        and resources.fits(wanted.requests, one.allocatable)
        for offering in one.offerings
        if _buyable(offering, wanted, requirements)
        and offering.zone in subnets
        and health.left(one, offering, known, group=group).available
    )


def _once(found: Iterable[Candidate]) -> list[Candidate]:
    """Each pool once, for a fleet may not name it twice: partitions of a placement group are all of one pool."""
    pools: dict[tuple[str, str, str, str], Candidate] = {}
    for one in found:
        into = one.reserved.id if one.reserved else ""
        pools.setdefault((one.instance_type.name, one.zone, one.capacity_type, into), one)
    return list(pools.values())


def _candidate(one: InstanceType, offering: Offering, subnet: str, known: Health) -> Candidate:
    price = offering.price_picousd_per_hour
    risk = known.risk_percent(offering.capacity_type, one.name, offering.zone)
    weight = price * (100 + risk) // 100
    return Candidate(one, offering.zone, offering.capacity_type, price, subnet, weight, reserved.of(offering))


def _buyable(offering: Offering, wanted: Demand, requirements: Requirements) -> bool:
    return (
        offering.available
        and (not wanted.zones or offering.zone in wanted.zones)
        and requirements.get(labels.ZONE).has(offering.zone)
        and requirements.get(labels.CAPACITY_TYPE).has(offering.capacity_type)
        and offering.requirements.intersects(requirements)
    )


def subnet_by_zone(node_class: EC2NodeClass, known: Health) -> dict[str, str]:
    """Per zone the class's first subnet that is not out of addresses; the status lists the emptiest first."""
    chosen: dict[str, str] = {}
    for subnet in node_class.subnets:
        if known.allows_subnet(subnet.id, subnet.zone):
            chosen.setdefault(subnet.zone, subnet.id)
    return chosen


def _reserved_first(found: list[Candidate]) -> list[Candidate]:
    """Of what is reserved that which one request may name; everything else where nothing is reserved."""
    offers = [
        (one.instance_type.name, one.zone, one.price_picousd_per_hour, one.reserved) for one in found if one.reserved
    ]
    if not offers:
        return found
    named = reserved.chosen(offers)
    return [one for one in found if one.reserved and one.reserved.id in named]


def _no_exotic(found: list[Candidate]) -> list[Candidate]:
    """Without metal and accelerated types, unless nothing else remains."""
    generic = [one for one in found if not is_exotic(one.instance_type)]
    return generic or found


def is_exotic(instance_type: InstanceType) -> bool:
    """Metal, or with GPUs or accelerators: dear, slow to start, and rarely what a generic pod needs."""
    accelerated = any(instance_type.capacity.get(name) for name in EXOTIC_RESOURCES)
    return accelerated or "metal" in instance_type.name.partition(".")[2]


def _no_dear_spot(found: list[Candidate]) -> list[Candidate]:
    """Without spot offerings that cost more than the cheapest on-demand one, where both are allowed."""
    on_demand = [one.price_picousd_per_hour for one in found if one.capacity_type == labels.ON_DEMAND]
    if not on_demand:
        return found
    ceiling = min(on_demand)
    return [one for one in found if one.capacity_type != labels.SPOT or one.price_picousd_per_hour <= ceiling]


def _cheapest_types(found: Iterable[Candidate], requirements: Requirements) -> tuple[Candidate, ...]:
    """The offerings of the cheapest types, cheapest offering first, by weight; ties by name and zone.

    Types that ``minValues`` needs come before cheaper ones that add nothing to it.
    """
    ordered = sorted(found, key=lambda one: (one.weight, one.instance_type.name, one.zone))
    types = {id(one.instance_type): one.instance_type for one in ordered}
    by_price = (one.name for one in types.values())
    allowed = frozenset([*dict.fromkeys((*_needed(types.values(), requirements), *by_price))][:MAXIMUM_TYPES])
    return tuple(one for one in ordered if one.instance_type.name in allowed)


def _needed(types: Iterable[InstanceType], requirements: Requirements) -> Iterator[str]:
    """Names of types, in their order, that bring a value which some ``minValues`` still lacks."""
    lacking: dict[Requirement, set[str]] = {one: set() for one in requirements if one.min_values}
    for each in types:
        news = {one: _values(each, one) - seen for one, seen in lacking.items() if len(seen) < (one.min_values or 0)}
        if any(news.values()):
            yield each.name
            for one, values in news.items():
                lacking[one] |= values


def _values(one: InstanceType, requirement: Requirement) -> set[str]:
    """The values of a label that a type can have and that are allowed."""
    return {value for value in one.requirements.get(requirement.key).values if requirement.has(value)}


def _unmet_minimum(requirements: Requirements, kept: Sequence[Candidate]) -> Requirement | None:
    """The first requirement whose ``min_values`` the remaining types do not reach."""
    for one in requirements:
        found = {value for each in kept for value in _values(each.instance_type, one)} if one.min_values else ()
        if len(found) < (one.min_values or 0):
            return one
    return None
