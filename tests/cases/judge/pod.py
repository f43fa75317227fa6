"""A pod of a case, and what it asks of its node."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.cases.judge.quantity import Raw, Resources, pod_requests
from tests.cases.judge.requirement import (
    Requirement,
    from_labels,
    requirement,
)


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
