"""Static NodePools in a cluster: as many nodes as they say, whoever takes one away, and no more."""

from collections import Counter
from datetime import timedelta

import msgspec
import pytest

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import decode_decision, encode_decision
from spotwright.errors import Conflict
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget, NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import Settings
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.planning.snapshot import gather
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.provision.workflow import provision

ON = Settings(feature_gates=("ReservedCapacity", "StaticCapacity"))
SMALL = (NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("m5.large",)),)


def static(world: World, replicas: int, **fields: object) -> NodePool:
    world.settings = ON
    wanted = builders.nodepool("fixed", replicas=replicas, requirements=SMALL, **fields)
    nodepool: NodePool = world.cluster.put("nodepools", wanted)
    return nodepool


def ready(world: World, nodes: int) -> bool:
    claims = [nodeclaim for nodeclaim in world.claims() if nodeclaim.nodepool == "fixed"]
    return len(claims) == nodes == len(world.ec2.live_instances()) and all(
        nodeclaim.is_condition_true("Initialized") for nodeclaim in claims
    )


@pytest.fixture
def three(world: World) -> World:
    """A static pool of three nodes, all of them there."""
    static(world, 3)
    assert world.run(180, until=lambda: ready(world, 3))
    return world


def scaled(world: World, replicas: int) -> None:
    world.cluster.update("nodepools", "fixed", replicas=replicas)


def test_a_static_pool_gets_its_nodes_without_a_pod(three: World) -> None:
    three.run(600)
    assert ready(three, 3)
    assert {nodeclaim.metadata.labels[labels.INSTANCE_TYPE] for nodeclaim in three.claims()} == {"m5.large"}
    (pool,) = [nodepool for nodepool in three.cluster.nodepools() if nodepool.name == "fixed"]
    assert pool.node_count == 3
    condition = find_condition(pool.conditions, "ValidationSucceeded")
    assert condition is not None
    assert condition.status == "True"


def test_of_more_nodes_too_many_than_a_row_has_room_for_the_rest_follow(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotwright.workflows.provision.workflow.MAXIMUM_EXCESS", 2)
    static(three, 0)
    assert three.run(300, until=lambda: not three.claims())
    commands = [row for key in three.state.rows if (row := three.state.command(key.removeprefix("command#")))]
    assert sorted(len(row.candidates) for row in commands) == [1, 2]


def test_without_the_gate_nothing_is_made_and_the_pool_says_why(world: World) -> None:
    static(world, 2)
    world.settings = Settings()
    world.run(120)
    assert not world.claims()
    lifecycle(world, [Doorbell(builders.CLUSTER, "nodepools")], now=world.clock.now())
    (pool,) = [nodepool for nodepool in world.cluster.nodepools() if nodepool.name == "fixed"]
    condition = find_condition(pool.conditions, "ValidationSucceeded")
    assert condition is not None
    assert "needs the feature gate StaticCapacity" in condition.message


def test_a_pool_whose_requirements_leave_nothing_is_told_so(world: World) -> None:
    wanted = static(world, 2)
    nothing = (NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("x9.large",)),)
    world.cluster.put("nodepools", msgspec.structs.replace(wanted, requirements=nothing))
    world.run(61)
    recorded_events = [event for event in world.cluster.events if event.reason == "NoCompatibleInstanceTypes"]
    assert [recorded_event.name for recorded_event in recorded_events[:1]] == ["fixed"]
    assert "keeps 2 nodes and has 0" in recorded_events[0].message


def test_a_node_that_somebody_deletes_comes_back(three: World) -> None:
    victim = three.claims()[0]
    three.cluster.delete("nodeclaims", victim.metadata)
    assert three.run(
        240, until=lambda: ready(three, 3) and victim.name not in {nodeclaim.name for nodeclaim in three.claims()}
    )
    three.run(120)
    assert ready(three, 3)


def made(world: World) -> int:
    return len(world.effects.select("cluster", "create_nodeclaim"))


@pytest.mark.parametrize("ended_by", ["a user", "EC2"])
def test_a_node_that_is_lost_is_made_anew_at_once(three: World, ended_by: str) -> None:
    """Whatever part of a minute is left until the next sweep."""
    three.run(7)
    victim, before = three.claims()[0], made(three)
    if ended_by == "a user":
        three.cluster.delete("nodeclaims", victim.metadata)
    else:
        instance = victim.provider_id.rpartition("/")[2]
        three.ec2.stop(instance, after_seconds=0)
        three.deliver_event("EC2 Instance State-change Notification", {"instance-id": instance, "state": "terminated"})
    assert three.run(5, until=lambda: made(three) > before)
    three.run(120)
    assert made(three) == before + 1


def test_a_node_that_its_limit_made_wait_is_made_as_soon_as_the_other_is_gone(world: World) -> None:
    static(world, 2, limits={"nodes": 2})
    assert world.run(180, until=lambda: ready(world, 2))
    world.run(7)
    victim, before = world.claims()[0], made(world)
    world.cluster.delete("nodeclaims", victim.metadata)
    assert world.run(60, until=lambda: victim.name not in {nodeclaim.name for nodeclaim in world.claims()})
    assert world.run(5, until=lambda: made(world) > before)


def test_more_replicas_are_more_nodes_and_fewer_are_fewer(three: World) -> None:
    scaled(three, 5)
    assert three.run(240, until=lambda: ready(three, 5))
    scaled(three, 2)
    assert three.run(300, until=lambda: ready(three, 2))
    scaled(three, 0)
    assert three.run(300, until=lambda: not three.claims() and not three.ec2.live_instances())
    three.run(180)
    assert not three.claims()


def test_nodes_with_pods_stay_when_others_can_go(three: World) -> None:
    three.deploy(builders.pod("web", cpu_millicores=1500), 1)
    assert three.run(60, until=lambda: bool(three.running_pods()))
    (web,) = three.running_pods()
    scaled(three, 1)
    assert three.run(300, until=lambda: ready(three, 1))
    assert [pod.node_name for pod in three.running_pods()] == [web.node_name]


def test_scaling_down_asks_no_budget_and_no_breaker(world: World) -> None:
    static(world, 25, budgets=(Budget("0"),))
    assert world.run(300, until=lambda: ready(world, 25))
    scaled(world, 0)
    assert world.run(300, until=lambda: not world.claims())
    assert world.state.breaker().batches == ()


def test_pods_take_the_nodes_that_a_static_pool_makes_anyway(world: World) -> None:
    static(world, 2)
    world.deploy(builders.pod("web", cpu_millicores=1000), 2)
    assert world.run(180, until=lambda: len(world.running_pods()) == 2)
    assert Counter(nodeclaim.nodepool for nodeclaim in world.claims()) == {"fixed": 2}


def test_an_interrupted_node_is_replaced_before_it_goes(three: World) -> None:
    victim = three.claims()[0]
    three.interrupt_spot(victim.provider_id.rpartition("/")[2])
    assert three.run(60, until=lambda: len(three.claims()) == 4)
    assert three.run(240, until=lambda: ready(three, 3))
    three.run(240)
    assert ready(three, 3)
    assert victim.name not in {nodeclaim.name for nodeclaim in three.claims()}
    assert len(three.effects.select("cluster", "create_nodeclaim")) == 4


def test_a_limit_is_not_exceeded_even_for_a_replacement(world: World) -> None:
    static(world, 2, limits={"nodes": 2})
    assert world.run(180, until=lambda: ready(world, 2))
    victim = world.claims()[0]
    world.interrupt_spot(victim.provider_id.rpartition("/")[2])
    most = 0
    for _ in range(400):
        world.run(1)
        most = max(most, len(world.claims()))
    assert most == 2
    assert ready(world, 2)
    assert victim.name not in {nodeclaim.name for nodeclaim in world.claims()}


def test_without_capacity_it_is_tried_again_until_there_is_some(world: World) -> None:
    static(world, 2)
    kinds = (labels.SPOT, labels.ON_DEMAND)
    world.ec2.capacity = {(kind, "m5.large", zone): 0 for kind in kinds for zone in builders.ZONES}
    world.run(120)
    assert not world.ec2.live_instances()
    world.ec2.capacity = {}
    assert world.run(900, until=lambda: ready(world, 2))


def test_of_two_planners_one_makes_the_nodes(world: World) -> None:
    static(world, 3)
    before = world.state.cluster()
    snapshot = gather(world, before, now=world.clock.now())
    plan = decide(snapshot, world.catalogs.catalog)
    assert len(plan.new_nodes) == 3
    assert provision(world, clock=world.clock.now).decisions
    with pytest.raises(Conflict):
        world.state.commit(expected_version=before.version, key="late")
    again = gather(world, world.state.cluster(), now=world.clock.now())
    assert decide(again, world.catalogs.catalog).new_nodes == ()


def test_a_repeated_doorbell_makes_and_takes_nothing_again(three: World) -> None:
    assert not provision(three, clock=three.clock.now).decisions
    scaled(three, 1)
    provision(three, clock=three.clock.now)
    version = three.state.cluster().version
    provision(three, clock=three.clock.now)
    assert three.state.cluster().version == version
    assert three.run(300, until=lambda: ready(three, 1))


@pytest.mark.parametrize("kind", ["provision", "interrupt", "scale-down"])
def test_what_was_decided_is_decided_again(three: World, kind: str) -> None:
    three.interrupt_spot(three.claims()[0].provider_id.rpartition("/")[2])
    assert three.run(300, until=lambda: ready(three, 3))
    scaled(three, 1)
    assert three.run(300, until=lambda: ready(three, 1))
    bodies = {key: decode_decision(body) for key, body in three.blobs.bodies.items() if key.startswith("decisions/")}
    found = [key for key, decision in bodies.items() if decision.kind == kind]
    assert found
    assert all(replay(key, blobs=three.blobs, catalogs=three.catalogs).agrees for key in found)


def test_a_scale_down_that_should_not_have_been_is_found_out(three: World) -> None:
    scaled(three, 1)
    assert three.run(300, until=lambda: ready(three, 1))
    bodies = {key: decode_decision(body) for key, body in three.blobs.bodies.items() if key.startswith("decisions/")}
    (decision,) = [one for one in bodies.values() if one.kind == "scale-down"]
    forged = msgspec.structs.replace(decision, plan=msgspec.structs.replace(decision.plan, excess_nodeclaims=()))
    key = three.blobs.put("decisions", encode_decision(forged))
    assert not replay(key, blobs=three.blobs, catalogs=three.catalogs).agrees


def test_nodes_of_a_static_pool_are_not_consolidated_but_expire(world: World) -> None:
    static(world, 1, expire_after_seconds=900)
    assert world.run(180, until=lambda: ready(world, 1))
    (first,) = world.claims()
    assert world.run(1200, until=lambda: ready(world, 1) and world.claims()[0].name != first.name)
    assert first.metadata.creation_timestamp is not None
    assert world.clock.now() - first.metadata.creation_timestamp >= timedelta(seconds=900)


DRIFT = {"team": "b"}


def relabel(world: World) -> None:
    """All nodes of the pool drift at once."""
    (pool,) = [nodepool for nodepool in world.cluster.nodepools() if nodepool.name == "fixed"]
    about = msgspec.structs.replace(pool.metadata, generation=pool.metadata.generation + 1)
    world.cluster.put("nodepools", msgspec.structs.replace(pool, metadata=about, labels=DRIFT))
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "nodepools")], now=world.clock.now())
    world.settle()


def fixed(world: World) -> list[NodeClaim]:
    return [claim for claim in world.claims() if claim.nodepool == "fixed"]


def disrupted(world: World) -> list[NodeClaim]:
    """As budgets count: one whose instance is terminating counts no more."""
    return [
        claim
        for claim in fixed(world)
        if claim.is_condition_true("DisruptionReason") and not claim.is_condition_true("InstanceTerminating")
    ]


def is_replaced(world: World, replicas: int) -> bool:
    return ready(world, replicas) and all(claim.metadata.labels.get("team") == "b" for claim in fixed(world))


@pytest.mark.parametrize(
    ("budget", "limits", "at_once"), [("2", {"nodes": 8}, 2), ("100%", {"nodes": 7}, 2), ("100%", {"nodes": 6}, 1)]
)
def test_drifted_nodes_are_replaced_within_budget_and_node_limit_at_every_moment(
    world: World, budget: str, limits: dict[str, int], at_once: int
) -> None:
    """F21 and F22 of Karpenter's behavior: replacement before removal, and never more nodes than the limit."""
    static(world, 5, budgets=(Budget(budget),), limits=limits)
    assert world.run(180, until=lambda: ready(world, 5))
    relabel(world)
    most = running = 0
    fewest = 5
    for _ in range(2400):
        world.run(1)
        most = max(most, len(disrupted(world)))
        running = max(running, len(fixed(world)))
        fewest = min(fewest, sum(claim.is_condition_true("Initialized") for claim in fixed(world)))
        if is_replaced(world, 5):
            break
    assert is_replaced(world, 5)
    assert (most, fewest) == (at_once, 5)
    assert running <= limits["nodes"]


def test_drift_replaces_no_node_of_a_static_pool_whose_budget_is_closed(three: World) -> None:
    three.cluster.update("nodepools", "fixed", budgets=(Budget("0", reasons=("Drifted",)),))
    relabel(three)
    three.run(300)
    assert not disrupted(three)
    assert made(three) == 3


def test_fewer_replicas_come_before_drift(world: World) -> None:
    """F24 of Karpenter's behavior: of two drifted nodes, of which only one is wanted, one is replaced."""
    static(world, 2, budgets=(Budget("100%"),))
    assert world.run(180, until=lambda: ready(world, 2))
    relabel(world)
    scaled(world, 1)
    assert world.run(600, until=lambda: is_replaced(world, 1))
    assert made(world) == 3


def test_a_replacement_that_never_joins_leaves_the_drifted_node_of_a_static_pool(three: World) -> None:
    three.cluster.update("nodepools", "fixed", budgets=(Budget("1"),))
    before = {claim.name for claim in three.claims()}
    three.kubelets.boot_seconds = 3600.0
    relabel(three)
    assert three.run(120, until=lambda: bool(disrupted(three)))
    assert three.run(900, until=lambda: not disrupted(three))
    assert all(labels.DISRUPTED not in {taint.key for taint in node.taints} for node in three.cluster.nodes())
    three.run(900)
    assert before <= {claim.name for claim in three.claims() if claim.metadata.deletion_timestamp is None}


def test_a_decision_to_replace_a_node_of_a_static_pool_is_decided_again(three: World) -> None:
    three.cluster.update("nodepools", "fixed", budgets=(Budget("1"),))
    relabel(three)
    assert three.run(900, until=lambda: is_replaced(three, 3))
    bodies = {key: decode_decision(body) for key, body in three.blobs.bodies.items() if key.startswith("decisions/")}
    drifts = [
        key for key, body in bodies.items() if {disruption.reason for disruption in body.disruptions} == {"Drifted"}
    ]
    assert len(drifts) == 3
    assert all(replay(key, blobs=three.blobs, catalogs=three.catalogs).agrees for key in drifts)
