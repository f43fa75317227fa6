"""Rules that concern one node at a time: what fits, what is tolerated, what may be launched, and at which price."""

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.cases.judge.candidates import claim_name
from tests.cases.judge.catalog import InstanceType, Offering
from tests.cases.judge.cluster import Cluster, DaemonSet, NodePool
from tests.cases.judge.host import ExistingNode, Host, NewNode, runs_as, used_by_pool
from tests.cases.judge.pod import Pod
from tests.cases.judge.quantity import NANO, Raw, Resources, largest, minus, resources, shortage, show, total
from tests.cases.judge.requirement import (
    CAPACITY_TYPE,
    HOSTNAME,
    Possible,
    Requirement,
    certain,
    requirement,
    untolerated,
)

PRICE_TOLERANCE = 1e-6
IN_TREE_DRIVERS = {"kubernetes.io/aws-ebs": "ebs.csi.aws.com"}
Found = Iterator[tuple[str, str]]
"""(rule, what is wrong), none if all is well."""


# -- nodes that exist -------------------------------------------------------------------------------------------------


def existing_node(node: ExistingNode, cluster: Cluster) -> Found:
    """Everything that can be wrong with pods put on a node that exists or is in flight."""
    if node.leaving:
        yield "existing-node", f"{node} is being deleted and takes no pods"
        return
    for pod in node.placed:
        yield from ((rule, f"{pod.key} on {node}: {text}") for rule, text in pod_on_existing(pod, node, cluster))
    short = shortage(total(p.requests for p in node.placed), free(node, cluster))
    if short:
        yield "fit", f"{node} is too small for what the plan adds: {short}"
    for driver, count, limit in volumes_beyond_limit(node, cluster):
        yield "volumes", f"{node} would have {count} volumes of {driver}, its CSINode allows {limit}"
    yield from port_conflicts(node, node.placed)


def pod_on_existing(pod: Pod, node: ExistingNode, cluster: Cluster) -> Found:
    """Taints, labels and volume topology of one pod on one existing node."""
    taint = untolerated(node.taints, pod.tolerations)
    if taint:
        yield "taints", f"does not tolerate {taint}"
    if not any(certain(term, node.possible) for term in pod.terms):
        yield "requirements", "no node affinity term matches the node's labels: " + describe(pod.terms, node.possible)
    yield from volume_topology(pod, node.possible, cluster)


def free(node: ExistingNode, cluster: Cluster) -> Resources:
    """Allocatable minus resident pods minus the DaemonSet pods that have yet to start."""
    daemons = total(d.requests for d in node.missing_daemons(cluster.daemonsets))
    return minus(minus(node.allocatable, total(p.requests for p in node.residents)), daemons)


def volumes_beyond_limit(node: ExistingNode, cluster: Cluster) -> Iterator[tuple[str, int, int]]:
    """Drivers for which the plan adds volumes beyond the node's CSI limit. A claim used by two pods counts once."""
    before = _volumes(node.residents, cluster)
    after = _volumes(node.pods(), cluster)
    for driver, claims in after.items():
        limit = node.volume_limits.get(driver)
        if limit is not None and len(claims) > max(limit, len(before.get(driver, ()))):
            yield driver, len(claims), limit


def _volumes(pods: Iterable[Pod], cluster: Cluster) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pod in pods:
        for volume in pod.spec.get("volumes") or []:
            name = claim_name(volume, pod)
            claim = cluster.one("PersistentVolumeClaim", name, pod.namespace) if name else None
            driver = _driver(claim, cluster) if claim else ""
            if driver:
                found.setdefault(driver, set()).add(f"{pod.namespace}/{name}")
    return found


def _driver(claim: Raw, cluster: Cluster) -> str:
    spec = claim.get("spec") or {}
    if spec.get("volumeName"):
        volume = (cluster.one("PersistentVolume", spec["volumeName"]) or {}).get("spec") or {}
        return (volume.get("csi") or {}).get("driver") or (
            "ebs.csi.aws.com" if volume.get("awsElasticBlockStore") else ""
        )
    storage_class = cluster.one("StorageClass", spec.get("storageClassName") or "") or {}
    provisioner = storage_class.get("provisioner") or ""
    return IN_TREE_DRIVERS.get(provisioner, provisioner)


# -- nodes to be launched ---------------------------------------------------------------------------------------------


def new_node(node: NewNode, cluster: Cluster) -> Found:
    """Everything that can be wrong with one entry of newNodes, apart from its topology."""
    if node.pool.closed:
        yield "pool", f"{node}: NodePool {node.pool.name} {node.pool.closed}"
    yield from _listed_types(node, cluster)
    if not node.launchable:
        yield "instance-types", f"{node}: no listed instance type has an available offering the requirements allow"
        return
    yield from _pool_contract(node)
    yield from _fits(node, cluster)
    for pod in node.placed:
        yield from ((rule, f"{pod.key} on {node}: {text}") for rule, text in pod_on_new(pod, node, cluster))
    yield from port_conflicts(node, node.placed)
    if not cluster.of("NodeOverlay"):
        yield from _price(node)
    if cluster.settings.get("minValuesPolicy", "Strict") == "Strict":
        yield from ((rule, f"{node}: {text}") for rule, text in min_values(node, [t for t, _ in node.launchable]))


def _listed_types(node: NewNode, cluster: Cluster) -> Found:
    names = node.raw.get("instanceTypes") or []
    for name in names:
        if name not in cluster.types:
            yield "instance-types", f"{node}: {name} is not in the catalog"
    for name, count in Counter(names).items():
        if count > 1:
            yield "instance-types", f"{node}: {name} is listed {count} times"
    for t, clash, offerings in node.tried:
        if clash:
            yield "instance-types", f"{node}: {t.name} does not meet the node's own requirement {clash}"
        elif not offerings:
            yield "instance-types", f"{node}: {t.name} has no available offering the node's requirements allow"


def _pool_contract(node: NewNode) -> Found:
    """Whatever is launched must satisfy every requirement and carry the labels and taints of the NodePool's
    template."""
    for key, requirements in node.by_key.items():
        if not node.possible(key):
            yield "requirements", f"{node}: its requirements contradict each other: {'; '.join(map(str, requirements))}"
    for r in node.pool.requirements:
        wrong = sorted(str(v) for v in node.possible(r.key) if not r.allows(v))
        if wrong:
            yield (
                "requirements",
                f"{node}: NodePool {node.pool.name} requires {r}, the node may come out with {', '.join(wrong[:3])}",
            )
    for field, wanted in (("taints", node.pool.taints), ("startupTaints", node.pool.startup_taints)):
        if _taint_set(node.raw.get(field) or []) != _taint_set(wanted):
            yield "taints", f"{node}: {field} differ from those of NodePool {node.pool.name}"


def _taint_set(taints: Iterable[Raw]) -> set[tuple[str, str, str]]:
    return {(t.get("key", ""), str(t.get("value") or ""), t.get("effect", "")) for t in taints}


def _fits(node: NewNode, cluster: Cluster) -> Found:
    """Every launchable type must hold all pods beside the DaemonSets that may run on it, and not share a port with
    them."""
    requests = {k: v for k, v in total(p.requests for p in node.placed).items() if k not in cluster.overlaid}
    too_small, shared_ports = [], []
    asked = total(p.requests for p in node.placed)
    for instance_type, offerings in node.launchable:
        if not any(_added(instance_type, offering, node, cluster, asked) for offering in offerings):
            too_small.append(f"{instance_type.name} has nowhere what NodeOverlays would have to add for its pods")
        daemons = [d for d in cluster.daemonsets if runs_as(d, node, instance_type, offerings)]
        short = shortage(total([requests, *(d.requests for d in daemons)]), instance_type.allocatable)
        if short:
            too_small.append(
                f"{instance_type.name} does not fit {len(node.placed)} pods and {len(daemons)} daemons, {short}"
            )
        shared_ports += daemon_ports(node.placed, daemons)
    if too_small:
        yield "fit", f"{node}: {too_small[0]}" + (f" (and {len(too_small) - 1} more types)" if too_small[1:] else "")
    for text in sorted(set(shared_ports)):
        yield "host-ports", f"{node}: {text}"


def _added(instance_type: InstanceType, offering: Offering, node: NewNode, cluster: Cluster, asked: Resources) -> bool:
    """Whether NodeOverlays add what the pods ask for to an offering; of several the heaviest says how much."""
    stated: Resources = {}
    for overlay in sorted(cluster.of("NodeOverlay"), key=lambda o: int(o["spec"].get("weight") or 0)):
        wanted = [requirement(r) for r in overlay["spec"].get("requirements") or []]
        if all(one.allows(value) for one in wanted for value in _labels(instance_type, offering, node, one.key)):
            stated |= resources(overlay["spec"].get("capacity"))
    return all(asked.get(name, 0) <= stated.get(name, 0) for name in cluster.overlaid)


def _labels(instance_type: InstanceType, offering: Offering, node: NewNode, key: str) -> Iterable[str | None]:
    if key in offering.labels:
        return (offering.labels[key],)
    return instance_type.values.get(key, (node.pool.labels.get(key),))


def daemon_ports(pods: Iterable[Pod], daemons: Iterable[DaemonSet]) -> list[str]:
    """Host ports that a pod shares with a DaemonSet that will run beside it, in words."""
    return [
        f"{pod.key} shares a host port with DaemonSet {daemon.key}"
        for pod in pods
        if pod.host_ports
        for daemon in daemons
        if any(_clash(a, b) for a in pod.host_ports for b in daemon.pod.host_ports)
    ]


def pod_on_new(pod: Pod, node: NewNode, cluster: Cluster) -> Found:
    """Taints, requirements and volume topology of one pod on a node that may still come out in several ways."""
    taint = untolerated(node.taints, pod.tolerations)
    if taint:
        yield "taints", f"does not tolerate {taint}"
    if not satisfied(pod.terms, node):
        yield "requirements", "not every node that may be launched matches: " + describe(pod.terms, node.possible)
    yield from volume_topology(pod, node.possible, cluster)


def satisfied(terms: Iterable[tuple[Requirement, ...]], node: NewNode) -> bool:
    """Whether some term holds on every node that may come out; different outcomes may be served by different
    terms."""
    terms = list(terms)
    if any(certain(term, node.possible) for term in terms):
        return True
    if len(terms) == 1:
        return False
    return all(
        any(certain(term, _outcome(node, t, o)) for term in terms)
        for t, offerings in node.launchable
        for o in offerings
    )


def _outcome(node: NewNode, instance_type: InstanceType, offering: Offering) -> Possible:
    return lambda key: node.possible_as(instance_type, [offering], key)


def _price(node: NewNode) -> Found:
    cheapest = [min(o.price for o in offerings) for _, offerings in node.launchable]
    stated = node.raw.get("pricePerHour")
    if stated is None or abs(float(stated) - min(cheapest)) > PRICE_TOLERANCE:
        yield "price", f"{node}: pricePerHour is {stated}, the cheapest available offering costs {min(cheapest):.6f}"
    for (a, _), (b, _), first, second in zip(
        node.launchable, node.launchable[1:], cheapest, cheapest[1:], strict=False
    ):
        if first > second + PRICE_TOLERANCE:
            yield (
                "price",
                f"{node}: instanceTypes are not cheapest first, {a.name} ({first:.6f}) stands before"
                f" {b.name} ({second:.6f})",
            )
            return


def min_values(node: NewNode, types: list[InstanceType]) -> Found:
    """minValues of the NodePool: distinct values over the types, as far as the node's requirements still allow
    them."""
    for key, least in node.pool.min_values.items():
        values = {v for t in types for v in node.allowed(key, t.values.get(key, frozenset())) if v is not None}
        if len(values) < least:
            yield "min-values", f"{key} has {len(values)} values, NodePool {node.pool.name} wants at least {least}"


# -- limits and reservations ------------------------------------------------------------------------------------------


def limits(pool: NodePool, new: list[NewNode], existing: list[ExistingNode]) -> Found:
    """The pool's limits hold for every choice of instance types: its nodes plus the largest listed type of each
    new one."""
    would_be = total(
        [
            used_by_pool(existing, pool.name),
            *(largest(t.capacity for t, _ in n.launchable) for n in new),
            {"nodes": len(new) * NANO},
        ]
    )
    for name, limit in pool.limits.items():
        if new and would_be.get(name, 0) > limit:
            yield (
                "limits",
                f"NodePool {pool.name} may reach {name} {show(name, would_be[name])}, its limit is {show(name, limit)}",
            )


def reservations(new: list[NewNode]) -> Found:
    """No capacity reservation is promised to more nodes than it holds."""
    promised: Counter[str] = Counter()
    room: dict[str, int] = {}
    for node in new:
        offerings = [o for _, offerings in node.launchable for o in offerings]
        ids = {v for o in offerings for k, v in o.labels.items() if v and k.endswith(("reservation-id",))}
        for o in offerings:
            for k, v in o.labels.items():
                if v and k.endswith("reservation-id"):
                    room[v] = min(room.get(v, o.reservation_capacity), o.reservation_capacity)
        if len(ids) == 1 and all(o.labels.get(CAPACITY_TYPE) == "reserved" for o in offerings):
            promised[ids.pop()] += 1
    for name, count in promised.items():
        if count > room[name]:
            yield "reservations", f"capacity reservation {name} is promised to {count} nodes and holds {room[name]}"


# -- both kinds -------------------------------------------------------------------------------------------------------


def port_conflicts(host: Host, added: Iterable[Pod]) -> Found:
    """Host ports two pods on one node would both bind; conflicts among residents are not the plan's."""
    taken = [(p, port) for p in host.residents for port in p.host_ports]
    for pod in added:
        for other_pod, port in taken:
            if any(_clash(host_port, port) for host_port in pod.host_ports):
                yield "host-ports", f"{pod.key} and {other_pod.key} on {host} both bind {port[0]} {port[1]}"
        taken += [(pod, port) for port in pod.host_ports]


def _clash(a: tuple[str, int, str], b: tuple[str, int, str]) -> bool:
    wildcard = {"0.0.0.0", "::"}
    return a[:2] == b[:2] and (a[2] == b[2] or a[2] in wildcard or b[2] in wildcard)


def volume_topology(pod: Pod, possible: Possible, cluster: Cluster) -> Found:
    """Each volume must be reachable: some alternative of its PV's node affinity or its StorageClass's topologies
    holds."""
    for name, alternatives in volume_alternatives(pod, cluster):
        if not any(certain(a, possible) for a in alternatives):
            yield "volumes", f"volume claim {name} is not reachable: " + describe(alternatives, possible)


def volume_alternatives(pod: Pod, cluster: Cluster) -> Iterator[tuple[str, list[tuple[Requirement, ...]]]]:
    """(claim, alternatives) of every volume that is tied to some topology."""
    for volume in pod.spec.get("volumes") or []:
        name = claim_name(volume, pod)
        claim = cluster.one("PersistentVolumeClaim", name, pod.namespace) if name else None
        found = _alternatives(claim, cluster) if claim else []
        if found:
            yield name, found


def _alternatives(claim: Raw, cluster: Cluster) -> list[tuple[Requirement, ...]]:
    spec = claim.get("spec") or {}
    if spec.get("volumeName"):
        volume = (cluster.one("PersistentVolume", spec["volumeName"]) or {}).get("spec") or {}
        terms = ((volume.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or []
        movable = bool(volume.get("local") or volume.get("hostPath"))
        return [
            tuple(requirement(e) for e in t.get("matchExpressions") or [] if not (movable and e["key"] == HOSTNAME))
            for t in terms
        ]
    storage_class = cluster.one("StorageClass", spec.get("storageClassName") or "") or {}
    return [
        tuple(
            requirement({"key": e["key"], "operator": "In", "values": e.get("values")})
            for e in t.get("matchLabelExpressions") or []
        )
        for t in storage_class.get("allowedTopologies") or []
    ]


def describe(terms: Iterable[tuple[Requirement, ...]], possible: Possible) -> str:
    """The requirements that fail, with the values the node may have instead."""
    failing = {
        f"{r} (node: {', '.join(sorted(map(str, possible(r.key))))[:60]})"
        for t in terms
        for r in t
        if not all(r.allows(v) for v in possible(r.key))
    }
    return "; ".join(sorted(failing)) or "no single term holds"
