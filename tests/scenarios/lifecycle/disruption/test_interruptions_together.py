"""Many interruptions at once, and other pods beside them: one plan, and each pod finds the place planned for it."""

import re
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import batched, pairwise
from threading import Barrier
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import Decision, decode_decision
from spotwright.errors import Conflict, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import actions, commands, interruptions, nodeclaims
from spotwright.workflows.lifecycle.commands import (
    BOOTING_LOOK_SECONDS,
    COMMANDS_TOLD,
    LONGEST_LOOK_SECONDS,
    REPLACEMENT_CHANGED,
)
from spotwright.workflows.lifecycle.interruptions import ALL
from spotwright.workflows.lifecycle.workflow import lifecycle, step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import RECOMMENDED, CommandRow
from tests.scenarios.lifecycle.conftest import fresh_world

# One fills a small node.
POD = builders.pod("inflate", cpu_millicores=1800)
# How long a pod that was evicted is without a node: it stops, it is replaced, the scheduler looks.
MOVING = timedelta(seconds=8)


def running(pods: int, **fields: Any) -> World:
    world = fresh_world()
    world.deploy(builders.pod("inflate", cpu_millicores=1800, **fields), pods)
    assert world.run(120, until=lambda: len(world.running_pods()) == pods)
    world.run(60)
    assert len(world.claims()) == pods
    return world


def warn(world: World, *claims: NodeClaim) -> None:
    for claim in claims:
        world.interrupt_spot(instance_id(claim.provider_id))


def gathered(world: World) -> None:
    """The second passes in which further notices are waited for."""
    world.clock.advance(1)


def half_a_second(world: World) -> None:
    world.clock.advance(0.5)
    world.settle()


def decisions(world: World, kind: str) -> list[Decision]:
    """What was committed, in order."""
    bodies = [world.blobs.bodies[commit.subject] for commit in world.effects.select("state", "commit")]
    return [decision for decision in map(decode_decision, bodies) if decision.kind == kind]


def longest_wait(world: World, seconds: int) -> timedelta:
    """How long, within this time, a pod was without a node at most."""
    since: dict[str, datetime] = {}
    longest = timedelta()
    for _ in range(seconds):
        world.run(1)
        now = world.clock.now()
        waiting = {pod.key for pod in world.cluster.all("pods") if not pod.node_name}
        since = {key: since.get(key, now) for key in waiting}
        longest = max([longest, *(now - began for began in since.values())])
    return longest


def initialized(world: World, names: tuple[str, ...]) -> bool:
    claims = [world.cluster.nodeclaim(name) for name in names]
    return all(claim is not None and claim.is_condition_true("Initialized") for claim in claims)


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
    assert 0 < len(old & {claim.name for claim in world.claims()}) < 6


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


def bells_of(world: World, kind: str) -> list[Doorbell]:
    """The doorbells of a kind that wait in the queue for notices, which holds none of them afterwards."""
    waiting = world.doorbells.messages_of("notices", kind)
    world.doorbells.messages = [message for message in world.doorbells.messages if message not in waiting]
    return [message.doorbell for message in waiting]


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


def test_beside_another_invocation_that_plans_for_notices_nothing_is_read_and_a_second_later_it_is_looked_at() -> None:
    world = running(2)
    now = world.clock.milliseconds()
    warn(world, *world.claims())
    assert world.state.begin_planning("notices", now=now, until=now + 5_000)
    bells = world.doorbells.receive("notices")
    reads, changes = world.effects.reads.copy(), len(world.effects.log)
    lifecycle(world.ports, bells, now=world.clock.now())
    assert world.effects.reads == reads
    assert [effect.action for effect in world.effects.log[changes:]] == ["throttle", "ring"]
    (rung,) = world.doorbells.messages_of("notices", "notice")
    assert rung.at == now + 1_000, "one doorbell for all of them"
    lifecycle(world.ports, bells, now=world.clock.now())
    assert world.doorbells.messages_of("notices", "notice") == (rung,)
    assert longest_wait(world, 240) <= MOVING
    assert len(decisions(world, "interrupt")) == 1


def test_what_is_being_replaced_is_looked_at_together_and_seldom_written() -> None:
    world = running(10)
    warn(world, *world.claims())
    world.kubelets.boot_seconds = 60
    world.run(2)
    before, changes = world.effects.reads.copy(), len(world.effects.log)
    world.run(50)
    written = Counter(effect.subject for effect in world.effects.log[changes:] if effect.subject.startswith("notice#"))
    assert len(written) == 10
    assert set(written.values()) <= set(range(1, 7)), "every ten seconds at most"
    looks = [effect for effect in world.effects.log[changes:] if effect.subject == f"notices/notice:{ALL}"]
    assert 20 <= len(looks) <= 30
    assert world.effects.reads["cluster", "nodeclaims"] - before["cluster", "nodeclaims"] <= len(looks) + 10
    assert longest_wait(world, 200) <= MOVING


def test_commands_of_notices_are_looked_at_when_their_launches_have_begun(world_of_two: World) -> None:
    """They have nothing to do before, and what they read would be read beside CreateFleet. No pod keeps their nodes."""
    world = world_of_two
    interrupted = [claim.name for claim in world.claims()]
    warn(world, *world.claims())
    gathered(world)
    reads = world.effects.reads.copy()
    lifecycle(world.ports, bells_of(world, "notice"), now=world.clock.now())
    assert (world.effects.reads - reads)["cluster", "node"] == 2, "one for each, to taint it and to tell it"
    bells = world.doorbells.messages_of("lifecycle", "command")
    assert [bell.at - world.clock.milliseconds() for bell in bells] == [5_000, 5_000]
    reads = world.effects.reads.copy()
    lifecycle(world.ports, [bell.doorbell for bell in bells], now=world.clock.now())
    assert (world.effects.reads - reads)["cluster", "pods"] == 0
    assert [command.phase for command in world.state.commands()] == ["waiting", "waiting"]
    assert all(claim.is_condition_true("DisruptionReason") for claim in world.claims() if claim.name in interrupted)


def test_commands_read_launches_only_for_a_replacement_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(4)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    world.run(8)
    read = Counter[str]()
    usual = world.state.launches

    def launches(**arguments: Any) -> Any:
        read["launches"] += 1
        return usual(**arguments)

    monkeypatch.setattr(world.state, "launches", launches)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    versions = [command.version for command in world.state.commands()]
    for command in world.state.commands():
        lifecycle(world.ports, [Doorbell(world.cluster.name, "command", command.id)], now=world.clock.now())
    assert [command.version - 1 for command in world.state.commands()] == versions, "each took a step"
    assert not read
    world.clock.advance(20)
    (replacement,) = world.state.commands()[0].replacements
    world.cluster.remove("nodeclaims", replacement)
    bell = Doorbell(world.cluster.name, "command", world.state.commands()[0].id)
    lifecycle(world.ports, [bell], now=world.clock.now())
    assert read["launches"] >= 1


def look(world: World) -> list[Doorbell]:
    """Doorbells for all commands that are open."""
    return [Doorbell(world.cluster.name, "command", command.id) for command in world.state.commands()]


def test_commands_of_a_batch_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nodes are replaced by fewer, larger ones: each replacement is read once, whoever waits for it."""
    world = running(10)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    world.run(8)
    read = Counter[str]()

    def rows(ids: Collection[str]) -> tuple[CommandRow, ...]:
        read["rows"] += 1
        return usual(ids)

    usual = world.state.commands_by_id
    monkeypatch.setattr(world.state, "commands_by_id", rows)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    before, bells = world.effects.reads.copy(), look(world)
    replacements = {name for command in world.state.commands() for name in command.replacements}
    versions = [command.version for command in world.state.commands()]
    assert len(bells) == 10
    assert not step_doorbells(world.ports, bells, now=world.clock.now())
    assert [command.version - 1 for command in world.state.commands()] == versions, "each took a step"
    assert read == {"rows": 1}
    assert (world.effects.reads - before)["cluster", "nodeclaim"] == len(replacements)


def test_a_command_that_fails_does_not_keep_those_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: its doorbell comes back, the others' do not."""
    world = running(3)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    world.run(5)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    bells, usual = look(world), world.state.save

    def save(row: Any) -> Any:
        if isinstance(row, CommandRow) and row.id == bells[1].key:
            raise ValueError("the row is beyond understanding")
        return usual(row)

    monkeypatch.setattr(world.state, "save", save)
    versions = {command.id: command.version for command in world.state.commands()}
    failed = step_doorbells(world.ports, bells, now=world.clock.now())
    assert list(failed) == [bells[1]]
    stepped = {command.id for command in world.state.commands() if command.version > versions[command.id]}
    assert stepped == {bells[0].key, bells[2].key}


@pytest.mark.parametrize("changes", range(1, 40, 3))
def test_a_batch_of_commands_goes_on_where_it_died(changes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacements are ready; the function dies after so many changes while it deletes the candidates."""
    world = running(3)
    monkeypatch.setattr(nodeclaims, "ring_commands", lambda *_: None)
    warn(world, *world.claims())
    before = {claim.metadata.uid for claim in world.claims()}

    def are_replaced() -> bool:
        names = tuple(name for command in world.state.commands() for name in command.replacements)
        return bool(names) and initialized(world, names)

    assert world.run(100, until=are_replaced)
    world.clock.advance(LONGEST_LOOK_SECONDS)
    world.effects.crash_after(changes)
    with suppress(Crash):
        step_doorbells(world.ports, look(world), now=world.clock.now())
    world.effects.crash_after(None)
    assert longest_wait(world, 150) <= MOVING
    assert not world.state.commands()
    assert before.isdisjoint(claim.metadata.uid for claim in world.claims())
    assert len(world.running_pods()) == len(world.claims()) == len(world.ec2.live_instances()) == 3


def test_of_two_chains_of_looks_one_goes_on() -> None:
    world = running(3)
    warn(world, *world.claims())
    world.kubelets.boot_seconds = 60
    world.run(3)
    for _ in range(4):
        world.doorbells.ring("notices", [Doorbell(world.cluster.name, "notice", ALL)])
        world.run(1)
    world.run(4)
    (_,) = world.doorbells.messages_of("notices", "notice")


def test_looks_that_are_late_are_not_taken_twice_and_leave_no_doorbell_for_each_notice() -> None:
    """Where functions are slow, every row is due, and every invocation would write all of them."""
    world = running(3)
    warn(world, *world.claims())
    world.kubelets.boot_seconds = 90
    world.run(4)
    world.clock.advance(25)
    world.doorbells.messages.clear()
    look = [Doorbell(world.cluster.name, "notice", ALL)]
    began = len(world.effects.log)
    world.effects.inject(Fault("state", "save", Conflict("another was first", code="Conflict"), times=1))
    lifecycle(world.ports, look, now=world.clock.now())
    (_,) = world.doorbells.messages_of("notices", "notice")
    lifecycle(world.ports, look, now=world.clock.now())
    saved = [effect for effect in world.effects.log[began:] if effect.action == "save"]
    assert len(saved) == 2
    (_,) = world.doorbells.messages_of("notices", "notice")


def test_looks_that_ended_begin_again_when_a_row_is_due() -> None:
    world = running(2)
    warn(world, *world.claims())
    world.kubelets.boot_seconds = 90
    world.run(4)
    world.doorbells.messages[:] = [
        message for message in world.doorbells.messages if (message.queue, message.doorbell.key) != ("notices", ALL)
    ]
    assert not world.doorbells.messages_of("notices", "notice")
    assert world.run(80, until=lambda: bool(world.doorbells.messages_of("notices", "notice")))


def test_a_planner_of_notices_that_died_is_waited_for_a_few_seconds_only() -> None:
    world = running(2)
    warn(world, *world.claims())
    began = world.clock.now()
    world.effects.crash_at("state", "begin_planning")
    with pytest.raises(Crash):
        world.run(5)
    assert world.run(60, until=lambda: bool(decisions(world, "interrupt")))
    assert world.clock.now() - began <= timedelta(seconds=60), "the sweep's next minute, and no later"


@pytest.mark.parametrize(("is_told", "last"), [(True, {LONGEST_LOOK_SECONDS}), (False, {6, 7, 8})])
def test_a_replacement_that_takes_long_is_looked_at_less_often(*, is_told: bool, last: set[int]) -> None:
    """Rarely, since it rings; one that does not know of the command after five seconds, then a tenth of the time."""
    world = running(1)
    (interrupted,) = world.claims()
    warn(world, interrupted)
    world.run(2)
    (replacement,) = [claim for claim in world.claims() if claim.name != interrupted.name]
    world.kubelets.broken_instances.add(instance_id(replacement.provider_id))
    if not is_told:
        annotations = {key: value for key, value in replacement.metadata.annotations.items() if key != labels.COMMANDS}
        world.cluster.put(
            "nodeclaims",
            msgspec.structs.replace(
                replacement, metadata=msgspec.structs.replace(replacement.metadata, annotations=annotations)
            ),
        )
    world.run(70)
    (command,) = world.state.commands()
    looks = [
        effect for effect in world.effects.select("state", "save") if effect.subject == f"command#{command.id} waiting"
    ]
    seconds = [round((later.at - earlier.at).total_seconds()) for earlier, later in pairwise(looks)]
    assert seconds[1] == (5 if not is_told else LONGEST_LOOK_SECONDS)
    assert seconds[-1] in last
    assert len(looks) <= (15 if not is_told else 7)
    assert world.run(120, until=lambda: not world.state.commands()), "the deadline ends it all the same"


def test_a_planner_that_the_store_failed_is_not_waited_for() -> None:
    """Of two minutes, a quarter of one would be lost until its note ends."""
    world = running(1)
    (claim,) = world.claims()
    warn(world, claim)
    gathered(world)
    world.effects.inject(Fault("blobs", "put", Unavailable("S3 does not answer"), times=1))
    notice = [Doorbell(builders.CLUSTER, "notice", instance_id(claim.provider_id))]
    lifecycle(world.ports, notice, now=world.clock.now())
    assert not decisions(world, "interrupt")
    world.clock.advance(2)
    lifecycle(world.ports, notice, now=world.clock.now())
    assert len(decisions(world, "interrupt")) == 1


def test_offerings_that_cannot_be_marked_keep_no_replacement_waiting() -> None:
    world = running(3)
    world.effects.inject(Fault("state", "save_offering_health", Unavailable("no memory", code="Timeout"), times=99))
    warn(world, *world.claims())
    world.run(6)
    assert [len(decision.disruptions) for decision in decisions(world, "interrupt")] == [3]


def booting_replacements(seconds: int) -> tuple[World, dict[str, str]]:
    """Two interrupted nodes whose replacements take so long to boot; and the replacement of each command."""
    world = running(2)
    world.kubelets.boot_seconds = seconds
    warn(world, *world.claims())
    assert world.run(10, until=lambda: sum(claim.is_condition_true("Launched") for claim in world.claims()) == 4)
    world.run(6)
    return world, {command.id: command.replacements[0] for command in world.state.commands()}


def leaving(world: World) -> int:
    return sum(claim.metadata.deletion_timestamp is not None for claim in world.claims())


def test_a_node_goes_when_its_replacement_is_initialized_though_looks_are_rare() -> None:
    world, replacements = booting_replacements(50)
    begun = len(world.effects.log)
    names = set(replacements.values())

    def is_initialized() -> bool:
        return all(claim.is_condition_true("Initialized") for claim in world.claims() if claim.name in names)

    assert world.run(90, until=is_initialized)
    seen = Counter(effect.subject for effect in world.effects.log[begun:] if effect.subject.startswith("command#"))
    assert max(seen.values()) <= 1 + 60 // LONGEST_LOOK_SECONDS
    assert world.run(3, until=lambda: leaving(world) == 2)
    node = world.cluster.node(next(claim.node_name for claim in world.claims() if claim.name in names))
    assert node is not None
    assert labels.COMMANDS not in node.metadata.annotations


def test_a_replacement_that_is_deleted_is_noticed_at_once() -> None:
    world, replacements = booting_replacements(80)
    command, name = next(iter(replacements.items()))
    world.run(3)
    claim = world.cluster.nodeclaim(name)
    assert claim is not None
    world.cluster.delete("nodeclaims", claim.metadata)

    def is_aborted() -> bool:
        row = world.state.command(command)
        return row is not None and row.phase == "aborted"

    assert world.run(5, until=is_aborted)


def test_without_the_doorbell_of_the_replacement_the_next_look_comes_within_a_quarter_of_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, replacements = booting_replacements(30)
    names = set(replacements.values())
    monkeypatch.setattr(nodeclaims, "ring_commands", lambda *_: None)

    def are_initialized() -> bool:
        return all(claim.is_condition_true("Initialized") for claim in world.claims() if claim.name in names)

    assert world.run(60, until=are_initialized)
    assert world.run(LONGEST_LOOK_SECONDS + 2, until=lambda: leaving(world) == 2)


def test_a_node_goes_at_its_deadline_though_the_look_before_is_less_than_a_quarter_of_a_minute_old() -> None:
    world, replacements = booting_replacements(600)
    command = next(iter(replacements))
    row = world.state.command(command)
    assert row is not None
    world.run(round((row.deadline - world.clock.milliseconds()) / 1000 - LONGEST_LOOK_SECONDS / 2))
    row = world.state.command(command)
    assert row is not None
    world.state.save(msgspec.structs.replace(row, due=world.clock.milliseconds()))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "command", command)], now=world.clock.now())
    waits = world.state.command(command)
    assert waits is not None
    assert (waits.phase, waits.due) == ("waiting", row.deadline)
    assert world.run(LONGEST_LOOK_SECONDS, until=lambda: leaving(world) == 2)
    assert world.clock.milliseconds() <= row.deadline + 1000


def test_a_look_that_fails_when_the_replacement_is_initialized_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, replacements = booting_replacements(50)
    names, usual, failed = set(replacements.values()), actions.claims_by_name, Counter[str]()

    def read(*arguments: Any) -> Any:
        found = usual(*arguments)
        if any(name in names and claim.is_condition_true("Initialized") for name, claim in found.items()):
            failed["reads"] += 1
            if failed["reads"] <= 2:
                raise Unavailable("the API server does not answer")
        return found

    monkeypatch.setattr(commands, "claims_by_name", read)
    assert world.run(90, until=lambda: failed["reads"] > 0)
    assert world.run(6, until=lambda: leaving(world) == 2)


def early_bells(world: World, ids: Collection[str]) -> list[Doorbell]:
    """As a replacement rings that becomes initialized."""
    return [Doorbell(world.cluster.name, "command", id, REPLACEMENT_CHANGED) for id in ids]


def test_a_replacement_that_was_initialized_once_stays_so_between_two_looks() -> None:
    """Somebody deletes it before the other one is initialized: the command is not given up, its node goes."""
    world, replacements = booting_replacements(80)
    command, first = next(iter(replacements.items()))
    row = world.state.command(command)
    assert row is not None
    other = next(name for name in replacements.values() if name != first)
    world.state.save(msgspec.structs.replace(row, replacements=(first, other)))
    claim = world.cluster.nodeclaim(first)
    assert claim is not None
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=(Condition("Initialized", "True"),)))
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    world.cluster.remove("nodeclaims", first)
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    after = world.state.command(command)
    assert after is not None
    assert (after.phase, after.initialized_replacements) == ("waiting", (first,))
    assert after.due == row.due, "the look that is to come stays"


def test_a_command_that_is_done_is_not_taken_back_by_a_late_doorbell_while_disruption_is_paused() -> None:
    world, replacements = booting_replacements(80)
    command = next(iter(replacements))
    row = world.state.command(command)
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="done", due=0, forced=False))
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, disruption_paused=True)
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    after = world.state.command(command)
    assert after is not None
    assert after.phase == "done"


def test_a_claim_that_has_no_instance_yet_is_looked_at_every_five_seconds() -> None:
    """Its launch may fail before there is a claim that could ring."""
    world, replacements = booting_replacements(80)
    command, name = next(iter(replacements.items()))
    claim = world.cluster.nodeclaim(name)
    assert claim is not None
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=()))
    world.clock.advance(LONGEST_LOOK_SECONDS)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "command", command)], now=world.clock.now())
    row = world.state.command(command)
    assert row is not None
    assert row.due - world.clock.milliseconds() == BOOTING_LOOK_SECONDS * 1000


def test_a_command_that_fails_after_its_node_was_tainted_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(1)
    world.kubelets.boot_seconds = 60
    warn(world, *world.claims())
    monkeypatch.setattr(commands, "_check_replacements", _fails_once(commands._check_replacements))
    assert world.run(20, until=lambda: any(command.phase == "waiting" for command in world.state.commands()))
    (command,) = world.state.commands()
    world.run(3)
    (after,) = world.state.commands()
    assert after.version > command.version, "it was looked at again"


def _fails_once(usual: Any) -> Any:
    failed = Counter[str]()

    def call(*arguments: Any) -> Any:
        failed["calls"] += 1
        if failed["calls"] == 1:
            raise Unavailable("no answer")
        return usual(*arguments)

    return call


def test_a_look_that_fails_while_another_worker_puts_off_the_next_one_is_taken_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one read the replacement before it was initialized."""
    world, replacements = booting_replacements(80)
    command, name = next(iter(replacements.items()))
    row, claim = world.state.command(command), world.cluster.nodeclaim(name)
    assert row is not None
    assert claim is not None
    world.state.save(msgspec.structs.replace(row, due=world.clock.milliseconds()))
    others = (condition for condition in claim.conditions if condition.type != "Initialized")
    conditions = (*others, Condition("Initialized", "True"))
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=conditions))

    def read(*_: Any) -> Any:
        monkeypatch.undo()
        stored = world.state.command(command)
        assert stored is not None
        due = world.clock.milliseconds() + LONGEST_LOOK_SECONDS * 1000
        world.state.save(msgspec.structs.replace(stored, due=due))
        raise Unavailable("the API server does not answer")

    monkeypatch.setattr(commands, "claims_by_name", read)
    lifecycle(world.ports, early_bells(world, [command]), now=world.clock.now())
    assert world.run(4, until=lambda: leaving(world) == 1)


def test_of_what_a_user_writes_as_commands_of_a_claim_only_ids_ring_and_few() -> None:
    """The longest would be no key of the state table: it would keep all commands that are read with it."""
    world, replacements = booting_replacements(50)
    command, name = next(iter(replacements.items()))
    claim = world.cluster.nodeclaim(name)
    assert claim is not None
    written = ",".join([" ", "x" * 2000, "command#\x01", command, *(f"{number:016x}" for number in range(15_000))])
    metadata = msgspec.structs.replace(
        claim.metadata, annotations=claim.metadata.annotations | {labels.COMMANDS: written}
    )
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata))
    begun = len(world.effects.log)
    assert world.run(90, until=lambda: leaving(world) == 2)
    ids = {id for effect in world.effects.log[begun:] for id in re.findall(r"lifecycle/command:(\S*)", effect.subject)}
    assert command in ids
    assert {len(id) for id in ids} == {len(command)}
    assert len(ids) <= COMMANDS_TOLD + 1


def test_while_no_replacement_can_be_decided_notices_of_other_kinds_take_their_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bucket stores no decision for one node; EC2 recommends to leave another one, and stops a third."""
    world = running(3)
    warned, recommended, stopped = (instance_id(claim.provider_id) for claim in world.claims())

    def refuse(*_: object) -> str:
        raise Unavailable("no bucket")

    monkeypatch.setattr(world.blobs, "put", refuse)
    world.interrupt_spot(warned)
    world.run(5)
    world.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": recommended})
    world.ec2.stop(stopped, after_seconds=0)
    world.deliver_event("EC2 Instance State-change Notification", {"instance-id": stopped, "state": "shutting-down"})
    world.run(5)
    phases = {row.instance_id: row.phase for row in world.state.notices()}
    assert phases.get(warned) == "new"
    assert (phases.get(recommended), phases.get(stopped, "done")) == (RECOMMENDED, "done")


@pytest.mark.parametrize("seconds", [0, 1])
@pytest.mark.parametrize("has_bucket", [True, False])
def test_a_doorbell_that_cannot_be_left_before_a_plan_keeps_none_from_being_made(
    monkeypatch: pytest.MonkeyPatch, seconds: int, has_bucket: bool
) -> None:
    """Nor is the notice forgotten, whether more notices are waited for or the plan fails."""
    world = running(1)
    warn(world, *world.claims())
    world.clock.advance(seconds)
    (bell,) = world.doorbells.receive("notices")
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue")))
    if not has_bucket:
        world.effects.inject(Fault("blobs", "put", Unavailable("no bucket")))
    lifecycle(world.ports, [bell], now=world.clock.now())
    assert bool(decisions(world, "interrupt")) == bool(seconds and has_bucket)
    world.clock.advance(2)
    assert world.doorbells.receive("notices")


@pytest.mark.parametrize("seconds", [5, 25], ids=["new", "late"])
def test_a_look_at_notices_that_wait_for_their_claims_leaves_one_doorbell(seconds: int) -> None:
    """Each doorbell is for all new notices: thirty, delivered ten at a time, would make the looks more and more."""
    world = running(30)
    claims = world.claims()
    for claim in claims:
        world.cluster.remove("nodeclaims", claim.name)
    warn(world, *claims)
    world.clock.advance(seconds)
    world.doorbells.messages.clear()
    first = Doorbell(world.cluster.name, "notice", instance_id(claims[0].provider_id))
    lifecycle(world.ports, [first], now=world.clock.now())
    assert [message.doorbell.kind for message in world.doorbells.messages].count("notice") == 1
    assert world.run(90, until=lambda: not [row for row in world.state.notices() if row.phase == "new"])


def test_a_look_at_late_warnings_while_ec2_does_not_answer_leaves_one_doorbell() -> None:
    """They were in a queue for minutes; what became of their instances is not known."""
    world = running(12)
    for claim in world.claims():
        warn(world, claim)
        row = world.state.notice(instance_id(claim.provider_id))
        assert row is not None
        world.state.save(msgspec.structs.replace(row, deadline=row.created - 600_000))
    world.outages["ec2"] = Unavailable("no answer")
    world.clock.advance(5)
    world.doorbells.messages.clear()
    first = Doorbell(world.cluster.name, "notice", instance_id(world.claims()[0].provider_id))
    lifecycle(world.ports, [first], now=world.clock.now())
    assert [message.doorbell.kind for message in world.doorbells.messages].count("notice") == 1
