"""Node repair: which conditions count, for how long they are tolerated, and how many may be unhealthy at once."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.lifecycle import instance_health, node_repair
from spotwright.lifecycle.node_repair import NodeRepair, allowed_unhealthy, node_repairs
from spotwright.model import labels
from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, StatusCheck
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.karpenter.repair_policies import REPAIR_POLICIES, UnhealthyCondition, unhealthy_condition
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def node(name: str, *conditions: Condition, pool: str = "default", zone: str = "a", id: str = "") -> Node:
    stated = {labels.NODEPOOL: pool, labels.ZONE: zone} if pool else {labels.ZONE: zone}
    return Node(ObjectMeta(name, labels=stated), provider_id=f"aws:///a/i-{id or name}", conditions=conditions)


def sick(minutes: float, kind: str = "Ready", status: str = "False") -> Condition:
    return Condition(kind, status, last_transition_time=NOW - minutes * MINUTE)


def healthy(count: int, pool: str = "default") -> list[Node]:
    return [node(f"healthy-{pool}-{number}", Condition("Ready", "True"), pool=pool) for number in range(count)]


def to_repair(nodes: Iterable[Node]) -> list[str]:
    """Names of the nodes that are repaired now."""
    return [
        repair.name
        for repair in node_repairs(tuple(nodes), now=NOW)
        if not repair.obstacle and repair.condition.repair_at <= NOW
    ]


@pytest.mark.parametrize(
    ("kind", "status", "minutes"),
    [
        ("Ready", "False", 30), ("Ready", "Unknown", 30), ("AcceleratedHardwareReady", "False", 10),
        ("StorageReady", "False", 30), ("NetworkingReady", "False", 30), ("KernelReady", "False", 30),
        ("ContainerRuntimeReady", "False", 30),
    ],
)  # fmt: skip
def test_k1_a_condition_is_tolerated_for_its_time_and_no_longer(kind: str, status: str, minutes: int) -> None:
    assert to_repair([node("sick", sick(minutes - 1 / 60, kind, status)), *healthy(4)]) == []
    assert to_repair([node("sick", sick(minutes, kind, status)), *healthy(4)]) == ["sick"]


@pytest.mark.parametrize(
    "condition",
    [
        Condition("Ready", "True", last_transition_time=NOW - 99 * MINUTE),
        Condition("AcceleratedHardwareReady", "Unknown", last_transition_time=NOW - 99 * MINUTE),
        Condition("MemoryPressure", "False", last_transition_time=NOW - 99 * MINUTE),
        Condition("KernelReady", "false", last_transition_time=NOW - 99 * MINUTE),
        Condition("Ready", "False"),
        Condition("Ready", "False", last_transition_time=NOW + 99 * MINUTE),
    ],
)
def test_what_no_policy_names_or_does_not_say_since_when_repairs_nothing(condition: Condition) -> None:
    assert to_repair([node("sick", condition), *healthy(4)]) == []


def is_timely(*others: Condition) -> bool:
    """Of a condition that is ten minutes older than its Node."""
    joined = node("sick", sick(40), *others)
    created = msgspec.structs.replace(joined.metadata, creation_timestamp=NOW - 30 * MINUTE)
    found = unhealthy_condition(msgspec.structs.replace(joined, metadata=created))
    assert found is not None
    return found.is_timely


def test_a_condition_older_than_its_node_is_believed_where_others_are_not() -> None:
    assert is_timely(sick(30, "MemoryPressure"), Condition("DiskPressure", "False"))
    assert is_timely(sick(31, "MemoryPressure"))
    assert not is_timely(sick(31.1, "MemoryPressure"))
    assert not is_timely(sick(30, "MemoryPressure"), sick(40, "DiskPressure"))


def test_conditions_that_say_no_time_show_no_right_clock() -> None:
    assert not is_timely(Condition("MemoryPressure", "False"))
    assert not is_timely()


def test_k3_of_two_conditions_the_one_that_is_tolerated_no_longer_first_counts() -> None:
    found = unhealthy_condition(node("sick", sick(25), sick(6, "AcceleratedHardwareReady")))
    assert found is not None
    assert (found.type, found.repair_at) == ("AcceleratedHardwareReady", NOW + 4 * MINUTE)


@pytest.mark.parametrize(("total", "allowed"), [(0, 0), (1, 1), (3, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20)])
def test_a_fifth_of_a_pools_nodes_may_be_unhealthy_rounded_up(total: int, allowed: int) -> None:
    assert allowed_unhealthy(total) == allowed


def test_more_unhealthy_nodes_than_a_fifth_keep_each_other_even_those_that_are_tolerated() -> None:
    sick_nodes = [node("a", sick(40)), node("b", sick(40)), node("c", sick(1))]
    assert to_repair([*sick_nodes[:2], *healthy(7)]) == ["a", "b"]
    (first, _) = node_repairs((*sick_nodes, *healthy(7)), now=NOW)
    assert first.obstacle == (
        "more than 20% nodes are unhealthy in the nodepool: 3 of 10, and nodes are repaired while at most 2 are"
    )


def test_pools_do_not_count_for_each_other_and_a_node_without_a_pool_counts_all() -> None:
    other_pool = [node("x", sick(40), pool="other"), node("y", sick(40), pool="other")]
    assert to_repair([node("a", sick(40)), *healthy(4), *other_pool]) == ["a"]
    standalone = node("standalone", sick(40), pool="")
    assert to_repair([standalone, *healthy(9)]) == ["standalone"]
    (*_, blocked) = node_repairs((*other_pool, standalone, *healthy(7), node("z", sick(1))), now=NOW)
    assert "more than 20% nodes are unhealthy in the cluster: 4 of 11" in blocked_reason(
        node_repairs((*other_pool, standalone, *healthy(7), node("z", sick(1))), now=NOW), "standalone"
    )
    assert blocked.obstacle


def blocked_reason(repairs: tuple[NodeRepair, ...], name: str) -> str:
    return next(repair.obstacle for repair in repairs if repair.name == name)


def test_nodes_of_one_instance_nodes_of_none_and_nodes_of_a_shifted_zone_are_left_alone() -> None:
    lying = [node("a", sick(40), id="one"), node("b", Condition("Ready", "True"), id="one")]
    assert to_repair([*lying, *healthy(8)]) == []
    without = msgspec.structs.replace(node("a", sick(40)), provider_id="")
    assert to_repair([without, *healthy(8)]) == []
    assert node_repairs((node("a", sick(40), zone="z"), *healthy(8)), now=NOW, shifted_zones={"z"}) == ()


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(("default", "other"))), max_size=12), st.integers(0, 12))
def test_what_is_repaired_is_sick_for_long_enough_and_no_more_than_a_fifth_of_its_pool(
    ages: list[tuple[int, str]], others: int
) -> None:
    nodes = [node(f"sick-{n}", sick(minutes), pool=pool) for n, (minutes, pool) in enumerate(ages)]
    everything = (*nodes, *healthy(others))
    for repair in node_repairs(everything, now=NOW):
        pool = [each for each in everything if each.nodepool == repair.node.nodepool]
        assert repair.condition.repair_at <= NOW + MINUTE
        assert bool(repair.obstacle) == (sum(not each.is_ready for each in pool) > -(-len(pool) // 5))


def claim(annotation: str) -> NodeClaim:
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    return NodeClaim(ObjectMeta("c", annotations={labels.SEEN_UNHEALTHY: annotation}), reference)


def test_a_look_holds_for_this_condition_and_for_a_while() -> None:
    policy = REPAIR_POLICIES[0]
    condition = UnhealthyCondition("Ready", "False", NOW - 40 * MINUTE, policy.toleration)
    seen = claim(node_repair.look(condition, NOW))
    assert node_repair.looked_at(seen, condition, NOW + MINUTE) == NOW
    assert node_repair.looked_at(seen, condition, NOW + 4 * MINUTE) is None, "the API server may have been away"
    assert node_repair.looked_at(seen, condition, NOW - MINUTE) is None, "a time to come is no look"
    later = msgspec.structs.replace(condition, since=NOW - 30 * MINUTE)
    assert node_repair.looked_at(seen, later, NOW + MINUTE) is None, "it was healthy in between"
    for nonsense in ("", "Ready=False", "a/b/c", "////", "Ready=False/soon/later"):
        assert node_repair.looked_at(claim(nonsense), condition, NOW) is None


def impaired(minutes: float, *checks: StatusCheck) -> InstanceStatus:
    return InstanceStatus("i-sick", tuple(Impairment(check, NOW - minutes * MINUTE) for check in checks))


def repaired_for(status: InstanceStatus, *nodes: Node, has_gate: bool = False) -> list[str]:
    checks = instance_health.failing_checks([status])
    repairs = node_repairs(nodes, now=NOW, failing_checks=checks, has_gate=has_gate)
    return [each.condition.type for each in repairs if not each.obstacle and each.condition.repair_at <= NOW]


@pytest.mark.parametrize("check", [StatusCheck.SYSTEM, StatusCheck.INSTANCE])
def test_an_instance_that_ec2_calls_impaired_for_two_minutes_is_repaired_without_the_gate(check: StatusCheck) -> None:
    sick_node = node("sick", Condition("Ready", "True"))
    assert repaired_for(impaired(1.9, check), sick_node, *healthy(4)) == []
    assert repaired_for(impaired(2, check), sick_node, *healthy(4)) == [check.value]
    (repair,) = node_repairs((sick_node,), now=NOW, failing_checks=instance_health.failing_checks([impaired(2, check)]))
    assert node_repair.description(repair.condition) == (
        f"EC2 status check {check.value} is impaired since 2026-01-01T11:58:00Z, which is tolerated for 2 minutes"
    )


def test_volumes_in_trouble_are_reported_only() -> None:
    status = impaired(30, StatusCheck.ATTACHED_EBS)
    assert repaired_for(status, node("sick"), has_gate=True) == []
    assert instance_health.volumes_impaired_since(status, NOW) == NOW - 30 * MINUTE
    assert instance_health.volumes_impaired_since(impaired(1, StatusCheck.ATTACHED_EBS), NOW) is None


def test_impaired_instances_and_unhealthy_nodes_count_together() -> None:
    status = impaired(5, StatusCheck.SYSTEM)
    sick_node = node("sick", Condition("Ready", "True"))
    assert repaired_for(status, sick_node, node("other", sick(1)), *healthy(4)) == ["SystemStatus"]
    assert repaired_for(status, sick_node, node("other", sick(1)), *healthy(3)) == []


def test_without_the_gate_conditions_of_nodes_repair_nothing() -> None:
    assert node_repairs((node("sick", sick(40)), *healthy(4)), now=NOW, has_gate=False) == ()
