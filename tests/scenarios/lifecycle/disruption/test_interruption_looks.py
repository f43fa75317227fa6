"""Notices that wait for their replacement, for another planner or for an API: who looks at them, and when."""

from collections import Counter
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Conflict, Unavailable
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.workflows.lifecycle.interruptions import ALL
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import RECOMMENDED
from tests.scenarios.lifecycle.disruption.interrupted_nodes import (
    MOVING,
    decisions,
    gathered,
    longest_wait,
    running,
    warn,
)


def test_beside_another_invocation_that_plans_for_notices_only_rows_are_read_and_a_second_later_it_is_looked_at() -> (
    None
):
    world = running(2)
    now = world.clock.milliseconds()
    warn(world, *world.claims())
    assert world.state.begin_planning("notices", now=now, until=now + 5_000)
    bells = world.doorbells.receive("notices")
    reads, changes = world.effects.reads.copy(), len(world.effects.log)
    lifecycle(world.ports, bells, now=world.clock.now())
    assert world.effects.reads - reads == {("state", "notices_of"): 1}
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
