"""EventBridge messages into interrupt: notice rows with their deadline, a doorbell each, foreign ones refused alone."""

import itertools
import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec
import pytest

from spotwright.adapters import time_limit
from spotwright.composition import interrupt_clients
from spotwright.errors import ApiError, Conflict, Denied, Throttled, Unavailable
from spotwright.model.ec2.fleet import Instance
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NoticeRow, Row
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event

SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"
REBALANCE = "EC2 Instance Rebalance Recommendation"
HEALTH = "AWS Health Event"


def envelope(detail_type: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    detail = {"instance-id": "i-1"} | detail
    # EventBridge's id is the same for the same message.
    id = uuid5(NAMESPACE_OID, f"{detail_type} {detail}")
    return {
        "version": "0", "id": str(id), "detail-type": detail_type, "source": source, "account": "123456789012",
        "time": "2026-01-05T09:00:00Z", "region": "ap-northeast-2", "resources": [],
        "detail": detail,
    }  # fmt: skip


def change(**detail: Any) -> dict[str, Any]:
    """A scheduled change of instance i-1 in a week."""
    usual = {
        "service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
        "startTime": "Mon, 12 Jan 2026 09:00:00 GMT", "affectedEntities": [{"entityValue": "i-1"}],
    }  # fmt: skip
    return envelope(HEALTH, "aws.health", **(usual | detail))


def sent(event: dict[str, Any], after: timedelta, id: str) -> dict[str, Any]:
    """Another message of the same kind, so long after nine."""
    at = datetime.fromisoformat("2026-01-05T09:00:00+00:00") + after
    return event | {"time": at.isoformat(), "id": id}


def test_a_spot_warning_becomes_a_row_with_two_minutes_and_a_doorbell(world: World) -> None:
    answer = load_handler("interrupt", world).handler(
        sqs_event([envelope(SPOT, **{"instance-action": "terminate"})]), Context()
    )
    assert failed_messages(answer) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase) == ("spot_interrupted", "new")
    assert row.deadline == datetime.fromisoformat("2026-01-05T09:02:00+00:00").timestamp() * 1000
    assert [(doorbell.kind, doorbell.key) for doorbell in world.doorbells.receive("notices")] == [("notice", "i-1")]


def test_the_same_message_again_leaves_the_row_as_it_is(world: World) -> None:
    handler = load_handler("interrupt", world).handler
    handler(sqs_event([envelope(SPOT)]), Context())
    before = world.state.notice("i-1")
    handler(sqs_event([envelope(SPOT)]), Context())
    assert world.state.notice("i-1") == before


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        (envelope(REBALANCE), envelope(SPOT), "spot_interrupted"),
        (envelope(SPOT), envelope(REBALANCE), "spot_interrupted"),
        (envelope(SPOT), envelope(STATE, state="terminated"), "instance_terminated"),
    ],
)
def test_the_graver_notice_counts(world: World, first: dict[str, Any], then: dict[str, Any], kept: str) -> None:
    load_handler("interrupt", world).handler(sqs_event([first, then]), Context())
    row = world.state.notice("i-1")
    assert row is not None
    assert row.kind == kept


def test_aws_is_waited_for_until_shortly_before_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A try may take twelve seconds otherwise, and the function has ten."""
    module, left = load_handler("interrupt", world), list[float]()

    def find_clusters(*_: object) -> dict[str, tuple[str, ...]]:
        left.append(time_limit.seconds_left(0))
        return {"i-1": ()}

    monkeypatch.setattr(module, "find_clusters", find_clusters)
    module.handler(sqs_event([envelope(SPOT)]), Context(10))
    assert left == [pytest.approx(9.5, abs=0.5)]
    assert time_limit.seconds_left(0) == inf


def test_what_concerns_no_instance_is_taken_and_forgotten(world: World) -> None:
    bodies = [envelope(STATE, state="running"), envelope("Scheduled Event", source="aws.events")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert not world.state.rows


def test_malformed_messages_fail_alone(world: World) -> None:
    bodies = ["{", {"source": "aws.ec2"}, envelope(SPOT), {**envelope(SPOT), "detail": {"instance-id": 5}}, "[]"]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == [
        "m0",
        "m1",
        "m3",
        "m4",
    ]
    assert list(world.state.rows) == ["notice#i-1"]


def test_a_notice_that_cannot_be_written_comes_back(world: World) -> None:
    for action in ("create_together", "create"):
        world.effects.inject(Fault("state", action, Unavailable("no table"), times=1))
    bodies = [envelope(SPOT), envelope(SPOT, **{"instance-id": "i-2"})]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == ["m0"]
    assert list(world.state.rows) == ["notice#i-2"]


def notices(count: int) -> list[dict[str, Any]]:
    return [envelope(SPOT, **{"instance-id": f"i-{number:02}"}) for number in range(count)]


def rung(world: World) -> list[str]:
    """The calls that rang for notices, each with all its doorbells."""
    return [effect.subject for effect in world.effects.select("doorbells", "ring")]


def test_a_batch_rings_once_after_all_its_rows_are_there(world: World) -> None:
    bodies = [
        *notices(10),
        envelope(REBALANCE, **{"instance-id": "i-03"}),
        envelope(REBALANCE, **{"instance-id": "i-10"}),
    ]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert rung(world) == ["notices/notice:i-00 notices/notice:i-10"], "all that EC2 takes back is one plan"
    assert world.effects.log[-1].action == "ring"
    assert len(world.state.rows) == 11


def test_the_rows_of_a_batch_are_one_write_and_each_its_own_where_one_is_there_already(world: World) -> None:
    handler = load_handler("interrupt", world).handler
    assert failed_messages(handler(sqs_event(notices(10)), Context())) == []
    assert [effect.action for effect in world.effects.select("state", "*")] == ["create_together"]
    bodies = [*notices(3), envelope(STATE, state="stopping", **{"instance-id": "i-02"}), *notices(12)[10:]]
    assert failed_messages(handler(sqs_event(bodies), Context())) == []
    assert len(world.state.rows) == 12
    row = world.state.notice("i-02")
    assert row is not None
    assert row.kind == "instance_stopped"


@pytest.mark.parametrize("first_is_lighter", [True, False])
def test_of_two_notices_of_an_instance_in_a_batch_the_severer_is_written_alone(
    world: World, first_is_lighter: bool
) -> None:
    bodies = [envelope(REBALANCE), envelope(STATE, state="stopping")]
    load_handler("interrupt", world).handler(sqs_event(bodies if first_is_lighter else bodies[::-1]), Context())
    assert [effect.action for effect in world.effects.select("state", "*")] == ["create"]
    row = world.state.notice("i-1")
    assert row is not None
    assert row.kind == "instance_stopped"


def test_a_severer_notice_that_is_written_meanwhile_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = load_handler("interrupt", world).handler
    handler(sqs_event([envelope(REBALANCE)]), Context())
    usual = world.state.save

    def save(row: Row) -> None:
        monkeypatch.setattr(world.state, "save", usual)
        handler(sqs_event([envelope(SPOT)]), Context())
        raise Conflict("the row was written meanwhile", code="ConditionalCheckFailedException")

    monkeypatch.setattr(world.state, "save", save)
    assert failed_messages(handler(sqs_event([change()]), Context())) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert row.kind == "spot_interrupted"


def test_rows_that_fail_fail_their_messages_and_the_others_are_rung_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = world.state.create

    def create(row: Row) -> bool:
        if isinstance(row, NoticeRow) and row.instance_id in ("i-02", "i-05"):
            raise Throttled("slow down")
        return usual(row)

    monkeypatch.setattr(world.state, "create", create)
    world.effects.inject(Fault("state", "create_together", Throttled("slow down"), times=9))
    bodies = [*notices(8), envelope(REBALANCE, **{"instance-id": "i-05"})]
    answer = load_handler("interrupt", world).handler(sqs_event(bodies), Context())
    assert failed_messages(answer) == ["m2", "m5", "m8"]
    assert rung(world) == ["notices/notice:i-00"]
    world.effects.log.clear()
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies[1:4]), Context())) == ["m1"]
    assert rung(world) == ["notices/notice:i-01"], "of a row that was written"


def test_a_ring_that_fails_brings_back_the_messages_of_its_cluster(cell: dict[str, World], world: World) -> None:
    tagged(world, "i-00", **{"eks:eks-cluster-name": "blue"})
    tagged(world, "i-01", **{"eks:eks-cluster-name": "green"})
    cell["blue"].effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=1))
    handler = load_handler("interrupt", world).handler
    assert failed_messages(handler(sqs_event(notices(2)), Context())) == ["m0"]
    assert [bell.key for bell in cell["green"].doorbells.receive("notices")] == ["i-01"]
    assert failed_messages(handler(sqs_event(notices(1)), Context())) == []
    assert [bell.key for bell in cell["blue"].doorbells.receive("notices")] == ["i-00"]


def tagged(world: World, instance_id: str, **tags: str) -> None:
    instance = Instance(
        id=instance_id, instance_type="m5.large", zone="z", capacity_type="spot", state="running", image_id="ami-1",
        subnet_id="subnet-1", tags=tags,
    )  # fmt: skip
    world.ec2.instances[instance_id] = instance


@pytest.fixture
def cell(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, World]:
    """Three clusters of a cell; EC2 is asked in the first one's."""
    worlds = {world.cluster.name: world, "blue": World(cluster="blue"), "green": World(cluster="green")}
    monkeypatch.setattr(interrupt_clients, "ports", lambda environment: worlds)
    return worlds


def told(cell: dict[str, World]) -> set[str]:
    """The clusters that have rows and doorbells."""
    rows = {name for name, world in cell.items() if world.state.rows}
    assert rows == {name for name, world in cell.items() if world.doorbells.messages_of("notices", "notice")}
    return rows


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"eks:eks-cluster-name": "blue"}, {"blue"}),
        ({"kubernetes.io/cluster/green": "owned"}, {"green"}),
        ({"eks:eks-cluster-name": "blue", "kubernetes.io/cluster/green": "shared"}, {"blue", "green"}),
        ({"eks:eks-cluster-name": "of another cell"}, set()),
        ({"Name": "a database"}, set()),
    ],
)
def test_only_the_cluster_of_the_instance_is_told(
    cell: dict[str, World], world: World, tags: dict[str, str], expected: set[str]
) -> None:
    tagged(world, "i-1", **tags)
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event([envelope(SPOT)]), Context())) == []
    assert told(cell) == expected


@pytest.mark.parametrize(("state", "everybody"), [("terminated", True), ("shutting-down", True), ("running", False)])
def test_of_a_terminated_instance_that_lost_its_tags_every_cluster_is_told(
    cell: dict[str, World], world: World, state: str, everybody: bool
) -> None:
    tagged(world, "i-1")
    world.ec2.instances["i-1"] = msgspec.structs.replace(world.ec2.instances["i-1"], state=state)
    bodies = [envelope(STATE, state="terminated")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert told(cell) == (cell.keys() if everybody else set())


def test_of_an_instance_that_ec2_does_not_list_every_cluster_is_told(cell: dict[str, World], world: World) -> None:
    tagged(world, "i-2", **{"eks:eks-cluster-name": "blue"})
    bodies = [envelope(SPOT), envelope(SPOT, **{"instance-id": "i-2"})]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert told(cell) == cell.keys()
    assert {name for name, one in cell.items() if one.state.notice("i-2")} == {"blue"}


@pytest.mark.parametrize("error", [Unavailable("read timeout"), Throttled("slow down"), Denied("no")])
def test_while_ec2_does_not_say_every_cluster_is_told(
    cell: dict[str, World], world: World, error: ApiError, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged(world, "i-1", **{"eks:eks-cluster-name": "blue"})
    world.effects.inject(Fault("ec2", "instances_by_id", error))
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event([envelope(SPOT)]), Context())) == []
    assert told(cell) == cell.keys()
    assert "every cluster of the cell is told" in capsys.readouterr().out


def test_a_batch_asks_ec2_once(cell: dict[str, World], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Collection[str]] = []

    def instances_by_id(ids: Collection[str]) -> tuple[Instance, ...]:
        asked.append(ids)
        return ()

    monkeypatch.setattr(world.ec2, "instances_by_id", instances_by_id)
    bodies = [envelope(SPOT, **{"instance-id": f"i-{number}"}) for number in range(10)]
    load_handler("interrupt", world).handler(sqs_event(bodies), Context())
    assert asked == [{f"i-{number}" for number in range(10)}]


def test_what_there_is_no_time_for_comes_back(world: World) -> None:
    bodies = [envelope(SPOT), envelope(STATE, state="running")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context(1))) == ["m0"]
    assert not world.state.rows


def changed(event: dict[str, Any], **fields: object) -> dict[str, Any]:
    return event | fields


UNREADABLE = {
    "no JSON": "{",
    "no object": "[]",
    "too deep": '{"source": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "half a character": '{"source": "\ud83d"}',
    "a number too large": '{"source": 1' + "0" * 5000 + "}",
    "no source": {},
    "source is a list": changed(envelope(SPOT), source=["aws.ec2"]),
    "id is too long": changed(envelope(SPOT), id="e" * 1_000),
    "detail is null": changed(envelope(SPOT), detail=None),
    "time before the first": changed(envelope(SPOT), time="0001-01-01T00:00:00+14:00"),
    "time after the last": changed(envelope(SPOT), time="9999-12-31T23:59:59Z"),
    "time after the last elsewhere": changed(envelope(SPOT), time="9999-12-31T23:59:59-14:00"),
    "time is a number": changed(envelope(SPOT), time=10**30),
    "instance is null": changed(envelope(SPOT), detail={"instance-id": None}),
    "instance is nested": changed(envelope(SPOT), detail={"instance-id": {"instance-id": "i-1"}}),
    "instance is too long": changed(envelope(SPOT), detail={"instance-id": "i-" + "x" * 3_000}),
    "instance is half a character": json.dumps(changed(envelope(SPOT), detail={"instance-id": "i-\ud83d"})),
    "state is a list": envelope(STATE, state=["stopping"]),
    "service is a list": change(service=["EC2"]),
    "category is null": change(eventTypeCategory=None),
    "entities are an object": change(affectedEntities={}),
    "entities are a text": change(affectedEntities="i-1"),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_of_ten_messages_exactly_the_malformed_one_fails(
    world: World, body: object, capsys: pytest.CaptureFixture[str]
) -> None:
    others = notices(9)
    answer = load_handler("interrupt", world).handler(sqs_event([*others[:4], body, *others[4:]]), Context())
    assert failed_messages(answer) == ["m4"]
    assert sorted(world.state.rows) == [f"notice#i-{number:02}" for number in range(9)]
    lines = capsys.readouterr().out
    assert "failed to record interruption notice" in lines
    assert '"WorkFailed":[1.0]' in lines


LEFT_OUT = {
    "closed": (change(statusCode="closed"), "ChangesIgnored"),
    "resolved": (change(affectedEntities=[{"entityValue": "i-1", "status": "RESOLVED"}]), "ChangesIgnored"),
    "a volume": (change(affectedEntities=[{"entityValue": "vol-1"}]), "ChangesIgnored"),
    "no entities": (change(affectedEntities=None), "ChangesIgnored"),
    "entities are texts": (change(affectedEntities=["i-1"]), "ChangesUnreadable"),
    "entities without value": (change(affectedEntities=[{"status": "PENDING"}]), "ChangesUnreadable"),
    "unknown status": (change(statusCode="moved"), "ChangesUnreadable"),
    "no time": (change(startTime=None), "ChangesUnreadable"),
    "localized time": (change(startTime="lun., 12 janv. 2026 09:00:00 GMT"), "ChangesUnreadable"),
    "time after the last": (change(startTime="9999-12-31T23:59:59-14:00"), "ChangesUnreadable"),
}


@pytest.mark.parametrize(("body", "metric"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_change_that_begins_nothing_is_named_and_counted(
    world: World, body: object, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = notices(9)
    answer = load_handler("interrupt", world).handler(sqs_event([*others[:4], body, *others[4:]]), Context())
    assert failed_messages(answer) == []
    assert sorted(world.state.rows) == [f"notice#i-{number:02}" for number in range(9)]
    lines = capsys.readouterr().out
    assert f'"{metric}":[1.0]' in lines
    assert "AWS_EC2_INSTANCE_STOP_SCHEDULED" in lines


def test_a_recorded_change_is_reported_with_its_event_type_code(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    body = change(eventTypeCode="AWS_EC2_NEVER_HEARD_OF")
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event([body]), Context())) == []
    assert "AWS_EC2_NEVER_HEARD_OF" in capsys.readouterr().out
    assert kept(world) == ("scheduled_change", False)


def kept(world: World) -> tuple[str, bool]:
    row = world.state.notice("i-1")
    assert row is not None
    return row.kind, row.ended


@pytest.mark.parametrize(
    ("bodies", "severest"),
    [
        ([envelope(REBALANCE), change(), envelope(SPOT)], ("spot_interrupted", False)),
        (
            [envelope(REBALANCE), envelope(SPOT), envelope(STATE, state="stopping"), envelope(STATE, state="stopped")],
            ("instance_stopped", True),
        ),
        (
            [
                envelope(SPOT),
                envelope(STATE, state="shutting-down"),
                envelope(STATE, state="terminated"),
                change(),
            ],
            ("instance_terminated", True),
        ),
    ],
)
def test_doubled_reordered_and_late_messages_end_in_the_severest_notice(
    world: World, bodies: list[dict[str, Any]], severest: tuple[str, bool]
) -> None:
    """In one batch, and over two of which the second repeats some of the first."""
    handler = load_handler("interrupt", world).handler
    for order in itertools.permutations(bodies):
        for cut in range(len(order) + 1):
            world.state.rows.clear()
            for batch in ([*order[:cut], *order[:1]], [*order[cut:], *order[:cut]]):
                assert failed_messages(handler(sqs_event(batch), Context())) == []
            assert kept(world) == severest


def test_a_warning_is_kept_beside_the_end_of_its_instance_in_every_order(world: World) -> None:
    """In one batch and in two, doubled."""
    ends = [envelope(STATE, state=state) for state in ("stopping", "shutting-down", "terminated")]
    handler = load_handler("interrupt", world).handler
    for order in itertools.permutations([envelope(SPOT), envelope(REBALANCE), *ends]):
        for cut in range(1, len(order) + 1):
            world.state.rows.clear()
            for batch in (order[:cut], [*order[cut:], *order[:cut]]):
                assert failed_messages(handler(sqs_event(batch), Context())) == []
            row = world.state.notice("i-1")
            assert row is not None
            assert (row.kind, row.ended, row.warning) == ("instance_terminated", True, "spot_interrupted"), order
            assert row.deadline == datetime.fromisoformat("2026-01-05T09:02:00+00:00").timestamp() * 1000
            assert len(set(row.events)) == len(row.events)


def test_what_was_done_about_a_warning_is_kept_when_its_instance_ends(world: World) -> None:
    """And when the warning began, with which its offering counts as interrupted once."""
    warning = envelope(SPOT)
    received(world, [warning])
    row = world.state.notice("i-1")
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="replacing", command="c", claim="n", attempt=1, created=7))
    received(world, [envelope(STATE, state="stopping"), warning], [envelope(STATE, state="terminated"), warning])
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("instance_terminated", "new", "spot_interrupted")
    assert (row.command, row.claim, row.attempt, row.created) == ("c", "n", 1, 7)


def test_a_warning_that_is_finished_is_not_acted_on_again_when_its_instance_ends(world: World) -> None:
    warning = envelope(SPOT)
    received(world, [warning])
    finish(world)
    received(world, [envelope(STATE, state="terminated"), warning])
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("instance_terminated", "new", "")


def test_a_warning_after_an_end_that_was_acted_on_is_acted_on_once(world: World) -> None:
    """The end may not have been confirmed: the instance runs on until EC2 takes it."""
    end = sent(envelope(STATE, state="stopping"), MINUTE, "e-2")
    received(world, [end])
    finish(world)
    assert received(world, [envelope(SPOT)], [end]) == "new"
    assert kept(world) == ("spot_interrupted", False)
    finish(world)
    assert received(world, [envelope(SPOT), end]) == "done"


def test_of_scheduled_changes_the_earliest_counts_in_every_order(world: World) -> None:
    handler = load_handler("interrupt", world).handler
    changes = [
        change(startTime=f"{day}, {9 + number} Jan 2026 09:00:00 GMT")
        for number, day in enumerate(("Fri", "Sat", "Sun"))
    ]
    for order in itertools.permutations(changes):
        for cut in range(4):
            world.state.rows.clear()
            for batch in (order[:cut], order[cut:]):
                assert failed_messages(handler(sqs_event(batch), Context())) == []
            row = world.state.notice("i-1")
            assert row is not None
            assert row.deadline == datetime.fromisoformat("2026-01-09T09:00:00+00:00").timestamp() * 1000


def finish(world: World) -> None:
    """What lifecycle does with a row in the end."""
    row = world.state.notice("i-1")
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="done", due=0))


def received(world: World, *batches: Sequence[dict[str, Any]]) -> str:
    """The phase of the row after these batches, a minute apart."""
    handler = load_handler("interrupt", world).handler
    for batch in batches:
        world.clock.advance(60)
        assert failed_messages(handler(sqs_event(batch), Context())) == []
    row = world.state.notice("i-1")
    assert row is not None
    return row.phase


MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "event",
    [envelope(REBALANCE), change(), envelope(SPOT), envelope(STATE, state="stopping")],
    ids=["rebalance", "change", "spot", "stopping"],
)
def test_a_notice_after_a_finished_one_of_its_kind_is_acted_on_and_neither_is_again(
    world: World, event: dict[str, Any]
) -> None:
    first, second = sent(event, timedelta(), "e-1"), sent(event, 3 * HOUR, "e-2")
    received(world, [first])
    finish(world)
    world.clock.advance(3 * 3600)
    assert received(world, [first], [first]) == "done"
    world.doorbells.receive("notices")
    assert received(world, [first, second]) == "new"
    assert [bell.key for bell in world.doorbells.receive("notices")] == ["i-1"]
    assert received(world, [first], [second, first]) == "new"
    finish(world)
    assert received(world, [first], [second], [first, second], [second, first]) == "done"


def test_a_change_after_a_finished_one_is_acted_on_whatever_its_time(world: World) -> None:
    """In the batch there is the finished one, too, which is earlier and thus the severer."""
    first, second = change(), sent(change(startTime="Mon, 19 Jan 2026 09:00:00 GMT"), HOUR, "e-2")
    received(world, [first])
    finish(world)
    world.clock.advance(3600)
    assert received(world, [first, second]) == "new"
    row = world.state.notice("i-1")
    assert row is not None
    assert row.deadline == datetime.fromisoformat("2026-01-19T09:00:00+00:00").timestamp() * 1000


def test_a_lighter_notice_after_a_finished_one_is_acted_on_and_the_finished_one_is_not_again(world: World) -> None:
    """A spot warning of an instance that ran on, or that no NodeClaim had."""
    warning, recommendation = envelope(SPOT), sent(envelope(REBALANCE), HOUR, "e-2")
    received(world, [warning])
    finish(world)
    world.clock.advance(3600)
    assert received(world, [warning, recommendation], [warning]) == "new"
    assert kept(world) == ("rebalance_recommendation", False)


@pytest.mark.parametrize("late", [change(startTime="Wed, 07 Jan 2026 09:00:00 GMT"), envelope(REBALANCE)])
def test_what_was_announced_before_a_finished_notice_was_recorded_does_not_begin_it_again(
    world: World, late: dict[str, Any]
) -> None:
    world.clock.advance(3600)
    received(world, [sent(change(), 30 * MINUTE, "e-2")])
    finish(world)
    assert received(world, [late]) == "done"


def test_a_severer_notice_is_acted_on_however_late_it_is(world: World) -> None:
    world.clock.advance(3600)
    received(world, [sent(envelope(REBALANCE), HOUR, "e-2")])
    finish(world)
    assert received(world, [envelope(SPOT)]) == "new"
    assert kept(world) == ("spot_interrupted", False)


def test_a_message_from_ahead_of_the_clock_is_recorded_as_of_now_and_not_again(world: World) -> None:
    warning = sent(envelope(SPOT), HOUR, "e-1")
    received(world, [warning])
    row = world.state.notice("i-1")
    assert row is not None
    assert row.deadline == row.created + 120_000
    finish(world)
    assert received(world, [warning]) == "done"


def test_a_row_that_another_version_finished_is_lighter_than_what_comes_later(world: World) -> None:
    """It does not know its events."""
    received(world, [envelope(REBALANCE)])
    finish(world)
    row = world.state.notice("i-1")
    assert row is not None
    world.state.rows["notice#i-1"] = msgspec.structs.replace(row, events=())
    assert received(world, [envelope(REBALANCE)]) == "done"
    assert received(world, [sent(envelope(REBALANCE), 2 * MINUTE, "e-2")]) == "new"


def test_a_row_keeps_the_last_few_events(world: World) -> None:
    for number in range(20):
        received(world, [sent(envelope(REBALANCE), (number + 1) * MINUTE, f"e-{number}")])
        finish(world)
    row = world.state.notice("i-1")
    assert row is not None
    assert row.events == tuple(f"e-{number}" for number in range(12, 20))


def test_a_row_that_expires_between_two_reads_is_written_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = world.state.notice

    def notice(instance_id: str) -> NoticeRow | None:
        monkeypatch.setattr(world.state, "notice", usual)
        world.state.rows.clear()
        return None

    received(world, [envelope(REBALANCE)])
    finish(world)
    monkeypatch.setattr(world.state, "notice", notice)
    assert received(world, [sent(envelope(REBALANCE), MINUTE, "e-2")]) == "new"
