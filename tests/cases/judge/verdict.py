"""The whole judgement of one plan."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.cases.judge import alone, hosting, topology
from tests.cases.judge.candidates import faults
from tests.cases.judge.cluster import Cluster
from tests.cases.judge.host import ExistingNode, Host, NewNode, existing_nodes, new_node
from tests.cases.judge.pod import Pod
from tests.cases.judge.population import Population
from tests.cases.judge.quantity import Raw

Found = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class Verdict:
    """What was found, as (rule, text) pairs, and what the plan amounts to. Price in USD per hour as the plan
    states it."""

    violations: tuple[tuple[str, str], ...]
    new_nodes: int
    placed: int
    unschedulable: int
    ignored: int
    price: float


def judge(plan: Raw, cluster: Cluster) -> Verdict:
    """Decides whether a plan is legal for a case."""
    existing = existing_nodes(cluster)
    unknown = [
        ("pool", f"newNodes[{i}]: no NodePool {raw.get('nodePool')!r}")
        for i, raw in enumerate(plan.get("newNodes") or [])
        if raw.get("nodePool") not in cluster.pools
    ]
    new = [
        new_node(i, raw, cluster)
        for i, raw in enumerate(plan.get("newNodes") or [])
        if raw.get("nodePool") in cluster.pools
    ]
    found = [*unknown, *_roll_call(plan, cluster), *_seat(plan, new, existing, cluster)]
    for node in new:
        found += hosting.new_node(node, cluster)
    for standing in existing:
        if standing.placed:
            found += hosting.existing_node(standing, cluster)
    for pool in cluster.pools.values():
        found += hosting.limits(pool, [n for n in new if n.pool is pool], existing)
    found += hosting.reservations(new)
    population = Population([*new, *existing], cluster)
    found += topology.check_spread(population)
    found += topology.check_affinity(population)
    found += topology.check_anti_affinity(population)
    found += alone.left_behind(_listed(plan, "unschedulable", cluster), population, new, existing, cluster)
    found += alone.out_of_turn(new, population, cluster)
    return Verdict(
        tuple(found),
        len(plan.get("newNodes") or []),
        sum(len(h.placed) for h in [*new, *existing]),
        len(plan.get("unschedulable") or []),
        len(plan.get("ignored") or []),
        sum(float(n.get("pricePerHour") or 0) for n in plan.get("newNodes") or []),
    )


def _listed(plan: Raw, field: str, cluster: Cluster) -> list[Pod]:
    """Valid waiting pods a plan reports under `unschedulable` or `ignored`."""
    named = [cluster.pods.get(entry["pod"]) for entry in plan.get(field) or []]
    return [p for p in named if p and cluster.waiting(p) and not faults(p, cluster)]


def _roll_call(plan: Raw, cluster: Cluster) -> Found:
    """Every waiting pod is answered for exactly once, and nothing else is placed."""
    placed = [
        key for field in ("newNodes", "existingNodes") for n in plan.get(field) or [] for key in n.get("pods") or []
    ]
    refused = [entry["pod"] for entry in plan.get("unschedulable") or []]
    ignored = [entry["pod"] for entry in plan.get("ignored") or []]
    for key, count in Counter(placed + refused + ignored).items():
        if key not in cluster.pods:
            yield "pods", f"{key} is not in the case"
        elif count > 1:
            yield "pods", f"{key} appears {count} times"
    for key in filter(cluster.pods.__contains__, placed):
        yield from _may_be_placed(cluster.pods[key], cluster)
    for key in filter(cluster.pods.__contains__, refused):
        if not cluster.waiting(cluster.pods[key]):
            yield "pods", f"{key} is reported unschedulable but does not wait for a node"
    for key in filter(cluster.pods.__contains__, ignored):
        pod = cluster.pods[key]
        if cluster.waiting(pod) and not faults(pod, cluster) and not _foreign(pod):
            yield "pods", f"{key} is ignored, but nothing is wrong with it"
    answered = {*placed, *refused, *ignored}
    for pod in cluster.pods.values():
        if (
            pod.key not in answered
            and cluster.waiting(pod)
            and not _foreign(pod)
            and not (pod.home and cluster.of("PodDisruptionBudget"))
        ):
            yield "pods", f"{pod.key} waits and is missing from the plan"


def _foreign(pod: Pod) -> bool:
    """Whether another scheduler looks after the pod; it may then be ignored, placed or left out."""
    return str(pod.spec.get("schedulerName") or "default-scheduler") != "default-scheduler"


def _may_be_placed(pod: Pod, cluster: Cluster) -> Found:
    if pod.owned_by("DaemonSet"):
        yield "pods", f"{pod.key} is placed, but belongs to a DaemonSet"
    elif not cluster.waiting(pod):
        yield "pods", f"{pod.key} is placed, but does not wait for a node"
    else:
        yield from (
            ("pods", f"{pod.key} is placed, but is no candidate: {fault}")
            for fault in ([] if pod.home else faults(pod, cluster))
        )


def _seat(plan: Raw, new: list[NewNode], existing: list[ExistingNode], cluster: Cluster) -> Found:
    """Puts the plan's pods on its hosts, each at most once; reports hosts that do not exist and nodes without
    pods."""
    by_name = {alias: n for n in existing for alias in n.aliases}
    seated: set[str] = set()
    entries: list[tuple[Host, list[str]]] = [(n, n.raw.get("pods") or []) for n in new]
    for raw in plan.get("existingNodes") or []:
        if raw["name"] not in by_name:
            yield "existing-node", f"no node or in-flight NodeClaim is named {raw['name']}"
        else:
            entries.append((by_name[raw["name"]], raw.get("pods") or []))
    for host, keys in entries:
        if host.is_new and not keys:
            yield "pods", f"{host} has no pods"
        for key in keys:
            if key in cluster.pods and key not in seated:
                seated.add(key)
                host.placed.append(cluster.pods[key])


def rules(violations: Iterable[tuple[str, str]]) -> list[str]:
    """The distinct rules broken, in order of first appearance."""
    return list(dict.fromkeys(rule for rule, _ in violations))
