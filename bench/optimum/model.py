"""A burst of ``bench.planner`` as numbers: kinds of pods, and shapes of nodes. Shares no code with the planner."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.planner.workloads import HOSTNAME, ZONE, ZONES

type Json = dict[str, Any]

# What a node costs besides its instance, as the planner counts it. USD per hour.
NODE_DOLLARS: Final = 0.003
_GENERATION: Final = "karpenter.k8s.aws/instance-generation"
_OLD_GENERATION: Final = 5


@dataclass(frozen=True, order=True)
class PodKind:
    """Equal pods. ``zone``: where they must be, "" = anywhere; ``is_spread``: evenly over the zones; ``per_host``: the
    most on a host, 0 = any number; ``needs_new``: only on types of a new generation; ``app``: of kinds with rules."""

    millicores: int
    mebibytes: int
    zone: str
    is_spread: bool
    per_host: int
    needs_new: bool
    app: str

    @property
    def size(self) -> tuple[int, int, int]:
        return self.millicores, self.mebibytes, 1


@dataclass(frozen=True)
class Shape:
    """A type in a zone, on demand. ``room``: millicores, mebibytes and pods, without DaemonSets; price an hour."""

    name: str
    zone: str
    dollars: float
    room: tuple[int, int, int]
    is_new: bool

    def most(self, kind: PodKind) -> int:
        """How many pods of a kind a node holds that holds no others."""
        if (kind.zone and kind.zone != self.zone) or (kind.needs_new and not self.is_new):
            return 0
        most = min(room // size for room, size in zip(self.room, kind.size, strict=True) if size)
        return min(most, kind.per_host) if kind.per_host else most


@dataclass(frozen=True)
class Problem:
    """``pods``: how many of each kind, in order; ``shapes``: cheapest first, without those that a shape replaces that
    is no dearer."""

    pods: dict[PodKind, int]
    shapes: list[Shape]


def read(path: Path) -> Problem:
    written = json.loads(path.read_text())
    pods = Counter(_kind(pod) for pod in written["pods"])
    overhead = _sum(container for daemon in written["daemonSets"] for container in _containers(daemon))
    overhead[2] = len(written["daemonSets"])
    (pool,) = written["nodePools"]
    asked = [
        requirement
        for requirement in pool["spec"]["template"]["spec"]["requirements"]
        if requirement["key"] != "karpenter.sh/capacity-type"
    ]
    types = json.loads(Path(written["catalog"]).read_text())["instanceTypes"]
    shapes = [
        shape
        for instance_type in types
        if _meets(instance_type, asked) and ".metal" not in instance_type["name"]
        for shape in _shapes(instance_type, overhead)
    ]
    return Problem(dict(sorted(pods.items(), reverse=True)), _undominated(shapes))


def _kind(pod: Json) -> PodKind:
    spec = pod["spec"]
    millicores, mebibytes, _ = _sum(spec["containers"])
    zone, affinity = spec.get("nodeSelector", {}).get(ZONE, ""), spec.get("affinity", {})
    skews = {one["topologyKey"]: one["maxSkew"] for one in spec.get("topologySpreadConstraints", ())}
    per_host = 1 if "podAntiAffinity" in affinity else skews.get(HOSTNAME, 0)
    app = pod["metadata"]["labels"]["app"] if per_host or skews else ""
    return PodKind(millicores, mebibytes, zone, ZONE in skews, per_host, "nodeAffinity" in affinity, app)


def _containers(daemon: Json) -> list[Json]:
    containers: list[Json] = daemon["spec"]["template"]["spec"]["containers"]
    return containers


def _sum(containers: Any) -> list[int]:
    """Millicores, mebibytes and 1."""
    requests = [container["resources"]["requests"] for container in containers]
    return [sum(_millicores(one["cpu"]) for one in requests), sum(_mebibytes(one["memory"]) for one in requests), 1]


def _millicores(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def _mebibytes(text: str) -> int:
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]]


def _meets(instance_type: Json, asked: list[Json]) -> bool:
    stated = {requirement["key"]: requirement.get("values", [""]) for requirement in instance_type["requirements"]}
    for requirement in asked:
        values, wanted = stated[requirement["key"]], requirement["values"]
        match requirement["operator"]:
            case "In":
                met = not set(values).isdisjoint(wanted)
            case "Gt":
                met = int(values[0]) > int(wanted[0])
            case _:
                met = int(values[0]) < int(wanted[0])
        if not met:
            return False
    return True


def _shapes(instance_type: Json, overhead: list[int]) -> list[Shape]:
    reserved = list(instance_type["overhead"].values())
    capacity = instance_type["capacity"]
    room = (
        _millicores(capacity["cpu"]) - sum(_millicores(part.get("cpu", "0m")) for part in reserved) - overhead[0],
        _mebibytes(capacity["memory"]) - sum(_mebibytes(part.get("memory", "0Mi")) for part in reserved) - overhead[1],
        int(capacity["pods"]) - overhead[2],
    )
    stated = {requirement["key"]: requirement.get("values", [""]) for requirement in instance_type["requirements"]}
    is_new = int(stated[_GENERATION][0]) > _OLD_GENERATION
    return [
        Shape(instance_type["name"], offered[ZONE], offering["price"], room, is_new)
        for offering in instance_type["offerings"]
        if (offered := offering["requirements"])["karpenter.sh/capacity-type"] == "on-demand"
        and offering["available"]
        and offered[ZONE] in ZONES
        and min(room) > 0
    ]


def _undominated(shapes: list[Shape]) -> list[Shape]:
    kept: list[Shape] = []
    for shape in sorted(shapes, key=lambda shape: (shape.dollars, [-amount for amount in shape.room], shape.name)):
        if not any(
            better.zone == shape.zone
            and (better.is_new or not shape.is_new)
            and all(more >= amount for more, amount in zip(better.room, shape.room, strict=True))
            for better in kept
        ):
            kept.append(shape)
    return kept
