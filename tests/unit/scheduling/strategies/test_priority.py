"""Where a limit leaves no room for all, higher priority comes first, then age; without a limit nothing changes."""

from datetime import timedelta
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model import labels
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.strategies.priority import priority_batches, priority_key, violates_priority
from tests.unit.scheduling.builders import NOW, planned, pod, pods, pool, why


def aged(one: Pod, minutes: int) -> Pod:
    about = msgspec.structs.replace(one.metadata, creation_timestamp=NOW - timedelta(minutes=minutes))
    return msgspec.structs.replace(one, metadata=about)


LIMITED = (pool(limits={"cpu": "4"}),)


def test_higher_priority_takes_what_the_limit_leaves() -> None:
    low, high = pods(3, "low", 1.5), pods(2, "high", 1, priority=1000)
    plan = planned(*low, *high, pools=LIMITED)
    assert {key for new_node in plan.new_nodes for key in new_node.pods} >= {"default/high-0", "default/high-1"}
    assert "limit cpu 4 is used up by 2 new nodes of this plan; 2 pods need 3 more" in why(plan)["default/low-2"]


def test_older_pods_come_first_within_a_priority() -> None:
    young = tuple(aged(one, 1) for one in pods(2, "young", 2))
    old = tuple(aged(one, 60) for one in pods(4, "old", 1))
    plan = planned(*young, *old, pools=LIMITED)
    placed = {key for new_node in plan.new_nodes for key in new_node.pods}
    assert placed >= {f"default/old-{number}" for number in range(4)}


def test_room_that_is_left_goes_to_those_behind() -> None:
    plan = planned(*pods(2, "low", 1), pod("high", 2, priority=1), pools=LIMITED)
    assert not why(plan)


def test_without_limits_priority_makes_no_difference() -> None:
    plan = planned(*pods(5, "low", 1), *pods(5, "high", 1, priority=1000))
    assert not why(plan)
    assert plan.price_picousd_per_hour == planned(*pods(10, "p", 1)).price_picousd_per_hour


def test_a_pod_that_follows_one_behind_it_is_placed_all_the_same() -> None:
    near = PodAffinityTerm(labels.HOSTNAME, (NodeSelectorRequirement("app", "In", ("db",)),), ("default",))
    web = pod("web", 1, priority=10, pod_affinity=(near,))
    plan = planned(web, pod("db", 1, labels={"app": "db"}), *pods(4, "other", 1, priority=-1), pools=LIMITED)
    placed = {key for new_node in plan.new_nodes for key in new_node.pods}
    assert placed >= {"default/web", "default/db"}


def test_what_no_node_could_hold_does_not_push_others_back() -> None:
    plan = planned(pod("giant", 500, priority=1000), *pods(4, "p", 1), pools=LIMITED)
    assert set(why(plan)) == {"default/giant"}


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 200)), max_size=80))
def test_steps_keep_the_order_and_never_mix_priorities(ranks: list[tuple[int, int]]) -> None:
    several = [aged(pod(f"p{n}", priority=priority), age) for n, (priority, age) in enumerate(ranks)]
    made = priority_batches(several)
    assert sorted(one.key for band in made for one in band) == sorted(one.key for one in several)
    assert all(len({one.priority for one in band}) == 1 for band in made)
    assert all(max(map(priority_key, one)) < min(map(priority_key, other_pods)) for one, other_pods in pairwise(made))
    assert len(made) <= 32 + 7
    assert not violates_priority([], several)
