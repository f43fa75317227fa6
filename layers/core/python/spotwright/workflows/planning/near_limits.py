"""Limits of NodePools, where a cluster state shows less of a NodePool than is counted elsewhere.

What is counted elsewhere are the status of the NodePool, which is read from the API server, and the launches of rows.
The status counts nodes that go as well: where that comes near a limit, the NodeClaims are listed, and nothing else.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache

import msgspec

from spotwright.aws.interruption_messages import REPLACED_KINDS
from spotwright.decisions.decide import decide
from spotwright.errors import ApiError, OutOfTime
from spotwright.model import quantity, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.in_flight_nodes import build_in_flight_node
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import Plan
from spotwright.workflows.planning import time_budget
from spotwright.workflows.planning.overlay import BehindError, uncounted_period
from spotwright.workflows.planning.snapshot import REPLACED_REASONS, instances_going
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ListingPorts


class NearLimitsError(BehindError):
    """A plan may exceed limits of NodePools. ``snapshot``: what the ``plan`` is of; ``nodepools``: their names."""

    def __init__(self, message: str, snapshot: Snapshot, plan: Plan, nodepools: Iterable[NodePool]) -> None:
        super().__init__(message, code="NearLimits")
        self.snapshot, self.plan, self.nodepools = snapshot, plan, frozenset(pool.name for pool in nodepools)


def check_limits(snapshot: Snapshot, plan: Plan, catalog: Catalog, ports: ListingPorts) -> None:
    """Limits of NodePools hold, however little of them the snapshot shows. Raises NearLimitsError.

    A plan keeps them for what the snapshot shows. What is launched is to keep them as well for what the status of the
    NodePool and rows count, which is more while nodes go or have just joined, and where a state lies; or else for the
    NodeClaims that there are, without those that go.
    """
    launched = {node.nodepool for node in plan.new_nodes}
    limited = [pool for pool in snapshot.nodepools if _limits(pool) and pool.name in launched]
    # A limit may be of a resource that instances have by a NodeOverlay alone.
    overlaid = apply_overlays(catalog, snapshot.nodeoverlays, snapshot.nodepools).catalog if limited else catalog
    near = [pool for pool in limited if _excess(pool, _counted(pool, snapshot, overlaid), plan, overlaid)]
    if not near:
        return
    try:
        claims = _staying(ports, snapshot)
    except OutOfTime:
        raise
    except ApiError as failure:
        message = f"what NodePools near their limits have cannot be listed: {failure}"
        raise NearLimitsError(message, snapshot, plan, near) from failure
    excesses = {pool.name: _excess(pool, _listed(pool, claims, snapshot, overlaid), plan, overlaid) for pool in near}
    beyond = [pool for pool in near if excesses[pool.name]]
    if beyond:
        name = beyond[0].name
        message = (
            f"with what would be launched, the NodeClaims of NodePool {name} come to {excesses[name]}; it shows less"
        )
        raise NearLimitsError(message, snapshot, plan, beyond)


def decide_for_others(
    near: NearLimitsError, catalog: Catalog, ports: ListingPorts, seconds_left: SecondsLeft = None
) -> tuple[Snapshot, Plan, int]:
    """The plan, and its snapshot, without new nodes of NodePools near their limits, and without the pods that would get
    them, which wait, and so do those that got none; and for how many of the others there is no time.

    CapacityBuffers come after all pods. Raises NearLimitsError where nobody is left.
    """
    postponed = 0
    while True:
        snapshot, left_out = time_budget.fit(_without(near), seconds_left)
        postponed += left_out
        plan = decide(snapshot, catalog)
        if not plan.new_nodes:
            raise near
        try:
            check_limits(snapshot, plan, catalog, ports)
        except NearLimitsError as again:
            near = again
        else:
            return snapshot, plan, postponed


def _without(near: NearLimitsError) -> Snapshot:
    """Static NodePools make no node beyond a limit, either."""
    left = {key for node in near.plan.new_nodes if node.nodepool in near.nodepools for key in node.pods}
    left |= {unplaced.pod for unplaced in near.plan.unschedulable_pods}
    pools = (
        msgspec.structs.replace(pool, limits={**pool.limits, resources.NODES: 0})
        if pool.name in near.nodepools
        else pool
        for pool in near.snapshot.nodepools
    )
    pods = (pod for pod in near.snapshot.pods if pod.key not in left)
    return msgspec.structs.replace(near.snapshot, pods=tuple(pods), nodepools=tuple(pools), capacity_buffers=())


def _limits(pool: NodePool) -> dict[str, int]:
    """A static NodePool has no more nodes than its replicas, either: one that a state hides would be made again."""
    if pool.replicas is None:
        return dict(pool.limits)
    return {**pool.limits, resources.NODES: min(pool.replicas, pool.limits.get(resources.NODES, pool.replicas))}


def _counted(pool: NodePool, snapshot: Snapshot, catalog: Catalog) -> dict[str, int]:
    """What the NodePool has at most: what its status counts, and what is too new for that to be sure."""
    period = uncounted_period(snapshot)
    new = [
        build_in_flight_node(claim, (), catalog)
        for claim in snapshot.nodeclaims
        if claim.nodepool == pool.name and _is_new(claim, snapshot.now, period)
    ]
    new += [
        build_in_flight_node(coming.nodeclaim, coming.instance_types, catalog)
        for coming in snapshot.in_flight
        if coming.nodeclaim.nodepool == pool.name
    ]
    of_status = {**pool.resources, resources.NODES: pool.node_count}
    return resources.add(of_status, {resources.NODES: len(new)}, *(node.capacity for node in new))


def _staying(ports: ListingPorts, snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The NodeClaims of the API server that nobody deletes, whose instances EC2 does not take back, and that wait for
    no replacements, which count instead.
    """
    going = {row.instance_id for row in ports.state.notices() if row.kind in REPLACED_KINDS}
    commands = ports.state.commands()
    claims = ports.cluster.nodeclaims()
    listed = msgspec.structs.replace(snapshot, nodeclaims=claims)
    going |= instances_going(listed, (), commands, REPLACED_REASONS)
    return tuple(
        claim
        for claim in claims
        if claim.metadata.deletion_timestamp is None
        and not (claim.is_managed and instance_id(claim.provider_id) in going)
    )


def _listed(pool: NodePool, claims: Iterable[NodeClaim], snapshot: Snapshot, catalog: Catalog) -> dict[str, int]:
    """What the NodePool has by its NodeClaims, and by what is to become one."""
    names = {claim.name for claim in claims}
    coming = (node for node in snapshot.in_flight if node.nodeclaim.name not in names)
    nodes = [build_in_flight_node(claim, (), catalog) for claim in claims if claim.nodepool == pool.name]
    nodes += [
        build_in_flight_node(node.nodeclaim, node.instance_types, catalog)
        for node in coming
        if node.nodeclaim.nodepool == pool.name
    ]
    return resources.add({resources.NODES: len(nodes)}, *(node.capacity for node in nodes))


def _is_new(claim: NodeClaim, now: datetime, period: timedelta) -> bool:
    """Whether a status may not count the claim yet, or not its size."""
    launched = find_condition(claim.conditions, "Launched")
    times = (claim.metadata.creation_timestamp, launched.last_transition_time if launched else None)
    return any(at is not None and now - at < period for at in times)


def _excess(pool: NodePool, counted: Mapping[str, int], plan: Plan, catalog: Catalog) -> str:
    """What would be beyond a limit, and beyond which; "" = nothing. ``counted``: what the NodePool has.

    Of each new node the largest that may be launched counts.
    """
    types = catalog.instance_types(pool.node_class_ref.name, pool.name)

    @cache
    def largest(names: tuple[str, ...]) -> dict[str, int]:
        return resources.maximum(instance_type.capacity for instance_type in types if instance_type.name in names)

    new = [largest(node.instance_types) for node in plan.new_nodes if node.nodepool == pool.name]
    added = resources.add({resources.NODES: len(new)}, *new)
    total = resources.add(counted, added)
    for name, limit in sorted(_limits(pool).items()):
        if added.get(name, 0) > 0 and total[name] > limit:
            texts = quantity.texts(name, (total[name], limit))
            what = "limit" if limit == pool.limits.get(name) else "replicas"
            return f"{texts[0]} of {name}, beyond its {what} of {texts[1]}"
    return ""
