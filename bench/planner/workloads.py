"""The pods of each workload, as Kubernetes manifests: deployments with log-normal sizes and replica counts.

``micro``: small services, a quarter of a core in the median and 2.6 GiB a core; ``memheavy``: 6 GiB in the median and
nine a core; ``inflate``: one deployment of 1 cpu and 1.5 GiB. Of the deployments of ``spread30`` 30 % spread over
zones; of ``anti10`` 10 % allow one pod a host; ``mixed`` has 30 % zone spread, 10 % one a host, 10 % pinned to a zone,
5 % that ask for a new generation and 5 % that spread over zones with two a host.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

type Json = dict[str, Any]

KINDS: Final = ("micro", "memheavy", "inflate", "spread30", "anti10", "mixed")
ZONES: Final = ("us-east-1a", "us-east-1b", "us-east-1c")
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
_GENERATION: Final = "karpenter.k8s.aws/instance-generation"
# Most people write round requests.
_ROUND_MILLICORES: Final = (25, 50, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 3000, 4000)
_ROUND_MEBIBYTES: Final = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)


@dataclass(frozen=True)
class Deployment:
    """Equal pods. ``fields``: of the pod's spec, beside its container."""

    name: str
    replicas: int
    millicores: int
    mebibytes: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    further: Mapping[str, str] = field(default_factory=dict)


def pods(kind: str, count: int, seed: int) -> list[Json]:
    """So many pods of a workload, in an order of their own."""
    dice = Random(f"{kind}/{seed}")
    found = [pod for deployment in deployments(kind, count, dice) for pod in manifests(deployment, dice)]
    dice.shuffle(found)
    return found


def deployments(kind: str, count: int, dice: Random) -> Iterator[Deployment]:
    if kind == "inflate":
        yield Deployment("inflate", count, 1000, 1536)
        return
    number, left = 0, count
    while left:
        size = _memory_heavy(dice) if kind == "memheavy" else _micro(dice)
        replicas = min(left, max(1, int(_log_normal(dice, 4, 1.2))))
        name = f"app-{number}"
        yield Deployment(name, replicas, *size, fields=_constraints(kind, name, dice))
        number, left = number + 1, left - replicas


def _log_normal(dice: Random, median: float, sigma: float) -> float:
    return median * math.exp(dice.gauss(0, sigma))


def _micro(dice: Random) -> tuple[int, int]:
    wanted = _log_normal(dice, 250, 1.05)
    memory = min(16384.0, max(64.0, wanted / 1000 * _log_normal(dice, 2600, 0.95)))
    cores = min(4000.0, max(50.0, wanted))
    if dice.random() < 0.7:
        return _nearest(cores, _ROUND_MILLICORES), _nearest(memory, _ROUND_MEBIBYTES)
    return int(cores // 10 * 10), int(memory // 16 * 16)


def _memory_heavy(dice: Random) -> tuple[int, int]:
    memory = min(65536.0, max(1024.0, _log_normal(dice, 6144, 0.8)))
    cores = memory / 1024 / _log_normal(dice, 9, 0.35) * 1000
    return max(50, int(cores // 50 * 50)), int(memory // 256 * 256)


def _nearest(value: float, among: tuple[int, ...]) -> int:
    return min(among, key=lambda one: abs(math.log(one / value)))


def _constraints(kind: str, name: str, dice: Random) -> Json:
    draw = dice.random()
    if kind == "spread30" and draw < 0.3:
        return zone_or_host_spread(name, {ZONE: 1})
    if kind == "anti10" and draw < 0.1:
        return host_anti_affinity(name)
    if kind != "mixed" or draw >= 0.6:
        return {}
    if draw < 0.3:
        return zone_or_host_spread(name, {ZONE: 1})
    if draw < 0.4:
        return host_anti_affinity(name)
    if draw < 0.5:
        return {"nodeSelector": {ZONE: dice.choice(ZONES)}}
    if draw < 0.55:
        return _newer_than(5)
    return zone_or_host_spread(name, {ZONE: 1, HOSTNAME: 2})


def zone_or_host_spread(name: str, skews: Mapping[str, int]) -> Json:
    return {"topologySpreadConstraints": [spread_constraint(key, skew, {"app": name}) for key, skew in skews.items()]}


def spread_constraint(key: str, skew: int, labels: Mapping[str, str]) -> Json:
    selector = {"matchLabels": dict(labels)}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}


def host_anti_affinity(name: str) -> Json:
    """One pod a host."""
    return {"affinity": {"podAntiAffinity": required_terms(HOSTNAME, {"app": name})}}


def required_terms(key: str, labels: Mapping[str, str]) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _newer_than(generation: int) -> Json:
    newer = {"key": _GENERATION, "operator": "Gt", "values": [str(generation)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [newer]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def manifests(deployment: Deployment, dice: Random) -> Iterator[Json]:
    for number in range(deployment.replicas):
        yield pod(f"{deployment.name}-{number}", deployment, {"app": deployment.name} | dict(deployment.further), dice)


def pod(name: str, like: Deployment, labels: Mapping[str, str], dice: Random) -> Json:
    """A pending pod that kube-scheduler has given up on."""
    requests = {"cpu": f"{like.millicores}m", "memory": f"{like.mebibytes}Mi"}
    resources: Json = {"requests": requests}
    if gpus := like.further.get("gpus"):
        requests["nvidia.com/gpu"] = gpus
        resources["limits"] = {"nvidia.com/gpu": gpus}
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"{dice.getrandbits(128):032x}",
            "labels": dict(labels),
            "creationTimestamp": "2026-01-01T12:00:00Z",
        },
        "spec": {"containers": [{"name": "app", "image": "app", "resources": resources}]} | dict(like.fields),
        "status": {"phase": "Pending", "conditions": [waiting]},
    }


_LETTERS: Final = "abcdefg"


def karpenter_mix(count: int, seed: int) -> list[Json]:
    """The mix of Karpenter's own scheduling benchmark: fifths of plain pods, zone spread, host spread, affinity on
    zones and anti-affinity on hosts; every pod draws its size, its label and the label it looks at."""
    dice, each = Random(f"karpenter/{seed}"), count // 5
    kinds = ("plain",) * (count - 4 * each) + tuple(
        kind for kind in ("zones", "hosts", "near", "apart") for _ in range(each)
    )
    return [_of_the_mix(f"pod-{number}", kind, dice) for number, kind in enumerate(kinds)]


def _of_the_mix(name: str, kind: str, dice: Random) -> Json:
    label, other = dice.choice(_LETTERS), {"my-label": dice.choice(_LETTERS)}
    labels, fields = {"my-label": label}, dict[str, Any]()
    match kind:
        case "zones" | "hosts":
            key = ZONE if kind == "zones" else HOSTNAME
            fields = {"topologySpreadConstraints": [spread_constraint(key, 1, other)]}
        case "near":
            labels = {"my-affinity": label}
            wanted = {"my-affinity": dice.choice(_LETTERS)}
            fields = {"affinity": {"podAffinity": required_terms(ZONE, wanted)}}
        case "apart":
            labels = {"app": "nginx"}
            fields = {"affinity": {"podAntiAffinity": required_terms(HOSTNAME, labels)}}
    size = dice.choice((100, 250, 500, 1000, 1500)), dice.choice((100, 256, 512, 1024, 2048, 4096))
    return pod(name, Deployment(name, 1, *size, fields=fields), labels, dice)
