"""What a pod could do on a node of its own: pods left behind, and nodes opened in a NodePool out of its turn.

Left behind is a pod the plan calls unschedulable although it could be added with everything else as it is. The
search
errs on the side of saying nothing: limits count every new node at its pool's largest type, DaemonSets run wherever
their
pool would let them, PreferNoSchedule taints keep pods away, and reserved offerings end the search, since a
provisioner
may wait for them.
"""

from collections.abc import Iterable, Iterator
from itertools import product

from tests.cases.judge import hosting
from tests.cases.judge.catalog import InstanceType
from tests.cases.judge.cluster import Cluster, NodePool
from tests.cases.judge.host import ExistingNode, NewNode, fresh_node, runs_as, used_by_pool
from tests.cases.judge.pod import Pod
from tests.cases.judge.population import Population
from tests.cases.judge.quantity import NANO, Resources, largest, minus, shortage, total
from tests.cases.judge.requirement import CAPACITY_TYPE, HOSTNAME, Requirement, untolerated
from tests.cases.judge.welcome import keys_that_matter, welcome


def left_behind(
    pods: Iterable[Pod], population: Population, new: list[NewNode], existing: list[ExistingNode], cluster: Cluster
) -> Iterator[tuple[str, str]]:
    """For each kind of unschedulable pod, the first place that would have taken one."""
    if not cluster.universe_pools:
        return  # without any NodePool Karpenter does not even look at the nodes there are
    rooms = {pool.name: room_left(pool, new, existing, cluster) for pool in cluster.universe_pools}
    tried: dict[str, str] = {}
    for pod in pods:
        if pod.shape not in tried:
            tried[pod.shape] = _place_for(pod, population, existing, rooms, cluster)
        if tried[pod.shape]:
            yield "left-behind", f"{pod.key} is unschedulable in the plan, alone it could go to {tried[pod.shape]}"


def _place_for(
    pod: Pod, population: Population, existing: list[ExistingNode], rooms: dict[str, Resources], cluster: Cluster
) -> str:
    for node in existing:
        if not node.leaving and _joins(pod, node, population, cluster):
            return f"node {node}"
    for pool in cluster.universe_pools:
        found = _opens(pod, pool, population, rooms[pool.name], cluster)
        if found:
            return found
    return ""


def _joins(pod: Pod, node: ExistingNode, population: Population, cluster: Cluster) -> bool:
    room = minus(hosting.free(node, cluster), total(p.requests for p in node.placed))
    if (
        min(room.values(), default=0) < 0
        or shortage(pod.requests, room)
        or untolerated(node.taints, pod.tolerations, hard_only=False)
    ):
        return False
    if any(hosting.pod_on_existing(pod, node, cluster)) or not welcome(pod, node, population):
        return False
    node.placed.append(pod)
    crowded = any(hosting.volumes_beyond_limit(node, cluster)) or any(hosting.port_conflicts(node, node.placed))
    node.placed.pop()
    return not crowded


def room_left(pool: NodePool, new: list[NewNode], existing: list[ExistingNode], cluster: Cluster) -> Resources:
    """What the pool's limits leave at worst; only limited resources are in it."""
    before = {k: v for k, v in minus(pool.limits, used_by_pool(existing, pool.name)).items() if k in pool.limits}
    new_nodes = [n for n in new if n.pool is pool]
    if not new_nodes:
        return before
    worst = largest(
        t.capacity for t in cluster.types.values() if not fresh_node(pool, [t], ()).type_clash(t) and _within(t, before)
    )
    taken = {**{k: v * len(new_nodes) for k, v in worst.items()}, "nodes": NANO * len(new_nodes)}
    return {k: v - taken.get(k, 0) for k, v in before.items()}


def _within(instance_type: InstanceType, room: Resources) -> bool:
    return all(instance_type.capacity.get(k, 0) <= v for k, v in room.items()) and room.get("nodes", 1) > 0


def _opens(pod: Pod, pool: NodePool, population: Population, room: Resources, cluster: Cluster) -> str:
    """A fresh node of the pool that takes the pod; '' if there is none."""
    return next(
        filter(
            None,
            (
                _pinned(pod, node, pool, extra, population, cluster)
                for node, extra in _fresh_nodes(pod, pool, room, cluster)
            ),
        ),
        "",
    )


def _fresh_nodes(
    pod: Pod, pool: NodePool, room: Resources, cluster: Cluster
) -> Iterator[tuple[NewNode, tuple[Requirement, ...]]]:
    """Nodes the pool could open for the pod if there were no other pods: one per node affinity term and choice of
    volume
    topology, with the types that fit, and the requirements that the pod and its volumes add."""
    if untolerated(pool.taints, pod.tolerations, hard_only=False):
        return
    volumes = [alternatives for _, alternatives in hosting.volume_alternatives(pod, cluster)]
    for term, *alternatives in product(pod.terms, *volumes):
        extra = tuple(r for part in (term, *alternatives) for r in part)
        if not _declared(extra, pool, cluster):
            continue
        types = [t for t in cluster.types.values() if _within(t, room)]
        node = fresh_node(pool, types, extra)
        if any(not node.possible(key) for key in node.by_key) or any(
            o.labels.get(CAPACITY_TYPE) == "reserved" for _, os in node.launchable for o in os
        ):
            continue
        fitting = fresh_node(pool, [t for t, _ in node.launchable if _holds(pod, t, pool, cluster)], extra)
        if fitting.launchable:
            yield fitting, extra


def _declared(requirements: Iterable[Requirement], pool: NodePool, cluster: Cluster) -> bool:
    """Custom labels must be known to the pool; only labels of the catalog may be left open."""
    known = {r.key for r in pool.requirements} | cluster.catalog_keys
    return all(r.key in known or r.operator in ("NotIn", "DoesNotExist") for r in requirements if r.key != HOSTNAME)


def _holds(pod: Pod, instance_type: InstanceType, pool: NodePool, cluster: Cluster) -> bool:
    """Whether the type fits the pod beside every DaemonSet that the pool, wherever it launches, may run on it."""
    anywhere = fresh_node(pool, [instance_type], ())
    daemons = [
        d for d in cluster.daemonsets if runs_as(d, anywhere, instance_type, anywhere.offerings_of(instance_type))
    ]
    return not shortage(
        total([pod.requests, *(d.requests for d in daemons)]), instance_type.allocatable
    ) and not hosting.daemon_ports([pod], daemons)


def _pinned(
    pod: Pod, node: NewNode, pool: NodePool, extra: tuple[Requirement, ...], population: Population, cluster: Cluster
) -> str:
    """Tries every combination of values for the topology keys that matter to the pod."""
    keys = sorted(keys_that_matter(pod, population))
    values = [sorted(v for v in node.possible(key) if v is not None) for key in keys]
    for combination in product(*values):
        pins = tuple(Requirement(k, "In", (v,)) for k, v in zip(keys, combination, strict=False))
        candidate = fresh_node(pool, node.types, extra + pins)
        if (
            candidate.launchable
            and hosting.satisfied([extra], candidate)
            and welcome(pod, candidate, population)
            and not any(hosting.min_values(candidate, [t for t, _ in candidate.launchable]))
        ):
            where = ", ".join([f"NodePool {pool.name}", candidate.launchable[0][0].name, *combination])
            return f"a new node ({where})"
    return ""


# -- weight -----------------------------------------------------------------------------------------------------------


def out_of_turn(new: Iterable[NewNode], population: Population, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """New nodes all of whose pods a NodePool of more weight would have taken, each on a node of its own.

    Only pods without preferences and without anything to do with topology are held against the plan, and only pools
    without limits, since for the others the moment of the decision matters.
    """
    taken: dict[tuple[str, str], bool] = {}
    for node in new:
        heavier = [q for q in cluster.universe_pools if q.weight > node.pool.weight and not q.limits]
        for pool in heavier if all(_indifferent(p, population) for p in node.placed) else ():
            for pod in node.placed:
                if (pool.name, pod.shape) not in taken:
                    taken[pool.name, pod.shape] = any(
                        hosting.satisfied([extra], fresh)
                        and not any(hosting.min_values(fresh, [t for t, _ in fresh.launchable]))
                        for fresh, extra in _fresh_nodes(pod, pool, {}, cluster)
                    )
            if node.placed and all(taken[pool.name, pod.shape] for pod in node.placed):
                yield (
                    "weight",
                    f"{node} is in NodePool {node.pool.name}, though {pool.name} has more weight and would take"
                    " every pod on it",
                )


def _indifferent(pod: Pod, population: Population) -> bool:
    """Whether nothing but labels, taints and resources decides where the pod can go."""
    rules = pod.spec.get("affinity") or {}
    wishes = any(
        "preferredDuringSchedulingIgnoredDuringExecution" in (rules.get(kind) or {})
        for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")
    )
    company = any(pod.affinity(kind) for kind in ("podAffinity", "podAntiAffinity")) or pod.spec.get(
        "topologySpreadConstraints"
    )
    return not wishes and not company and not any(t.selects(pod) for t, _ in population.with_terms("podAntiAffinity"))
