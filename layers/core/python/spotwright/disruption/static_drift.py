"""Drifted nodes of static NodePools: each is replaced by another node of its NodePool, whatever runs on it.

Source: Karpenter v1.14 ``pkg/controllers/disruption/staticdrift.go``: their pods are not asked whether they have a
place, since what comes is as large as what goes. The planner makes the replacements, as every node of such a NodePool.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from spotwright.disruption.candidates import Blocked, Candidate
from spotwright.model import resources
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.snapshot import STATIC_CAPACITY, Snapshot
from spotwright.scheduling.plan import NewNode, Plan
from spotwright.scheduling.static_capacity.node_counts import NodeCount, count_nodes


def within_limits(candidates: Iterable[Candidate], snapshot: Snapshot) -> tuple[list[Candidate], list[Blocked]]:
    """The candidates for whose replacements spec.limits.nodes has room; and those that wait for a user.

    Nodes of dynamic NodePools all pass: their limits are for the planner.
    """
    room: dict[str, int | str] = {}
    allowed, blocked = list[Candidate](), list[Blocked]()
    for candidate in candidates:
        pool = candidate.pool
        if pool.replicas is None:
            allowed.append(candidate)
            continue
        if pool.name not in room:
            room[pool.name] = _room(pool, snapshot)
        left = room[pool.name]
        if isinstance(left, str):
            blocked.append(Blocked(candidate.name, left))
        elif left > 0:
            room[pool.name] = left - 1
            allowed.append(candidate)
    return allowed, blocked


def _room(pool: NodePool, snapshot: Snapshot) -> int | str:
    """How many nodes may be replaced now; or why none. Nodes on their way out count until they are gone."""
    if STATIC_CAPACITY not in snapshot.settings.feature_gates:
        return f"NodePool {pool.name} is static (spec.replicas), which needs the feature gate {STATIC_CAPACITY}"
    nodes = count_nodes(pool, snapshot)
    if nodes.active + nodes.pending_disruption > (pool.replicas or 0):
        return (
            f"NodePool {pool.name} has {nodes.active} nodes, more than spec.replicas ({pool.replicas}): some go first"
        )
    limit = pool.limits.get(resources.NODES)
    left = len(snapshot.nodeclaims) if limit is None else max(0, limit - _total(nodes))
    if not left and nodes.active == _total(nodes):
        return (
            f"spec.limits.nodes ({limit}) of NodePool {pool.name} leaves no room for a replacement beside its"
            f" {nodes.active} nodes; raise it by 1 at least"
        )
    return left


def _total(nodes: NodeCount) -> int:
    return nodes.active + nodes.deleting + nodes.pending_disruption


def without_replacement(candidates: Sequence[Candidate], plan: Plan) -> dict[str, str]:
    """Candidates of static NodePools for which the plan has no node, the last ones, by name, and why."""
    made = Counter(node.nodepool for node in plan.new_nodes)
    failures = {}
    for candidate in candidates:
        name = candidate.pool.name
        if candidate.pool.replicas is None:
            continue
        made[name] -= 1
        if made[name] < 0:
            why = plan.nodepools_without_offerings.get(name) or "no further node can be launched for it now"
            failures[candidate.name] = f"its replacement cannot be made: {why}"
    return failures


def replacements(candidates: Sequence[Candidate], new_nodes: Sequence[NewNode]) -> dict[str, tuple[NewNode, ...]]:
    """Candidate → the new nodes that must be there before it goes: those that its pods go to, and its replacement.

    The replacement of a static NodePool's node is a new one of that NodePool: one that takes its pods if there is one.
    """
    takers, free = dict[str, list[int]](), dict[str, list[int]]()
    for number, node in enumerate(new_nodes):
        free.setdefault(node.nodepool, []).append(number)
    for candidate in candidates:
        pods = {pod.key for pod in candidate.pods}
        takers[candidate.name] = [number for number, node in enumerate(new_nodes) if not pods.isdisjoint(node.pods)]
    static = [candidate for candidate in candidates if candidate.pool.replicas is not None]
    for candidate in sorted(static, key=lambda candidate: not takers[candidate.name]):
        own, left = takers[candidate.name], free.get(candidate.pool.name, [])
        if left:
            chosen = next((number for number in own if number in left), left[0])
            left.remove(chosen)
            own += [] if chosen in own else [chosen]
    return {name: tuple(new_nodes[number] for number in sorted(numbers)) for name, numbers in takers.items()}
