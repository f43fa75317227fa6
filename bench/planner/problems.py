"""Problems both planners read: Kubernetes objects by kind and an instance catalog's file, as one JSON file each."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.planner import clusters, workloads

type Json = dict[str, Any]

_CATALOGS: Final = Path(__file__).parents[2] / "tests" / "cases" / "catalogs"
US_EAST_1: Final = _CATALOGS / "aws-us-east-1-cmr.json"
FAKE: Final = _CATALOGS / "karpenter-fake-400.json"
POOLS: Final = 20
# What core#3152 reports.
NODES: Final = 1060
PODS: Final = 2170


def burst(folder: Path, kind: str, count: int, seed: int, most_cores: int = 0, *, spot: bool = False) -> Path:
    """A workload in an empty cluster, on demand, or on demand and spot."""
    pods = workloads.pods(kind, count, seed)
    pools = [clusters.documented_pool(most_cores=most_cores, spot=spot)]
    name = f"{kind}-{count}-{seed}-{most_cores}{'-spot' if spot else ''}.json"
    return _written(folder / name, US_EAST_1, pods, pools)


def near_limit(folder: Path, kind: str, count: int, seed: int, percent: int) -> Path:
    """A workload in an empty cluster whose NodePool may have so many percent of the cpu that the pods request."""
    pods = workloads.pods(kind, count, seed)
    pools = [clusters.limited_pool(_requested_millicores(pods) * percent // 100)]
    return _written(folder / f"{kind}-{count}-{seed}-limit-{percent}.json", US_EAST_1, pods, pools)


def _requested_millicores(pods: list[Json]) -> int:
    requests = (container["resources"]["requests"] for pod in pods for container in pod["spec"]["containers"])
    return sum(int(request["cpu"].removesuffix("m")) for request in requests)


def mix(folder: Path, count: int, seed: int) -> Path:
    """The mix of Karpenter's own benchmark on its own 400 types; its pool asks for nothing."""
    pool = clusters.pool("default")
    pool["spec"]["template"]["spec"]["requirements"] = []
    path = folder / f"karpenter-mix-{count}-{seed}.json"
    return _written(path, FAKE, workloads.karpenter_mix(count, seed), [pool], daemonsets=[])


def crowded(folder: Path, kind: str, seed: int) -> Path:
    """So many pods before a cluster that is nearly full, of twenty weighted NodePools."""
    pools = _pools()
    return _on_cluster(folder / f"crowded-{kind}-{seed}.json", US_EAST_1, workloads.pods(kind, PODS, seed), pools, seed)


def gpus(folder: Path, seed: int, *, sold_out: bool) -> Path:
    """The shape of core#3152: nearly all pods ask for a GPU that only the last of twenty pools sells."""
    dice = Random(f"gpus/{seed}")
    pods = [pod for deployment in clusters.gpu_shape() for pod in workloads.manifests(deployment, dice)]
    dice.shuffle(pods)
    catalog = folder / "with-gpus.json"
    catalog.write_text(json.dumps({"instanceTypes": [*types(US_EAST_1).values(), clusters.gpu_type()]}))
    pools = [*_pools()[:-1], clusters.gpu_pool(f"pool-{POOLS - 1:02}")]
    path = folder / f"gpus-{seed}-{'without' if sold_out else 'with'}.json"
    return _on_cluster(path, catalog, pods, pools, seed, sold_out=["g6.2xlarge"] if sold_out else [])


def large(folder: Path, count: int, nodes: int, seed: int) -> Path:
    """Many pods before many nodes: for memory."""
    pods = workloads.pods("mixed", count, seed)
    return _on_cluster(folder / f"large-{seed}.json", US_EAST_1, pods, _pools()[:1], seed, count=nodes)


def _pools() -> list[Json]:
    return [clusters.documented_pool(f"pool-{number:02}", weight=100 - number) for number in range(POOLS)]


def _on_cluster(
    path: Path,
    catalog: Path,
    pods: list[Json],
    pools: list[Json],
    seed: int,
    *,
    count: int = NODES,
    sold_out: list[str] | None = None,
) -> Path:
    names = [pool["metadata"]["name"] for pool in pools]
    nodes, claims, running = clusters.full_cluster(count, names, types(US_EAST_1), seed)
    return _written(path, catalog, [*pods, *running], pools, nodes=nodes, claims=claims, sold_out=sold_out or [])


@cache
def types(catalog: Path) -> dict[str, Json]:
    """Instance types of a catalog by name."""
    return {one["name"]: one for one in json.loads(catalog.read_text())["instanceTypes"]}


def _written(
    path: Path,
    catalog: Path,
    pods: list[Json],
    pools: list[Json],
    *,
    daemonsets: list[Json] | None = None,
    nodes: list[Json] | None = None,
    claims: list[Json] | None = None,
    sold_out: list[str] | None = None,
) -> Path:
    problem = {
        "catalog": str(catalog),
        "soldOut": sold_out or [],
        "nodePools": pools,
        "daemonSets": clusters.daemonsets() if daemonsets is None else daemonsets,
        "nodes": nodes or [],
        "nodeClaims": claims or [],
        "pods": pods,
    }
    path.write_text(json.dumps(problem))
    return path
