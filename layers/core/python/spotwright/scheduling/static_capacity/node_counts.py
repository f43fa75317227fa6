"""How many nodes a static NodePool has, and how many it lacks."""

import msgspec

from spotwright.model import resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.snapshot import STATIC_CAPACITY, Snapshot


class NodeCount(msgspec.Struct, frozen=True):
    """The nodes of a static NodePool, each counted once.

    ``active``: nodes that stay, committed ones whose NodeClaims are not visible yet among them. ``deleting``: nodes on
    their way out. ``pending_disruption``: nodes that go when their replacement is there.
    """

    active: int = 0
    deleting: int = 0
    pending_disruption: int = 0


def static_nodepools(snapshot: Snapshot) -> list[NodePool]:
    """Static NodePools by name; none without the feature gate."""
    if STATIC_CAPACITY not in snapshot.settings.feature_gates:
        return []
    return sorted(
        (nodepool for nodepool in snapshot.nodepools if nodepool.replicas is not None),
        key=lambda nodepool: nodepool.name,
    )


def count_nodes(pool: NodePool, snapshot: Snapshot) -> NodeCount:
    """A NodePool's nodes by its NodeClaims and the launches that are committed."""
    active = deleting = pending_disruption = 0
    for nodeclaim in nodeclaims_of(pool, snapshot):
        if nodeclaim.metadata.deletion_timestamp is not None or nodeclaim.name in snapshot.nodeclaims_to_delete:
            deleting += 1
        elif nodeclaim.name in snapshot.nodeclaims_to_replace:
            pending_disruption += 1
        else:
            active += 1
    return NodeCount(active + count_invisible_nodeclaims(pool, snapshot), deleting, pending_disruption)


def nodeclaims_of(pool: NodePool, snapshot: Snapshot) -> list[NodeClaim]:
    return [nodeclaim for nodeclaim in snapshot.nodeclaims if nodeclaim.nodepool == pool.name]


def count_invisible_nodeclaims(pool: NodePool, snapshot: Snapshot) -> int:
    """Committed nodes of the NodePool whose NodeClaims the API server did not show."""
    visible = {nodeclaim.name for nodeclaim in snapshot.nodeclaims}
    committed = [in_flight.nodeclaim for in_flight in snapshot.in_flight]
    return sum(nodeclaim.nodepool == pool.name and nodeclaim.name not in visible for nodeclaim in committed)


def count_missing_nodes(pool: NodePool, nodes: NodeCount) -> int:
    """How many nodes to make. ``limits.nodes`` counts nodes that are still on their way out."""
    replicas = pool.replicas or 0
    if nodes.active + nodes.pending_disruption >= replicas:
        return 0
    missing, limit = replicas - nodes.active, pool.limits.get(resources.NODES)
    if limit is None:
        return missing
    return max(0, min(missing, limit - nodes.active - nodes.deleting - nodes.pending_disruption))
