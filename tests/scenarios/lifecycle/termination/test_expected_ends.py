"""Spotwright terminates instances: a notice of each end is there before EC2 tells of it."""

import sys
from collections.abc import Collection

import pytest

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.errors import Unavailable
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows import lifecycle as workflows
from spotwright.workflows.lifecycle import ended_instances, interruptions
from spotwright.workflows.lifecycle.gathering import GatheringPorts, gathering
from spotwright.workflows.lifecycle.termination.expected_ends import EXPECTED_WITHIN
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination, terminate_all
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow, epoch_ms
from tests.scenarios.lifecycle.termination.drained_claims import NODES, STATE, drained, step


def phases(world: World, claims: list[NodeClaim]) -> list[str]:
    return [row.phase for row in world.state.notices_of([instance_id(claim.provider_id) for claim in claims])]


def tell(world: World, claims: list[NodeClaim], state: str) -> None:
    for claim in claims:
        world.deliver_event(STATE, {"instance-id": instance_id(claim.provider_id), "state": state})


def test_ends_are_expected_by_one_write_before_the_instances_are_terminated(world: World) -> None:
    claims = drained(world)
    actions = [effect.action for effect in step(world)]
    assert actions.count("create_together") == 1
    assert actions.index("create_together") < actions.index("terminate")
    assert phases(world, claims) == [EXPECTED] * NODES
    rows = world.state.notices()
    assert {(row.kind, row.ended, row.events) for row in rows} == {(NoticeKind.INSTANCE_TERMINATED, False, ())}
    assert {row.claim for row in rows} == {claim.name for claim in claims}
    assert {row.created for row in rows} == {epoch_ms(world.clock.now())}


def test_claims_go_with_what_ec2_tells_last_and_what_it_tells_first_wakes_nobody(world: World) -> None:
    claims = drained(world)
    step(world)
    world.doorbells.messages.clear()
    tell(world, claims, "shutting-down")
    assert not world.doorbells.messages
    while any(instance.state != "terminated" for instance in world.ec2.all_instances()):
        world.pass_second()
    world.doorbells.messages.clear()
    tell(world, claims, "terminated")
    step_doorbells(world.ports, world.doorbells.receive("notices"), now=world.clock.now())
    assert not world.claims()
    assert phases(world, claims) == ["done"] * NODES


def ended(world: World) -> list[NodeClaim]:
    """Claims whose ends are expected, and of which EC2 has told the last."""
    claims = drained(world)
    step(world)
    while any(instance.state != "terminated" for instance in world.ec2.all_instances()):
        world.pass_second()
    world.doorbells.messages.clear()
    tell(world, claims, "terminated")
    return claims


def hear(world: World) -> None:
    assert step_doorbells(world.ports, world.doorbells.receive("notices"), now=world.clock.now()) == {}


def test_of_ends_that_are_expected_no_other_notice_is_read_and_the_planner_is_not_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = ended(world)
    # Whoever imports it now fails.
    monkeypatch.delattr(workflows, "interruptions", raising=False)
    monkeypatch.setitem(sys.modules, "spotwright.workflows.lifecycle.interruptions", None)
    read: list[str] = []
    monkeypatch.setattr(world.state, "notices", lambda: read.append("all that are open"))
    hear(world)
    assert not world.claims()
    assert phases(world, claims) == ["done"] * NODES
    assert not read


def test_other_notices_take_their_step_beside_ends_that_are_expected(world: World) -> None:
    world.deploy(builders.pod("stays", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (warned,) = world.claims()
    world.cluster.delete("nodeclaims", warned.metadata)
    id = instance_id(warned.provider_id)
    assert world.state.create(NoticeRow(id, world.cluster.name, NoticeKind.INSTANCE_TERMINATED, phase=EXPECTED))
    other = NoticeRow("i-00000000000000009", world.cluster.name, NoticeKind.INSTANCE_TERMINATED, ended=True)
    assert world.state.create(other)
    bells = [Doorbell(world.cluster.name, "notice", row) for row in (id, other.instance_id)]
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert phases(world, [warned]) == ["done"]
    (row,) = world.state.notices_of([other.instance_id])
    assert row.phase == "done"


def test_an_end_is_no_longer_expected_where_its_claim_stays(world: World) -> None:
    """A row of before, of an instance that somebody else has ended: its notice is handled as any other."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    id = instance_id(claim.provider_id)
    assert world.state.create(NoticeRow(id, world.cluster.name, NoticeKind.INSTANCE_TERMINATED, phase=EXPECTED))
    world.ec2.terminate([id])
    while any(instance.state != "terminated" for instance in world.ec2.all_instances()):
        world.pass_second()
    tell(world, [claim], "terminated")
    hear(world)
    assert world.claims()[0].metadata.deletion_timestamp is not None


def test_a_warning_beside_ends_that_are_expected_comes_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deploy(builders.pod("stays", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (live,) = world.claims()
    going = [f"i-{number:017x}" for number in range(100, 103)]
    now, cluster = epoch_ms(world.clock.now()), world.cluster.name
    for id in going:
        assert world.state.create(NoticeRow(id, cluster, NoticeKind.INSTANCE_TERMINATED, phase=EXPECTED))
    warned = NoticeRow(
        instance_id(live.provider_id), cluster, NoticeKind.SPOT_INTERRUPTED, deadline=now + 120_000, created=now - 5_000
    )
    assert world.state.create(warned)
    steps: list[str] = []
    monkeypatch.setattr(interruptions, "_step_new", lambda *_: steps.append("warnings"))
    monkeypatch.setattr(interruptions, "end_claims", lambda *_: steps.append("ends"))
    monkeypatch.setattr(ended_instances, "end_claims", lambda *_: steps.append("ends before"))
    bells = [Doorbell(cluster, "notice", id) for id in (*going, warned.instance_id)]
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert steps == ["warnings", "ends"]


def test_ends_get_the_time_that_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(world)
    given = list[object]()

    def gathered(ports: LifecyclePorts, seconds_left: SecondsLeft = None) -> GatheringPorts:
        given.append(seconds_left)
        return gathering(ports, seconds_left)

    def left() -> float:
        return 60.0

    monkeypatch.setattr(ended_instances, "gathering", gathered)
    bells = world.doorbells.receive("notices")
    assert step_doorbells(world.ports, bells, now=world.clock.now(), seconds_left=left) == {}
    assert given == [left]


@pytest.mark.parametrize("action", ["notices_of", "save_together"])
def test_ends_whose_rows_cannot_be_read_or_written_are_heard_of_again(world: World, action: str) -> None:
    claims = ended(world)
    world.effects.inject(Fault("state", action, Unavailable("no table")))
    hear(world)
    assert world.run(120, until=lambda: phases(world, claims) == ["done"] * NODES and not world.claims())
    assert not world.failures


def terminations(world: World, number: int) -> list[InstanceTermination]:
    (claim, *_) = drained(world)
    return [InstanceTermination(f"i-{index:017}", "z", claim) for index in range(number)]


def expected(world: World) -> int:
    return sum(row.phase == EXPECTED for row in world.state.notices())


def test_a_thousand_ends_are_expected_by_ten_transactions(world: World) -> None:
    ends = terminations(world, 1000)
    before = len(world.effects.log)
    terminate_all(world.ports, ends, world.clock.now())
    written = [effect for effect in world.effects.log[before:] if effect.action == "create_together"]
    assert [len(effect.subject.split()) for effect in written] == [100] * 10
    assert expected(world) == 1000


def test_a_notice_that_another_writes_meanwhile_keeps_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, usual = terminations(world, 100), world.state.notices_of

    def notices_of(instances: Collection[str]) -> tuple[NoticeRow, ...]:
        known = usual(instances)
        world.state.create(NoticeRow(ends[50].id, world.cluster.name, NoticeKind.SPOT_INTERRUPTED))
        return known

    monkeypatch.setattr(world.state, "notices_of", notices_of)
    terminate_all(world.ports, ends, world.clock.now())
    assert expected(world) == 99


def test_what_ec2_tells_late_or_again_is_no_news(world: World) -> None:
    claims = ended(world)
    world.clock.advance(2)
    hear(world)
    rows = world.state.notices_of([instance_id(claim.provider_id) for claim in claims])
    assert phases(world, claims) == ["done"] * NODES
    for state in ("shutting-down", "terminated"):
        for claim in claims:
            detail = {"instance-id": instance_id(claim.provider_id), "state": state}
            world.deliver_event(STATE, detail)
    assert world.state.notices_of([instance_id(claim.provider_id) for claim in claims]) == rows


def test_what_ec2_had_announced_stays_its_notice(world: World) -> None:
    claims = drained(world)
    warned, id = claims[0], instance_id(claims[0].provider_id)
    row = NoticeRow(id, world.cluster.name, NoticeKind.SPOT_INTERRUPTED, phase="done", events=("e",))
    assert world.state.create(row)
    step(world)
    assert world.state.notice(id) == row
    assert phases(world, [claim for claim in claims if claim is not warned]) == [EXPECTED] * (NODES - 1)


@pytest.mark.parametrize("action", ["notices_of", "create_together"])
def test_instances_are_terminated_though_their_ends_cannot_be_written(world: World, action: str) -> None:
    """What EC2 tells of them are notices then."""
    claims = drained(world)
    world.effects.inject(Fault("state", action, Unavailable("no table")))
    assert "terminate" in [effect.action for effect in step(world)]
    assert phases(world, claims) == []
    assert world.run(150, until=lambda: not world.claims())
    assert not world.failures


def test_a_further_step_expects_nothing_anew(world: World) -> None:
    claims = drained(world)
    step(world)
    reads = world.effects.reads.copy()
    assert "create_together" not in [effect.action for effect in step(world)]
    assert world.effects.reads["state", "notices_of"] == reads["state", "notices_of"]
    assert phases(world, claims) == [EXPECTED] * NODES


def test_an_invocation_that_ends_before_it_terminates_expects_the_ends_once(world: World) -> None:
    claims = drained(world)
    world.effects.inject(Fault("ec2", "terminate", Unavailable("no answer")))
    step(world)
    rows = world.state.notices()
    world.clock.advance(5)
    assert [effect.action for effect in step(world)].count("terminate") == 1
    assert world.state.notices() == rows
    assert phases(world, claims) == [EXPECTED] * NODES


def test_a_message_that_is_lost_costs_a_tick_and_leaves_no_notice(world: World) -> None:
    """The claims go when EC2 shows that their instances have ended; the notices, when their time is over."""
    claims = drained(world)
    world.deliver_event = lambda *_, **__: None  # type: ignore[method-assign]
    step(world)
    assert world.run(150, until=lambda: not world.claims())
    assert phases(world, claims) == [EXPECTED] * NODES
    assert not world.run(
        int(EXPECTED_WITHIN.total_seconds()) - 200, until=lambda: phases(world, claims) != [EXPECTED] * 3
    )
    assert world.run(300, until=lambda: phases(world, claims) == ["done"] * NODES)
    assert not world.failures


def test_an_instance_that_nobody_terminated_is_a_notice(world: World) -> None:
    """Somebody else did, while its claim drains or lives on."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    tell(world, [claim], "shutting-down")
    assert phases(world, [claim]) == ["new"]
    assert world.doorbells.messages_of("notices", "notice")
