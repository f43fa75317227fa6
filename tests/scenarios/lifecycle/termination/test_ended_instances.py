"""EC2 tells that the instances of deleted NodeClaims have ended, many at once: their last steps are taken together."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, OutOfTime, Unavailable
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, NodeWithVolumes, instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.ended_instances import end_claims, is_expected
from spotwright.workflows.lifecycle.interruption_facts import Facts
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow, epoch_ms

NODES = 4


def told(world: World, nodes: int = NODES, *, state: str = "terminated", shown: str = "terminated") -> list[NodeClaim]:
    """Claims whose instances Spotwright terminated, and what EventBridge says of them, of which lifecycle hears next.

    ``shown``: their state, as EC2 shows it.
    """
    world.deploy(builders.pod("inflate", cpu_millicores=1800), nodes)
    assert world.run(60, until=lambda: len(world.running_pods()) == nodes)
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)

    def are_terminating() -> bool:
        return all(claim.is_condition_true("InstanceTerminating") for claim in world.claims())

    assert world.run(40, until=are_terminating)
    world.forget_changes()
    while any(instance.state != shown for instance in world.ec2.all_instances()):
        world.pass_second()
    world.doorbells.messages.clear()
    for claim in world.claims():
        id = instance_id(claim.provider_id)
        world.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": state})
    return list(world.claims())


def heard(row: NoticeRow) -> NoticeRow:
    """Of an end that was expected, when EC2 has told of it."""
    return msgspec.structs.replace(row, phase="new", ended=True)


def hear(world: World) -> None:
    lifecycle(world.ports, world.doorbells.receive("notices"), now=world.clock.now())


def fail_once(monkeypatch: pytest.MonkeyPatch, world: World, claim: NodeClaim, failure: ApiError) -> None:
    """The next read of the claim's Node fails."""
    usual, failures = world.cluster.node, [failure]

    def node(name: str) -> Node | None:
        if name == claim.node_name and failures:
            raise failures.pop()
        return usual(name)

    monkeypatch.setattr(world.cluster, "node", node)


def phases(world: World, claims: Iterable[NodeClaim]) -> list[str]:
    rows = world.state.notices_of([instance_id(claim.provider_id) for claim in claims])
    return [row.phase for row in rows]


def by_instance(claims: Iterable[NodeClaim]) -> list[NodeClaim]:
    return sorted(claims, key=lambda claim: instance_id(claim.provider_id))


def test_claims_go_as_soon_as_ec2_tells_with_one_read_of_their_instances_and_no_doorbell_each(world: World) -> None:
    claims = told(world)
    reads = world.effects.reads.copy()
    hear(world)
    assert not world.claims()
    assert not world.cluster.all("nodes")
    assert world.effects.reads["ec2", "instances_by_id"] - reads["ec2", "instances_by_id"] == 1
    assert world.effects.reads["ec2", "instance"] == reads["ec2", "instance"]
    assert not world.doorbells.messages_of("lifecycle", "claim")
    rows = world.state.notices_of([instance_id(claim.provider_id) for claim in claims])
    assert [(row.phase, row.due, row.claim) for row in rows] == [
        ("done", 0, claim.name) for claim in by_instance(claims)
    ]
    assert len(world.effects.select("state", "save_together")) == 1


def test_that_instances_shut_down_is_known(world: World) -> None:
    claims = told(world, state="shutting-down", shown="shutting-down")
    assert not world.doorbells.messages
    assert phases(world, claims) == [EXPECTED] * NODES
    assert len(world.claims()) == NODES


def test_a_drain_goes_on_though_its_instance_shuts_down_and_ends_when_ec2_says_that_it_has(world: World) -> None:
    """Somebody else terminated it: nothing is to be done before it has ended, however often EC2 tells of it."""
    world.kubelets.stop_seconds = 600.0
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    world.forget_deployments()
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(5)
    id = instance_id(claim.provider_id)
    world.doorbells.messages.clear()
    for state, is_rung in (("shutting-down", False), ("terminated", True)):
        world.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": state})
        hear(world)
        assert bool(world.doorbells.messages_of("lifecycle", "claim")) == is_rung, state


def test_what_ec2_does_not_show_as_terminated_yet_is_looked_at_again(world: World) -> None:
    claims = told(world, shown="shutting-down")
    hear(world)
    assert len(world.claims()) == NODES
    rung = {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "claim")}
    assert rung == {claim.name for claim in claims}
    assert phases(world, claims) == ["done"] * NODES
    assert world.run(150, until=lambda: not world.claims())


def test_a_claim_whose_step_fails_keeps_no_other_and_goes_with_its_next_tick(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = told(world)
    fail_once(monkeypatch, world, first, Unavailable("no answer"))
    hear(world)
    assert [claim.name for claim in world.claims()] == [first.name]
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", first.name, 1010)])
    assert world.run(5, until=lambda: not world.claims())


@pytest.mark.parametrize("action", ["nodeclaims_of_instances"])
def test_a_notice_whose_claims_cannot_be_read_comes_again(world: World, action: str) -> None:
    claims = told(world)
    world.effects.inject(Fault("cluster", action, Unavailable("no answer")))
    hear(world)
    assert phases(world, claims) == [EXPECTED] * NODES
    assert world.run(5, until=lambda: not world.claims())
    assert phases(world, claims) == ["done"] * NODES


def test_rows_that_another_invocation_changed_keep_no_other_row(world: World) -> None:
    """Whoever changed it rang for it: EC2 told that the instance has ended while it was noted that it shuts down."""
    claims = told(world)
    row = world.state.notices_of([instance_id(claims[0].provider_id)])[0]
    usual, changed = world.cluster.set_taints, list[str]()

    def change(*arguments: Any, **options: Any) -> NodeWithVolumes:
        if not changed:
            changed.append(row.instance_id)
            world.state.save(msgspec.structs.replace(heard(row), due=epoch_ms(world.clock.now())))
        return usual(*arguments, **options)

    world.cluster.set_taints = change  # type: ignore[method-assign]
    hear(world)
    assert not world.claims()
    assert sorted(phases(world, claims)) == ["done"] * (NODES - 1) + ["new"]
    assert not world.doorbells.messages_of("notices", "notice")
    assert world.run(90, until=lambda: phases(world, claims) == ["done"] * NODES)


def test_doorbells_that_are_lost_leave_the_notices_as_they_were(world: World) -> None:
    """What EC2 does not show yet is rung for; where that fails, the notices come again."""
    claims = told(world, shown="shutting-down")
    bells = world.doorbells.receive("notices")
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no answer")))
    lifecycle(world.ports, bells, now=world.clock.now())
    assert phases(world, claims) == [EXPECTED] * NODES
    assert world.run(150, until=lambda: not world.claims())


def test_a_claim_that_is_drained_still_is_rung_for(world: World) -> None:
    """Its node may run pods; the step of a claim alone ends what EC2 has ended."""
    (claim,) = told(world, 1)
    conditions = tuple(one for one in claim.conditions if one.type not in ("Drained", "InstanceTerminating"))
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    hear(world)
    assert [message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "claim")] == [claim.name]


@pytest.mark.parametrize(
    ("of_row", "claims"),
    [
        ({}, 1),
        ({"warning": "spot_interrupted"}, 1),
        ({"kind": "scheduled_change"}, 1),
        ({"phase": "done"}, 1),
        ({}, 0),
        ({}, 2),
    ],
)
def test_two_claims_of_an_instance_and_what_was_announced_take_the_way_of_a_notice_alone(
    world: World, of_row: dict[str, Any], claims: int
) -> None:
    (claim,) = told(world, 1)
    (row,) = world.state.notices()
    row = heard(row)
    facts = Facts({row.instance_id: (claim,) * claims})
    assert is_expected(msgspec.structs.replace(row, **of_row), facts) == (claims == 1 and not of_row)
    live = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=None))
    assert not is_expected(row, Facts({row.instance_id: (live,)}))


def test_a_row_alone_that_cannot_be_saved_keeps_no_other(world: World) -> None:
    claims = told(world)
    world.effects.inject(Fault("state", "save_together", Unavailable("no answer")))
    failures: list[ApiError] = [Unavailable("no answer")]
    usual = world.state.save

    def save(row: Any) -> Any:
        if failures:
            raise failures.pop()
        return usual(row)

    world.state.save = save  # type: ignore[method-assign]
    hear(world)
    assert not world.claims()
    assert world.run(150, until=lambda: phases(world, claims) == ["done"] * NODES)


def test_a_step_for_which_no_time_was_left_keeps_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = by_instance(told(world))
    fail_once(monkeypatch, world, first, OutOfTime("no answer is waited for"))
    hear(world)
    assert [claim.name for claim in world.claims()] == [first.name]
    assert [message.doorbell.key for message in world.doorbells.messages_of("notices", "notice")] == [
        instance_id(first.provider_id)
    ]
    assert world.run(5, until=lambda: not world.claims())


def test_rows_that_cannot_be_saved_keep_no_notice_of_another_kind(world: World) -> None:
    """Of an instance that EC2 had warned of, too."""
    claims = by_instance(told(world))
    warned = world.state.notices_of([instance_id(claims[0].provider_id)])[0]
    world.state.save(msgspec.structs.replace(heard(warned), warning="spot_interrupted"))
    world.effects.inject(Fault("state", "save_together", Unavailable("no answer")))
    hear(world)
    assert phases(world, claims) == ["done", *[EXPECTED] * (NODES - 1)]
    assert world.run(150, until=lambda: phases(world, claims) == ["done"] * NODES)


def test_only_the_last_step_is_taken_at_once(world: World) -> None:
    """A claim without the label of its instance is found by a list, and then EC2 is asked about it in any case."""
    (claim,) = told(world, 1)
    (row,) = world.state.notices()
    facts = Facts({row.instance_id: (msgspec.structs.replace(claim, conditions=()),)})
    (instance,) = world.ec2.all_instances()
    end_claims(
        world.ports,
        [heard(row)],
        msgspec.structs.replace(facts, instances={row.instance_id: instance}),
        world.clock.now(),
    )
    assert [message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "claim")] == [claim.name]


def test_an_instance_that_ec2_had_warned_of_rings_when_it_has_ended_and_not_before(world: World) -> None:
    (claim,) = told(world, 1)
    (row,) = world.state.notices()
    reads = world.effects.reads["ec2", "instance"]
    for has_ended in (False, True):
        current = world.state.notice(row.instance_id)
        assert current is not None
        warned = msgspec.structs.replace(current, phase="new", warning="spot_interrupted", ended=has_ended)
        world.state.save(warned)
        world.doorbells.ring("notices", [Doorbell(world.cluster.name, "notice", row.instance_id)])
        hear(world)
        rung = [message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "claim")]
        assert rung == [claim.name] * has_ended
    assert world.effects.reads["ec2", "instance"] == reads, "the step of its claim asks EC2"
