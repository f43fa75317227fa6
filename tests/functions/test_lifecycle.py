"""Messages into lifecycle: effects on cluster and EC2, and exactly the failed ones come back."""

import json
import logging

import msgspec
import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.log_metrics import SHARED_LOGGERS
from spotwright.model.karpenter.nodeclass import AMI
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.telemetry.rows import Metric
from spotwright.telemetry.tables import metric_rows
from spotwright.workflows.lifecycle.workflow import ONCE_MORE_SECONDS, lifecycle
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import LaunchRow
from spotwright.workflows.provision.workflow import provision
from tests.functions.handlers import Context, doorbell, failed_messages, load_handler, sqs_event

COUNTED = [metric for metric in metric_rows().values() if metric.counted]


def commit(world: World, pods: int = 1) -> str:
    """Decide and commit for pending pods; the key of the decision's doorbell."""
    world.deploy(builders.pod("inflate"), pods)
    world.kubelets.reconcile()
    (decision,) = provision(world, clock=world.clock.now).decisions
    return decision.id


def test_a_decision_is_bought_and_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    handler = load_handler("lifecycle", world).handler
    answer = handler(sqs_event([doorbell(world, "decision", commit(world))]), Context())
    assert failed_messages(answer) == []
    assert len(world.ec2.live_instances()) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (launched,) = [line for line in lines if line.get("message") == "launched nodeclaim"]
    assert launched["nodeclaim"] == world.claims()[0].name
    assert launched["cluster"] == world.cluster.name
    assert launched["launch"]
    assert launched["decision"]
    assert any(line.get("NodeClaimsLaunched") == [1.0] and line.get("cluster") == world.cluster.name for line in lines)
    assert any("DecisionToFleetSeconds" in line for line in lines)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        *(
            (function, name)
            for function in ("provision", "lifecycle", "disrupt", "sweep", "interrupt")
            for name in SHARED_LOGGERS
        ),
        *((function, "spotwright.planning") for function in ("provision", "lifecycle", "disrupt")),
        ("lifecycle", "spotwright.lifecycle"),
        ("interrupt", "spotwright.interrupt"),
    ],
)
def test_the_librarys_lines_are_written_as_the_functions_own(
    world: World, capsys: pytest.CaptureFixture[str], function: str, name: str
) -> None:
    """By the runtime's own handler they would lose their fields."""
    load_handler(function, world)
    capsys.readouterr()
    log_line(logging.getLogger(name), log_lines.CALL_THROTTLED, call="RunInstances", error="slow down")
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (line["message"], line["call"]) == (log_lines.CALL_THROTTLED.message, "RunInstances")


@pytest.mark.parametrize("metric", COUNTED, ids=lambda metric: metric.name)
def test_every_line_that_counts_is_counted(world: World, capsys: pytest.CaptureFixture[str], metric: Metric) -> None:
    handler = load_handler("lifecycle", world).handler
    for line in metric.counted:
        log_line(logging.getLogger("spotwright.lifecycle"), line, **dict.fromkeys(line.fields, 3))
    handler(sqs_event([doorbell(world, "drift")]), Context())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (values,) = [line[metric.name] for line in lines if metric.name in line]
    assert sum(values) == len(metric.counted) * (3 if metric.counted_field else 1)


def test_what_there_is_no_time_for_is_rung_for_again_and_left_alone(world: World) -> None:
    """An invocation that is cut off in the middle of a step would hold its messages back for minutes."""
    commit(world)
    bells = [Doorbell(world.cluster.name, "claim", "a"), Doorbell(world.cluster.name, "decision")]
    seconds = iter([20.0, 9.0])
    lifecycle(world.ports, bells, now=world.clock.now(), seconds_left=lambda: next(seconds, 9.0))
    assert world.ec2.live_instances(), "the decision came first"
    assert "a" in {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "claim")}


def test_a_malformed_and_a_foreign_message_fail_alone(world: World) -> None:
    handler = load_handler("lifecycle", world).handler
    good = doorbell(world, "decision", commit(world))
    foreign = [
        "not json",
        {"hello": "world"},
        doorbell(world, "decision", cluster="another"),
        doorbell(world, "pods"),
        doorbell(world, "claim", schema=9),
    ]
    assert failed_messages(handler(sqs_event([foreign[0], good, *foreign[1:]]), Context())) == [
        "m0",
        "m2",
        "m3",
        "m4",
        "m5",
    ]
    assert len(world.ec2.live_instances()) == 1


def test_the_same_event_twice_changes_nothing_the_second_time(world: World) -> None:
    handler = load_handler("lifecycle", world).handler
    event = sqs_event([doorbell(world, "decision", commit(world, pods=3)), doorbell(world, "nodepools")])
    handler(event, Context())
    claims = [doorbell(world, "claim", claim.name) for claim in world.claims()]
    launches = [doorbell(world, "launch", row.partition("#")[2]) for row in world.state.rows]
    settle = sqs_event([*claims, *launches])
    handler(settle, Context())
    before = [effect for effect in world.effects.log if effect.port in ("cluster", "ec2", "state")]
    handler(event, Context())
    handler(settle, Context())
    assert [effect for effect in world.effects.log if effect.port in ("cluster", "ec2", "state")] == before


def test_without_the_table_a_decision_is_taken_once_more_then_the_message_returns_and_nothing_is_bought(
    world: World,
) -> None:
    bell = doorbell(world, "decision", commit(world))
    handler = load_handler("lifecycle", world).handler
    world.effects.inject(Fault("state", "cluster", Unavailable("no table"), times=2))
    assert failed_messages(handler(sqs_event([bell]), Context())) == []
    again = next(found for found in world.doorbells.messages_of("lifecycle", "decision") if found.doorbell.epoch)
    assert again.at - world.clock.milliseconds() == ONCE_MORE_SECONDS * 1000
    message = msgspec.json.encode(again.doorbell).decode()
    assert failed_messages(handler(sqs_event([message]), Context())) == ["m0"]
    assert not world.ec2.all_instances()


def test_one_thing_in_trouble_does_not_keep_its_neighbours(world: World) -> None:
    handler = load_handler("lifecycle", world).handler
    key = commit(world)
    world.effects.inject(Fault("cluster", "nodeclaims", Unavailable("no API server"), times=1))
    answer = handler(sqs_event([doorbell(world, "nodepools"), doorbell(world, "decision", key)]), Context())
    assert len(world.ec2.live_instances()) == 1
    assert "m0" in failed_messages(answer)


@pytest.mark.parametrize(
    ("deleted_nodepools", "minutes", "reason"),
    [
        (["default"], 0, "NodePool default was deleted"),
        (["default"], 11, "NodePool default was deleted"),
        ([], 11, "the decision is older than 10 minutes"),
    ],
)
def test_an_abandoned_launch_says_why(world: World, deleted_nodepools: list[str], minutes: int, reason: str) -> None:
    key = commit(world)
    for name in deleted_nodepools:
        world.cluster.remove("nodepools", name)
    world.clock.advance(minutes * 60)
    handler = load_handler("lifecycle", world).handler
    assert failed_messages(handler(sqs_event([doorbell(world, "decision", key)]), Context())) == []
    assert [row.failure for row in world.state.rows.values() if isinstance(row, LaunchRow)] == [reason]
    assert world.claims() == ()


@pytest.mark.parametrize("damage", ["gone", "unreadable"])
def test_a_decision_that_cannot_be_read_is_dropped_and_planned_anew(world: World, damage: str) -> None:
    key = commit(world)
    body = world.state.cluster_row.pending_decisions[0]
    if damage == "gone":
        del world.blobs.bodies[body]
    else:
        world.blobs.bodies[body] = b'{"schema":99}'
    assert (
        failed_messages(
            load_handler("lifecycle", world).handler(sqs_event([doorbell(world, "decision", key)]), Context())
        )
        == []
    )
    assert world.state.cluster_row.pending_decisions == ()
    assert [message.doorbell.kind for message in world.doorbells.messages if message.queue == "provision"] == ["pods"]


@pytest.mark.parametrize(
    ("error", "metric", "reason"),
    [
        (ApiError("never seen", code="SomethingNew"), "UnknownLaunchErrors", "LaunchFailed"),
        (ApiError("no", code="UnauthorizedOperation"), "OfferingsRefused", "Unauthorized"),
        (Throttled("too fast", code="RequestLimitExceeded"), "CallsThrottled", ""),
    ],
)
def test_why_a_launch_failed_is_counted_and_said_on_the_claim(
    world: World, capsys: pytest.CaptureFixture[str], error: ApiError, metric: str, reason: str
) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", error))
    handler = load_handler("lifecycle", world).handler
    assert failed_messages(handler(sqs_event([doorbell(world, "decision", commit(world))]), Context())) == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert any(line.get(metric) == [1.0] for line in lines)
    (claim,) = world.claims()
    assert (
        next((condition.reason for condition in claim.conditions if condition.type == "Launched" and reason), "")
        == reason
    )
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)


def test_a_replacement_is_decided_within_what_the_invocation_has_left(world: World) -> None:
    """Whatever else waits: the pods of the node that goes are planned, the others as far as time allows."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(90, until=lambda: bool(world.running_pods()))
    (doomed,) = world.claims()
    world.forget_deployments()
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000, priority=1), 250)
    world.kubelets.reconcile()
    instance = doomed.provider_id.rpartition("/")[2]
    world.interrupt_spot(instance)
    # For so long further notices are waited for.
    world.clock.advance(1)
    handler = load_handler("lifecycle", world).handler
    assert failed_messages(handler(sqs_event([doorbell(world, "notice", instance)]), Context(left_seconds=1))) == []
    decision = decode_decision(world.blobs.get(world.state.cluster_row.head))
    snapshot = msgspec.json.decode(world.blobs.get(decision.snapshot_key), type=Snapshot)
    assert (decision.kind, snapshot.settings.work_units) == ("interrupt", 1)
    assert sum(not pod.node_name for pod in snapshot.pods) == 200
    assert [pod.split("-")[0] for node in decision.plan.new_nodes for pod in node.pods] == ["default/inflate"]
    assert world.doorbells.messages_of("notices", "launch"), "whoever takes it buys"
    assert replay(world.state.cluster_row.head, blobs=world.blobs, catalogs=world.catalogs).agrees


def test_a_doorbell_of_drift_says_which_claims_drift_and_the_second_one_nothing_more(world: World) -> None:
    handler = load_handler("lifecycle", world).handler
    handler(sqs_event([doorbell(world, "decision", commit(world))]), Context())
    (claim,) = world.claims()
    world.cluster.update("ec2nodeclasses", "default", amis=(AMI("ami-newer"),))
    assert failed_messages(handler(sqs_event([doorbell(world, "drift")]), Context())) == []
    condition = find_condition(world.claims()[0].conditions, "Drifted")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "AMIDrift")
    assert condition.message == f"image: found {claim.image_id}, wanted ami-newer"
    before = list(world.effects.log)
    assert failed_messages(handler(sqs_event([doorbell(world, "drift"), doorbell(world, "drift")]), Context())) == []
    assert world.effects.log == before
