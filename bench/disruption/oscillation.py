"""Small clusters on which Karpenter replaces nodes that it has just bought, recorded with its sequence.

``python -m bench.disruption.oscillation FOLDER`` grows random clusters, has the real disruption methods of Karpenter
work on each until they find nothing, and writes those on which a node that one command launched was disrupted by a
later one although nothing had changed. ``tests/oscillation`` keeps some of them.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.disruption.cluster import Launched, SimulatedCluster
from bench.disruption.karpenter import Karpenter
from bench.planner import problems
from bench.planner.runs import build_karpenter
from bench.planner.spotwright_run import load
from spotwright.disruption.consolidation import consolidate
from spotwright.model import labels
from spotwright.model.kubernetes.node import Node
from spotwright.scheduling.plan import Plan

MOST_CORES: Final = 8
MOST_COMMANDS: Final = 60
ROUNDS: Final = 30


class Workload(msgspec.Struct, frozen=True):
    """Of which a cluster's pods are; see ``bench.planner.problems.burst``."""

    kind: str
    pods: int
    seed: int
    spot: bool


class Disrupted(msgspec.Struct, frozen=True):
    """Nodes that went at once, and nodes that were bought for them. Names of Nodes."""

    gone: tuple[str, ...]
    bought: tuple[str, ...]
    evictions: int
    price_picousd_per_hour: int


class Oscillation(msgspec.Struct, frozen=True):
    """A cluster, and what Karpenter did with it. ``nodes``: with their pods, in the order of their names."""

    workload: Workload
    nodes: tuple[Launched, ...]
    karpenter: tuple[Disrupted, ...]


def disrupted_again(steps: Sequence[Disrupted]) -> set[str]:
    """Nodes that were bought by a step and went in a later one."""
    bought, again = set[str](), set[str]()
    for step in steps:
        again |= bought & set(step.gone)
        bought |= set(step.bought)
    return again


def rebuild(workload: Workload, nodes: Sequence[Launched], folder: Path) -> SimulatedCluster:
    """The cluster, with these nodes and their pods alone."""
    problem, catalog = load(str(_problem(workload, folder)))
    cluster = SimulatedCluster(problem, catalog)
    placed = {pod for node in nodes for pod in node.pods}
    cluster.snapshot = msgspec.structs.replace(
        cluster.snapshot, pods=tuple(pod for pod in problem.pods if pod.key in placed)
    )
    cluster.replace((), nodes, {})
    return cluster


def consolidate_until_settled(cluster: SimulatedCluster) -> Iterator[Disrupted]:
    """What Spotwright does with it, evaluation after evaluation, until one finds nothing."""
    for _ in range(ROUNDS):
        found = consolidate(cluster.snapshot, Plan(), cluster.catalog, locked=frozenset())
        if not found.moves:
            return
        before = cluster.snapshot
        cluster.apply(found)
        yield _difference(before.nodes, cluster, sum(move.evictions for move in found.moves))


def _difference(before: Sequence[Node], cluster: SimulatedCluster, evictions: int) -> Disrupted:
    old = {node.name for node in before}
    new = {node.name for node in cluster.snapshot.nodes}
    return Disrupted(tuple(sorted(old - new)), tuple(sorted(new - old)), evictions, cluster.price_picousd_per_hour)


def _problem(workload: Workload, folder: Path) -> Path:
    return problems.burst(folder, workload.kind, workload.pods, workload.seed, MOST_CORES, spot=workload.spot)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.disruption.oscillation")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pods", type=int, default=60)
    parser.add_argument("--kinds", nargs="+", default=["micro", "mixed"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    options = parser.parse_args(arguments)
    binary = build_karpenter(print)
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        for seed in options.seeds:
            _record(Workload(kind, options.pods, seed, spot=False), binary, options.folder)
    return 0


def _record(workload: Workload, binary: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = _problem(workload, Path(scratch))
        problem, catalog = load(str(path))
        grown = SimulatedCluster(problem, catalog)
        grown.grow(problem.pods, 10)
        grown.shrink(60, workload.seed)
        nodes = _nodes(grown)
        cluster = rebuild(workload, nodes, Path(scratch))
        steps = _karpenter(Karpenter(binary, path), cluster)
        again = disrupted_again(steps)
        ours = list(consolidate_until_settled(rebuild(workload, nodes, Path(scratch))))
    print(
        f"{workload.kind} {workload.seed}: {len(nodes)} nodes; Karpenter {_summary(steps)};"
        f" Spotwright {_summary(ours)}",
        flush=True,
    )
    if again:
        body = msgspec.json.encode(Oscillation(workload, nodes, tuple(steps)))
        file = folder / f"{workload.kind}-{workload.pods}-{workload.seed}.json"
        file.write_bytes(msgspec.json.format(body, indent=1) + b"\n")


def _summary(steps: Sequence[Disrupted]) -> str:
    evictions, again = sum(step.evictions for step in steps), len(disrupted_again(steps))
    return f"{len(steps)} commands, {again} nodes again, {evictions} evictions"


def _nodes(cluster: SimulatedCluster) -> tuple[Launched, ...]:
    pods: dict[str, list[str]] = {}
    for pod in cluster.snapshot.pods:
        pods.setdefault(pod.node_name, []).append(pod.key)
    return tuple(
        Launched(
            claim.nodepool,
            claim.metadata.labels[labels.INSTANCE_TYPE],
            claim.metadata.labels[labels.ZONE],
            claim.metadata.labels[labels.CAPACITY_TYPE],
            tuple(pods[claim.node_name]),
        )
        for claim in cluster.snapshot.nodeclaims
    )


def _karpenter(karpenter: Karpenter, cluster: SimulatedCluster) -> list[Disrupted]:
    found = list[Disrupted]()
    before = cluster.snapshot.nodes
    for step in karpenter.steps(cluster, MOST_COMMANDS):
        found.append(_difference(before, cluster, step.evictions))
        before = cluster.snapshot.nodes
    return found


if __name__ == "__main__":
    raise SystemExit(main())
