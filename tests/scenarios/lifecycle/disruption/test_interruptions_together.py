"""Many interruptions at once, and other pods beside them: one plan, and each pod finds the place planned for it."""

from collections import Counter
from datetime import timedelta
from itertools import batched
from threading import Barrier
from typing import Any

import pytest

from spotwright.errors import Unavailable
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import interruptions
from spotwright.workflows.lifecycle.interruptions import ALL
from spotwright.workflows.lifecycle.workflow import lifecycle, step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.disruption.interrupted_nodes import (
    MOVING,
    bells_of,
    decisions,
    gathered,
    initialized,
    longest_wait,
    running,
    warn,
)

# One fills a small node.
POD = builders.pod("inflate", cpu_millicores=1800)


def half_a_second(world: World) -> None:
    world.clock.advance(0.5)
    world.settle()


@pytest.mark.parametrize("nodes", [2, 10])
def test_notices_at_the_same_time_are_one_plan(nodes: int) -> None:
    world = running(nodes)
    warn(world, *world.claims())
    assert longest_wait(world, 240) <= MOVING
    (decision,) = decisions(world, "interrupt")
    assert sorted(pod for node in decision.plan.new_nodes for pod in node.pods) == sorted(
        pod for launch in decision.launches for moving in launch.moving_pods for pod in moving
    )
    assert len(decision.disruptions) == nodes
    assert len(world.running_pods()) == nodes
    assert len(world.ec2.live_instances()) == len(world.claims())
    assert not decisions(world, "provision")[1:], "nothing was bought for pods that had been planned for"


def test_notices_that_come_within_two_seconds_are_one_plan_and_one_launch() -> None:
    world = running(20)
    asked = len(world.ec2.requests)
    for fifth in batched(world.claims(), 4, strict=True):
        warn(world, *fifth)
        half_a_second(world)
    assert longest_wait(world, 240) <= MOVING
    assert [len(decision.disruptions) for decision in decisions(world, "interrupt")] == [20]
    assert len(world.ec2.requests) == asked + 1


def test_a_notice_is_not_waited_with_for_longer_than_three_seconds() -> None:
    """Each begins the second anew in which more are waited for."""
    world = running(10)
    for claim in world.claims():
        warn(world, claim)
        half_a_second(world)
    world.run(5)
    assert sum(len(decision.disruptions) for decision in decisions(world, "interrupt")) == 10
    assert len(decisions(world, "interrupt")) == 2


def test_a_node_goes_when_the_places_of_its_own_pods_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the replacements come late: the other half of the nodes does not wait for them."""
    world = running(6)
    old = {claim.name for claim in world.claims()}
    warn(world, *world.claims())
    world.run(2)
    (decision,) = decisions(world, "interrupt")
    commands = {disruption.candidates[0]: disruption.replacements for disruption in decision.disruptions}
    assert set(commands) == old
    assert all(commands.values())
    late, *_ = [instance for instance in world.ec2.live_instances() if instance.state == "pending"]
    world.kubelets.broken_instances.add(late.id)
    for _ in range(60):
        world.run(1)
        going = {claim.name for claim in world.claims() if claim.name in old and claim.metadata.deletion_timestamp}
        assert all(initialized(world, commands[name]) for name in going)
    assert going != old
    assert world.run(20, until=lambda: 0 < len(old & {claim.name for claim in world.claims()}) < 6)


def test_a_pod_that_comes_later_does_not_take_the_replacement() -> None:
    world = running(1)
    warn(world, *world.claims())
    world.run(4)
    (replacement,) = [name for decision in decisions(world, "interrupt") for name in decision.launches[0].claims]
    world.deploy(builders.pod("late", cpu_millicores=1800), 1)
    assert longest_wait(world, 200) <= timedelta(seconds=40), "as long as a node takes"
    assert len(world.running_pods()) == 2
    (_, late) = decisions(world, "provision")
    assert [list(pods) for launch in late.launches for pods in launch.pods] == [["default/late-0002"]]
    assert replacement not in late.launches[0].claims


def test_a_later_notice_is_planned_on_what_was_promised_to_the_first() -> None:
    world = running(2)
    first, second = world.claims()
    warn(world, first)
    world.run(4)
    warn(world, second)
    assert longest_wait(world, 240) <= MOVING
    taken = [decision.disruptions[0].replacements for decision in decisions(world, "interrupt")]
    assert [len(names) for names in taken] == [1, 1]
    assert len(world.ec2.all_instances()) == 4


def test_a_plan_for_pods_between_notice_and_replacement_buys_nothing_twice() -> None:
    """Another planner sees the interrupted node first, plans its pods, and the node waits for those nodes."""
    world = running(2)
    (claim, _) = world.claims()
    world.effects.inject(Fault("cluster", "set_taints", Unavailable("no answer"), times=1))
    warn(world, claim)
    world.deploy(builders.pod("late", cpu_millicores=1800), 1)
    world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")])
    assert longest_wait(world, 240) <= timedelta(seconds=40)
    assert len(world.running_pods()) == 3
    assert len(world.ec2.all_instances()) == 4
    evicted = world.effects.select("cluster", "evict")
    assert evicted
    (decision,) = decisions(world, "interrupt")
    assert decision.disruptions[0].replacements


def test_a_promise_ends_with_its_claim() -> None:
    """The replacement is deleted by hand: the pod that was to move there is planned again."""
    world = running(1)
    (claim,) = world.claims()
    world.kubelets.boot_seconds = 30
    warn(world, claim)
    world.run(10)
    (replacement,) = [other for other in world.claims() if other.name != claim.name]
    world.cluster.delete("nodeclaims", replacement.metadata)
    assert world.run(110, until=lambda: len(decisions(world, "interrupt")) == 2)
    assert longest_wait(world, 200) <= timedelta(seconds=40)
    assert len(world.running_pods()) == 1


def test_a_batch_of_notices_reads_the_cluster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(10)
    for claim in world.claims():
        world.interrupt_spot(instance_id(claim.provider_id))
    read = Counter[str]()
    for name in ("pods", "nodes", "nodeclaims"):
        usual = getattr(world.cluster, name)

        def count(*args: Any, _name: str = name, _usual: Any = usual, **selection: Any) -> Any:
            read[_name] += not selection
            return _usual(*args, **selection)

        monkeypatch.setattr(world.cluster, name, count)
    bells = world.doorbells.receive("notices")
    gathered(world)
    lifecycle(world.ports, bells, now=world.clock.now())
    assert read["pods"] == read["nodes"] == 1
    # To find the claims of the instances, for the snapshot, and for the launch.
    assert read["nodeclaims"] <= 3


def test_notices_that_come_while_instances_are_launched_are_planned_before(world_of_two: World) -> None:
    """CreateFleet takes seconds; the plan of the second notice does not wait for it."""
    world = world_of_two
    first, second = world.claims()
    for claim in (first, second):
        warn(world, claim)
        gathered(world)
        lifecycle(world.ports, bells_of(world, "notice"), now=world.clock.now())
    assert len(decisions(world, "interrupt")) == 2
    fleets = len(world.effects.select("ec2", "create_fleet"))
    launches = bells_of(world, "launch")
    assert len(launches) == 2
    lifecycle(world.ports, launches, now=world.clock.now())
    assert len(world.effects.select("ec2", "create_fleet")) == fleets + 2


@pytest.mark.side_by_side
def test_launches_of_a_batch_do_not_wait_for_each_other(world_of_two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for the notices that came with them."""
    world = world_of_two
    for claim in world.claims():
        warn(world, claim)
        gathered(world)
        lifecycle(world.ports, bells_of(world, "notice"), now=world.clock.now())
    together, create_fleet, step_notices = Barrier(3, timeout=60), world.ec2.create_fleet, interruptions.step_notices

    def launch(request: Any) -> Any:
        together.wait()
        return create_fleet(request)

    def step(*arguments: Any, **more: Any) -> None:
        together.wait()
        step_notices(*arguments, **more)

    monkeypatch.setattr(world.ec2, "create_fleet", launch)
    monkeypatch.setattr(interruptions, "step_notices", step)
    fleets = len(world.effects.select("ec2", "create_fleet"))
    bells = [*bells_of(world, "launch"), Doorbell(world.cluster.name, "notice", ALL)]
    lifecycle(world.ports, bells, now=world.clock.now())
    assert len(world.effects.select("ec2", "create_fleet")) == fleets + 2


def test_one_launch_that_fails_does_not_keep_those_of_its_batch(
    world_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of_two
    for claim in world.claims():
        warn(world, claim)
        gathered(world)
        lifecycle(world.ports, bells_of(world, "notice"), now=world.clock.now())
    fleets = len(world.effects.select("ec2", "create_fleet"))
    launches = bells_of(world, "launch")
    create_fleet, failing = world.ec2.create_fleet, iter([RuntimeError("broken")])

    def fail_once(request: Any) -> Any:
        for failure in failing:
            raise failure
        return create_fleet(request)

    monkeypatch.setattr(world.ec2, "create_fleet", fail_once)
    failed = step_doorbells(world.ports, launches, now=world.clock.now())
    assert len(failed) == 1
    assert set(failed) < set(launches)
    assert len(world.effects.select("ec2", "create_fleet")) == fleets + 1


def test_launches_for_which_no_time_is_left_are_rung_for_again(
    world_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invocation that is cut off would hold them back for minutes."""
    world = world_of_two
    for claim in world.claims():
        warn(world, claim)
        gathered(world)
        lifecycle(world.ports, bells_of(world, "notice"), now=world.clock.now())
    launches = bells_of(world, "launch")
    monkeypatch.setattr("spotwright.workflows.lifecycle.workflow._BUYING_AT_ONCE", 1)
    create_fleet, left = world.ec2.create_fleet, [30.0]

    def slow(request: Any) -> Any:
        left[:] = [5.0]
        return create_fleet(request)

    monkeypatch.setattr(world.ec2, "create_fleet", slow)
    fleets = len(world.effects.select("ec2", "create_fleet"))
    world.doorbells.messages.clear()
    lifecycle(world.ports, launches, now=world.clock.now(), seconds_left=lambda: left[0])
    assert len(world.effects.select("ec2", "create_fleet")) == fleets + 1
    assert len({message.doorbell for message in world.doorbells.messages} & set(launches)) == 1


@pytest.fixture
def world_of_two() -> World:
    world = running(2)
    world.doorbells.messages.clear()
    return world


def test_what_there_is_no_time_for_is_rung_again_and_notices_are_handled_first() -> None:
    world = running(1)
    (claim,) = world.claims()
    world.doorbells.messages.clear()
    warn(world, claim)
    name = world.cluster.name
    bells = [Doorbell(name, "claim", claim.name, epoch=7), *world.doorbells.receive("notices")]
    gathered(world)
    lifecycle(world.ports, bells, now=world.clock.now(), seconds_left=lambda: 2.0)
    assert len(decisions(world, "interrupt")) == 1
    rung = [message.doorbell for message in world.doorbells.messages_of("lifecycle", "claim")]
    assert Doorbell(name, "claim", claim.name, epoch=7) in rung


def test_many_other_notices_stop_in_time_and_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacements of interrupted nodes do not wait for them."""
    world = running(4)
    interrupted, *ending = world.claims()
    for claim in ending:
        instance = instance_id(claim.provider_id)
        world.ec2.stop(instance, after_seconds=0)
        world.deliver_event("EC2 Instance State-change Notification", {"instance-id": instance, "state": "stopping"})
    warn(world, interrupted)
    left = iter((60.0, 60.0, 60.0, 3.0))
    bells = world.doorbells.receive("notices")
    monkeypatch.setattr("spotwright.workflows.planning.time_budget.fit", lambda snapshot, seconds_left: (snapshot, 0))
    monkeypatch.setattr("spotwright.workflows.lifecycle.interruptions._act", lambda *_: True)
    gathered(world)
    lifecycle(world.ports, bells, now=world.clock.now(), seconds_left=lambda: next(left))
    assert len(decisions(world, "interrupt")) == 1
    deleted = [claim.name for claim in world.claims() if claim.metadata.deletion_timestamp]
    assert len(deleted) == 2
    again = {message.doorbell.key for message in world.doorbells.messages_of("notices", "notice")}
    (rest,) = [claim for claim in ending if claim.name not in deleted]
    assert instance_id(rest.provider_id) in again
    committed = world.effects.select("state", "commit")[-1].number
    assert all(effect.number > committed for effect in world.effects.select("cluster", "delete"))


def test_one_node_that_cannot_be_tainted_does_not_keep_the_others() -> None:
    world = running(3)
    claims = world.claims()
    usual = world.cluster.set_taints

    def refuse(node: Any, taints: Any, **more: Any) -> Any:
        if node.name == claims[0].node_name:
            raise Unavailable("no answer")
        return usual(node, taints, **more)

    world.cluster.set_taints = refuse  # type: ignore[method-assign]
    warn(world, *claims)
    world.run(100)
    assert {claim.name for claim in claims[1:]}.isdisjoint(claim.name for claim in world.claims())


# More than the changes from the notices to the last eviction.
FURTHEST = 150


@pytest.mark.parametrize("changes", range(1, FURTHEST, 4))
def test_a_crash_after_any_change_replaces_every_node_once(changes: int) -> None:
    world = running(3)
    old = {claim.name for claim in world.claims()}
    world.effects.crash_after(changes)
    for claim in world.claims():
        try:
            warn(world, claim)
        except Crash:
            # The message was not acknowledged: SQS delivers it again.
            warn(world, claim)
    for _ in range(300):
        try:
            world.run(1)
        except Crash:
            continue
    world.effects.crash_after(None)
    world.run(120)
    assert len(world.running_pods()) == 3
    assert old.isdisjoint(claim.name for claim in world.claims())
    assert len(world.ec2.all_instances()) == 6
    live = sorted(instance.id for instance in world.ec2.live_instances())
    assert sorted(instance_id(claim.provider_id) for claim in world.claims()) == live


@pytest.mark.parametrize("changes", range(1, 60, 4))
def test_two_invocations_at_once_decide_once(changes: int) -> None:
    """Another batch of notices is handled in the middle of the first one, after any of its changes."""
    world = running(4)
    claims = world.claims()
    warn(world, *claims[:2])

    def meanwhile() -> None:
        warn(world, *claims[2:])
        lifecycle(world.ports, world.doorbells.receive("notices"), now=world.clock.now())

    first = world.doorbells.receive("notices")
    world.effects.interject(changes, meanwhile)
    lifecycle(world.ports, first, now=world.clock.now())
    assert longest_wait(world, 240) <= MOVING
    assert len(world.ec2.all_instances()) == 8
    decided = [name for decision in decisions(world, "interrupt") for name in decision.candidates]
    assert sorted(decided) == sorted(claim.name for claim in claims)
