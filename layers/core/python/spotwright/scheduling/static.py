"""Static NodePools (``spec.replicas``, feature gate StaticCapacity): each keeps so many nodes, whatever pods wait.

Source: Karpenter v1.14 ``pkg/controllers/static/{provisioning,deprovisioning}``. Differences: pods that wait are given
room on the nodes that are made for a static pool in the same decision; a NodeClaim names the types it may become.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.model import eviction, labels, resources
from spotwright.model.instancetype import Catalog, InstanceType, Offering
from spotwright.model.nodeclaim import NodeClaim
from spotwright.model.nodepool import NodePool
from spotwright.model.pod import Pod
from spotwright.model.requirements import Requirement, Requirements
from spotwright.model.snapshot import STATIC_CAPACITY, InFlight, Snapshot
from spotwright.scheduling import planner, reservations
from spotwright.scheduling.drafts import MOST_TYPES, MOST_WITH_MINIMUM, dollars, some_value
from spotwright.scheduling.overlays import overlaid
from spotwright.scheduling.plan import NewNode, Plan, on_its_way
from spotwright.scheduling.templates import Template, template

# Nodes of static pools that one decision makes; the next one makes more.
MOST_AT_ONCE: Final = 1000


class Count(msgspec.Struct, frozen=True):
    """The nodes of a static pool, each once. ``running``: those that stay, committed and not yet visible ones too.

    ``deleting``: those on their way out. ``disrupting``: those that go when their replacement is there.
    """

    running: int = 0
    deleting: int = 0
    disrupting: int = 0


def plan(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The whole decision: nodes that static pools lack or have too many of, and a place for every pending pod.

    Pods count on the static pools' nodes as on any other node that is on its way.
    """
    pools = _pools(snapshot)
    if not pools:
        return planner.plan(snapshot, catalog)
    made, notes, barren = _made(pools, snapshot, catalog)
    coming = {f"static:{one.node_pool}/{number:06d}": one for number, one in enumerate(made)}
    promised = tuple(on_its_way(node, name) for name, node in coming.items())
    rest = planner.plan(msgspec.structs.replace(snapshot, in_flight=(*snapshot.in_flight, *promised)), catalog)
    surplus = tuple(name for pool in pools for name in superfluous(pool, snapshot))
    told = msgspec.structs.replace(rest, notes=(*rest.notes, *notes), barren=rest.barren | barren, surplus=surplus)
    return _together(coming, told)


def _pools(snapshot: Snapshot) -> list[NodePool]:
    """Static pools that count, by name; none without the gate."""
    if STATIC_CAPACITY not in snapshot.settings.feature_gates:
        return []
    return sorted((one for one in snapshot.nodepools if one.replicas is not None), key=lambda one: one.name)


def _together(coming: dict[str, NewNode], rest: Plan) -> Plan:
    """The pods' plan with the static pools' nodes, which hold the pods that were put on them."""
    seated = {one.name: one.pods for one in rest.existing_nodes}
    made = tuple(msgspec.structs.replace(node, pods=seated.get(name, ())) for name, node in coming.items())
    bound = rest.bound_picousd_per_hour
    if bound or not rest.new_nodes:
        bound += sum(one.price_picousd_per_hour for one in made)
    return msgspec.structs.replace(
        rest,
        new_nodes=(*made, *rest.new_nodes),
        existing_nodes=tuple(one for one in rest.existing_nodes if one.name not in coming),
        bound_picousd_per_hour=bound,
    )


def count(pool: NodePool, snapshot: Snapshot) -> Count:
    """A pool's nodes as NodeClaims and committed launches state them."""
    running = deleting = disrupting = 0
    for claim in _claims(pool, snapshot):
        going = claim.metadata.deleting is not None or claim.name in snapshot.leaving
        waits = claim.name in snapshot.disrupting and not going
        deleting, disrupting, running = deleting + going, disrupting + waits, running + (not going and not waits)
    return Count(running + len(_unseen(pool, snapshot)), deleting, disrupting)


def _claims(pool: NodePool, snapshot: Snapshot) -> list[NodeClaim]:
    return [one for one in snapshot.nodeclaims if one.nodepool == pool.name]


def _unseen(pool: NodePool, snapshot: Snapshot) -> list[InFlight]:
    """Committed nodes of the pool whose NodeClaims the API server did not show."""
    shown = {one.name for one in snapshot.nodeclaims}
    return [one for one in snapshot.in_flight if one.claim.nodepool == pool.name and one.claim.name not in shown]


def missing(pool: NodePool, there: Count) -> int:
    """How many nodes to make; ``limits.nodes`` counts those that are still on their way out."""
    replicas = pool.replicas or 0
    if there.running + there.disrupting >= replicas:
        return 0
    lacking, limit = replicas - there.running, pool.limits.get(resources.NODES)
    if limit is None:
        return lacking
    return max(0, min(lacking, limit - there.running - there.deleting - there.disrupting))


def superfluous(pool: NodePool, snapshot: Snapshot) -> tuple[str, ...]:
    """NodeClaims beyond the replicas, those that cost least to lose: not launched, empty, then cheap to disrupt.

    Committed nodes that have no claim yet go first, as soon as they have one; pools that are being deleted lose their
    claims anyway.
    """
    over = count(pool, snapshot).running - (pool.replicas or 0) - len(_unseen(pool, snapshot))
    if over <= 0 or pool.metadata.deleting is not None or pool.unreadable:
        return ()
    gone = {*snapshot.leaving, *snapshot.disrupting}
    staying = [one for one in _claims(pool, snapshot) if one.metadata.deleting is None and one.name not in gone]
    nodes = {node.provider_id: node.name for node in snapshot.nodes if node.provider_id}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node_name and not pod.terminal:
            pods.setdefault(pod.node_name, []).append(pod)
    mine = {one.name: pods.get(nodes.get(one.provider_id, ""), []) for one in staying}
    ranked = sorted(staying, key=lambda one: (*_loss(one, mine[one.name], snapshot.now), one.name))
    return tuple(sorted(one.name for one in ranked[:over]))


def _loss(claim: NodeClaim, pods: Sequence[Pod], now: datetime) -> tuple[int, bool, Fraction]:
    """What losing a node costs, least first."""
    if not claim.provider_id:
        return 0, False, Fraction(0)
    guarded = any(pod.active and eviction.do_not_disrupt(pod, now) for pod in pods)
    if not guarded and all(eviction.of_daemonset(pod) or pod.mirror for pod in pods):
        return 1, False, Fraction(0)
    return 2, guarded, sum(map(eviction.eviction_cost, pods), Fraction(0)) * _lifetime_left(claim, now)


def _lifetime_left(claim: NodeClaim, now: datetime) -> Fraction:
    """The share of its life that a node still has: 1 for one that never expires."""
    if not claim.expire_after_seconds or claim.metadata.created is None:
        return Fraction(1)
    age = Fraction(int((now - claim.metadata.created).total_seconds()), claim.expire_after_seconds)
    return max(Fraction(0), min(Fraction(1), 1 - age))


def _made(
    pools: Iterable[NodePool], snapshot: Snapshot, catalog: Catalog
) -> tuple[list[NewNode], list[str], dict[str, str]]:
    """The nodes that pools lack, pool by pool, what is to be said about pools, and which of them select nothing."""
    catalog = reservations.counted(catalog, snapshot.settings.feature_gates)
    catalog = overlaid(catalog, snapshot.overlays, snapshot.nodepools).catalog
    templates = {pool.name: template(pool, snapshot, catalog) for pool in pools if missing(pool, count(pool, snapshot))}
    left = reservations.left((one for one in templates.values() if isinstance(one, Template)), snapshot)
    made, notes, barren = list[NewNode](), list[str](), dict[str, str]()
    for pool in pools:
        there = count(pool, snapshot)
        lacking = missing(pool, there)
        said = f"NodePool {pool.name} keeps {pool.replicas} nodes and has {there.running}"
        found = templates.get(pool.name, "")
        most = min(lacking, MOST_AT_ONCE - len(made))
        nodes, why = ([], found) if isinstance(found, str) else _nodes(found, most, left)
        made += [msgspec.structs.replace(one, reason=f"{said}; {one.reason}") for one in nodes]
        if why and not nodes and not isinstance(found, str):
            barren[pool.name] = f"{said}; {why}"
        notes += [f"{said}; {one}" for one in _remarks(pool, snapshot, there, lacking, len(nodes), why)]
    return made, notes, barren


def _remarks(pool: NodePool, snapshot: Snapshot, there: Count, lacking: int, now: int, why: str) -> Iterator[str]:
    """What keeps a pool from its number of nodes. ``now``: how many it makes of those it lacks; ``why`` no more."""
    if why:
        yield f"{now or 'none'} can be made: {why}"
    elif now < lacking:
        yield f"{now} are made now, the others follow"
    if lacking < (pool.replicas or 0) - there.running - there.disrupting:
        yield f"spec.limits.nodes ({pool.limits[resources.NODES]}) lets it make {lacking}"
    if names := superfluous(pool, snapshot):
        yield f"{', '.join(names)} will go"


def _nodes(found: Template, most: int, left: dict[str, int]) -> tuple[list[NewNode], str]:
    """At most so many nodes of a pool, and why there are no more. What is reserved is used up before anything is
    bought; each node counts on one reservation, or on none.

    ``left``: instances by reservation; those that are planned here are taken off.
    """
    made, sold = list[NewNode](), reservations.sold(found)
    for reservation in sold:
        taken = min(left[reservation], most - len(made))
        node = _node(reservations.only(found, reservation)) if taken else ""
        if isinstance(node, NewNode):
            made += [node] * taken
            left[reservation] -= taken
    if len(made) == most:
        return made, ""
    bought = _node(reservations.only(found, "") if sold else found)
    return (made, bought) if isinstance(bought, str) else ([*made, *[bought] * (most - len(made))], "")


def _node(found: Template) -> NewNode | str:
    """A node of a static pool; or why it can have none."""
    pool, priced = found.pool, _priced(found)
    if not priced:
        return "no instance type that its requirements allow can be bought"
    most = MOST_WITH_MINIMUM if any(one.min_values for one in found.requirements) else MOST_TYPES
    names = tuple(dict.fromkeys(one.name for one, _ in priced))[:most]
    kept = [one for one, _ in priced if one.name in names]
    demands = _with_minimum(found, kept)
    if isinstance(demands, str):
        return demands
    offers = [one for type_ in kept for one in _offers(found, type_)]
    cheapest = priced[0][1]
    return NewNode(
        node_pool=pool.name,
        node_class=pool.node_class_ref.name,
        pods=(),
        instance_types=names,
        requirements=demands.selectors(),
        labels=found.labels | _resolved(found),
        taints=pool.taints,
        startup_taints=pool.startup_taints,
        requests={},
        price_picousd_per_hour=cheapest.price_picousd_per_hour,
        capacity_type=cheapest.capacity_type,
        zones=tuple(sorted({one.zone for one in offers})),
        reason=(
            f"{kept[0].name} {cheapest.capacity_type} at {dollars(cheapest.price_picousd_per_hour)} is the cheapest"
            f" that its requirements allow"
        ),
        price_overlaid=any(one.price_overlaid for one in kept),
        capacity_overlaid=any(one.capacity_overlaid for one in kept),
    )


def _priced(found: Template) -> list[tuple[InstanceType, Offering]]:
    """Types that can be bought, each with its cheapest offering, cheapest first."""
    offered = ((one, _offers(found, one)) for one in found.legal_types())
    best = [
        (one, min(offers, key=lambda each: (each.price_picousd_per_hour, each.zone)))
        for one, offers in offered
        if offers
    ]
    return sorted(best, key=lambda pair: (pair[1].price_picousd_per_hour, pair[0].name))


def _offers(found: Template, one: InstanceType) -> list[Offering]:
    return [offering for offering in one.offerings if offering.available and found.sells(offering)]


def _with_minimum(found: Template, kept: Sequence[InstanceType]) -> Requirements | str:
    """The claim's requirements; ``minValues`` that cannot be kept are refused, or lowered where that is allowed."""
    demands = found.requirements.intersection(
        (Requirement(labels.INSTANCE_TYPE, False, frozenset(one.name for one in kept)),)
    )
    lowered = []
    for one in demands:
        if one.min_values:
            there = {value for each in kept for value in each.requirements.get(one.key).values if one.has(value)}
            if len(there) < found.must_keep.get(one.key, 0):
                return f"minValues: {one.min_values} of {one.key} cannot be met: there are {len(there)}"
            lowered.append(msgspec.structs.replace(one, min_values=min(one.min_values, len(there))))
    return Requirements(demands.by_key | {one.key: one for one in lowered})


def _resolved(found: Template) -> dict[str, str]:
    """A value for every label of the user's own that must be there."""
    own = (one for one in found.requirements if one.key not in found.known and not one.allows_absence)
    return {one.key: one.sole_value or some_value(one) for one in own}
