"""Static NodePools (``spec.replicas``, feature gate StaticCapacity): each keeps so many nodes, whatever pods wait.

Source: Karpenter v1.14 ``pkg/controllers/static/{provisioning,deprovisioning}``. Differences: pods that wait are given
room on the nodes that are made for a static pool in the same decision; a NodeClaim names the types it may become.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import STATIC_CAPACITY, InFlightNodeClaim, Snapshot
from spotwright.scheduling import pod_planner
from spotwright.scheduling.explain.node_choice import format_price
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, build_template
from spotwright.scheduling.nodeclaims.launchable import MAX_INSTANCE_TYPES, MAX_INSTANCE_TYPES_WITH_MIN_VALUES
from spotwright.scheduling.nodeclaims.requirements import allowed_value
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import NewNode, Plan, to_in_flight_nodeclaim

# Nodes of static pools that one decision makes; the next one makes more.
MAX_NODES_PER_DECISION: Final = 1000


class NodeCount(msgspec.Struct, frozen=True):
    """The nodes of a static pool, each once. ``active``: those that stay, committed and not yet visible ones too.

    ``deleting``: those on their way out. ``pending_disruption``: those that go when their replacement is there.
    """

    active: int = 0
    deleting: int = 0
    pending_disruption: int = 0


def plan_with_static_pools(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The whole decision: nodes that static pools lack or have too many of, and a place for every pending pod.

    Pods count on the static pools' nodes as on any other node that is on its way.
    """
    pools = _pools(snapshot)
    if not pools:
        return pod_planner.plan_pods(snapshot, catalog)
    new_nodes, notes, barren = _made(pools, snapshot, catalog)
    coming = {f"static:{new_node.nodepool}/{number:06d}": new_node for number, new_node in enumerate(new_nodes)}
    promised = tuple(to_in_flight_nodeclaim(node, name) for name, node in coming.items())
    rest = pod_planner.plan_pods(msgspec.structs.replace(snapshot, in_flight=(*snapshot.in_flight, *promised)), catalog)
    surplus = tuple(name for pool in pools for name in excess_nodeclaims(pool, snapshot))
    plan = msgspec.structs.replace(
        rest,
        notes=(*rest.notes, *notes),
        nodepools_without_offerings=rest.nodepools_without_offerings | barren,
        excess_nodeclaims=surplus,
    )
    return _together(coming, plan)


def _pools(snapshot: Snapshot) -> list[NodePool]:
    """Static pools that count, by name; none without the gate."""
    if STATIC_CAPACITY not in snapshot.settings.feature_gates:
        return []
    return sorted(
        (nodepool for nodepool in snapshot.nodepools if nodepool.replicas is not None),
        key=lambda nodepool: nodepool.name,
    )


def _together(coming: dict[str, NewNode], rest: Plan) -> Plan:
    """The pods' plan with the static pools' nodes, which hold the pods that were put on them."""
    seated = {assignment.name: assignment.pods for assignment in rest.existing_nodes}
    new_nodes = tuple(msgspec.structs.replace(node, pods=seated.get(name, ())) for name, node in coming.items())
    bound = rest.lower_bound_picousd_per_hour
    if bound or not rest.new_nodes:
        bound += sum(new_node.price_picousd_per_hour for new_node in new_nodes)
    return msgspec.structs.replace(
        rest,
        new_nodes=(*new_nodes, *rest.new_nodes),
        existing_nodes=tuple(assignment for assignment in rest.existing_nodes if assignment.name not in coming),
        lower_bound_picousd_per_hour=bound,
    )


def count_nodes(pool: NodePool, snapshot: Snapshot) -> NodeCount:
    """A pool's nodes as NodeClaims and committed launches state them."""
    running = deleting = disrupting = 0
    for claim in _claims(pool, snapshot):
        going = claim.metadata.deletion_timestamp is not None or claim.name in snapshot.nodeclaims_to_delete
        waits = claim.name in snapshot.nodeclaims_to_replace and not going
        deleting, disrupting, running = deleting + going, disrupting + waits, running + (not going and not waits)
    return NodeCount(running + len(_unseen(pool, snapshot)), deleting, disrupting)


def _claims(pool: NodePool, snapshot: Snapshot) -> list[NodeClaim]:
    return [nodeclaim for nodeclaim in snapshot.nodeclaims if nodeclaim.nodepool == pool.name]


def _unseen(pool: NodePool, snapshot: Snapshot) -> list[InFlightNodeClaim]:
    """Committed nodes of the pool whose NodeClaims the API server did not show."""
    shown = {nodeclaim.name for nodeclaim in snapshot.nodeclaims}
    return [
        in_flight
        for in_flight in snapshot.in_flight
        if in_flight.nodeclaim.nodepool == pool.name and in_flight.nodeclaim.name not in shown
    ]


def count_missing_nodes(pool: NodePool, there: NodeCount) -> int:
    """How many nodes to make; ``limits.nodes`` counts those that are still on their way out."""
    replicas = pool.replicas or 0
    if there.active + there.pending_disruption >= replicas:
        return 0
    lacking, limit = replicas - there.active, pool.limits.get(resources.NODES)
    if limit is None:
        return lacking
    return max(0, min(lacking, limit - there.active - there.deleting - there.pending_disruption))


def excess_nodeclaims(pool: NodePool, snapshot: Snapshot) -> tuple[str, ...]:
    """NodeClaims beyond the replicas, those that cost least to lose: not launched, empty, then cheap to disrupt.

    Committed nodes that have no claim yet go first, as soon as they have one; pools that are being deleted lose their
    claims anyway.
    """
    over = count_nodes(pool, snapshot).active - (pool.replicas or 0) - len(_unseen(pool, snapshot))
    if over <= 0 or pool.metadata.deletion_timestamp is not None or pool.read_error:
        return ()
    gone = {*snapshot.nodeclaims_to_delete, *snapshot.nodeclaims_to_replace}
    staying = [
        nodeclaim
        for nodeclaim in _claims(pool, snapshot)
        if nodeclaim.metadata.deletion_timestamp is None and nodeclaim.name not in gone
    ]
    nodes = {node.provider_id: node.name for node in snapshot.nodes if node.provider_id}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node_name and not pod.is_terminal:
            pods.setdefault(pod.node_name, []).append(pod)
    mine = {nodeclaim.name: pods.get(nodes.get(nodeclaim.provider_id, ""), []) for nodeclaim in staying}
    ranked = sorted(
        staying, key=lambda nodeclaim: (*_loss(nodeclaim, mine[nodeclaim.name], snapshot.now), nodeclaim.name)
    )
    return tuple(sorted(nodeclaim.name for nodeclaim in ranked[:over]))


def _loss(claim: NodeClaim, pods: Sequence[Pod], now: datetime) -> tuple[int, bool, Fraction]:
    """What losing a node costs, least first."""
    if not claim.provider_id:
        return 0, False, Fraction(0)
    guarded = any(pod.is_active and eviction.is_do_not_disrupt_active(pod, now) for pod in pods)
    if not guarded and all(eviction.is_owned_by_daemonset(pod) or pod.is_mirror for pod in pods):
        return 1, False, Fraction(0)
    return 2, guarded, sum(map(eviction.eviction_cost, pods), Fraction(0)) * _lifetime_left(claim, now)


def _lifetime_left(claim: NodeClaim, now: datetime) -> Fraction:
    """The share of its life that a node still has: 1 for one that never expires."""
    if not claim.expire_after_seconds or claim.metadata.creation_timestamp is None:
        return Fraction(1)
    age = Fraction(int((now - claim.metadata.creation_timestamp).total_seconds()), claim.expire_after_seconds)
    return max(Fraction(0), min(Fraction(1), 1 - age))


def _made(
    pools: Iterable[NodePool], snapshot: Snapshot, catalog: Catalog
) -> tuple[list[NewNode], list[str], dict[str, str]]:
    """The nodes that pools lack, pool by pool, what is to be said about pools, and which of them select nothing."""
    catalog = reservations.apply_feature_gate(catalog, snapshot.settings.feature_gates)
    catalog = apply_overlays(catalog, snapshot.nodeoverlays, snapshot.nodepools).catalog
    templates = {
        pool.name: build_template(pool, snapshot, catalog)
        for pool in pools
        if count_missing_nodes(pool, count_nodes(pool, snapshot))
    }
    left = reservations.remaining_instances(
        (one for one in templates.values() if isinstance(one, NodeClaimTemplate)), snapshot
    )
    new_nodes, notes, barren = list[NewNode](), list[str](), dict[str, str]()
    for pool in pools:
        there = count_nodes(pool, snapshot)
        lacking = count_missing_nodes(pool, there)
        said = f"NodePool {pool.name} keeps {pool.replicas} nodes and has {there.active}"
        found = templates.get(pool.name, "")
        most = min(lacking, MAX_NODES_PER_DECISION - len(new_nodes))
        nodes, why = ([], found) if isinstance(found, str) else _nodes(found, most, left)
        new_nodes += [msgspec.structs.replace(node, reason=f"{said}; {node.reason}") for node in nodes]
        if why and not nodes and not isinstance(found, str):
            barren[pool.name] = f"{said}; {why}"
        notes += [f"{said}; {remark}" for remark in _remarks(pool, snapshot, there, lacking, len(nodes), why)]
    return new_nodes, notes, barren


def _remarks(pool: NodePool, snapshot: Snapshot, there: NodeCount, lacking: int, now: int, why: str) -> Iterator[str]:
    """What keeps a pool from its number of nodes. ``now``: how many it makes of those it lacks; ``why`` no more."""
    if why:
        yield f"{now or 'none'} can be made: {why}"
    elif now < lacking:
        yield f"{now} are made now, the others follow"
    if lacking < (pool.replicas or 0) - there.active - there.pending_disruption:
        yield f"spec.limits.nodes ({pool.limits[resources.NODES]}) lets it make {lacking}"
    if names := excess_nodeclaims(pool, snapshot):
        yield f"{', '.join(names)} will go"


def _nodes(template: NodeClaimTemplate, most: int, left: dict[str, int]) -> tuple[list[NewNode], str]:
    """At most so many nodes of a pool, and why there are no more. What is reserved is used up before anything is
    bought; each node counts on one reservation, or on none.

    ``left``: instances by reservation; those that are planned here are taken off.
    """
    new_nodes, sold = list[NewNode](), reservations.available_reservations(template)
    for reservation in sold:
        taken = min(left[reservation], most - len(new_nodes))
        node = _node(reservations.restrict_to_reservation(template, reservation)) if taken else ""
        if isinstance(node, NewNode):
            new_nodes += [node] * taken
            left[reservation] -= taken
    if len(new_nodes) == most:
        return new_nodes, ""
    bought = _node(reservations.restrict_to_reservation(template, "") if sold else template)
    return (new_nodes, bought) if isinstance(bought, str) else ([*new_nodes, *[bought] * (most - len(new_nodes))], "")


def _node(template: NodeClaimTemplate) -> NewNode | str:
    """A node of a static pool; or why it can have none."""
    pool, priced = template.nodepool, _priced(template)
    if not priced:
        return "no instance type that its requirements allow can be bought"
    most = (
        MAX_INSTANCE_TYPES_WITH_MIN_VALUES
        if any(requirement.min_values for requirement in template.requirements)
        else MAX_INSTANCE_TYPES
    )
    names = tuple(dict.fromkeys(instance_type.name for instance_type, _ in priced))[:most]
    kept = [instance_type for instance_type, _ in priced if instance_type.name in names]
    demands = _with_minimum(template, kept)
    if isinstance(demands, str):
        return demands
    offers = [offering for type_ in kept for offering in _offers(template, type_)]
    cheapest = priced[0][1]
    return NewNode(
        nodepool=pool.name,
        nodeclass=pool.node_class_ref.name,
        pods=(),
        instance_types=names,
        requirements=demands.node_selector_requirements(),
        labels=template.labels | _resolved(template),
        taints=pool.taints,
        startup_taints=pool.startup_taints,
        requests={},
        price_picousd_per_hour=cheapest.price_picousd_per_hour,
        capacity_type=cheapest.capacity_type,
        zones=tuple(sorted({offering.zone for offering in offers})),
        reason=(
            f"{kept[0].name} {cheapest.capacity_type} at {format_price(cheapest.price_picousd_per_hour)}"
            f" is the cheapest that its requirements allow"
        ),
        price_overlay_applied=any(instance_type.price_overlay_applied for instance_type in kept),
        capacity_overlay_applied=any(instance_type.capacity_overlay_applied for instance_type in kept),
    )


def _priced(template: NodeClaimTemplate) -> list[tuple[InstanceType, Offering]]:
    """Types that can be bought, each with its cheapest offering, cheapest first."""
    offered = (
        (instance_type, _offers(template, instance_type)) for instance_type in template.compatible_instance_types()
    )
    best = [
        (instance_type, min(offers, key=lambda offering: (offering.price_picousd_per_hour, offering.zone)))
        for instance_type, offers in offered
        if offers
    ]
    return sorted(best, key=lambda pair: (pair[1].price_picousd_per_hour, pair[0].name))


def _offers(template: NodeClaimTemplate, instance_type: InstanceType) -> list[Offering]:
    return [offering for offering in instance_type.offerings if offering.available and template.allows(offering)]


def _with_minimum(template: NodeClaimTemplate, kept: Sequence[InstanceType]) -> Requirements | str:
    """The claim's requirements; ``minValues`` that cannot be kept are refused, or lowered where that is allowed."""
    demands = template.requirements.intersection(
        (Requirement(labels.INSTANCE_TYPE, False, frozenset(instance_type.name for instance_type in kept)),)
    )
    lowered = []
    for requirement in demands:
        if requirement.min_values:
            there = {
                value
                for instance_type in kept
                for value in instance_type.requirements.get(requirement.key).values
                if requirement.has(value)
            }
            if len(there) < template.min_values.get(requirement.key, 0):
                return f"minValues: {requirement.min_values} of {requirement.key} cannot be met: there are {len(there)}"
            lowered.append(msgspec.structs.replace(requirement, min_values=min(requirement.min_values, len(there))))
    return Requirements(demands.by_key | {one.key: one for one in lowered})


def _resolved(template: NodeClaimTemplate) -> dict[str, str]:
    """A value for every label of the user's own that must be there."""
    own = (
        requirement
        for requirement in template.requirements
        if requirement.key not in template.known_label_keys and not requirement.allows_absence
    )
    return {requirement.key: requirement.sole_value or allowed_value(requirement) for requirement in own}
