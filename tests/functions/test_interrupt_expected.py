"""What EC2 says of instances that Spotwright terminates, of which there are rows before: mostly it is known."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from spotwright.errors import Unavailable
from spotwright.model.ec2.fleet import Instance
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow
from tests.functions.counted_state import CountedState
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.functions.interrupt_messages import REBALANCE, SPOT, STATE, envelope

INSTANCES = ("i-1", "i-2")


def expected(world: World, instance: str = "i-1") -> NoticeRow:
    row = NoticeRow(
        instance_id=instance, cluster=world.cluster.name, kind="instance_terminated", claim="n", phase=EXPECTED,
        created=1_767_603_000_000, due=1_767_603_600_000,
    )  # fmt: skip
    assert world.state.create(row)
    return row


def of(state: str, instances: Sequence[str] = INSTANCES) -> list[dict[str, Any]]:
    return [envelope(STATE, state=state, **{"instance-id": instance}) for instance in instances]


def receive(world: World, bodies: Sequence[dict[str, Any]]) -> list[str]:
    """The messages that come back."""
    return failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context()))


def rung(world: World) -> list[str]:
    return [bell.key for bell in world.doorbells.receive("notices")]


@pytest.mark.parametrize("instances", [INSTANCES[:1], INSTANCES], ids=["alone", "together"])
def test_that_it_shuts_down_is_known_and_that_it_has_ended_rings(world: World, instances: tuple[str, ...]) -> None:
    rows = [expected(world, instance) for instance in instances]
    before = len(world.effects.log)
    for _ in range(2):
        assert receive(world, of("shutting-down", instances)) == []
    assert rung(world) == []
    assert len(world.effects.log) == before
    for _ in range(2):
        assert receive(world, of("terminated", instances)) == []
        assert rung(world) == list(instances)
    assert world.effects.select("state", "*")[-len(instances) :][-1].number <= before, "nothing was written"
    assert [world.state.notice(instance) for instance in instances] == rows


def asked(world: World, bodies: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How often EC2 was asked, and rows were read together, for this batch."""
    before = world.effects.reads.copy()
    assert receive(world, bodies) == []
    reads = world.effects.reads - before
    return reads["ec2", "instances_by_id"], reads["state", "notices_of"]


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
@pytest.mark.parametrize("instances", [INSTANCES[:1], INSTANCES], ids=["alone", "together"])
def test_ec2_is_not_asked_about_what_spotwright_terminates(
    world: World, state: str, instances: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for instance in instances:
        expected(world, instance)
    counted = CountedState(world.state)
    monkeypatch.setattr(world, "state", counted)
    assert asked(world, of(state, instances)) == (0, 1)
    assert counted.calls == ["notices_of"]


def test_ec2_is_asked_about_the_others_of_a_batch_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    expected(world)
    usual, ids = world.ec2.instances_by_id, list[str]()

    def instances_by_id(instances: Collection[str]) -> tuple[Instance, ...]:
        ids.extend(instances)
        return usual(instances)

    monkeypatch.setattr(world.ec2, "instances_by_id", instances_by_id)
    assert asked(world, of("shutting-down")) == (1, 2)
    assert ids == ["i-2"]


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_an_end_is_not_lost_where_the_instance_is_warned_of_while_ec2_is_asked_about_another(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    expected(world)
    usual = world.ec2.instances_by_id

    def instances_by_id(instances: Collection[str]) -> tuple[Instance, ...]:
        monkeypatch.setattr(world.ec2, "instances_by_id", usual)
        assert receive(world, [envelope(SPOT)]) == []
        return usual(instances)

    monkeypatch.setattr(world.ec2, "instances_by_id", instances_by_id)
    assert receive(world, [*of(state, ["i-1"]), *of("shutting-down", ["i-2"])]) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.warning) == ("instance_terminated", "spot_interrupted")


@pytest.mark.parametrize("phase", ["new", "done"])
def test_ec2_is_asked_about_an_instance_of_which_something_else_is_known(world: World, phase: str) -> None:
    assert world.state.create(NoticeRow("i-1", world.cluster.name, "rebalance_recommendation", phase=phase))
    assert asked(world, of("terminated", ["i-1"])) == (1, 1)


def test_ec2_is_not_asked_about_an_instance_whose_claim_is_known(world: World) -> None:
    """Its row is of this cluster, whatever it says: of an end that everything was done about it tells nothing new."""
    row = NoticeRow(
        "i-1", world.cluster.name, "instance_terminated", claim="n", phase="done", ended=True, created=2_000_000_000_000
    )
    assert world.state.create(row)
    assert asked(world, of("terminated", ["i-1"])) == (0, 1)
    assert rung(world) == []
    assert world.state.notice("i-1") == row
    warned = NoticeRow("i-2", world.cluster.name, "spot_interrupted", claim="m", phase="replaced")
    assert world.state.create(warned)
    assert asked(world, of("terminated", ["i-2"])) == (0, 1)
    assert rung(world) == ["i-2"]


def test_a_row_that_another_writes_before_what_was_read_is_written_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that is expected, and a warning of the same instance in the batch."""
    row = expected(world)
    usual = world.state.notices_of

    def notices_of(instances: Collection[str]) -> tuple[NoticeRow, ...]:
        known = usual(instances)
        monkeypatch.setattr(world.state, "notices_of", usual)
        world.state.save(row)
        return known

    monkeypatch.setattr(world.state, "notices_of", notices_of)
    assert receive(world, [*of("terminated", ["i-1"]), envelope(SPOT)]) == []
    after = world.state.notice("i-1")
    assert after is not None
    assert (after.kind, after.warning, after.version) == ("instance_terminated", "spot_interrupted", 2)
    assert rung(world) == ["i-1"]


def test_before_a_warning_no_row_is_read(world: World) -> None:
    assert asked(world, [envelope(SPOT), envelope(SPOT, **{"instance-id": "i-2"})]) == (1, 0)


def test_a_row_that_another_wrote_after_it_was_read_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance was warned of between the read and the write."""
    usual = world.ec2.instances_by_id

    def instances_by_id(instances: Collection[str]) -> tuple[Instance, ...]:
        world.state.create(NoticeRow("i-1", world.cluster.name, "spot_interrupted", events=("e",)))
        return usual(instances)

    monkeypatch.setattr(world.ec2, "instances_by_id", instances_by_id)
    assert receive(world, of("terminated")) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.warning, row.ended) == ("instance_terminated", "spot_interrupted", True)
    assert world.state.notice("i-2") is not None


def test_both_in_a_batch_ring_once(world: World) -> None:
    expected(world)
    assert receive(world, [*of("terminated", ["i-1"]), *of("shutting-down", ["i-1"])]) == []
    assert rung(world) == ["i-1"]


def test_an_instance_of_which_nothing_is_expected_is_a_notice_beside_one_that_is_known(world: World) -> None:
    expected(world)
    assert receive(world, of("shutting-down")) == []
    assert rung(world) == ["i-2"]
    row = world.state.notice("i-2")
    assert row is not None
    assert (row.kind, row.phase, row.ended) == ("instance_terminated", "new", False)


@pytest.mark.parametrize(
    ("bodies", "kind", "warning"),
    [
        (of("stopping", ["i-1"]), "instance_stopped", ""),
        (of("stopped", ["i-1"]), "instance_stopped", ""),
        ([envelope(SPOT)], "spot_interrupted", ""),
        ([envelope(REBALANCE)], "rebalance_recommendation", ""),
        ([envelope(SPOT), *of("shutting-down", ["i-1"])], "instance_terminated", "spot_interrupted"),
        ([*of("terminated", ["i-1"]), envelope(SPOT)], "instance_terminated", "spot_interrupted"),
    ],
)
def test_anything_else_is_a_notice_as_if_nothing_was_expected(
    world: World, bodies: list[dict[str, Any]], kind: str, warning: str
) -> None:
    """Its offering was interrupted, or the instance has stopped and may run again."""
    expected(world)
    assert receive(world, bodies) == []
    assert rung(world) == ["i-1"]
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.warning, row.phase, row.claim, row.version) == (kind, warning, "new", "", 1)
    assert receive(world, [*bodies, *of("terminated", ["i-1"])]) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert row.ended
    assert row.warning == (warning or ("" if kind == "instance_stopped" else kind))


def test_a_message_whose_doorbell_fails_comes_back(world: World) -> None:
    expected(world)
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue")))
    assert receive(world, of("terminated", ["i-1"])) == ["m0"]
    assert receive(world, of("terminated", ["i-1"])) == []
    assert rung(world) == ["i-1"]


def test_rows_that_cannot_be_read_together_are_read_alone(world: World) -> None:
    for instance in INSTANCES:
        expected(world, instance)
    world.effects.inject(Fault("state", "notices_of", Unavailable("no table")))
    assert receive(world, [*of("terminated", INSTANCES[:1]), *of("shutting-down", INSTANCES[1:])]) == []
    assert rung(world) == ["i-1"]
