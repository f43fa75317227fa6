"""The nodes that static NodePools lack."""

from collections.abc import Iterator
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.nodepools import build_template
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import NewNode, Plan, to_in_flight_nodeclaim
from spotwright.scheduling.static_capacity.deprovisioning import excess_nodeclaims
from spotwright.scheduling.static_capacity.node_counts import (
    NodeCount,
    count_missing_nodes,
    count_nodes,
    static_nodepools,
)
from spotwright.scheduling.static_capacity.static_nodes import build_static_node

# Nodes of static NodePools that one decision makes; the next decision makes more.
MAX_NODES_PER_DECISION: Final = 1000


class StaticCapacity(msgspec.Struct, frozen=True):
    """What is decided for static NodePools. ``new_nodes``: by a name that stands for the NodeClaim to come.

    ``excess_nodeclaims``: names; ``nodepools_without_offerings``: name → why.
    """

    new_nodes: dict[str, NewNode] = {}
    excess_nodeclaims: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    nodepools_without_offerings: dict[str, str] = {}


def plan_static_capacity(snapshot: Snapshot, catalog: Catalog) -> StaticCapacity:
    """The nodes that static NodePools lack, or have too many of."""
    pools = static_nodepools(snapshot)
    if not pools:
        return StaticCapacity()
    new_nodes, notes, empty_nodepools = list[NewNode](), list[str](), dict[str, str]()
    templates = _templates(snapshot, catalog)
    available = [template for template in templates.values() if isinstance(template, NodeClaimTemplate)]
    reserved = reservations.remaining_instances(available, snapshot)
    for pool in pools:
        nodes = count_nodes(pool, snapshot)
        missing, template = count_missing_nodes(pool, nodes), templates.get(pool.name, "")
        count = min(missing, MAX_NODES_PER_DECISION - len(new_nodes))
        new, why = ([], template) if isinstance(template, str) else _new_nodes(template, count, reserved)
        keeps = f"NodePool {pool.name} keeps {pool.replicas} nodes and has {nodes.active}"
        new_nodes += [msgspec.structs.replace(node, reason=f"{keeps}; {node.reason}") for node in new]
        if why and not new and not isinstance(template, str):
            empty_nodepools[pool.name] = f"{keeps}; {why}"
        notes += [f"{keeps}; {remark}" for remark in _remarks(pool, snapshot, nodes, missing, len(new), why)]
    return StaticCapacity(
        {f"static:{node.nodepool}/{number:06d}": node for number, node in enumerate(new_nodes)},
        tuple(name for pool in pools for name in excess_nodeclaims(pool, snapshot)),
        tuple(notes),
        empty_nodepools,
    )


def _templates(snapshot: Snapshot, catalog: Catalog) -> dict[str, NodeClaimTemplate | str]:
    """Templates of the static NodePools that lack nodes; or why such a NodePool can make none."""
    catalog = reservations.apply_feature_gate(catalog, snapshot.settings.feature_gates)
    catalog = apply_overlays(catalog, snapshot.nodeoverlays, snapshot.nodepools).catalog
    return {
        pool.name: build_template(pool, snapshot, catalog)
        for pool in static_nodepools(snapshot)
        if count_missing_nodes(pool, count_nodes(pool, snapshot))
    }


def _new_nodes(template: NodeClaimTemplate, count: int, reserved: dict[str, int]) -> tuple[list[NewNode], str]:
    """At most so many nodes of a NodePool, and why there are no more. Reservations are used up before any instance is
    bought; each node counts on one reservation, or on none.

    ``reserved``: instances by reservation; those that are planned here are taken off.
    """
    new_nodes, available = list[NewNode](), reservations.available_reservations(template)
    for reservation in available:
        taken = min(reserved[reservation], count - len(new_nodes))
        node = build_static_node(reservations.restrict_to_reservation(template, reservation)) if taken else ""
        if isinstance(node, NewNode):
            new_nodes += [node] * taken
            reserved[reservation] -= taken
    if len(new_nodes) == count:
        return new_nodes, ""
    node = build_static_node(reservations.restrict_to_reservation(template, "") if available else template)
    return (new_nodes, node) if isinstance(node, str) else ([*new_nodes, *[node] * (count - len(new_nodes))], "")


def _remarks(
    pool: NodePool, snapshot: Snapshot, nodes: NodeCount, missing: int, made_now: int, why: str
) -> Iterator[str]:
    """What keeps a NodePool from its number of nodes. ``why``: no more than ``made_now`` are made."""
    if why:
        yield f"{made_now or 'none'} can be made: {why}"
    elif made_now < missing:
        yield f"{made_now} are made now, the others follow"
    if missing < (pool.replicas or 0) - nodes.active - nodes.pending_disruption:
        yield f"spec.limits.nodes ({pool.limits[resources.NODES]}) lets it make {missing}"
    if names := excess_nodeclaims(pool, snapshot):
        yield f"{', '.join(names)} will go"


def with_static_nodes(snapshot: Snapshot, static: StaticCapacity) -> Snapshot:
    """The snapshot with the nodes in flight, so that pods count on them as on any other node that is on its way."""
    in_flight = [to_in_flight_nodeclaim(node, name) for name, node in static.new_nodes.items()]
    return msgspec.structs.replace(snapshot, in_flight=(*snapshot.in_flight, *in_flight))


def add_static_capacity(plan: Plan, static: StaticCapacity) -> Plan:
    """A plan for pods that count on the static NodePools' nodes, with these nodes and the pods that it put on them."""
    pods = {assignment.name: assignment.pods for assignment in plan.existing_nodes}
    new_nodes = [msgspec.structs.replace(node, pods=pods.get(name, ())) for name, node in static.new_nodes.items()]
    bound = plan.lower_bound_picousd_per_hour
    if bound or not plan.new_nodes:
        bound += sum(node.price_picousd_per_hour for node in new_nodes)
    return msgspec.structs.replace(
        plan,
        new_nodes=(*new_nodes, *plan.new_nodes),
        existing_nodes=tuple(
            assignment for assignment in plan.existing_nodes if assignment.name not in static.new_nodes
        ),
        notes=(*plan.notes, *static.notes),
        nodepools_without_offerings=plan.nodepools_without_offerings | static.nodepools_without_offerings,
        lower_bound_picousd_per_hour=bound,
        is_cheapest=plan.is_cheapest and not new_nodes,
        excess_nodeclaims=static.excess_nodeclaims,
    )
