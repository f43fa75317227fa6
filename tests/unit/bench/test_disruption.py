"""The clusters that `make bench-disruption` grows, and the bound beside them."""

from pathlib import Path

import msgspec
import pytest

from bench.disruption.bound import find_bound, find_bound_where_pods_fit
from bench.disruption.cluster import Launched, SimulatedCluster
from bench.planner import problems
from bench.planner.spotwright_run import load
from spotwright.disruption import removal_order
from spotwright.disruption.consolidation import consolidate
from spotwright.model import labels
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    problem, catalog = load(str(problems.burst(tmp_path, "mixed", 60, 1, 8)))
    grown = SimulatedCluster(problem, catalog)
    grown.grow(problem.pods, 20)
    grown.shrink(50, 1)
    return grown


def test_a_repeated_cluster_has_everything_so_many_times_under_its_own_name(cluster: SimulatedCluster) -> None:
    before, price = cluster.snapshot, cluster.price_picousd_per_hour
    cluster.repeat(3)
    after = cluster.snapshot
    for kind in ("pods", "nodes", "nodeclaims"):
        names = {thing.metadata.name for thing in getattr(after, kind)}
        assert len(names) == len(getattr(after, kind)) == 3 * len(getattr(before, kind))
    assert {pod.node_name for pod in after.pods} <= {node.name for node in after.nodes}
    assert cluster.price_picousd_per_hour == 3 * price


def test_no_consolidation_goes_below_the_bounds_which_fall_with_more_evictions(cluster: SimulatedCluster) -> None:
    grown, before, bounds = cluster.snapshot, float(cluster.price_picousd_per_hour), [float("inf")]
    for most in (0, 2, 5, 10, len(grown.pods)):
        cluster.snapshot = grown
        found = consolidate(grown, Plan(), cluster.catalog, locked=frozenset(), most_evictions=most)
        cluster.apply(found)
        bounds.append(find_bound_where_pods_fit(grown, cluster.catalog, most))
        assert bounds[-1] <= min(cluster.price_picousd_per_hour, bounds[-2]) + 1000
        assert find_bound(grown, cluster.catalog, most) <= bounds[-1] + 1000
    assert bounds[1] == pytest.approx(before)


def with_free_cpu(cluster: SimulatedCluster, millicores: int) -> Snapshot:
    """The cluster with so much cpu free on each of its nodes."""
    snapshot = cluster.snapshot
    free = removal_order.find_free_room(snapshot, cluster.catalog)
    nodes = tuple(
        msgspec.structs.replace(
            node, allocatable=node.allocatable | {"cpu": node.allocatable["cpu"] - free[node.name][0] + millicores}
        )
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodes=nodes)


def test_what_is_free_in_pieces_too_small_for_any_pod_is_worth_nothing_where_pods_have_to_fit(
    cluster: SimulatedCluster,
) -> None:
    smallest, limit = min(pod.requests["cpu"] for pod in cluster.snapshot.pods), len(cluster.snapshot.pods) // 4
    full, in_pieces, roomy = (with_free_cpu(cluster, free) for free in (0, smallest - 1, 20 * smallest))
    least = find_bound_where_pods_fit(full, cluster.catalog, limit)
    assert find_bound_where_pods_fit(in_pieces, cluster.catalog, limit) == pytest.approx(least)
    assert find_bound_where_pods_fit(roomy, cluster.catalog, limit) < least * 0.99
    assert find_bound(in_pieces, cluster.catalog, limit) < find_bound(full, cluster.catalog, limit) * 0.999


def test_pods_of_a_replaced_node_run_where_the_command_says(cluster: SimulatedCluster) -> None:
    gone = cluster.snapshot.nodes[0].name
    pods = tuple(pod.key for pod in cluster.snapshot.pods if pod.node_name == gone)
    new = Launched("default", "m5.2xlarge", "us-east-1a", "on-demand", pods)
    cluster.replace((gone,), (new,), {})
    (host,) = {pod.node_name for pod in cluster.snapshot.pods if pod.key in pods}
    types = {claim.node_name: claim.metadata.labels[labels.INSTANCE_TYPE] for claim in cluster.snapshot.nodeclaims}
    assert types[host] == "m5.2xlarge"
    assert gone not in types
