"""What the Nodes of NodeClaims have, for the status of NodePools.

A Node has 14 KB, and NodeClaims move every few seconds in a busy cluster: what the Node of a settled NodeClaim reported
is remembered for ten minutes, and few others are read one by one.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from spotwright.lifecycle import nodepool_status
from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.cluster import ClusterPort

# Beyond so many, one list costs less.
READ_BY_NAME: Final = 30
# A device plugin may add to what a Node has after it was initialized.
SETTLED_AFTER: Final = timedelta(minutes=2)
KEPT_FOR: Final = timedelta(minutes=10)


class _Read(msgspec.Struct, frozen=True):
    """What the Node of a NodeClaim had. ``uid``: the NodeClaim's."""

    uid: str
    at: datetime
    capacity: dict[str, int]


# By cluster: what was read of settled NodeClaims, by name.
_settled: Final[WeakKeyDictionary[ClusterPort, dict[str, _Read]]] = WeakKeyDictionary()


def capacities(ports: LifecyclePorts, claims: Iterable[NodeClaim], *, now: datetime) -> dict[str, dict[str, int]]:
    """NodeClaim → its capacity, as plans count it; without NodeClaims that are being deleted."""
    before, kept, unknown = _settled.get(ports.cluster, {}), dict[str, _Read](), list[NodeClaim]()
    for claim in claims:
        if claim.metadata.deletion_timestamp is None:
            read = before.get(claim.name)
            if read is not None and read.uid == claim.metadata.uid and timedelta() <= now - read.at < KEPT_FOR:
                kept[claim.name] = read
            else:
                unknown.append(claim)
    found = {name: read.capacity for name, read in kept.items()}
    nodes = _nodes(ports, unknown)
    for claim in unknown:
        node = nodes.get(claim.name)
        found[claim.name] = nodepool_status.capacity(claim, node)
        if node is not None and node.is_initialized and _is_settled(claim, now):
            kept[claim.name] = _Read(claim.metadata.uid, now, found[claim.name])
    _settled[ports.cluster] = kept
    return found


def forget(ports: LifecyclePorts) -> None:
    """Another worker counted something else: all Nodes are read again."""
    _settled.pop(ports.cluster, None)


def _nodes(ports: LifecyclePorts, claims: list[NodeClaim]) -> dict[str, Node]:
    """NodeClaim → its Node, where there is one. Where Nodes are read by name, one that joins counts once registered."""
    joined = [claim for claim in claims if claim.provider_id]
    if len(joined) > READ_BY_NAME:
        found = nodes_of_claims(joined, ports.cluster.nodes())
    else:
        names = sorted({claim.node_name for claim in joined if claim.node_name})
        found = nodes_of_claims(joined, [node for node in in_parallel(ports.cluster.node, names) if node is not None])
    return {name: node for name, (node, *_) in found.items()}


def _is_settled(claim: NodeClaim, now: datetime) -> bool:
    initialized = find_condition(claim.conditions, "Initialized")
    since = initialized.last_transition_time if initialized is not None else None
    return since is not None and now - since >= SETTLED_AFTER
