"""A case being written: what its catalog offers, and what was drawn so far."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PROFILES = ("plain", "constrained", "existing", "full")
CATALOGS = (("aws-us-east-1-cmr", 6), ("karpenter-fake-400", 2), ("karpenter-fake-10", 1), ("karpenter-fake", 1))
ZONE, CAPACITY_TYPE, HOSTNAME, ARCH = (
    "topology.kubernetes.io/zone",
    "karpenter.sh/capacity-type",
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
)
INSTANCE_TYPE, AWS = "node.kubernetes.io/instance-type", "karpenter.k8s.aws"
NAMESPACES: dict[str, dict[str, str]] = {
    "default": {},
    "prod": {"env": "prod"},
    "batch": {"env": "batch", "quota": "none"},
}
# Endings of labels no generated pod asks for; left off running nodes to keep files small.
UNASKED = ("-bandwidth", "-mhz", "hypervisor", "-supported", "-flex")
type Manifest = dict[str, Any]


@dataclass
class Facts:
    """What a catalog offers: zones, label values, and the sizes its larger types can hold."""

    name: str
    types: dict[str, Manifest]
    zones: list[str]
    values: dict[str, list[str]]

    @property
    def aws(self) -> bool:
        return self.name.startswith("aws")


@cache
def facts(name: str) -> Facts:
    raw = json.loads((HERE / "catalogs" / f"{name}.json").read_text())["instanceTypes"]
    values: dict[str, set[str]] = {}
    for t in raw:
        for r in t["requirements"]:
            values.setdefault(r["key"], set()).update(r.get("values") or [])
    found = {k: sorted(v) for k, v in values.items()}
    return Facts(name, {t["name"]: t for t in raw}, found[ZONE], found)


@dataclass
class Draft:
    """A case being written.

    ``apps``: the deployments pods come from; ``quirk(p)``: a coin that only odd profiles throw.
    """

    rng: Random
    profile: str
    facts: Facts
    objects: list[Manifest] = field(default_factory=list)
    pools: list[Manifest] = field(default_factory=list)
    apps: list["App"] = field(default_factory=list)
    daemons: list[Manifest] = field(default_factory=list)
    settings: Manifest = field(default_factory=dict)

    @property
    def constrained(self) -> bool:
        return self.profile in ("constrained", "full")

    @property
    def populated(self) -> bool:
        return self.profile in ("existing", "full")

    def quirk(self, chance: float) -> bool:
        return self.rng.random() < chance if self.profile == "full" else False

    def chance(self, chance: float) -> bool:
        return self.rng.random() < chance

    def some(self, values: list[str], most: int | None = None) -> list[str]:
        """A non-empty sample, sorted."""
        return sorted(self.rng.sample(values, self.rng.randint(1, min(len(values), most or len(values)))))


@dataclass
class App:
    """One deployment: a pod template, how many replicas wait, and how pods get volumes of their own."""

    name: str
    namespace: str
    template: Manifest
    replicas: int
    volume: Callable[[str, str | None], tuple[Manifest, list[Manifest]]] | None = None
    exclusive: bool = False  # at most one pod per node: anti-affinity, host ports or hostname spread


def need(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def taint(key: str, value: str, effect: str = "NoSchedule") -> Manifest:
    return {"key": key, "value": value, "effect": effect}


def container(cpu: str, memory: str, name: str = "app") -> Manifest:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
