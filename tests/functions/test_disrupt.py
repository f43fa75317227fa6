"""Messages into disrupt: proposals, commits, and nothing at all when anything is doubtful."""

import json

import msgspec
import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.ports.doorbells import READ_NODECLAIMS, Doorbell
from spotwright.workflows.ports.state import LISTED_EVALUATIONS
from tests.functions.handlers import Context, doorbell, failed_messages, load_handler, sqs_event


def empty_node(world: World) -> None:
    """One node whose pods are gone for longer than anybody waits."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    world.forwarder_runs = False
    world.deploy(builders.pod("inflate"), 0)
    world.run(20)
    world.state.rows = {key: row for key, row in world.state.rows.items() if key.startswith("launch#")}
    world.state.heartbeat_at = world.clock.milliseconds()
    world.doorbells.messages.clear()


def test_an_empty_node_is_proposed_and_committed_after_fifteen_seconds(world: World) -> None:
    empty_node(world)
    handler, before = load_handler("disrupt", world).handler, len(world.effects.log)
    assert failed_messages(handler(sqs_event([doorbell(world, "evaluate")]), Context())) == []
    (rung,) = [message for message in world.doorbells.messages if message.queue == "disrupt"]
    assert rung.at - world.clock.milliseconds() == 15_000
    version = world.state.cluster_row.version
    handler(sqs_event([doorbell(world, "validate", rung.doorbell.key)]), Context())
    assert world.state.cluster_row.version == version, "validated too early"
    world.clock.advance(15)
    handler(sqs_event([doorbell(world, "validate", rung.doorbell.key)]), Context())
    assert world.state.cluster_row.version == version + 1
    decision = decode_decision(world.blobs.get(world.state.cluster_row.head))
    assert decision.candidates == tuple(claim.name for claim in world.claims())
    assert [effect.port for effect in world.effects.log[before:] if effect.port in ("cluster", "ec2")] == []


def test_the_same_events_again_commit_once(world: World) -> None:
    empty_node(world)
    handler = load_handler("disrupt", world).handler
    for _ in range(2):
        handler(sqs_event([doorbell(world, "evaluate")]), Context())
    (proposal,) = {message.doorbell.key for message in world.doorbells.messages if message.queue == "disrupt"}
    world.clock.advance(15)
    version = world.state.cluster_row.version
    for _ in range(3):
        handler(sqs_event([doorbell(world, "validate", proposal), doorbell(world, "evaluate")]), Context())
    assert world.state.cluster_row.version == version + 1


def test_what_an_evaluation_lists_is_counted_with_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    empty_node(world)
    handler = load_handler("disrupt", world).handler
    capsys.readouterr()
    handler(sqs_event([doorbell(world, "evaluate")]), Context())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["ClusterLists"] for line in lines if "ClusterLists" in line] == [[1.0]]


def test_an_evaluation_that_is_left_for_later_is_logged(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    handler = load_handler("disrupt", world).handler
    now = world.clock.milliseconds()
    world.state.heartbeat_at = 0
    world.state.begin_planning(LISTED_EVALUATIONS, now=now, until=now + 200_000)
    capsys.readouterr()
    handler(sqs_event([doorbell(world, "evaluate")]), Context())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (left,) = [line for line in lines if line.get("message") == log_lines.LEFT_EVALUATION.message]
    assert left["cluster"] == world.cluster.name
    assert left["reason"].endswith("takes long; the next one begins in 201 s")


def test_a_malformed_message_fails_alone(world: World) -> None:
    empty_node(world)
    bodies = ["?", doorbell(world, "evaluate"), doorbell(world, "pods")]
    assert failed_messages(load_handler("disrupt", world).handler(sqs_event(bodies), Context())) == ["m0", "m2"]
    assert world.state.commands()


def test_another_claim_of_the_same_name_is_not_the_one_that_was_proposed(world: World) -> None:
    empty_node(world)
    handler = load_handler("disrupt", world).handler
    handler(sqs_event([doorbell(world, "evaluate")]), Context())
    (rung,) = [message for message in world.doorbells.messages if message.queue == "disrupt"]
    (claim,) = world.claims()
    about = msgspec.structs.replace(claim.metadata, uid="another")
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=about))
    world.clock.advance(15)
    version = world.state.cluster_row.version
    handler(sqs_event([doorbell(world, "validate", rung.doorbell.key)]), Context())
    assert world.state.cluster_row.version == version
    assert world.state.commands() == ()


def test_where_the_time_is_too_short_for_the_pending_pods_nothing_is_disrupted(world: World) -> None:
    """A pod that was not planned might have gone to the node that looks empty."""
    empty_node(world)
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000), 250)
    world.kubelets.reconcile()
    handler = load_handler("disrupt", world).handler
    evaluate = sqs_event([doorbell(world, "evaluate")])
    assert failed_messages(handler(evaluate, Context(left_seconds=1))) == []
    assert not world.state.commands()
    handler(evaluate, Context())
    (proposal,) = world.state.commands()
    world.clock.advance(15)
    version = world.state.cluster_row.version
    handler(sqs_event([doorbell(world, "validate", proposal.id)]), Context(left_seconds=1))
    assert world.state.cluster_row.version == version
    assert not [row for row in world.state.commands() if row.phase == "proposed"]


def test_what_is_decided_in_a_hurry_is_replayed_with_as_little_search(world: World) -> None:
    empty_node(world)
    handler = load_handler("disrupt", world).handler
    handler(sqs_event([doorbell(world, "evaluate")]), Context(left_seconds=1))
    (proposal,) = world.state.commands()
    world.clock.advance(15)
    handler(sqs_event([doorbell(world, "validate", proposal.id)]), Context(left_seconds=1))
    replayed = replay(world.state.cluster_row.head, blobs=world.blobs, catalogs=world.catalogs)
    assert stored(world).settings.work_units == 1
    assert replayed.agrees


def stored(world: World) -> Snapshot:
    """The snapshot of the newest decision."""
    decision = decode_decision(world.blobs.get(world.state.cluster_row.head))
    return msgspec.json.decode(world.blobs.get(decision.snapshot_key), type=Snapshot)


def test_beside_a_planner_of_disruption_at_work_everything_is_rung_for_again(world: World) -> None:
    empty_node(world)
    handler, now = load_handler("disrupt", world).handler, world.clock.milliseconds()
    assert world.state.begin_planning("disrupt", now=now, until=now + 60_000)
    bells = [doorbell(world, "validate", "proposal"), doorbell(world, "evaluate")]
    assert failed_messages(handler(sqs_event(bells), Context())) == []
    assert not world.state.commands()
    (validation,) = world.doorbells.messages_of("disrupt", "validate")
    (evaluation,) = world.doorbells.messages_of("disrupt", "evaluate")
    assert (validation.doorbell.key, validation.at, evaluation.at) == ("proposal", now + 2_000, now + 15_000)
    world.doorbells.messages.clear()
    handler(sqs_event([doorbell(world, "evaluate", epoch=1)]), Context())
    assert not world.doorbells.messages, "the schedule rings for the next one"
    world.clock.advance(60)
    handler(sqs_event([doorbell(world, "evaluate", epoch=1)]), Context())
    assert world.state.commands(), "who died at it is not waited for any longer"


def test_of_several_evaluations_the_one_that_reads_most_is_rung_for_again_and_once(world: World) -> None:
    empty_node(world)
    handler, now = load_handler("disrupt", world).handler, world.clock.milliseconds()
    assert world.state.begin_planning("disrupt", now=now, until=now + 60_000)
    bells = [doorbell(world, "evaluate"), doorbell(world, "evaluate", READ_NODECLAIMS), doorbell(world, "evaluate")]
    handler(sqs_event(bells), Context())
    (again,) = world.doorbells.messages_of("disrupt", "evaluate")
    assert again.doorbell == Doorbell(world.cluster.name, "evaluate", READ_NODECLAIMS, epoch=1)


@pytest.mark.parametrize("key", ["", READ_NODECLAIMS])
def test_an_evaluation_after_drift_lists_nodeclaims_beside_the_cluster_state(world: World, key: str) -> None:
    world.cluster_state.lag_seconds = 1
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    world.run(20)
    before = world.effects.reads.copy()
    load_handler("disrupt", world).handler(sqs_event([doorbell(world, "evaluate", key)]), Context())
    listed = {
        what for (port, what), count in world.effects.reads.items() if port == "cluster" and count > before[port, what]
    }
    assert listed & {"nodeclaims", "nodes", "pods"} == ({"nodeclaims"} if key else set())


def test_without_time_for_another_step_the_rest_is_rung_for(world: World) -> None:
    empty_node(world)
    handler = load_handler("disrupt", world).handler
    bells = [doorbell(world, "validate", "first"), doorbell(world, "validate", "second"), doorbell(world, "evaluate")]
    assert failed_messages(handler(sqs_event(bells), Context(left_seconds=15))) == []
    rung = [message.doorbell for message in world.doorbells.messages if message.queue == "disrupt"]
    assert [(bell.kind, bell.key) for bell in rung] == [("validate", "second"), ("evaluate", "")]
    assert not world.state.commands()
