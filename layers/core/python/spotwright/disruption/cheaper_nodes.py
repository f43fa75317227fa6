"""What a replacement may be bought as, so that it is cheaper than what it replaces whatever EC2 launches.

Source: Karpenter v1.14 ``pkg/controllers/disruption/consolidation.go`` and ``WorstLaunchPrice`` of
``pkg/cloudprovider/types.go``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType, Offering
from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirements, from_expressions
from spotwright.scheduling.plan import NewNode

# Karpenter's: a spot node is replaced by a spot node only if so many types are cheaper, and then by any of these. With
# fewer, each replacement would go to the cheapest pool, whose capacity is interrupted first.
SPOT_TO_SPOT_TYPES: Final = 15
_PRECEDENCE: Final = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)


type SpotPool = tuple[str, str]
"""An instance type and a zone: a pool of spot capacity."""


class Option(msgspec.Struct, frozen=True):
    """An instance type that a node may be launched as. Prices in picodollars per hour.

    ``worst_price``: the most that it may cost there; ``best_price``: the least.
    """

    instance_type: InstanceType
    capacity_type: str
    best_price: int
    worst_price: int


def launch_options(
    node: NewNode, types: Iterable[InstanceType], capacity_types: Collection[str] = _PRECEDENCE
) -> list[Option]:
    """The types that the node may be launched as now, cheapest first; capacity types in EC2's order of preference."""
    requirements = from_expressions(node.requirements)
    names = set(node.instance_types)
    options = list[Option]()
    for instance_type in types:
        if instance_type.name not in names:
            continue
        prices: dict[str, list[int]] = {}
        for offering in instance_type.offerings:
            if offering.available and offering.capacity_type in capacity_types and admits(requirements, offering):
                prices.setdefault(offering.capacity_type, []).append(offering.price_picousd_per_hour)
        if prices:
            first = next(capacity_type for capacity_type in _PRECEDENCE if capacity_type in prices)
            options.append(Option(instance_type, first, min(prices[first]), max(prices[first])))
    return sorted(options, key=lambda option: (option.best_price, option.instance_type.name))


def admits(requirements: Requirements, offering: Offering) -> bool:
    """Whether a launch with these requirements may take the offering."""
    # Without a dictionary for each offering: all offerings of all types are asked about.
    return (
        _allows(requirements, labels.CAPACITY_TYPE, offering.capacity_type)
        and _allows(requirements, labels.ZONE, offering.zone)
        and (
            offering.capacity_type != labels.RESERVED
            or _allows(
                requirements,
                labels.RESERVATION_ID,
                offering.requirements.get(labels.RESERVATION_ID).sole_value or "",
            )
        )
    )


def _allows(requirements: Requirements, key: str, value: str) -> bool:
    return key not in requirements or requirements.get(key).has(value)


def in_pools(node: NewNode, types: Sequence[InstanceType], is_allowed: Callable[[SpotPool], bool]) -> list[NewNode]:
    """The node, to be launched on spot in these pools alone: without the types that have others, or without the zones.

    Empty where no pool is allowed. On-demand offerings stay.
    """
    pools = _spot_pools(node, types)
    others = {pool for pool in pools if not is_allowed(pool)}
    if not others:
        return [node] if pools else []
    type_names, zones = {name for name, _ in others}, {zone for _, zone in others}
    choices = list[NewNode]()
    if names := {name for name, _ in pools} - type_names:
        kept_types = tuple(name for name in node.instance_types if name in names)
        choices.append(msgspec.structs.replace(node, instance_types=kept_types))
    if kept_zones := tuple(sorted({zone for _, zone in pools} - zones)):
        requirements = narrow(node.requirements, {labels.ZONE: kept_zones})
        choices.append(msgspec.structs.replace(node, requirements=requirements, zones=kept_zones))
    return choices


def _spot_pools(node: NewNode, types: Iterable[InstanceType]) -> list[SpotPool]:
    """The pools in which a launch of the node may end up now."""
    requirements, names = from_expressions(node.requirements), set(node.instance_types)
    return [
        (instance_type.name, offering.zone)
        for instance_type in types
        if instance_type.name in names
        for offering in instance_type.offerings
        if offering.available
        and offering.capacity_type == labels.SPOT
        and (not node.zones or offering.zone in node.zones)
        and admits(requirements, offering)
    ]


def restrict(node: NewNode, options: Sequence[Option]) -> NewNode:
    """The node, to be launched only as one of these options, which are not empty.

    A node that may be spot or on-demand becomes spot alone, as what its price is compared by.
    """
    names = tuple(dict.fromkeys(option.instance_type.name for option in options))
    kinds = {option.capacity_type for option in options}
    capacity_type = next(kind for kind in _PRECEDENCE if kind in kinds)
    narrowed = {labels.INSTANCE_TYPE: tuple(sorted(names))}
    stated = from_expressions(node.requirements).get(labels.CAPACITY_TYPE).values
    if len(stated) != 1 and labels.SPOT in kinds:
        narrowed[labels.CAPACITY_TYPE] = (labels.SPOT,)
    return msgspec.structs.replace(
        node,
        instance_types=names,
        requirements=narrow(node.requirements, narrowed),
        price_picousd_per_hour=options[0].best_price,
        capacity_type=capacity_type,
        alternatives=tuple(other for other in node.alternatives if other.instance_type in names),
    )


def narrow(
    requirements: Iterable[NodeSelectorRequirement], values: Mapping[str, tuple[str, ...]]
) -> tuple[NodeSelectorRequirement, ...]:
    """The requirements with these values alone for these keys."""
    kept, stated = list[NodeSelectorRequirement](), set[str]()
    for requirement in requirements:
        if requirement.key not in values:
            kept.append(requirement)
        elif requirement.key not in stated:
            stated.add(requirement.key)
            minimum = requirement.min_values
            kept.append(NodeSelectorRequirement(requirement.key, Operator.IN, values[requirement.key], minimum))
    missing = (NodeSelectorRequirement(key, Operator.IN, values[key]) for key in sorted(values.keys() - stated))
    return (*kept, *missing)


def lacking_min_values(node: NewNode, options: Sequence[Option]) -> str:
    """The requirement of which these options have too few values, in a sentence; "" = they have enough of each."""
    for requirement in node.requirements:
        if not requirement.min_values:
            continue
        count = len(_values(requirement.key, options))
        if count < requirement.min_values:
            return (
                f"minValues {requirement.min_values} of {requirement.key} is not met by the {count} values of"
                " cheaper instance types"
            )
    return ""


def _values(key: str, options: Iterable[Option]) -> set[str]:
    values = set[str]()
    for option in options:
        if key == labels.INSTANCE_TYPE:
            values.add(option.instance_type.name)
        elif key == labels.CAPACITY_TYPE:
            values.add(option.capacity_type)
        else:
            stated = option.instance_type.requirements.get(key)
            values |= set() if stated.complement else stated.values
    return values


def fewest_spot_types(node: NewNode, options: Sequence[Option]) -> list[Option]:
    """The cheapest options of a spot node that replaces a spot node: 15, or as many more as minValues need."""
    count = SPOT_TO_SPOT_TYPES
    while count < len(options) and lacking_min_values(node, options[:count]):
        count += 1
    return list(options[:count])


def dollars(picousd: int) -> str:
    return f"${picousd / PICOUSD:.4f}"
