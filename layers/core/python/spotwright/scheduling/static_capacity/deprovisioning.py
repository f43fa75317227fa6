"""NodeClaims that a static NodePool has beyond its replicas."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction

from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.static_capacity.node_counts import count_invisible_nodeclaims, count_nodes, nodeclaims_of


def excess_nodeclaims(pool: NodePool, snapshot: Snapshot) -> tuple[str, ...]:
    """The NodeClaims that cost least to lose: not launched, then empty, then cheap to disrupt.

    Of those that cost the same, the first to go are not Initialized, such as a replacement that never joined; then
    drifted.
    Committed nodes without a NodeClaim go first, as soon as they have one. A NodePool that is being deleted loses its
    NodeClaims anyway.
    """
    invisible = count_invisible_nodeclaims(pool, snapshot)
    excess = count_nodes(pool, snapshot).active - (pool.replicas or 0) - invisible
    if excess <= 0 or pool.metadata.deletion_timestamp is not None or pool.read_error:
        return ()
    leaving = {*snapshot.nodeclaims_to_delete, *snapshot.nodeclaims_to_replace}
    staying = [
        nodeclaim
        for nodeclaim in nodeclaims_of(pool, snapshot)
        if nodeclaim.metadata.deletion_timestamp is None and nodeclaim.name not in leaving
    ]
    pods = _pods_by_claim(staying, snapshot)
    cheapest_first = sorted(
        staying,
        key=lambda nodeclaim: (
            *_disruption_cost(nodeclaim, pods.get(nodeclaim.name, []), snapshot.now),
            nodeclaim.is_condition_true("Initialized"),
            not nodeclaim.is_condition_true("Drifted"),
            nodeclaim.name,
        ),
    )
    return tuple(sorted(nodeclaim.name for nodeclaim in cheapest_first[:excess]))


def _pods_by_claim(nodeclaims: Iterable[NodeClaim], snapshot: Snapshot) -> dict[str, list[Pod]]:
    """NodeClaim → the pods that run on its Nodes."""
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node_name and not pod.is_terminal:
            pods.setdefault(pod.node_name, []).append(pod)
    return {
        name: [pod for node in nodes for pod in pods.get(node.name, [])]
        for name, nodes in nodes_of_claims(nodeclaims, snapshot.nodes).items()
    }


def _disruption_cost(nodeclaim: NodeClaim, pods: Sequence[Pod], now: datetime) -> tuple[int, bool, Fraction]:
    """What losing a node costs, least first."""
    if not nodeclaim.provider_id:
        return 0, False, Fraction(0)
    do_not_disrupt = any(pod.is_active and eviction.is_do_not_disrupt_active(pod, now) for pod in pods)
    if not do_not_disrupt and all(eviction.is_owned_by_daemonset(pod) or pod.is_mirror for pod in pods):
        return 1, False, Fraction(0)
    cost = sum(map(eviction.eviction_cost, pods), Fraction(0)) * _lifetime_left(nodeclaim, now)
    return 2, do_not_disrupt, cost


def _lifetime_left(nodeclaim: NodeClaim, now: datetime) -> Fraction:
    """The share of its life that a node still has: 1 for a node that never expires."""
    created = nodeclaim.metadata.creation_timestamp
    if not nodeclaim.expire_after_seconds or created is None:
        return Fraction(1)
    age = Fraction(int((now - created).total_seconds()), nodeclaim.expire_after_seconds)
    return max(Fraction(0), min(Fraction(1), 1 - age))
