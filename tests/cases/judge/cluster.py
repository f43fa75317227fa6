"""A case file as nouns: pods, NodePools, Nodes, NodeClaims, volumes, instance types, and which pods are waiting."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

from tests.cases.judge.quantity import Raw, Resources, minus, pod_requests, resources, total
from tests.cases.judge.requirement import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODEPOOL,
    NORMALIZED,
    ZONE,
    Requirement,
    from_labels,
    requirement,
)

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(eq=False)
class Pod:
    """One pod. `key` is namespace/name; `home` the node it is bound to, if any."""

    raw: Raw
    namespace: str
    key: str

    @property
    def spec(self) -> Raw:
        return self.raw.get("spec") or {}

    @property
    def status(self) -> Raw:
        return self.raw.get("status") or {}

    @property
    def meta(self) -> Raw:
        return self.raw.get("metadata") or {}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return {k: str(v) for k, v in (self.meta.get("labels") or {}).items()}

    @cached_property
    def requests(self) -> Resources:
        return pod_requests(self.spec, self.status)

    @property
    def home(self) -> str:
        return self.spec.get("nodeName") or ""

    @property
    def tolerations(self) -> list[Raw]:
        return self.spec.get("tolerations") or []

    @cached_property
    def terms(self) -> tuple[tuple[Requirement, ...], ...]:
        """nodeSelector combined with each alternative of the required node affinity; at least one term must
        hold."""
        return node_terms(self.spec)

    def affinity(self, kind: str) -> list[Raw]:
        """Required terms of podAffinity or podAntiAffinity."""
        block = ((self.spec.get("affinity") or {}).get(kind)) or {}
        return block.get("requiredDuringSchedulingIgnoredDuringExecution") or []

    @property
    def hard_spread(self) -> list[Raw]:
        """Topology spread constraints that may not be broken."""
        return [
            c
            for c in self.spec.get("topologySpreadConstraints") or []
            if c.get("whenUnsatisfiable") != "ScheduleAnyway"
        ]

    def owned_by(self, *kinds: str) -> bool:
        return any(o.get("kind") in kinds for o in self.meta.get("ownerReferences") or [])

    @property
    def finished(self) -> bool:
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        return bool(self.meta.get("deletionTimestamp"))

    @cached_property
    def host_ports(self) -> tuple[tuple[str, int, str], ...]:
        """(protocol, port, IP) of every container port bound on the node; an empty IP is the wildcard."""
        ports = [
            (p, p.get("hostPort") or (p.get("containerPort") if self.spec.get("hostNetwork") else 0))
            for c in self.spec.get("containers") or []
            for p in c.get("ports") or []
        ]
        return tuple((p.get("protocol") or "TCP", int(port), p.get("hostIP") or "0.0.0.0") for p, port in ports if port)

    @cached_property
    def shape(self) -> str:
        """Equal for pods that no rule can tell apart."""
        return json.dumps(
            [self.namespace, self.labels, self.spec, self.status.get("containerStatuses")], sort_keys=True, default=str
        )


def node_terms(spec: Raw) -> tuple[tuple[Requirement, ...], ...]:
    """nodeSelector x required node affinity terms of a pod spec; one empty term when nothing is asked."""
    base = from_labels(spec.get("nodeSelector"))
    node_affinity = ((spec.get("affinity") or {}).get("nodeAffinity")) or {}
    required = (node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    if not required:
        return (base,)
    return tuple(base + tuple(requirement(e) for e in term.get("matchExpressions") or []) for term in required)


@dataclass(eq=False)
class DaemonSet:
    """One DaemonSet as load on a node: requests, tolerations, node terms and host ports of its pod."""

    key: str
    spec: Raw
    requests: Resources
    pod: Pod


@dataclass(eq=False)
class NodePool:
    """A NodePool; requirements include template labels, the pool's own name and its node class."""

    raw: Raw
    name: str

    @property
    def spec(self) -> Raw:
        return self.raw.get("spec") or {}

    @property
    def template(self) -> Raw:
        return self.spec.get("template") or {}

    @cached_property
    def labels(self) -> dict[str, str]:
        found = {k: str(v) for k, v in ((self.template.get("metadata") or {}).get("labels") or {}).items()}
        found[NODEPOOL] = self.name
        reference = {
            "group": "karpenter.k8s.aws",
            "kind": "EC2NodeClass",
            "name": "default",
            **((self.template.get("spec") or {}).get("nodeClassRef") or {}),
        }
        found[f"{reference['group']}/{reference['kind'].lower()}"] = reference["name"]
        return found

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        raw = (self.template.get("spec") or {}).get("requirements") or []
        return tuple(requirement(r) for r in raw) + from_labels(self.labels)

    @cached_property
    def min_values(self) -> dict[str, int]:
        """Least number of distinct values per key; the largest wins if a key is named twice."""
        found: dict[str, int] = {}
        for raw in (self.template.get("spec") or {}).get("requirements") or []:
            if raw.get("minValues"):
                key = NORMALIZED.get(raw["key"], raw["key"])
                found[key] = max(found.get(key, 0), int(raw["minValues"]))
        return found

    @property
    def taints(self) -> list[Raw]:
        return (self.template.get("spec") or {}).get("taints") or []

    @property
    def startup_taints(self) -> list[Raw]:
        return (self.template.get("spec") or {}).get("startupTaints") or []

    @cached_property
    def limits(self) -> Resources:
        return resources(self.spec.get("limits"))

    @property
    def weight(self) -> int:
        return int(self.spec.get("weight") or 0)

    @property
    def closed(self) -> str:
        """Why no node may be opened here now; '' if nodes may be."""
        if self.spec.get("replicas") is not None:
            return "is static (spec.replicas)"
        if self.raw["metadata"].get("deletionTimestamp"):
            return "is being deleted"
        ready = [c for c in (self.raw.get("status") or {}).get("conditions") or [] if c.get("type") == "Ready"]
        if ready and str(ready[0].get("status")) != "True":
            return "is not Ready"
        return ""


@dataclass(eq=False)
class Offering:
    """One (zone, capacity type[, reservation]) an instance type can be bought in; price in USD per hour."""

    labels: Mapping[str, str | None]
    price: float
    available: bool
    reservation_capacity: int


@dataclass(eq=False)
class InstanceType:
    """One instance type; `values` are the label values its requirements allow, None meaning without the label."""

    name: str
    values: Mapping[str, frozenset[str | None]]
    capacity: Resources
    allocatable: Resources
    offerings: tuple[Offering, ...]


def instance_type(raw: Raw) -> InstanceType:
    """From one entry of a catalog. Allocatable = capacity - overhead, memory also without hugepages, floor 0."""
    values: dict[str, frozenset[str | None]] = {}
    for r in raw["requirements"]:
        if r["operator"] == "In":
            values[r["key"]] = frozenset(str(v) for v in r["values"])
        elif r["operator"] == "DoesNotExist":
            values[r["key"]] = frozenset((None,))
    capacity = resources(raw["capacity"])
    overhead = total(resources(part) for part in (raw.get("overhead") or {}).values())
    allocatable = {k: v for k, v in minus(capacity, overhead).items() if k in capacity}
    huge = sum(v for k, v in capacity.items() if k.startswith("hugepages-"))
    if huge:
        allocatable["memory"] = max(0, allocatable.get("memory", 0) - huge)
    offerings = tuple(
        Offering(
            {k: None if v is None else str(v) for k, v in o["requirements"].items()},
            float(o["price"]),
            o.get("available") is not False,
            int(o.get("reservationCapacity") or 0),
        )
        for o in raw["offerings"]
    )
    values.setdefault(INSTANCE_TYPE, frozenset((raw["name"],)))
    for key in (ZONE, CAPACITY_TYPE):
        values.setdefault(key, frozenset(o.labels.get(key) for o in offerings if o.available))
    return InstanceType(raw["name"], values, capacity, allocatable, offerings)


_catalogs: dict[Path, dict[str, InstanceType]] = {}


def catalog(path: Path) -> dict[str, InstanceType]:
    """Instance types by name, read once per process."""
    if path not in _catalogs:
        raw = json.loads(path.read_text())
        _catalogs[path] = {t["name"]: instance_type(t) for t in raw["instanceTypes"]}
    return _catalogs[path]


def find_catalog(name: str, case: Path) -> Path:
    """catalogs/NAME.json beside the case or above it."""
    for folder in case.resolve().parents:
        candidate = folder / "catalogs" / f"{name}.json"
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"{case}: catalog {name!r} not found beside the case or above it")


@dataclass(eq=False)
class Cluster:
    """Everything a plan is judged against."""

    name: str
    settings: Raw
    types: Mapping[str, InstanceType]
    objects: Mapping[str, list[Raw]] = field(repr=False)

    def of(self, kind: str) -> list[Raw]:
        return self.objects.get(kind, [])

    def one(self, kind: str, name: str, namespace: str = "") -> Raw | None:
        return self._index.get((kind, namespace, name))

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], Raw]:
        namespaced = {"PersistentVolumeClaim", "Pod", "DaemonSet", "PodDisruptionBudget"}
        return {
            (kind, namespace_of(o) if kind in namespaced else "", o["metadata"]["name"]): o
            for kind, found in self.objects.items()
            for o in found
        }

    @cached_property
    def pods(self) -> dict[str, Pod]:
        found = [Pod(o, namespace_of(o), f"{namespace_of(o)}/{o['metadata']['name']}") for o in self.of("Pod")]
        return {p.key: p for p in found}

    @cached_property
    def pools(self) -> dict[str, NodePool]:
        return {o["metadata"]["name"]: NodePool(o, o["metadata"]["name"]) for o in self.of("NodePool")}

    @cached_property
    def namespaces(self) -> dict[str, Mapping[str, str]]:
        """Labels per namespace; one that is only mentioned by a pod carries the label every namespace has."""
        found: dict[str, Mapping[str, str]] = {
            p.namespace: {"kubernetes.io/metadata.name": p.namespace} for p in self.pods.values()
        }
        for o in self.of("Namespace"):
            name = o["metadata"]["name"]
            found[name] = {"kubernetes.io/metadata.name": name, **(o["metadata"].get("labels") or {})}
        return found

    @cached_property
    def daemonsets(self) -> list[DaemonSet]:
        """Requests are those of a live pod if there is one (it shows what admission changed), else of the template.
        A DaemonSet with device claims is nobody's concern yet."""
        live = {daemonset_of(pod): pod for pod in self.pods.values() if pod.owned_by("DaemonSet") and not pod.finished}
        found = []
        for o in self.of("DaemonSet"):
            key = f"{namespace_of(o)}/{o['metadata']['name']}"
            template = (o.get("spec") or {}).get("template") or {}
            if (template.get("spec") or {}).get("resourceClaims"):
                continue
            pod = Pod(
                {
                    "metadata": {"name": o["metadata"]["name"], **(template.get("metadata") or {})},
                    "spec": template.get("spec") or {},
                },
                namespace_of(o),
                key,
            )
            requests = live[key].requests if key in live else pod.requests
            found.append(DaemonSet(key, pod.spec, requests, pod))
        return found

    @cached_property
    def leaving_nodes(self) -> frozenset[str]:
        """Names of nodes on their way out: they take no pods, and their pods look for a new place."""
        found = set()
        for node in self.of("Node"):
            claim = claim_of(node, self.of("NodeClaim"))
            conditions = ((claim or {}).get("status") or {}).get("conditions") or []
            terminating = any(
                c.get("type") == "InstanceTerminating" and str(c.get("status")) == "True" for c in conditions
            )
            if (claim and (claim["metadata"].get("deletionTimestamp") or terminating)) or (
                not claim and node["metadata"].get("deletionTimestamp")
            ):
                found.add(node["metadata"]["name"])
        return frozenset(found)

    def waiting(self, pod: Pod) -> bool:
        """Whether this round must answer for the pod: pending and judged unschedulable, or on a node that is
        leaving."""
        if pod.owned_by("DaemonSet", "Node"):
            return False
        if pod.home:
            return pod.home in self.leaving_nodes and self._reschedulable(pod)
        gated = bool(pod.spec.get("schedulingGates")) or bool(pod.status.get("nominatedNodeName"))
        refused = [
            c
            for c in pod.status.get("conditions") or []
            if c.get("type") == "PodScheduled" and c.get("reason") not in (None, "Unschedulable")
        ]
        return not (gated or refused or pod.finished)

    def _reschedulable(self, pod: Pod) -> bool:
        if pod.finished or (pod.terminating and not pod.owned_by("StatefulSet")):
            return False
        return (pod.meta.get("annotations") or {}).get("karpenter.sh/do-not-disrupt") is None

    @cached_property
    def overlaid(self) -> set[str]:
        """Resources that some NodeOverlay adds to instance types; how much a type has of them is not judged."""
        return {name for o in self.of("NodeOverlay") for name in (o.get("spec") or {}).get("capacity") or {}}

    @cached_property
    def catalog_keys(self) -> set[str]:
        """Every label the catalog knows of; well-known in this case."""
        return {key for t in self.types.values() for key in t.values} | {
            k for t in self.types.values() for o in t.offerings for k in o.labels
        }

    @cached_property
    def universe_pools(self) -> list[NodePool]:
        """NodePools that define which topology domains exist."""
        return [p for p in self.pools.values() if not p.closed]


def daemonset_of(pod: Pod) -> str:
    """namespace/name of the DaemonSet that owns the pod."""
    owners = [o for o in pod.meta.get("ownerReferences") or [] if o.get("kind") == "DaemonSet"]
    return f"{pod.namespace}/{owners[0].get('name')}" if owners else ""


def claim_of(node: Raw, claims: Iterable[Raw]) -> Raw | None:
    """The NodeClaim that stands behind a Node, by providerID or by status.nodeName."""
    provider = (node.get("spec") or {}).get("providerID")
    for claim in claims:
        status = claim.get("status") or {}
        if (provider and status.get("providerID") == provider) or status.get("nodeName") == node["metadata"]["name"]:
            return claim
    return None


def namespace_of(o: Raw) -> str:
    return o["metadata"].get("namespace") or "default"


def load(path: Path) -> Cluster:
    """Reads a case file. Raises ValueError with the file's name for anything that is not one."""
    raw = yaml.load(path.read_text(), Loader=Loader)
    if not isinstance(raw, dict) or "objects" not in raw:
        raise ValueError(f"{path}: not a case (it has no `objects`)")
    objects: dict[str, list[Raw]] = {}
    for o in raw["objects"] or []:
        objects.setdefault(o["kind"], []).append(o)
    return Cluster(
        str(raw.get("name") or path.stem),
        raw.get("settings") or {},
        catalog(find_catalog(raw.get("catalog") or "karpenter-fake", path)),
        objects,
    )
