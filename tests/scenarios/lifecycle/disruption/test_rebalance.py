"""EC2 recommends to leave a spot instance: its node is replaced before it goes, where something better is to be had."""

from itertools import permutations

import msgspec
import pytest

from spotwright.aws.instance_types import interruption_history
from spotwright.disruption import breaker, rebalance
from spotwright.disruption.breaker import Batch
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.evaluate import evaluate
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.ports.rows import RECOMMENDED, epoch_ms
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.interrupted_nodes import deliver

POD = builders.pod("web", cpu_millicores=1800)
EVERY_NODE = (Budget("100%"),)


def only(key: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key, Operator.IN, values)


def running(
    pods: int = 1,
    *requirements: NodeSelectorRequirement,
    policy: str = "",
    budgets: tuple[Budget, ...] = EVERY_NODE,
    catalog: Catalog | None = None,
) -> World:
    """Nodes with a pod each that nothing else disrupts."""
    world = fresh_world(catalog)
    annotations = {labels.REBALANCE_RECOMMENDATION: policy} if policy else {}
    world.cluster.update(
        "nodepools", "default", budgets=budgets, annotations=annotations,
        requirements=(*builders.capacity_types(labels.SPOT), *requirements),
    )  # fmt: skip
    world.deploy(POD, pods)
    assert world.run(180, until=lambda: len(world.running_pods()) == pods)
    world.run(60)
    return world


def recommend(world: World, *claims: NodeClaim) -> None:
    for claim in claims:
        instance = claim.provider_id.rpartition("/")[2]
        world.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": instance})


def pool_of(claim: NodeClaim) -> tuple[str, str]:
    return claim.metadata.labels[labels.INSTANCE_TYPE], claim.metadata.labels[labels.ZONE]


def messages(world: World, reason: str) -> set[str]:
    return {event.message for event in world.cluster.events if event.reason == reason}


def commands(world: World) -> list[str]:
    return [row.phase for row in world.state.commands(created_after=0) if row.reason == rebalance.REASON]


def test_the_node_is_replaced_in_a_better_pool_before_it_goes_and_the_decision_says_why() -> None:
    world = running()
    (before,) = world.claims()
    began = len(world.effects.log)
    recommend(world, before)
    assert world.run(
        180,
        until=lambda: [claim.name for claim in world.claims()] not in ([before.name], []) and len(world.claims()) == 1,
    )
    (after,) = world.claims()
    assert pool_of(after) != pool_of(before)
    acts = [f"{effect.port}.{effect.action}" for effect in world.effects.log[began:]]
    assert acts.index("ec2.create_fleet") < acts.index("cluster.evict")
    kind, zone = pool_of(before)
    (approved,) = messages(world, "RebalanceApproved")
    assert approved.startswith(f"{kind} in {zone} had 1 rebalance recommendation in 24 h: NodeClaim {before.name} is")
    (key,) = [
        key for key, body in world.blobs.bodies.items() if key.startswith("decisions/") and b'"Rebalanced"' in body
    ]
    assert replay(key, blobs=world.blobs, catalogs=world.ports.catalogs).agrees
    assert commands(world) == ["done"]


@pytest.mark.parametrize(
    ("policy", "types", "reason"),
    [
        ("", ("c5.large",), "no spot offering with fewer notices in 24 h costs at most 10 % more"),
        ("", ("c5.large", "m5.large"), "no spot offering with fewer notices in 24 h costs at most 10 % more"),
        ("Replace", ("c5.large",), "no other spot offering has room for its pods"),
        ("Ignore", ("c5.large", "m5.large"), "NodePool default ignores rebalance recommendations"),
    ],
)
def test_without_anything_better_the_node_stays_and_it_says_why(
    policy: str, types: tuple[str, ...], reason: str
) -> None:
    """m5.large costs 14 % more than c5.large."""
    world = running(1, only(labels.INSTANCE_TYPE, *types), only(labels.ZONE, builders.ZONES[0]), policy=policy)
    (before,) = world.claims()
    recommend(world, before)
    world.run(240)
    assert [claim.name for claim in world.claims()] == [before.name]
    assert any(reason in message for message in messages(world, "DisruptionBlocked"))


def test_replace_asks_for_no_price() -> None:
    types = only(labels.INSTANCE_TYPE, "c5.large", "m5.large")
    world = running(1, types, only(labels.ZONE, builders.ZONES[0]), policy="Replace")
    (before,) = world.claims()
    recommend(world, before)
    assert world.run(240, until=lambda: [pool_of(claim)[0] for claim in world.claims()] == ["m5.large"])


def test_a_pool_that_is_no_better_is_no_place_to_go() -> None:
    """Both zones were recommended to be left: nothing goes back and forth between them."""
    world = running(2, only(labels.INSTANCE_TYPE, "c5.large"), only(labels.ZONE, *builders.ZONES[:2]))
    for zone in builders.ZONES[:2]:
        world.state.save_offering_health(rebalanced(world, "c5.large", zone))
    names = [claim.name for claim in world.claims()]
    recommend(world, *world.claims())
    world.run(300)
    assert [claim.name for claim in world.claims()] == names


def rebalanced(world: World, instance_type: str, zone: str) -> OfferingHealth:
    now_ms = int(world.clock.now().timestamp() * 1000)
    return interruption_history.record_rebalance(None, instance_type, zone, now_ms=now_ms)


@pytest.mark.parametrize(("price", "goes"), [(0.038, True), (0.039, False)])
def test_a_better_pool_may_cost_a_tenth_more(price: float, goes: bool) -> None:
    """c5.large costs 0.035."""
    kinds = (
        builders.instance_type("c5.large", 2, 4, on_demand=0.096, spot=0.035),
        builders.instance_type("d5.large", 2, 4, on_demand=0.096, spot=price),
    )
    world = running(1, only(labels.ZONE, builders.ZONES[0]), catalog=Catalog({"": kinds}, "given"))
    recommend(world, *world.claims())
    assert world.run(180, until=lambda: [pool_of(claim)[0] for claim in world.claims()] == ["d5.large"]) is goes


def test_a_pool_with_a_notice_is_better_than_one_with_more_of_them() -> None:
    world = running(1, only(labels.INSTANCE_TYPE, "c5.large"), only(labels.ZONE, *builders.ZONES[:2]))
    (before,) = world.claims()
    kind, zone = pool_of(before)
    (other,) = {*builders.ZONES[:2]} - {zone}
    now_ms = int(world.clock.now().timestamp() * 1000)
    several = msgspec.structs.replace(
        rebalanced(world, kind, zone), rebalanced_at_ms=tuple(now_ms - hours * 3_600_000 for hours in (3, 2, 1))
    )
    for health in (several, rebalanced(world, kind, other)):
        world.state.save_offering_health(health)
    recommend(world, before)
    assert world.run(240, until=lambda: [pool_of(claim) for claim in world.claims()] == [(kind, other)])


def test_a_node_of_a_static_nodepool_stays_and_it_says_why() -> None:
    world = fresh_world()
    world.settings = msgspec.structs.replace(
        world.settings, feature_gates=(*world.settings.feature_gates, STATIC_CAPACITY)
    )
    world.cluster.update(
        "nodepools", "default", budgets=EVERY_NODE, replicas=1, requirements=builders.capacity_types(labels.SPOT)
    )
    assert world.run(240, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    world.run(60)
    names = [claim.name for claim in world.claims()]
    recommend(world, *world.claims())
    world.run(240)
    assert [claim.name for claim in world.claims()] == names
    assert any("NodePool default is static" in message for message in messages(world, "DisruptionBlocked"))


@pytest.mark.parametrize(("nodes", "allowed"), [(0, 2), (1, 2), (20, 2), (21, 3), (100, 10), (101, 11)])
def test_a_tenth_of_the_nodes_may_go_within_an_hour_rounded_up_and_two_at_least(nodes: int, allowed: int) -> None:
    assert rebalance.nodes_per_hour(nodes) == allowed


@pytest.mark.parametrize("reasons", [(), ("Drifted",), ("Underutilized",)])
def test_a_closed_budget_keeps_the_node_whatever_reason_it_names(reasons: tuple[str, ...]) -> None:
    world = running(budgets=(Budget("0", reasons=reasons),))
    (before,) = world.claims()
    recommend(world, before)
    world.run(240)
    assert [claim.name for claim in world.claims()] == [before.name]


@pytest.mark.parametrize("nodes", [12, 20])
def test_a_storm_churns_no_fleet(nodes: int) -> None:
    """A node and its replacement are counted once."""
    world = running(nodes)
    before = {claim.name for claim in world.claims()}
    recommend(world, *world.claims())
    world.run(600)
    assert len(world.running_pods()) == nodes
    gone = before - {claim.name for claim in world.claims()}
    assert len(gone) == rebalance.nodes_per_hour(nodes) == 2
    assert any("within the last hour" in message for message in messages(world, "DisruptionBlocked"))


@pytest.mark.parametrize(("left", "why"), [(0, "the breaker admits no more nodes"), (1, "the breaker"), (2, "so many")])
def test_a_node_that_waits_says_which_limit_keeps_it(left: int, why: str) -> None:
    """Two nodes may go within an hour."""
    world = running(4)
    recent = Batch("others", epoch_ms(world.clock.now()), breaker.MIN_NODES - left, 4)
    world.state.save_breaker(msgspec.structs.replace(world.state.breaker(), batches=(recent,)))
    recommend(world, *world.claims())
    world.run(20)
    limits = [told for told in messages(world, "DisruptionBlocked") if told.startswith(("so many", "the breaker"))]
    assert limits
    assert all(told.startswith(why) for told in limits), limits


def test_an_interruption_that_follows_is_not_held_up() -> None:
    world = running(1, policy="Ignore")
    (before,) = world.claims()
    recommend(world, before)
    world.run(30)
    world.interrupt_spot(before.provider_id.rpartition("/")[2])
    assert world.run(120, until=lambda: before.name not in {claim.name for claim in world.claims()})
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)


@pytest.mark.parametrize("order", list(permutations(["rebalance", "stopping"])))
@pytest.mark.parametrize("seconds", [0, 1, 30, 3600])
def test_a_recommendation_holds_beside_a_state_change_that_ec2_does_not_confirm(
    order: tuple[str, ...], seconds: int
) -> None:
    """The instance runs: it may still be replaced when a budget has room."""
    world = running(1, policy="Replace", budgets=(Budget("0"),))
    (claim,) = world.claims()
    instance = instance_id(claim.provider_id)
    for batch in [order] if seconds == 0 else [(name,) for name in order]:
        deliver(world, instance, *batch)
        world.run(min(seconds, 30))
        world.clock.advance(max(0, seconds - 30))
    world.run(30)
    row = world.state.notice(instance)
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("rebalance_recommendation", RECOMMENDED, "")
    world.cluster.update("nodepools", "default", budgets=EVERY_NODE)
    assert world.run(240, until=lambda: claim.name not in {claim.name for claim in world.claims()})


def test_a_recommendation_that_a_state_change_did_not_end_makes_its_pool_dearer_once() -> None:
    """EC2 sent no second recommendation: two of them more than five minutes apart would count twice."""
    world = running(1, policy="Ignore")
    (claim,) = world.claims()
    instance = instance_id(claim.provider_id)
    recommend(world, claim)
    world.run(30)
    for name in ("stopping", "stopped"):
        world.clock.advance(600)
        deliver(world, instance, name)
        world.run(30)
    row = world.state.notice(instance)
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("rebalance_recommendation", RECOMMENDED, "")
    assert row.due - world.clock.milliseconds() > 3_600_000
    (health,) = world.state.offering_health(0)
    assert len(health.rebalanced_at_ms) == 1


def test_a_state_change_that_ec2_shows_late_counts_after_a_recommendation_of_long_ago() -> None:
    world = running(1, policy="Ignore")
    (claim,) = world.claims()
    recommend(world, claim)
    world.run(30)
    world.clock.advance(1800)
    deliver(world, instance_id(claim.provider_id), "shutting-down")
    world.run(5)
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    world.run(5)
    assert claim.name not in {each.name for each in world.claims() if each.metadata.deletion_timestamp is None}


@pytest.mark.parametrize("order", list(permutations(["rebalance", "stopping", "spot"])))
def test_a_warning_counts_beside_a_recommendation_and_a_state_change(order: tuple[str, ...]) -> None:
    """All within a second, before anybody has looked."""
    world = running(1, policy="Ignore")
    (claim,) = world.claims()
    for name in order:
        deliver(world, instance_id(claim.provider_id), name)
    world.run(5)
    row = world.state.notice(instance_id(claim.provider_id))
    assert row is not None
    assert (row.kind, row.phase) == ("spot_interrupted", "replacing")


def test_a_recommendation_is_forgotten_after_two_hours() -> None:
    world = running(1, policy="Ignore")
    recommend(world, *world.claims())
    world.run(30)
    assert len(world.state.notices()) == 1
    world.clock.advance(2 * 3600)
    world.run(120)
    assert not world.state.notices()


@pytest.mark.parametrize("changes", range(1, 40, 3))
def test_a_crash_after_any_change_replaces_the_node_once(changes: int) -> None:
    world = running()
    (before,) = world.claims()
    world.effects.crash_after(changes)
    try:
        recommend(world, before)
    except Crash:
        recommend(world, before)
    for _ in range(300):
        try:
            world.run(1)
        except Crash:
            continue
    world.effects.crash_after(None)
    world.run(120)
    assert len(world.running_pods()) == 1 == len(world.claims())
    assert len(world.ec2.all_instances()) == 2


def test_nodes_without_anything_better_do_not_keep_others_from_going() -> None:
    """They take no part of the rate, nor of what budgets allow."""
    world = running(3, only(labels.INSTANCE_TYPE, "c5.large"), only(labels.ZONE, builders.ZONES[0]))
    stuck = world.claims()
    later = builders.nodepool(
        "later", budgets=EVERY_NODE, requirements=builders.capacity_types(labels.SPOT),
        taints=(Taint("only", "NoSchedule"),),
    )  # fmt: skip
    world.cluster.put("nodepools", later)
    tolerations = (Toleration("only", "Exists"),)
    world.deploy(
        builders.pod("other", cpu_millicores=1800, node_selector={labels.NODEPOOL: "later"}, tolerations=tolerations), 1
    )
    assert world.run(180, until=lambda: len(world.running_pods()) == 4)
    world.run(60)
    (movable,) = [claim for claim in world.claims() if claim.nodepool == "later"]
    recommend(world, *world.claims())
    assert world.run(300, until=lambda: movable.name not in {claim.name for claim in world.claims()})
    assert {claim.name for claim in stuck} < {claim.name for claim in world.claims()}


def test_a_node_whose_offering_has_no_price_stays_and_it_says_why() -> None:
    world = running()
    (before,) = world.claims()
    kind, _ = pool_of(before)
    known = {
        name: tuple(instance_type for instance_type in types if instance_type.name != kind)
        for name, types in world.catalogs.catalog.by_nodeclass.items()
    }
    world.catalogs.catalog = Catalog(known, "given")
    recommend(world, before)
    world.run(240)
    assert [claim.name for claim in world.claims()] == [before.name]
    assert any("the price of its offering is not known" in message for message in messages(world, "DisruptionBlocked"))


def test_a_node_stays_where_better_offerings_have_fewer_values_than_min_values_says() -> None:
    """m5.large costs 14 % more than c5.large, whatever the zone."""
    types = msgspec.structs.replace(only(labels.INSTANCE_TYPE, "c5.large", "m5.large"), min_values=2)
    world = running(1, types, only(labels.ZONE, *builders.ZONES[:2]))
    (before,) = world.claims()
    recommend(world, before)
    world.run(240)
    assert [claim.name for claim in world.claims()] == [before.name]
    lacking = f"minValues 2 of {labels.INSTANCE_TYPE} is not met by the 1 values"
    assert any(lacking in message for message in messages(world, "DisruptionBlocked"))


def test_a_recommendation_for_a_node_that_is_not_spot_is_not_acted_on() -> None:
    world = fresh_world()
    fields = {"budgets": EVERY_NODE, "annotations": {labels.REBALANCE_RECOMMENDATION: "Replace"}}
    on_demand, either = (
        builders.capacity_types(labels.ON_DEMAND),
        builders.capacity_types(labels.ON_DEMAND, labels.SPOT),
    )
    world.cluster.update("nodepools", "default", requirements=on_demand, consolidate_after_seconds=None, **fields)
    world.deploy(POD, 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 1)
    world.run(60)
    world.cluster.update("nodepools", "default", requirements=either)
    (before,) = world.claims()
    recommend(world, before)
    world.run(240)
    assert [claim.name for claim in world.claims()] == [before.name]


def test_no_pod_is_planned_for_another_node_that_ec2_recommends_to_leave() -> None:
    world = running(policy="Replace")
    world.cluster.update("nodepools", "default", consolidate_after_seconds=None)
    large = (*builders.capacity_types(labels.SPOT), only(labels.INSTANCE_TYPE, "c5.2xlarge"))
    world.cluster.put("nodepools", builders.nodepool("roomy", consolidate_after_seconds=None, requirements=large))
    world.cluster.update("nodepools", "roomy", annotations={labels.REBALANCE_RECOMMENDATION: "Ignore"})
    world.deploy(builders.pod("small", cpu_millicores=500, node_selector={labels.NODEPOOL: "roomy"}), 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 2)
    world.run(60)
    recommend(world, *world.claims())
    assert world.run(240, until=lambda: bool(messages(world, "RebalanceApproved")))
    (approved,) = messages(world, "RebalanceApproved")
    assert "replaced with spot" in approved


def test_what_is_committed_counts_in_the_rate_before_lifecycle_has_acted_on_it() -> None:
    """There is room for a third node's pod, and no launch is waited for."""
    world = running(3, policy="Replace")
    world.cluster.update("nodepools", "default", consolidate_after_seconds=None)
    large = (*builders.capacity_types(labels.SPOT), only(labels.INSTANCE_TYPE, "c5.2xlarge"))
    world.cluster.put("nodepools", builders.nodepool("roomy", consolidate_after_seconds=None, requirements=large))
    world.deploy(builders.pod("small", cpu_millicores=500, node_selector={labels.NODEPOOL: "roomy"}), 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 4)
    world.run(60)
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, disruption_paused=True)
    recommend(world, *(claim for claim in world.claims() if claim.nodepool == "default"))
    world.run(30)
    assert {row.phase for row in world.state.notices()} == {RECOMMENDED}
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, disruption_paused=False)
    committed = [evaluate(world.ports, gather=gather_live, clock=world.clock.now).committed for _ in range(2)]
    assert [len(names) for names in committed] == [rebalance.nodes_per_hour(4), 0]


def test_a_recommendation_after_one_that_ended_is_acted_on() -> None:
    """The first one was ignored, and ended after two hours."""
    types = only(labels.INSTANCE_TYPE, "c5.large", "m5.large")
    world = running(1, types, only(labels.ZONE, builders.ZONES[0]), policy="Ignore")
    (before,) = world.claims()
    recommend(world, before)
    world.run(2 * 3600 + 300)
    assert not world.state.notices()
    world.cluster.update("nodepools", "default", annotations={labels.REBALANCE_RECOMMENDATION: "Replace"})
    assert [claim.name for claim in world.claims()] == [before.name]
    recommend(world, before)
    assert world.run(240, until=lambda: [pool_of(claim)[0] for claim in world.claims()] == ["m5.large"])
