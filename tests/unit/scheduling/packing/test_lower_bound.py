"""A plan's lower bound: never above its price, and met where pods fill nodes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.kubernetes.pod_constraints import HostPort, PodAffinityTerm, TopologySpreadConstraint
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.scheduling.pod_planner import plan_pods
from tests.unit.scheduling.builders import TYPES, pod, pool, snapshot

CATALOG = Catalog({"": TYPES})

sizes = st.tuples(st.sampled_from(("100m", "700m", "1900m", "3")), st.sampled_from(("64Mi", "900Mi", "3Gi", "9Gi")))
web = (NodeSelectorRequirement("team", Operator.IN, ("web",)),)
apart = PodAffinityTerm(labels.HOSTNAME, web, ("default",))
rules = st.sampled_from(
    (
        {},
        {"pod_anti_affinity": (apart,)},
        {"topology_spread_constraints": (TopologySpreadConstraint(labels.HOSTNAME, 1, web),)},
        {"topology_spread_constraints": (TopologySpreadConstraint(labels.HOSTNAME, 3, web),)},
        {"host_ports": (HostPort(80),)},
        {"host_ports": (HostPort(80, host_ip="10.0.0.1"),)},
    )
)
teams = st.sampled_from(({"team": "web"}, {"team": "web"}, {"team": "other"}))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(sizes, st.integers(1, 9), rules, teams), min_size=1, max_size=6))
def test_no_plan_costs_less_than_its_bound(
    groups: list[tuple[tuple[str, str], int, dict[str, Any], dict[str, str]]],
) -> None:
    pods = [
        pod(f"app-{number}-{copy}", cpu, memory, labels=team, **ruled)
        for number, ((cpu, memory), count, ruled, team) in enumerate(groups)
        for copy in range(count)
    ]
    plan = plan_pods(snapshot(*pods, pools=(pool("default"),)), CATALOG)
    assert bool(plan.lower_bound_picousd_per_hour) == bool(plan.new_nodes)
    assert plan.lower_bound_picousd_per_hour <= plan.price_picousd_per_hour


def test_the_bound_grows_with_the_pods() -> None:
    few = plan_pods(snapshot(*(pod(f"a-{n}") for n in range(3)), pools=(pool("default"),)), CATALOG)
    many = plan_pods(snapshot(*(pod(f"a-{n}") for n in range(30)), pools=(pool("default"),)), CATALOG)
    assert few.lower_bound_picousd_per_hour < many.lower_bound_picousd_per_hour


def test_what_no_pods_can_use_of_a_node_is_worth_nothing() -> None:
    """Three pods leave most of the cheapest node free, and no node costs less."""
    plan = plan_pods(snapshot(*(pod(f"a-{n}") for n in range(3)), pools=(pool("default"),)), CATALOG)
    assert plan.lower_bound_picousd_per_hour == pytest.approx(plan.price_picousd_per_hour, rel=1e-6)


@pytest.mark.parametrize(
    "ruled",
    [
        {"pod_anti_affinity": (apart,)},
        {"topology_spread_constraints": (TopologySpreadConstraint(labels.HOSTNAME, 1, web),)},
    ],
)
def test_pods_of_any_size_that_need_a_host_each_cost_a_host_each(ruled: dict[str, Any]) -> None:
    pods = [pod(f"a-{n}", f"{10 + n}m", "64Mi", labels={"team": "web"}, **ruled) for n in range(20)]
    plan = plan_pods(snapshot(*pods, pools=(pool("default"),)), CATALOG)
    assert len(plan.new_nodes) == 20
    assert plan.lower_bound_picousd_per_hour == pytest.approx(plan.price_picousd_per_hour, rel=1e-6)
