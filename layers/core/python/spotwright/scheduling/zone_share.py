"""A cap on the share of a pool in one zone: nodes whose zone is open get one, the cheapest that keeps the cap.

Shares are of the cpu of all nodes of a pool, those that exist or are in flight included. A node whose pods need its
zone stays there; when such nodes alone break the cap, that is said and nothing is refused for it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.requirements import NodeSelectorRequirement, RequirementError, Requirements, from_expressions
from spotwright.scheduling.inputs.nodeclaim_templates import can_meet
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.plan import NewNode


class ZonedNodes(msgspec.Struct, frozen=True):
    """The nodes with their zones, in the order given; what the cap costs, and where it cannot be kept."""

    nodes: tuple[NewNode, ...]
    notes: tuple[str, ...] = ()


def cap_zone_share(nodes: Sequence[NewNode], hosts: Iterable[StateNode], catalog: Catalog, share: int) -> ZonedNodes:
    """``share``: percent of a pool's cpu that one zone may hold; from 100 on nothing changes."""
    if share >= 100 or not nodes:
        return ZonedNodes(tuple(nodes))
    used = _used(hosts)
    settled: dict[int, NewNode] = {}
    notes = []
    for pool in sorted({node.nodepool for node in nodes}):
        ours = [number for number, new_node in enumerate(nodes) if new_node.nodepool == pool]
        types: dict[str, list[InstanceType]] = {}
        for instance_type in catalog.instance_types(nodes[ours[0]].nodeclass, pool):
            types.setdefault(instance_type.name, []).append(instance_type)
        by_zone = dict(used.get(pool, {}))
        settled |= _settled(nodes, ours, types, by_zone, share)
        before = sum(nodes[number].price_picousd_per_hour for number in ours)
        notes.append(_note(pool, share, by_zone, before, sum(settled[our].price_picousd_per_hour for our in ours)))
    return ZonedNodes(tuple(settled[number] for number in range(len(nodes))), tuple(notes))


def _used(hosts: Iterable[StateNode]) -> dict[str, dict[str, int]]:
    """Pool → zone → cpu of the nodes there are."""
    found: dict[str, dict[str, int]] = {}
    for host in hosts:
        zone = host.labels.get(labels.ZONE)
        if host.nodepool and zone:
            there = found.setdefault(host.nodepool, {})
            there[zone] = there.get(zone, 0) + host.capacity.get(resources.CPU, 0)
    return found


def _settled(
    nodes: Sequence[NewNode],
    ours: Sequence[int],
    types: Mapping[str, Sequence[InstanceType]],
    by_zone: dict[str, int],
    share: int,
) -> dict[int, NewNode]:
    """Nodes of one pool by place, each with its zone; ``by_zone`` grows with them."""
    size = {our: types[nodes[our].instance_types[0]][0].capacity.get(resources.CPU, 0) for our in ours}
    most = (sum(by_zone.values()) + sum(size.values())) * share // 100
    found: dict[int, NewNode] = {}
    # Those without a choice first, then the largest: small ones fill what is left.
    for number in sorted(ours, key=lambda our: (len(nodes[our].zones) > 1, -size[our], our)):
        options = _options(nodes[number], types)
        fitting = [new_node for new_node in options if by_zone.get(new_node.zones[0], 0) + size[number] <= most]
        chosen = (
            min(
                fitting,
                key=lambda new_node: (
                    new_node.price_picousd_per_hour,
                    by_zone.get(new_node.zones[0], 0),
                    new_node.zones,
                ),
            )
            if fitting
            else min(
                options,
                key=lambda new_node: (
                    by_zone.get(new_node.zones[0], 0),
                    new_node.price_picousd_per_hour,
                    new_node.zones,
                ),
            )
        )
        by_zone[chosen.zones[0]] = by_zone.get(chosen.zones[0], 0) + size[number]
        found[number] = chosen
    return found


def _options(node: NewNode, types: Mapping[str, Sequence[InstanceType]]) -> list[NewNode]:
    """The node in each zone it could be launched in; itself where that is one."""
    if len(node.zones) < 2 or any(expression.min_values for expression in node.requirements):
        return [node]
    try:
        wanted = from_expressions(node.requirements)
    except RequirementError:
        return [node]
    new_nodes = [_pinned(node, zone, wanted, types) for zone in node.zones]
    return [new_node for new_node in new_nodes if new_node is not None] or [node]


def _pinned(
    node: NewNode, zone: str, wanted: Requirements, types: Mapping[str, Sequence[InstanceType]]
) -> NewNode | None:
    """The node in one zone: types and price are those that are sold there."""
    sold: list[tuple[int, str, str]] = []
    for name in node.instance_types:
        roomy = [
            instance_type
            for instance_type in types[name]
            if len(types[name]) == 1 or resources.fits(node.requests, instance_type.allocatable)
        ]
        offered = [
            offering
            for instance_type in roomy
            for offering in instance_type.offerings
            if _sells(offering, zone, wanted)
        ]
        if offered:
            best = min(offered, key=lambda offering: (offering.price_picousd_per_hour, offering.capacity_type))
            sold.append((best.price_picousd_per_hour, name, best.capacity_type))
    if not sold:
        return None
    sold.sort()
    names = tuple(name for _, name, _ in sold)
    kept = {labels.ZONE: (zone,), labels.INSTANCE_TYPE: names}
    return msgspec.structs.replace(
        node,
        instance_types=names,
        requirements=tuple(
            sorted(
                (
                    *(expression for expression in node.requirements if expression.key not in kept),
                    *(NodeSelectorRequirement(key, "In", tuple(sorted(values))) for key, values in kept.items()),
                ),
                key=lambda expression: expression.key,
            )
        ),
        labels=node.labels | {labels.ZONE: zone} if labels.ZONE in node.labels else node.labels,
        price_picousd_per_hour=sold[0][0],
        capacity_type=sold[0][2],
        zones=(zone,),
    )


def _sells(offering: Offering, zone: str, wanted: Requirements) -> bool:
    return (
        offering.available
        and offering.zone == zone
        and wanted.get(labels.CAPACITY_TYPE).has(offering.capacity_type)
        and all(can_meet(requirement, wanted.get(requirement.key)) for requirement in offering.requirements)
    )


def _note(pool: str, share: int, by_zone: Mapping[str, int], before: int, after: int) -> str:
    total = sum(by_zone.values())
    shares = ", ".join(f"{zone} {100 * cpu // total if total else 0} %" for zone, cpu in sorted(by_zone.items()))
    kept = all(100 * cpu <= share * total for cpu in by_zone.values())
    price = (
        f"costs ${(after - before) / PICOUSD:.4f} an hour more than the ${before / PICOUSD:.4f} without it"
        if after > before
        else "costs nothing"
    )
    failed = "" if kept else ", and cannot be kept: too few nodes, or pods that need their zone"
    return f"NodePool {pool}: at most {share} % of its cpu in one zone {price}{failed} ({shares})"
