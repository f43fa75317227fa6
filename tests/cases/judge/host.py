"""Where a pod can be: on a node that exists or is in flight, or on a node a plan promises."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from tests.cases.judge.catalog import InstanceType, Offering
from tests.cases.judge.cluster import Cluster, DaemonSet, NodePool, claim_of, daemonset_of
from tests.cases.judge.pod import Pod
from tests.cases.judge.quantity import Raw, Resources, resources, total
from tests.cases.judge.requirement import (
    HOSTNAME,
    INSTANCE_TYPE,
    NODEPOOL,
    NORMALIZED,
    SOME_VALUE,
    Requirement,
    Values,
    certain,
    conceivable,
    only,
    requirement,
    untolerated,
)

ABSENT = only(None)
EPHEMERAL = {
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
}
"""Taints that go away by themselves while a node starts; ignored until it is initialized."""


class Host:
    """A place for pods. `residents` were there before the plan, `placed` are put there by it."""

    is_new = False

    def __init__(self, name: str, taints: Iterable[Raw]) -> None:
        self.name = name
        self.taints = list(taints)
        self.residents: list[Pod] = []
        self.placed: list[Pod] = []

    def possible(self, key: str) -> Values:
        """The values this node may turn out to carry for a label key; {None} if it will not carry the key."""
        raise NotImplementedError

    def fixed(self, key: str) -> str | None:
        """The one value the node has for a key; None while several are possible, or when it has none."""
        values = self.possible(key)
        (value,) = values if len(values) == 1 else (None,)
        return None if value == SOME_VALUE else value

    def pinned(self, key: str) -> str | None:
        """Like `fixed`, but only what the node states itself, not what its offerings happen to leave."""
        return self.fixed(key)

    def pods(self) -> list[Pod]:
        return self.residents + self.placed

    def __str__(self) -> str:
        return self.name


class ExistingNode(Host):
    """A Node, or a NodeClaim that has no Node yet. `leaving` nodes take no pods but their residents still count."""

    def __init__(
        self,
        name: str,
        aliases: Iterable[str],
        labels: Mapping[str, str],
        taints: Iterable[Raw],
        allocatable: Resources,
        capacity: Resources,
        leaving: bool,
        in_flight: bool,
        volume_limits: Mapping[str, int],
    ) -> None:
        super().__init__(name, taints)
        self.aliases = {name, *aliases}
        self.labels = labels
        self.allocatable = allocatable
        self.capacity = capacity
        self.leaving = leaving
        self.in_flight = in_flight
        self.volume_limits = volume_limits

    def possible(self, key: str) -> Values:
        if key == HOSTNAME:
            return only(self.labels.get(key) or self.name)
        return only(self.labels.get(key))

    def missing_daemons(self, daemonsets: Iterable[DaemonSet]) -> list[DaemonSet]:
        """DaemonSets that will still start a pod here."""
        running = {daemonset_of(p) for p in self.residents}
        return [d for d in daemonsets if d.key not in running and runs_on(d, self)]

    @property
    def pool(self) -> str:
        return self.labels.get(NODEPOOL, "")


class NewNode(Host):
    """A node a plan wants to launch: any of `types`, in any available offering that the requirements allow."""

    is_new = True

    def __init__(
        self,
        name: str,
        pool: NodePool,
        types: Iterable[InstanceType],
        requirements: Iterable[Requirement],
        labels: Mapping[str, str],
        raw: Raw,
    ) -> None:
        super().__init__(name, pool.taints)
        self.pool = pool
        self.types = list(types)
        self.labels = {**pool.labels, **labels}
        self.raw = raw
        self.by_key: dict[str, list[Requirement]] = {}
        for r in requirements:
            self.by_key.setdefault(r.key, []).append(r)
        self._possible: dict[str, Values] = {}
        self._allowed: dict[tuple[str, Values], Values] = {}
        self._sold: dict[tuple[tuple[str, str | None], ...], bool] = {}

    def allowed(self, key: str, values: Values) -> Values:
        """Those of a type's or offering's values that the node's requirements leave."""
        requirements = self.by_key.get(key)
        if not requirements:
            return values
        if (key, values) not in self._allowed:
            self._allowed[key, values] = frozenset(v for v in values if all(r.allows(v) for r in requirements))
        return self._allowed[key, values]

    def type_clash(self, instance_type: InstanceType) -> str:
        """The requirement of this node that the type cannot meet; '' if it meets all it has an opinion on."""
        for key, values in instance_type.values.items():
            if key in self.by_key and not self.allowed(key, values):
                return "; ".join(map(str, self.by_key[key]))
        return ""

    def offerings_of(self, instance_type: InstanceType) -> list[Offering]:
        """Available offerings the node's requirements allow."""
        return [o for o in instance_type.offerings if o.available and self._offered(o)]

    def _offered(self, offering: Offering) -> bool:
        labels = tuple(offering.labels.items())
        if labels not in self._sold:
            self._sold[labels] = all(r.allows(v) for k, v in labels for r in self.by_key.get(k, ()))
        return self._sold[labels]

    @cached_property
    def tried(self) -> list[tuple[InstanceType, str, list[Offering]]]:
        """Each listed type, the requirement it cannot meet, and the offerings it can be launched in."""
        return [(t, self.type_clash(t), self.offerings_of(t)) for t in self.types]

    @cached_property
    def launchable(self) -> list[tuple[InstanceType, list[Offering]]]:
        """Listed types with the offerings they can be launched in; types without any are left out."""
        return [(t, offerings) for t, clash, offerings in self.tried if offerings and not clash]

    def possible(self, key: str) -> Values:
        if key not in self._possible:
            self._possible[key] = self._values(key, self.launchable)
        return self._possible[key]

    def possible_as(self, instance_type: InstanceType, offerings: list[Offering], key: str) -> Values:
        """Like `possible`, if the node comes out as this type in one of these offerings."""
        return self._values(key, [(instance_type, offerings)])

    def pinned(self, key: str) -> str | None:
        if key == HOSTNAME or key in self.labels:
            return self.fixed(key)
        stated = [self.allowed(key, frozenset(r.values)) for r in self.by_key.get(key, ()) if r.operator == "In"]
        return next(iter(stated[0])) if stated and len(stated[0]) == 1 else None

    def _values(self, key: str, launchable: Iterable[tuple[InstanceType, list[Offering]]]) -> Values:
        if key == HOSTNAME:
            return only(f"new:{self.name}")
        found: set[str | None] = set()
        own: Values | None = None
        for instance_type, offerings in launchable:
            offered = {o.labels[key] for o in offerings if key in o.labels}
            if offered:
                found |= offered
            elif key in instance_type.values:
                found |= self.allowed(key, instance_type.values[key])
            else:
                own = own or self._own_value(key)
                found |= own
        return frozenset(found) if found else self._own_value(key)

    def _own_value(self, key: str) -> Values:
        """Value of a key that neither type nor offering decides: a label, or what the requirements pin."""
        if key in self.labels:
            return only(self.labels[key])
        for r in self.by_key.get(key, ()):
            if r.operator == "In":
                return self.allowed(key, frozenset(r.values))
        if any(r.operator in ("Exists", "Gt", "Lt", "Gte", "Lte") for r in self.by_key.get(key, ())):
            return only(SOME_VALUE)
        return ABSENT


def runs_on(daemonset: DaemonSet, host: Host) -> bool:
    """Whether the DaemonSet would start a pod on the node, as far as it is known."""
    if untolerated(host.taints, daemonset.pod.tolerations):
        return False
    test = conceivable if host.is_new else certain
    return any(test(term, host.possible) for term in daemonset.pod.terms)


def runs_as(daemonset: DaemonSet, node: NewNode, instance_type: InstanceType, offerings: list[Offering]) -> bool:
    """Whether the DaemonSet might start a pod on the node if it is launched as this type."""
    if untolerated(node.taints, daemonset.pod.tolerations):
        return False
    return any(
        conceivable(term, lambda key: node.possible_as(instance_type, offerings, key)) for term in daemonset.pod.terms
    )


def existing_nodes(cluster: Cluster) -> list[ExistingNode]:
    """Nodes, leaving ones included, and in-flight NodeClaims, with the pods that stay on them."""
    nodes = [_node(o, cluster) for o in cluster.of("Node")]
    backed = [claim_of(o, cluster.of("NodeClaim")) for o in cluster.of("Node")]
    backed_names = {c["metadata"]["name"] for c in backed if c}
    nodes += [_in_flight(c, cluster) for c in cluster.of("NodeClaim") if c["metadata"]["name"] not in backed_names]
    by_name = {alias: n for n in nodes for alias in n.aliases}
    for pod in cluster.pods.values():
        if pod.home in by_name and not pod.finished and not cluster.waiting(pod):
            by_name[pod.home].residents.append(pod)
    return nodes


def _node(o: Raw, cluster: Cluster) -> ExistingNode:
    meta, spec, status = o["metadata"], o.get("spec") or {}, o.get("status") or {}
    labels = {k: str(v) for k, v in (meta.get("labels") or {}).items()}
    claim = claim_of(o, cluster.of("NodeClaim"))
    taints = list(spec.get("taints") or [])
    if spec.get("unschedulable") and not any(t["key"] == "node.kubernetes.io/unschedulable" for t in taints):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    allocatable, capacity = resources(status.get("allocatable")), resources(status.get("capacity"))
    pool = cluster.pools.get(labels.get(NODEPOOL, ""))
    if (claim or pool) and labels.get("karpenter.sh/initialized") != "true":
        promised = (claim or {}).get("status") or {}
        allocatable = _fill(allocatable, resources(promised.get("allocatable")))
        capacity = _fill(capacity, resources(promised.get("capacity")))
        if claim and labels.get("karpenter.sh/registered") != "true":
            labels = {k: str(v) for k, v in (claim["metadata"].get("labels") or {}).items()}
            taints = list((claim.get("spec") or {}).get("taints") or [])
        startup = (claim.get("spec") or {}).get("startupTaints") if claim else pool and pool.startup_taints
        taints = _lasting(taints, startup or [])
    aliases = [claim["metadata"]["name"]] if claim else []
    allocatable, capacity = allocatable or capacity, capacity or allocatable
    return ExistingNode(
        meta["name"],
        aliases,
        labels,
        taints,
        allocatable,
        capacity,
        meta["name"] in cluster.leaving_nodes,
        False,
        _volume_limits(meta["name"], cluster),
    )


def _in_flight(o: Raw, cluster: Cluster) -> ExistingNode:
    """A claim without a Node. Where it leaves labels or resources out, they are those of its only requirement
    values and type."""
    meta, spec, status = o["metadata"], o.get("spec") or {}, o.get("status") or {}
    pinned = [requirement(r) for r in spec.get("requirements") or []]
    labels = {r.key: r.values[0] for r in pinned if r.operator == "In" and len(r.values) == 1}
    labels |= {k: str(v) for k, v in (meta.get("labels") or {}).items()}
    instance_type = cluster.types.get(labels.get(INSTANCE_TYPE, ""))
    allocatable, capacity = resources(status.get("allocatable")), resources(status.get("capacity"))
    if instance_type:
        labels = {k: v for k, (v, *more) in instance_type.values.items() if v and not more} | labels
        allocatable, capacity = allocatable or instance_type.allocatable, capacity or instance_type.capacity
    taints = _lasting(spec.get("taints") or [], spec.get("startupTaints") or [])
    return ExistingNode(
        meta["name"],
        [],
        labels,
        taints,
        allocatable or capacity,
        capacity or allocatable,
        bool(meta.get("deletionTimestamp")),
        True,
        {},
    )


def _fill(amounts: Resources, promised: Resources) -> Resources:
    return {name: amounts.get(name) or promised.get(name, 0) for name in {*amounts, *promised}}


def _lasting(taints: Iterable[Raw], startup: Iterable[Raw]) -> list[Raw]:
    going = EPHEMERAL | {(t["key"], t.get("effect")) for t in startup}
    return [
        t for t in taints if (t["key"], t.get("effect")) not in going and not t["key"].startswith("readiness.k8s.io/")
    ]


def _volume_limits(node: str, cluster: Cluster) -> dict[str, int]:
    csi = cluster.one("CSINode", node) or {}
    drivers = (csi.get("spec") or {}).get("drivers") or []
    return {
        d["name"]: int(d["allocatable"]["count"])
        for d in drivers
        if (d.get("allocatable") or {}).get("count") is not None
    }


def new_node(index: int, raw: Raw, cluster: Cluster) -> NewNode:
    """From one entry of a plan's newNodes. Unknown pools and types are reported elsewhere and left out here."""
    pool = cluster.pools[raw["nodePool"]]
    types = [cluster.types[name] for name in raw.get("instanceTypes") or [] if name in cluster.types]
    requirements = [requirement(r) for r in raw.get("requirements") or []]
    labels = {NORMALIZED.get(k, k): str(v) for k, v in (raw.get("labels") or {}).items()}
    return NewNode(f"newNodes[{index}]", pool, types, requirements, labels, raw)


def fresh_node(pool: NodePool, types: Iterable[InstanceType], extra: Iterable[Requirement]) -> NewNode:
    """An empty node of a pool, narrowed by further requirements, to try one pod on."""
    return NewNode("a fresh node", pool, types, [*pool.requirements, *extra], {}, {})


def used_by_pool(nodes: Iterable[ExistingNode], pool: str) -> Resources:
    """Capacity the pool's nodes and in-flight claims take from its limits; each is one of `nodes`."""
    mine = [n for n in nodes if n.pool == pool and not n.leaving]
    return total([*(n.capacity for n in mine), {"nodes": len(mine) * 10**9}])
