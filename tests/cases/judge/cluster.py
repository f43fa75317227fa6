"""A case file as nouns: NodePools, Nodes, NodeClaims, volumes, and which pods are waiting."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

from tests.cases.judge.catalog import InstanceType, catalog, find_catalog
from tests.cases.judge.pod import Pod
from tests.cases.judge.quantity import Raw, Resources, resources
from tests.cases.judge.requirement import (
    NODEPOOL,
    NORMALIZED,
    Requirement,
    from_labels,
    requirement,
)

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
        pods = [Pod(o, namespace_of(o), f"{namespace_of(o)}/{o['metadata']['name']}") for o in self.of("Pod")]
        return {p.key: p for p in pods}

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
        """Resources that some NodeOverlay adds to instance types."""
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
