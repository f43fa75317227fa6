"""Static NodePools keep as many nodes as they say, whatever pods wait, and are never chosen for pods."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling import planner, pod_planner
from spotwright.scheduling.plan import Plan, to_in_flight_nodeclaim
from spotwright.scheduling.static_capacity.node_counts import NodeCount, count_missing_nodes
from spotwright.scheduling.static_capacity.provisioning import MAX_NODES_PER_DECISION
from tests.unit.scheduling.builders import (
    LARGE,
    NOW,
    TYPES,
    daemonset,
    node,
    owned_by,
    pod,
    pool,
    shown,
    snapshot,
    why,
    zone_is,
)

ON = Settings(feature_gates=("StaticCapacity",))


def keeping(replicas: int, *requirements: NodeSelectorRequirement, name: str = "fixed", **fields: Any) -> NodePool:
    return pool(name, *requirements, replicas=replicas, **fields)


def claim(name: str, *, launched: bool = True, deleting: bool = False, age: int = 0, **fields: Any) -> NodeClaim:
    """A claim of the pool ``fixed``, made ``age`` minutes ago."""
    created = NOW - timedelta(minutes=age)
    about = ObjectMeta(
        name,
        labels={labels.NODEPOOL: "fixed"},
        creation_timestamp=created,
        deletion_timestamp=NOW if deleting else None,
    )
    provider = f"aws:///z1/{name}" if launched else ""
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    return NodeClaim(about, reference, provider_id=provider, **fields)


def static_snapshot(
    *waiting: Pod, pools: Iterable[NodePool], running: int = 0, settings: Settings = ON, **fields: Any
) -> Snapshot:
    claims = tuple(claim(f"c{number}") for number in range(running)) + tuple(fields.pop("nodeclaims", ()))
    return snapshot(*waiting, pools=pools, nodeclaims=claims, settings=settings, **fields)


def decided(*waiting: Pod, **fields: Any) -> Plan:
    return planner.plan(static_snapshot(*waiting, **fields), Catalog({"": TYPES}))


def kept(plan: Plan) -> int:
    return sum(new_node.nodepool == "fixed" for new_node in plan.new_nodes)


@pytest.mark.parametrize(
    ("replicas", "running", "limit", "nodes"),
    [
        (2, 0, None, 2),
        (3, 1, None, 2),
        (0, 0, None, 0),
        (2, 0, 1, 1),
        (15, 0, 10, 10),
        (3, 1, 2, 1),
        (4, 4, None, 0),
        (4, 5, None, 0),
    ],
)
def test_a_static_pool_makes_what_it_lacks_within_its_limit(
    replicas: int, running: int, limit: int | None, nodes: int
) -> None:
    limits = {} if limit is None else {"nodes": str(limit)}
    assert kept(decided(pools=[keeping(replicas, limits=limits)], running=running)) == nodes


def test_a_node_that_waits_for_its_replacement_is_not_made_twice() -> None:
    plan = decided(pools=[keeping(4)], running=4, nodeclaims_to_replace=("c3",))
    assert plan.new_nodes == ()
    assert count_missing_nodes(keeping(4), NodeCount(active=3, pending_disruption=1)) == 0


def test_what_is_on_its_way_out_is_made_anew_but_counts_against_the_limit() -> None:
    assert kept(decided(pools=[keeping(3)], running=2, nodeclaims=[claim("old", deleting=True)])) == 1
    limited = keeping(3, limits={"nodes": "3"})
    assert kept(decided(pools=[limited], running=2, nodeclaims=[claim("old", deleting=True)])) == 0
    assert kept(decided(pools=[keeping(3)], running=3, nodeclaims_to_delete=("c0",))) == 1


def test_a_committed_node_without_a_claim_yet_counts_as_there() -> None:
    (first, *_) = decided(pools=[keeping(2)]).new_nodes
    coming = tuple(to_in_flight_nodeclaim(first, name) for name in ("a", "b"))
    assert kept(decided(pools=[keeping(3)], in_flight=coming)) == 1
    shown_twice = claim("a", launched=False)
    assert kept(decided(pools=[keeping(3)], in_flight=coming, nodeclaims=[shown_twice])) == 1


@pytest.mark.parametrize(
    ("closed", "reason"),
    [
        (keeping(2, conditions=(Condition("Ready", "False", message="no subnets"),)), "it is not Ready: no subnets"),
        (keeping(2, zone_is("z9")), "no instance type that its requirements allow can be bought"),
        (keeping(2, NodeSelectorRequirement("a", "Gt", ("x",))), "invalid"),
        (keeping(2, NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 9)), "minValues: 9"),
    ],
    ids=["not ready", "nowhere", "invalid", "too few"],
)
def test_a_static_pool_that_can_make_nothing_says_why_and_stops_no_other(closed: NodePool, reason: str) -> None:
    plan = decided(pools=[closed, keeping(1, name="other")])
    assert [new_node.nodepool for new_node in plan.new_nodes] == ["other"]
    assert any(note.startswith("NodePool fixed keeps 2 nodes and has 0") and reason in note for note in plan.notes)


def test_a_pool_that_is_deleted_makes_nothing_and_is_not_scaled_down() -> None:
    nodepool = NodePool(ObjectMeta("fixed", deletion_timestamp=NOW), NodeClassReference("", "", "default"), replicas=1)
    assert decided(pools=[nodepool]).new_nodes == ()
    assert decided(pools=[nodepool], running=3).excess_nodeclaims == ()


def test_without_its_gate_a_static_pool_keeps_nothing_and_says_so() -> None:
    plan = decided(pools=[keeping(2)], running=3, settings=Settings())
    assert (plan.new_nodes, plan.excess_nodeclaims) == ((), ())
    assert any("the feature gate StaticCapacity" in note and "is off" in note for note in plan.notes)


@pytest.mark.parametrize("settings", [Settings(), ON], ids=["gate off", "gate on"])
def test_a_static_pool_is_never_chosen_for_pods(settings: Settings) -> None:
    full = [keeping(0)]
    alone = decided(pod(), pools=full, settings=settings)
    assert alone.new_nodes == ()
    assert "static" in why(alone)["default/p"]
    beside = decided(pod(), pools=[*full, pool("grows")], settings=settings)
    assert [new_node.nodepool for new_node in beside.new_nodes] == ["grows"]
    by_the_planner_alone = pod_planner.plan_pods(
        static_snapshot(pod(), pools=[keeping(2)], settings=settings), Catalog({"": TYPES})
    )
    assert by_the_planner_alone.new_nodes == ()


def test_pods_go_on_the_nodes_that_a_static_pool_makes_anyway() -> None:
    plan = decided(
        pod(), pools=[keeping(2, NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("large",))), pool("grows")]
    )
    assert [(new_node.nodepool, new_node.pods) for new_node in plan.new_nodes] == [
        ("fixed", ("default/p",)),
        ("fixed", ()),
    ]
    assert plan.existing_nodes == ()
    assert (
        plan.price_picousd_per_hour
        == plan.lower_bound_picousd_per_hour
        == 2 * LARGE.offerings[-1].price_picousd_per_hour
    )


def test_a_claim_says_what_it_may_become_and_asks_for_nothing() -> None:
    own = keeping(1, zone_is("z1", "z2"), NodeSelectorRequirement("rack", "In", ("r2", "r1")), labels={"team": "a"})
    (new_node,) = decided(pools=[own], daemonsets=(daemonset(),)).new_nodes
    assert new_node.requests == {}
    assert new_node.instance_types == ("small", "medium", "fat", "large")
    assert new_node.zones == ("z1", "z2")
    assert new_node.labels == {"team": "a", "rack": "r1", labels.NODEPOOL: "fixed", labels.EC2NODECLASS: "default"}
    assert (
        NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("fat", "large", "medium", "small"))
        in new_node.requirements
    )
    assert new_node.capacity_type == labels.SPOT


def test_fewer_different_values_are_kept_only_where_that_is_allowed() -> None:
    demanding = keeping(1, NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 9))
    loose = Settings(feature_gates=("StaticCapacity",), min_values_policy="BestEffort")
    (new_node,) = decided(pools=[demanding], settings=loose).new_nodes
    assert (
        next(expression.min_values for expression in new_node.requirements if expression.key == labels.INSTANCE_TYPE)
        == 4
    )


def test_a_typing_error_does_not_buy_a_million_nodes_at_once() -> None:
    plan = decided(pools=[keeping(1_000_000)])
    assert kept(plan) == MAX_NODES_PER_DECISION
    assert any("the others follow" in note for note in plan.notes)


def on(name: str, host: str, **fields: Any) -> Pod:
    return pod(name, node_name=host, **fields)


def test_what_costs_least_to_lose_goes_first() -> None:
    """Not launched, then only DaemonSets, then by the cost of moving pods; guarded pods last."""
    hosts = tuple(node(f"c{number}", labels={labels.NODEPOOL: "fixed"}) for number in range(4))
    pods = (
        on("agent", "c0", owner_references=owned_by("DaemonSet")),
        on("one", "c1"),
        on("two", "c2"),
        on("three", "c2"),
        on("guarded", "c3", annotations={labels.DO_NOT_DISRUPT: "true"}),
    )
    waiting = claim("waits", launched=False)

    def going(replicas: int) -> set[str]:
        return set(
            decided(*pods, pools=[keeping(replicas)], running=4, nodeclaims=[waiting], nodes=hosts).excess_nodeclaims
        )

    order: list[str] = []
    for replicas in range(4, -1, -1):
        order += sorted(going(replicas) - set(order))
    assert order == ["waits", "c0", "c1", "c2", "c3"]
    assert going(5) == set()


@pytest.mark.parametrize("order", [1, -1])
def test_a_claim_with_two_nodes_costs_what_the_pods_of_both_cost(order: int) -> None:
    fixed = {labels.NODEPOOL: "fixed"}
    hosts = tuple(node(name, labels=fixed) for name in ("a", "b"))
    second = msgspec.structs.replace(node("second", labels=fixed), provider_id=hosts[0].provider_id)
    nodes = (*hosts, second)[::order]
    pods = (on("x", "b"), on("y", "second"), on("z", "second"))
    plan = decided(*pods, pools=[keeping(1)], nodeclaims=[claim("a"), claim("b")], nodes=nodes)
    assert plan.excess_nodeclaims == ("b",)


def test_a_node_near_its_end_is_cheaper_to_lose() -> None:
    hosts = tuple(node(name, labels={labels.NODEPOOL: "fixed"}) for name in ("a", "b"))
    old, young = claim("b", age=50, expire_after_seconds=3600), claim("a", expire_after_seconds=3600)
    plan = decided(on("x", "a"), on("y", "b"), pools=[keeping(1)], nodeclaims=[young, old], nodes=hosts)
    assert plan.excess_nodeclaims == ("b",)


def test_of_nodes_that_cost_the_same_one_that_never_joined_goes_first_and_then_a_drifted_one() -> None:
    joined = Condition("Initialized", "True")
    claims = [
        claim("a", conditions=(joined,)),
        claim("b", conditions=(joined, Condition("Drifted", "True"))),
        claim("c"),
    ]
    assert decided(pools=[keeping(2)], nodeclaims=claims).excess_nodeclaims == ("c",)
    assert decided(pools=[keeping(1)], nodeclaims=claims).excess_nodeclaims == ("b", "c")


def test_nodes_that_are_only_promised_go_once_they_have_a_claim() -> None:
    (first, *_) = decided(pools=[keeping(1)]).new_nodes
    coming = (to_in_flight_nodeclaim(first, "promised"),)
    assert decided(pools=[keeping(2)], running=2, in_flight=coming).excess_nodeclaims == ()
    assert decided(pools=[keeping(1)], running=2, in_flight=coming).excess_nodeclaims == ("c0",)


def test_the_order_of_things_does_not_matter() -> None:
    pools, running = [keeping(1), keeping(3, name="zz"), pool("grows")], [claim(f"c{n}") for n in range(3)]
    forth = decided(pod(), pools=pools, nodeclaims=running)
    back = decided(pod(), pools=pools[::-1], nodeclaims=running[::-1])
    assert forth == back
    assert shown(forth)
