"""Ceilings of launches: what is counted, what they leave, and which nodes of a plan are launched."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.aws.launch.placement import NITRO_SANDBOX_RESOURCE
from spotwright.decisions import ceilings
from spotwright.decisions.decision import group_into_launches
from spotwright.model import resources
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import LaunchBound, LaunchedInMinute, Settings, Snapshot
from spotwright.scheduling.plan import NewNode, Plan, ResourceUsage

NOW = datetime(2026, 1, 5, 9, 0, 20, tzinfo=UTC)
MINUTE = int(NOW.timestamp()) // 60
DOLLAR = 10**12
NO_CEILINGS = Settings(max_launches_per_minute=0, max_nodes_per_hour=0, max_dollars_per_hour=0)


def settings(**given: int) -> Settings:
    return msgspec.structs.replace(NO_CEILINGS, **given)


def node(pod: str, *, price: int = DOLLAR, nodepool: str = "default") -> NewNode:
    return NewNode(
        nodepool=nodepool, nodeclass="class", pods=(pod,), instance_types=("m5.large",), requirements=(), labels={},
        taints=(), startup_taints=(), requests={}, price_picousd_per_hour=price, capacity_type="spot", zones=("a",),
    )  # fmt: skip


def pods(count: int, **fields: Any) -> tuple[Pod, ...]:
    return tuple(
        Pod(metadata=ObjectMeta(f"p{number}", namespace="ns", creation_timestamp=NOW + timedelta(seconds=number)))
        for number in range(count)
    )


def keep(
    given: Settings, nodes: list[NewNode], *, launched: tuple[LaunchedInMinute, ...] = (), known: tuple[Pod, ...] = ()
) -> Plan:
    bounds = ceilings.launch_bounds(given, launched, NOW)
    return ceilings.keep_within(
        Plan(new_nodes=tuple(nodes)), Snapshot("c", NOW, pods=known or pods(len(nodes)), launch_bounds=bounds)
    )


def test_without_ceilings_there_are_no_bounds() -> None:
    assert ceilings.launch_bounds(NO_CEILINGS, (LaunchedInMinute(MINUTE, 9, 9, 9),), NOW) == ()


def test_launches_count_in_their_minute_and_nodes_and_dollars_for_an_hour() -> None:
    launched = (
        LaunchedInMinute(MINUTE - 60, 7, 7, 7),
        LaunchedInMinute(MINUTE - 59, 1, 2, 3),
        LaunchedInMinute(MINUTE, 10, 20, 30),
    )
    launches, nodes, dollars = ceilings.launch_bounds(Settings(), launched, NOW)
    assert (launches.used, nodes.used, dollars.used) == (10, 22, 33)
    assert launches.resumes_at == datetime(2026, 1, 5, 9, 1, tzinfo=UTC)
    assert nodes.resumes_at == dollars.resumes_at == datetime(2026, 1, 5, 9, 1, tzinfo=UTC)


def test_what_a_faster_clock_counted_a_moment_later_counts_as_well() -> None:
    """Two planners around the end of a minute; a minute that is further off is a clock that was wrong."""
    launched = (LaunchedInMinute(MINUTE + 1, 1, 2, 3), LaunchedInMinute(MINUTE + 2, 10, 20, 30))
    assert [bound.used for bound in ceilings.launch_bounds(Settings(), launched, NOW)] == [1, 2, 3]


def test_nodes_that_never_came_to_be_do_not_count() -> None:
    launched = (LaunchedInMinute(MINUTE - 1, 2, 5, 50), LaunchedInMinute(MINUTE, 1, 2, 20))
    failed = (LaunchedInMinute(MINUTE - 1, 0, 1, 10), LaunchedInMinute(MINUTE - 1, 0, 3, 30))
    left = (LaunchedInMinute(MINUTE - 1, 2, 1, 10), LaunchedInMinute(MINUTE, 1, 2, 20))
    assert ceilings.without_failed(launched, failed) == left
    assert ceilings.without_failed(launched, (LaunchedInMinute(MINUTE, 0, 9, 90),))[1] == LaunchedInMinute(MINUTE, 1)


def test_what_fits_is_not_touched() -> None:
    nodes = [node(f"ns/p{number}") for number in range(3)]
    plan = keep(settings(max_nodes_per_hour=3, max_dollars_per_hour=3, max_launches_per_minute=3), nodes)
    assert plan == Plan(new_nodes=tuple(nodes))


def test_a_burst_is_launched_as_far_as_the_ceiling_allows_and_the_reason_says_the_rest() -> None:
    launched = (LaunchedInMinute(MINUTE - 10, 1, 3, 3 * DOLLAR),)
    plan = keep(settings(max_nodes_per_hour=5), [node(f"ns/p{number}") for number in range(4)], launched=launched)
    assert [kept.pods for kept in plan.new_nodes] == [("ns/p0",), ("ns/p1",)]
    assert [unplaced.pod for unplaced in plan.unschedulable_pods] == ["ns/p2", "ns/p3"]
    (reason,) = plan.unschedulable_pods[0].reasons
    assert reason == (
        "setting MAX_NODES_PER_HOUR allows 5 new nodes within an hour, and none is left: more are launched from"
        " 2026-01-05T09:50:00Z on"
    )
    (held_back,) = plan.nodes_held_back
    assert (held_back.nodepool, held_back.nodes, held_back.setting) == ("default", 2, "MAX_NODES_PER_HOUR")


def test_nodes_for_pods_of_higher_priority_come_first_then_for_older_ones() -> None:
    known = pods(3)
    urgent = msgspec.structs.replace(known[2], priority=10)
    plan = keep(
        settings(max_nodes_per_hour=2), [node("ns/p1"), node("ns/p2"), node("ns/p0")], known=(*known[:2], urgent)
    )
    assert {kept.pods[0] for kept in plan.new_nodes} == {"ns/p2", "ns/p0"}


def test_a_cheaper_node_does_not_pass_one_that_waits_for_room() -> None:
    nodes = [node("ns/p0", price=3 * DOLLAR), node("ns/p1", price=3 * DOLLAR), node("ns/p2", price=DOLLAR)]
    plan = keep(settings(max_dollars_per_hour=5), nodes)
    assert [kept.pods[0] for kept in plan.new_nodes] == ["ns/p0"]


def test_a_node_beyond_the_whole_ceiling_holds_no_other_back_and_says_what_to_do() -> None:
    plan = keep(settings(max_dollars_per_hour=5), [node("ns/p0", price=98 * DOLLAR), node("ns/p1")])
    assert [kept.pods[0] for kept in plan.new_nodes] == ["ns/p1"]
    assert plan.unschedulable_pods[0].reasons == (
        "a node for it costs $98.00 per hour, and setting MAX_DOLLARS_PER_HOUR allows new nodes for $5.00 per hour"
        " within an hour: raise the setting",
    )


def test_equal_nodes_are_one_launch() -> None:
    nodes = [*(node(f"ns/p{number}") for number in range(150)), node("ns/p150", nodepool="other")]
    plan = keep(settings(max_launches_per_minute=2), nodes)
    assert len(plan.new_nodes) == 150
    assert len(group_into_launches("d", plan, {})) == 2
    assert "2 new launches a minute" in plan.nodes_held_back[0].reason


def test_nodes_of_equal_instances_for_different_pods_are_one_launch_with_the_requests_of_each() -> None:
    nodes = [
        msgspec.structs.replace(
            node(f"ns/p{cpu}"), requests={"cpu": cpu}, usage=(ResourceUsage("cpu", cpu, 4000),), reason=f"{cpu} of 4000"
        )
        for cpu in (1000, 2000, 1000)
    ]
    plan = keep(settings(max_launches_per_minute=1), nodes)
    (launch,) = group_into_launches("d", plan, {})
    requests = [launch.requests.get(claim, launch.node.requests) for claim in launch.claims]
    assert requests == [planned.requests for planned in nodes]
    assert len(launch.requests) == 1


@pytest.mark.parametrize("device", [resources.EFA, NITRO_SANDBOX_RESOURCE])
def test_nodes_whose_pods_request_what_ec2_is_asked_for_are_a_launch_of_their_own(device: str) -> None:
    """Instances have EFA network interfaces and enclaves only where pods request them."""
    with_device = [msgspec.structs.replace(node(f"ns/p{count}"), requests={device: count}) for count in (1, 2)]
    without = [msgspec.structs.replace(node(f"ns/p{number}"), requests={"cpu": 1000, device: 0}) for number in (3, 4)]
    nodes = [without[0], with_device[0], without[1], with_device[1]]
    launches = group_into_launches("d", keep(settings(max_launches_per_minute=2), nodes), {})
    assert [launch.node.pods for launch in launches] == [("ns/p3", "ns/p4"), ("ns/p1", "ns/p2")]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 3)), max_size=80))
def test_what_is_counted_is_bounded_and_never_forgotten_within_the_hour(steps: list[tuple[int, int]]) -> None:
    launched: tuple[LaunchedInMinute, ...] = ()
    now, made = NOW, []
    for seconds, count in steps:
        now += timedelta(seconds=seconds)
        plan = Plan(new_nodes=tuple(node(f"ns/{number}") for number in range(count)))
        launched = ceilings.count_launches(launched, group_into_launches("d", plan, {}), now)
        made.append((int(now.timestamp()) // 60, count))
        assert len(launched) <= 60
        (nodes,) = ceilings.launch_bounds(settings(max_nodes_per_hour=10**6), launched, now)
        assert nodes.used == sum(nodes for minute, nodes in made if minute > int(now.timestamp()) // 60 - 60)
        assert nodes.resumes_at > now


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b"])), max_size=12),
    st.integers(0, 12), st.integers(0, 12), st.integers(0, 4),
)  # fmt: skip
def test_no_ceiling_is_passed_and_no_pod_is_forgotten(
    sizes: list[tuple[int, str]], most_nodes: int, most_dollars: int, most_launches: int
) -> None:
    nodes = [node(f"ns/p{number}", price=price * DOLLAR, nodepool=pool) for number, (price, pool) in enumerate(sizes)]
    given_ = settings(
        max_nodes_per_hour=most_nodes, max_dollars_per_hour=most_dollars, max_launches_per_minute=most_launches
    )
    plan = keep(given_, nodes)
    assert len(plan.new_nodes) <= (most_nodes or 99)
    assert plan.price_picousd_per_hour <= (most_dollars or 99) * DOLLAR
    assert len(group_into_launches("d", plan, {})) <= (most_launches or 99)
    placed = [pod for kept in plan.new_nodes for pod in kept.pods]
    assert sorted([*placed, *(unplaced.pod for unplaced in plan.unschedulable_pods)]) == sorted(
        pod for one in nodes for pod in one.pods
    )
    assert sum(held_back.nodes for held_back in plan.nodes_held_back) == len(nodes) - len(plan.new_nodes)


def test_a_bound_is_stored_with_the_snapshot() -> None:
    bound = LaunchBound(ceilings.NODES, 5, 3, NOW)
    snapshot = Snapshot("c", NOW, launch_bounds=(bound,))
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot).launch_bounds == (bound,)
