"""How often NodeClaims are looked at while their nodes boot: the forwarder says when a node has joined."""

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.lifecycle.retry import NODE_TICK_SECONDS, TICK_SECONDS
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import nodeclaims
from spotwright.workflows.lifecycle.actions import nodes_of
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world

POD = builders.pod("inflate", cpu_millicores=1800)
BOOT_SECONDS = 90


def booting(nodes: int, *, with_forwarder: bool = True) -> World:
    """A cluster with so many claims that are launched, and with a node that was there before. ``with_forwarder``: it is
    alive when they are launched.
    """
    world = fresh_world()
    world.deploy(builders.pod("first", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    world.run(30)
    world.kubelets.boot_seconds = BOOT_SECONDS
    if not with_forwarder:
        world.forwarder_runs = False
        world.run(30)
    world.deploy(POD, nodes)
    if not with_forwarder:
        world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")])
    assert world.run(10, until=lambda: sum(claim.is_condition_true("Launched") for claim in world.claims()) > nodes)
    return world


def seconds_to_register(world: World) -> float:
    """From the moment at which the nodes joined until the last claim is registered."""
    assert world.run(BOOT_SECONDS * 2, until=lambda: len(world.cluster.nodes()) > 1)
    joined = world.clock.now()
    assert world.run(60, until=lambda: all(claim.is_condition_true("Registered") for claim in world.claims()))
    times = [find_condition(claim.conditions, "Registered") for claim in world.claims()]
    last = max(time.last_transition_time for time in times if time is not None and time.last_transition_time)
    return max(last - joined, timedelta()).total_seconds()


def test_a_hundred_booting_nodes_are_looked_at_rarely_and_registered_at_once() -> None:
    world = booting(100)
    before = world.effects.reads["cluster", "nodeclaim"]
    world.run(BOOT_SECONDS - 20)
    looks = (world.effects.reads["cluster", "nodeclaim"] - before) / 100
    assert looks < (BOOT_SECONDS - 20) / TICK_SECONDS / 2
    assert seconds_to_register(world) <= 1


def test_without_a_forwarder_claims_are_looked_at_every_three_seconds() -> None:
    world = booting(3)
    world.run(30)
    world.forwarder_runs = False
    world.run(40)
    assert seconds_to_register(world) <= TICK_SECONDS + 1


def test_without_a_forwarder_a_node_is_registered_at_once_though_ec2_did_not_say_which_name_it_will_have() -> None:
    """EC2 shows the private DNS name of an instance once it runs. At zero nodes no forwarder rings."""
    world = fresh_world()
    world.forwarder_runs = False
    usual = world.ec2.instances_of_launch
    world.ec2.instances_of_launch = lambda launch: tuple(  # type: ignore[method-assign]
        msgspec.structs.replace(instance, private_dns_name="") for instance in usual(launch)
    )
    world.deploy(POD, 1)
    assert world.run(60, until=lambda: bool(world.cluster.nodes()))
    assert not any(labels.EXPECTED_NODE in claim.metadata.annotations for claim in world.claims())
    world.run(TICK_SECONDS + 1)
    assert [claim.is_condition_true("Registered") for claim in world.claims()] == [True]


def test_the_lost_doorbell_of_a_node_that_joined_costs_a_third_of_a_minute() -> None:
    world = booting(3)
    assert world.run(BOOT_SECONDS, until=lambda: len(world.cluster.nodes()) > 1)
    world.forget_changes()
    world.run(NODE_TICK_SECONDS + 1)
    assert all(claim.is_condition_true("Registered") for claim in world.claims())


def test_a_claim_that_was_registered_a_moment_ago_is_not_looked_at_beside_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look after the launch finds it registered, and comes again a third of a minute after that."""
    looks = Counter[str]()

    def look(ports: LifecyclePorts, claim: NodeClaim, **more: Any) -> tuple[Node, ...]:
        looks[claim.name] += 1
        return nodes_of(ports, claim, **more)

    monkeypatch.setattr(nodeclaims, "nodes_of", look)
    world = fresh_world()
    world.kubelets.boot_seconds = NODE_TICK_SECONDS - 2
    world.kubelets.ready_seconds = 60
    world.deploy(POD, 2)
    assert world.run(60, until=lambda: bool(world.claims()) and world.claims()[0].is_condition_true("Registered"))
    world.run(1)
    looks.clear()
    world.run(NODE_TICK_SECONDS - 3)
    assert not looks
    world.run(4)
    assert sorted(looks.values()) == [1, 1]


def test_a_claim_whose_pods_have_come_is_read_once_more_and_its_node_is_not() -> None:
    """The first tick comes when nodes that boot fast have everything."""
    world = fresh_world()
    world.deploy(POD, 3)
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    world.run(3)
    assert all(labels.PODS_SEEN in claim.metadata.annotations for claim in world.claims())
    before = world.effects.reads.copy()
    world.run(NODE_TICK_SECONDS)
    read = world.effects.reads - before
    assert read["cluster", "nodeclaim"] == 3
    assert not read["cluster", "pods"] + read["cluster", "nodepool"]


def test_claims_are_not_looked_at_before_their_nodes_can_have_joined() -> None:
    """The forwarder rings for each node that joins: a look of its own at the same moment would be in its way."""
    world = booting(3)
    world.run(1)
    before = world.effects.reads["cluster", "nodeclaim"]
    world.run(TICK_SECONDS + 1)
    assert world.effects.reads["cluster", "nodeclaim"] == before


def test_while_the_forwarder_is_down_claims_are_looked_at_three_seconds_after_their_launch() -> None:
    world = booting(3, with_forwarder=False)
    world.run(2)
    before = world.effects.reads["cluster", "nodeclaim"]
    world.run(TICK_SECONDS - 1)
    assert world.effects.reads["cluster", "nodeclaim"] >= before + 3


def test_a_node_that_joined_before_its_claim_had_the_instance_is_registered_three_seconds_later() -> None:
    """Its doorbell found no NodeClaim: here the answers of CreateFleet are lost."""
    world = fresh_world()
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=20, after_change=True))
    world.deploy(POD, 1)
    assert world.run(120, until=lambda: any(node.is_ready for node in world.cluster.nodes()))
    assert not any(claim.is_condition_true("Launched") for claim in world.claims())
    assert world.run(120, until=lambda: any(claim.is_condition_true("Launched") for claim in world.claims()))
    assert world.run(TICK_SECONDS + 1, until=lambda: world.claims()[0].is_condition_true("Registered"))


def registered(*, ready_seconds: float, with_forwarder: bool = True) -> World:
    """A world whose only claim is registered at this moment; its node will be Ready after so many seconds."""
    world = booting(0, with_forwarder=with_forwarder)
    (first,) = world.claims()
    world.kubelets.boot_seconds, world.kubelets.ready_seconds = 20, ready_seconds
    world.deploy(POD, 1)
    if not with_forwarder:
        world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")])

    def second() -> NodeClaim | None:
        return next((claim for claim in world.claims() if claim.name != first.name), None)

    assert world.run(90, until=lambda: (claim := second()) is not None and claim.is_condition_true("Registered"))
    return world


def starting(world: World) -> NodeClaim:
    """The claim that is registered and not initialized."""
    (claim,) = (claim for claim in world.claims() if not claim.is_condition_true("Initialized"))
    return claim


def become_ready_unnoticed(world: World) -> NodeClaim:
    """The claim whose node becomes Ready, and no doorbell says so."""
    claim = starting(world)
    world.kubelets.ready_seconds = 0
    world.act_outside()
    world.forget_changes()
    return claim


def is_initialized(world: World, name: str) -> bool:
    claim = world.cluster.nodeclaim(name)
    return claim is not None and claim.is_condition_true("Initialized")


@pytest.mark.parametrize("minutes", [5, -5], ids=["fast", "slow"])
def test_a_clock_that_was_minutes_wrong_keeps_no_claim_from_being_looked_at(minutes: int) -> None:
    """It was that of the function that registered the claim; the doorbell of its node is lost."""
    world = registered(ready_seconds=600)
    claim = starting(world)
    wrong = world.clock.seconds() + timedelta(minutes=minutes)
    conditions = tuple(msgspec.structs.replace(each, last_transition_time=wrong) for each in claim.conditions)
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    become_ready_unnoticed(world)
    assert world.run(NODE_TICK_SECONDS + 1, until=lambda: is_initialized(world, claim.name))


def test_a_clock_that_was_seconds_fast_does_not_make_the_next_look_later() -> None:
    world = registered(ready_seconds=600)
    claim = starting(world)
    ahead = world.clock.seconds() + timedelta(seconds=NODE_TICK_SECONDS - 5)
    conditions = tuple(msgspec.structs.replace(each, last_transition_time=ahead) for each in claim.conditions)
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    become_ready_unnoticed(world)
    world.doorbells.messages.clear()
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", claim.name, epoch=1)])
    assert world.run(NODE_TICK_SECONDS + 2, until=lambda: is_initialized(world, claim.name))


def test_a_claim_that_was_registered_a_moment_ago_and_is_deleted_is_drained_at_once() -> None:
    world = registered(ready_seconds=600)
    claim = starting(world)
    world.cluster.delete("nodeclaims", claim.metadata)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name, epoch=1)], now=world.clock.now())
    node = world.cluster.node(claim.node_name)
    assert node is not None
    assert DISRUPTED_TAINT in node.taints


def test_a_claim_that_was_registered_is_looked_at_every_three_seconds_when_the_forwarder_has_died() -> None:
    world = registered(ready_seconds=600, with_forwarder=False)
    claim = become_ready_unnoticed(world)
    # Those of the sweep are others.
    world.doorbells.messages = [message for message in world.doorbells.messages if message.queue != "sweep"]
    assert world.run(TICK_SECONDS + 1, until=lambda: is_initialized(world, claim.name))


def test_the_sweep_looks_at_a_claim_that_was_registered_a_moment_ago() -> None:
    world = registered(ready_seconds=600)
    claim = become_ready_unnoticed(world)
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", claim.name)])
    world.settle()
    assert is_initialized(world, claim.name)
