"""Batches of pods, the pool they are planned for, and its catalog."""

import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.model.ec2.instance_type import Catalog

type Json = dict[str, Any]

_CATALOG: Final = Path(__file__).parents[2] / "tests/cases/catalogs/aws-us-east-1-cmr.json"
RUN_LABEL: Final = "bench.spotwright.dev/run"
NODEPOOL: Final[Json] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "bench"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["17"]},
                ],
            }
        }
    },
}


@cache
def catalog() -> Catalog:
    return read_catalog_file(str(_CATALOG))


def mixed(seed: int, pods: int) -> list[Json]:
    """Pods of many sizes without any rule between them: a few need most of a node."""
    return list(_pods(random.Random(seed), pods, ruled=False))


def constrained(seed: int, pods: int) -> list[Json]:
    """The same sizes; a third spreads over zones, an eighth keeps apart by node."""
    return list(_pods(random.Random(1000 + seed), pods, ruled=True))


WORKLOADS: Final[Mapping[str, Callable[[int, int], list[Json]]]] = {"mixed": mixed, "ruled": constrained}

# (share, millicores, MiB per core): sidecars and workers, services, databases, builds.
_SIZES: Final = (
    (0.35, (100, 200, 250, 400), 2048),
    (0.40, (500, 750, 1000, 1500), 4096),
    (0.15, (2000, 3000, 3500), 7000),
    (0.10, (5000, 6500, 7500), 2048),
)


def _pods(chance: random.Random, pods: int, *, ruled: bool) -> list[Json]:
    made: list[Json] = []
    for app in range(max(1, pods // 8)):
        _, sizes, mib = chance.choices(_SIZES, [share for share, _, _ in _SIZES])[0]
        cpu = chance.choice(sizes)
        rules = _rules(chance.random(), f"app-{app}") if ruled else {}
        made += [_pod(f"app-{app}-{number}", f"app-{app}", cpu, cpu * mib // 1000, rules) for number in range(8)]
    made = made[:pods]
    chance.shuffle(made)
    return made


def _rules(chance: float, app: str) -> Json:
    mine = {"matchLabels": {"app": app}}
    if chance < 1 / 3:
        spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [spread | {"labelSelector": mine}]}
    if chance < 1 / 3 + 1 / 8:
        apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": mine}]
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}}
    return {}


def _pod(name: str, app: str, cpu_millicores: int, memory_mib: int, rules: Json) -> Json:
    requests = {"cpu": f"{cpu_millicores}m", "memory": f"{memory_mib}Mi"}
    container = {"name": "app", "image": "public.ecr.aws/eks-distro/kubernetes/pause:3.7"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [container | {"resources": {"requests": requests}}], **rules},
    }
