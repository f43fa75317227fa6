"""A cap on the share of a NodePool in one zone (setting LARGEST_ZONE_SHARE).

A node that may be in more than one zone gets the cheapest zone that keeps the cap. Shares are of the cpu of all nodes
of a NodePool, nodes that exist or are in flight among them. A node whose pods need its zone stays there; when such
nodes alone break the cap, a note says so and no node is refused for it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.requirements import NodeSelectorRequirement, RequirementError, Requirements, from_expressions
from spotwright.scheduling.explain.node_choice import MAX_ALTERNATIVES, explain_offering
from spotwright.scheduling.inputs.nodeclaim_templates import can_meet
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.plan import AlternativeOffering, NewNode, ResourceUsage

type _Types = Mapping[str, Sequence[InstanceType]]
"""Entries of the catalog by type name: more than one where a type has other resources in some offerings."""


class ZonedNodes(msgspec.Struct, frozen=True):
    """The nodes with their zones, in the order given; what the cap costs, and where it cannot be kept."""

    nodes: tuple[NewNode, ...]
    notes: tuple[str, ...] = ()


def cap_zone_share(
    nodes: Sequence[NewNode], state_nodes: Iterable[StateNode], catalog: Catalog, share: int
) -> ZonedNodes:
    """``share``: percent of a NodePool's cpu that one zone may hold; from 100 on nothing changes."""
    if share >= 100 or not nodes:
        return ZonedNodes(tuple(nodes))
    cpu_by_nodepool = _cpu_by_zone(state_nodes)
    zoned: dict[int, NewNode] = {}
    notes = []
    for pool in sorted({node.nodepool for node in nodes}):
        of_pool = {number: node for number, node in enumerate(nodes) if node.nodepool == pool}
        types: dict[str, list[InstanceType]] = {}
        for instance_type in catalog.instance_types(next(iter(of_pool.values())).nodeclass, pool):
            types.setdefault(instance_type.name, []).append(instance_type)
        cpu_by_zone = dict(cpu_by_nodepool.get(pool, {}))
        in_zones = _choose_zones(of_pool, types, cpu_by_zone, share)
        notes.append(_note(pool, share, cpu_by_zone, _price(of_pool.values()), _price(in_zones.values())))
        zoned |= in_zones
    return ZonedNodes(tuple(zoned[number] for number in range(len(nodes))), tuple(notes))


def _price(nodes: Iterable[NewNode]) -> int:
    return sum(node.price_picousd_per_hour for node in nodes)


def _cpu_by_zone(state_nodes: Iterable[StateNode]) -> dict[str, dict[str, int]]:
    """NodePool → zone → cpu of the nodes there are."""
    cpu: dict[str, dict[str, int]] = {}
    for state_node in state_nodes:
        zone = state_node.labels.get(labels.ZONE)
        if state_node.nodepool and zone:
            by_zone = cpu.setdefault(state_node.nodepool, {})
            by_zone[zone] = by_zone.get(zone, 0) + state_node.capacity.get(resources.CPU, 0)
    return cpu


def _choose_zones(
    nodes: Mapping[int, NewNode], types: _Types, cpu_by_zone: dict[str, int], share: int
) -> dict[int, NewNode]:
    """The nodes of one NodePool, each with its zone. ``cpu_by_zone`` grows with them."""
    cpu = {number: types[node.instance_types[0]][0].capacity.get(resources.CPU, 0) for number, node in nodes.items()}
    cap = (sum(cpu_by_zone.values()) + sum(cpu.values())) * share // 100

    def cheapest(node: NewNode) -> tuple[int, int, tuple[str, ...]]:
        return node.price_picousd_per_hour, cpu_by_zone.get(node.zones[0], 0), node.zones

    def emptiest(node: NewNode) -> tuple[int, int, tuple[str, ...]]:
        return cpu_by_zone.get(node.zones[0], 0), node.price_picousd_per_hour, node.zones

    chosen: dict[int, NewNode] = {}
    # Nodes without a choice first, then the largest nodes: small nodes fill what is left.
    for number in sorted(nodes, key=lambda number: (len(nodes[number].zones) > 1, -cpu[number], number)):
        options = _options(nodes[number], types)
        within_cap = [node for node in options if cpu_by_zone.get(node.zones[0], 0) + cpu[number] <= cap]
        chosen[number] = min(within_cap, key=cheapest) if within_cap else min(options, key=emptiest)
        zone = chosen[number].zones[0]
        cpu_by_zone[zone] = cpu_by_zone.get(zone, 0) + cpu[number]
    return chosen


def _options(node: NewNode, types: _Types) -> list[NewNode]:
    """The node in each zone that it could be launched in; itself where it has no choice."""
    if len(node.zones) < 2 or any(expression.min_values for expression in node.requirements):
        return [node]
    try:
        requirements = from_expressions(node.requirements)
    except RequirementError:
        return [node]
    in_zones = [_in_zone(node, zone, requirements, types) for zone in node.zones]
    return [option for option in in_zones if option is not None] or [node]


def _in_zone(node: NewNode, zone: str, requirements: Requirements, types: _Types) -> NewNode | None:
    """The node in one zone, with the types that are sold there and their price."""
    offerings = {name: _cheapest_offering(node, types[name], zone, requirements) for name in node.instance_types}
    by_price = sorted(
        (offering.weighed_price, name, offering.capacity_type, offering.price_picousd_per_hour)
        for name, offering in offerings.items()
        if offering is not None
    )
    if not by_price:
        return None
    sold = [(price, name, kind) for _, name, kind, price in by_price]
    names = tuple(name for _, name, _ in sold)
    narrowed = {labels.ZONE: (zone,), labels.INSTANCE_TYPE: tuple(sorted(names))}
    expressions = [expression for expression in node.requirements if expression.key not in narrowed]
    expressions += [NodeSelectorRequirement(key, "In", values) for key, values in narrowed.items()]
    price, chosen, capacity_type = sold[0]
    others = tuple(AlternativeOffering(name, kind, zone, cost) for cost, name, kind in sold[1 : 1 + MAX_ALTERNATIVES])
    used = _usage_on(node, types, chosen)
    return msgspec.structs.replace(
        node,
        reason=explain_offering(chosen, capacity_type, price, len(names), others, zone),
        alternatives=others,
        usage=used,
        binding_resource=used[0].resource if used else node.binding_resource,
        instance_types=names,
        requirements=tuple(sorted(expressions, key=lambda expression: expression.key)),
        labels=node.labels | {labels.ZONE: zone} if labels.ZONE in node.labels else node.labels,
        price_picousd_per_hour=price,
        capacity_type=capacity_type,
        zones=(zone,),
    )


def _usage_on(node: NewNode, types: _Types, instance_type: str) -> tuple[ResourceUsage, ...]:
    """What the pods of a node use of another type, on which the same DaemonSets run."""
    before, after = types[node.instance_types[0]][0].allocatable, types[instance_type][0].allocatable
    usages = (
        msgspec.structs.replace(
            entry, available=entry.available + after.get(entry.resource, 0) - before.get(entry.resource, 0)
        )
        for entry in node.usage
    )
    return tuple(sorted(usages, key=lambda entry: -entry.share))


def _cheapest_offering(
    node: NewNode, entries: Sequence[InstanceType], zone: str, requirements: Requirements
) -> Offering | None:
    """The cheapest offering of a type in a zone that has room for the node's pods."""
    offerings = [
        offering
        for entry in entries
        if len(entries) == 1 or resources.fits(node.requests, entry.allocatable)
        for offering in entry.offerings
        if _is_sold(offering, zone, requirements)
    ]
    by_price = sorted(offerings, key=lambda offering: (offering.weighed_price, offering.capacity_type))
    return by_price[0] if by_price else None


def _is_sold(offering: Offering, zone: str, requirements: Requirements) -> bool:
    return (
        offering.available
        and offering.zone == zone
        and requirements.get(labels.CAPACITY_TYPE).has(offering.capacity_type)
        and all(can_meet(requirement, requirements.get(requirement.key)) for requirement in offering.requirements)
    )


def _note(pool: str, share: int, cpu_by_zone: Mapping[str, int], before: int, after: int) -> str:
    total = sum(cpu_by_zone.values())
    shares = ", ".join(f"{zone} {100 * cpu // total if total else 0} %" for zone, cpu in sorted(cpu_by_zone.items()))
    is_kept = all(100 * cpu <= share * total for cpu in cpu_by_zone.values())
    price = (
        f"costs ${(after - before) / PICOUSD:.4f} an hour more than the ${before / PICOUSD:.4f} without it"
        if after > before
        else "costs nothing"
    )
    failed = "" if is_kept else ", and cannot be kept: too few nodes, or pods that need their zone"
    return f"NodePool {pool}: at most {share} % of its cpu in one zone {price}{failed} ({shares})"
