"""Planning: nobody is planned for twice, and of two planners one decision becomes true."""

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import decode_decision, encode_decision
from spotwright.errors import InvalidRequest, Unavailable
from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import Snapshot
from spotwright.settings import decision_settings
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.telemetry.rows import Event
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.planning.snapshot import gather, read_cluster
from spotwright.workflows.provision import events as pod_events
from spotwright.workflows.provision.workflow import MAXIMUM_PENDING_DECISIONS, provision
from tests.functions.handlers import Context, doorbell, failed_messages, load_handler, sqs_event


def planned(world: World) -> int:
    """How many nodes one invocation decides."""
    served = provision(world, clock=world.clock.now)
    return sum(len(launch.claims) for decision in served.decisions for launch in decision.launches)


def test_a_repeated_doorbell_buys_nothing_again(world: World) -> None:
    world.deploy(builders.pod("web"), 3)
    world.kubelets.reconcile()
    assert planned(world) >= 1
    assert planned(world) == 0


def test_of_two_planners_on_one_version_the_second_plans_on_what_the_first_decided(world: World) -> None:
    world.deploy(builders.pod("web"), 3)
    world.kubelets.reconcile()
    snapshot = gather(world, world.state.cluster(), now=world.clock.now())
    version = world.state.cluster().version
    assert planned(world) >= 1
    late = commit_plan(
        state=world.state, blobs=world.blobs, snapshot=snapshot, cluster_version=version,
        plan=decide(snapshot, world.catalogs.catalog), kind="provision", message="late",
    )  # fmt: skip
    assert late is None
    assert len(world.state.cluster().pending_decisions) == 1


def test_who_loses_the_commit_plans_again_in_the_same_invocation(world: World) -> None:
    """Another decision takes the room that the first plan counted on; its pods are not forgotten."""
    world.deploy(builders.pod("web", cpu_millicores=1800), 2)
    world.kubelets.reconcile()
    usual = world.state.commit

    def commit(*, expected_version: int, **committed: Any) -> None:
        world.state.commit = usual  # type: ignore[method-assign]
        world.state.commit(expected_version=expected_version, key=world.blobs.put("decisions", b"another's"))
        world.state.mark_acted(world.state.cluster().head)
        usual(expected_version=expected_version, **committed)

    world.state.commit = commit  # type: ignore[method-assign]
    result = provision(world.ports, clock=world.clock.now)
    assert len(result.plans) == 2
    (decision,) = result.decisions
    assert decision.cluster_version == 1
    assert sum(len(launch.claims) for launch in decision.launches) == 2
    assert world.state.cluster().version == 2


def test_a_paused_cluster_is_not_planned_for(world: World) -> None:
    world.deploy(builders.pod("web"), 1)
    world.kubelets.reconcile()
    world.state.cluster_row = type(world.state.cluster_row)(world.cluster.name, paused=True)
    assert planned(world) == 0


def test_pods_of_a_node_on_its_way_out_are_not_called_pending_and_have_not_waited(world: World) -> None:
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.run(300)
    (claim,) = world.claims()
    world.cluster.delete("nodeclaims", claim.metadata)
    result = provision(world.ports, clock=world.clock.now)
    (decision,) = result.decisions
    assert decision.message.startswith("1 pod of nodes on their way out needs 1 new node for $")
    assert result.pod_wait_seconds == (0.0,)


def test_while_lifecycle_acts_on_nothing_decisions_do_not_pile_up(world: World) -> None:
    """The row of a cluster names them all, and it has a largest size."""
    pending = tuple(f"decisions/{number}" for number in range(MAXIMUM_PENDING_DECISIONS))
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, pending_decisions=pending)
    world.deploy(builders.pod("web"), 1)
    world.kubelets.reconcile()
    with pytest.raises(Unavailable, match=f"{MAXIMUM_PENDING_DECISIONS} committed decisions .* wait for lifecycle"):
        planned(world)
    assert world.state.cluster().pending_decisions == pending


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Names of the objects of all Events, each with the number of changes that were made before."""
    recorded: list[tuple[str, int]] = []

    def record(kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        recorded.append((metadata.name, len(world.effects.log)))

    monkeypatch.setattr(world.cluster, "record_event", record)
    return recorded


def test_events_come_when_everything_is_committed_rung_for_and_served(
    world: World, told: list[tuple[str, int]]
) -> None:
    world.deploy(builders.pod("web"), 3)
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000), 1)
    world.kubelets.reconcile()
    assert planned(world) >= 1
    assert {changes for _, changes in told} == {len(world.effects.log)}, "nothing is changed after the first of them"
    assert len(told) == 4


def test_of_many_events_each_pod_has_its_turn(
    world: World, told: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_events, "MAXIMUM_POD_EVENTS", 3)
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000), 8)
    world.kubelets.reconcile()
    for _ in range(3):
        before = len(told)
        planned(world)
        assert 0 < len(told) - before <= 3
        world.clock.advance(60)
    assert len({name for name, _ in told}) == 8


def test_an_event_names_the_nodeclaim_of_its_pod_alone(world: World) -> None:
    world.deploy(builders.pod("web", cpu_millicores=1800), 3)
    world.kubelets.reconcile()
    assert planned(world) == 3
    messages = [event.message for event in world.cluster.events]
    assert len(set(messages)) == 3
    assert all(message.count("nodeclaim/") == 1 for message in messages)


def test_when_time_runs_out_nobody_is_told_and_everything_is_bought(world: World) -> None:
    world.deploy(builders.pod("web"), 3)
    world.kubelets.reconcile()
    result = provision(world.ports, clock=world.clock.now, seconds_left=lambda: 5.0)
    assert result.decisions
    assert not world.cluster.events
    assert world.state.cluster().served_requests == world.state.cluster().planning_requests


def test_a_further_round_is_left_to_the_next_invocation_when_time_is_short(world: World) -> None:
    """A request that comes while the first one is planned for is not lost."""
    world.deploy(builders.pod("web"), 1)
    world.kubelets.reconcile()
    usual = world.state.commit

    def commit(**committed: Any) -> None:
        usual(**committed)
        world.state.request_planning()

    world.state.commit = commit  # type: ignore[method-assign]
    result = provision(world.ports, clock=world.clock.now, seconds_left=lambda: 15.0)
    assert len(result.plans) == 1
    assert world.doorbells.messages_of("provision", "pods")
    row = world.state.cluster()
    assert row.served_requests < row.planning_requests


def test_a_pod_without_a_place_is_told_why(world: World) -> None:
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000), 1)
    world.kubelets.reconcile()
    assert planned(world) == 0
    recorded_events = [event for event in world.cluster.events if event.reason == "FailedScheduling"]
    assert recorded_events
    assert "cpu" in recorded_events[0].message


def test_the_handler_says_and_counts_which_pods_have_no_place(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000), 1)
    world.kubelets.reconcile()
    handler = load_handler("provision", world).handler
    assert failed_messages(handler(sqs_event([doorbell(world, "pods")]), Context())) == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (said,) = [line for line in lines if line.get("message") == log_lines.COULD_NOT_SCHEDULE_POD.message]
    assert said["pod"].startswith("default/huge-")
    assert any("cpu" in reason for reason in said["reasons"])
    assert [line["PodsUnschedulable"] for line in lines if "PodsUnschedulable" in line] == [[1.0]]


def test_the_handler_says_and_counts_which_nodes_a_ceiling_holds_back(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.settings = msgspec.structs.replace(world.settings, max_nodes_per_hour=1)
    for number in range(2):
        world.deploy(builders.pod(f"web-{number}", cpu_millicores=1800), 1)
    world.kubelets.reconcile()
    handler = load_handler("provision", world).handler
    assert failed_messages(handler(sqs_event([doorbell(world, "pods")]), Context())) == []
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (said,) = [line for line in lines if line.get("message") == log_lines.HELD_BACK_NODES.message]
    assert (said["nodepool"], said["nodes"], said["setting"]) == ("default", 1, "MAX_NODES_PER_HOUR")
    assert [line["LaunchesHeldBack"] for line in lines if "LaunchesHeldBack" in line] == [[1.0]]


def test_a_node_that_cannot_be_read_has_an_event_that_names_the_field(world: World) -> None:
    node = msgspec.structs.replace(builders.unmanaged_node("n1"), read_error="status.allocatable.cpu: '?'")
    world.cluster.put("nodes", node)
    world.cluster.put("pods", builders.pod("web", unschedulable=True))
    assert planned(world) == 1
    (event,) = [event for event in world.cluster.events if event.reason == "Unreadable"]
    assert (event.kind, event.name) == ("nodes", "n1")
    assert "status.allocatable.cpu" in event.message


def test_a_stored_decision_is_replayed_bit_for_bit(world: World) -> None:
    world.deploy(builders.pod("web"), 5)
    world.kubelets.reconcile()
    planned(world)
    replayed = replay(world.state.cluster().head, blobs=world.blobs, catalogs=world.catalogs)
    assert replayed.agrees
    assert replayed.same_code
    assert encode_decision(replayed.decision) == world.blobs.get(world.state.cluster().head)


def test_a_replay_obeys_the_work_units_of_its_snapshot_whatever_is_set_now(world: World) -> None:
    """The budget is part of the snapshot and the units done are part of the plan; no clock has a say."""
    world.deploy(builders.pod("web", cpu_millicores=700), 40)
    world.deploy(builders.pod("db", cpu_millicores=1100), 9)
    world.kubelets.reconcile()
    snapshot = gather(world, world.state.cluster(), now=world.clock.now())
    units = {
        budget: decide(_budgeted(snapshot, budget), world.catalogs.catalog).work_units for budget in (1, 100, 30_000)
    }
    assert units[1] < units[100] < units[30_000]
    world.settings = _budgeted(snapshot, 100).settings
    planned(world)
    world.settings = _budgeted(snapshot, 30_000).settings
    replayed = replay(world.state.cluster().head, blobs=world.blobs, catalogs=world.catalogs)
    assert replayed.agrees
    assert replayed.plan.work_units == units[100]


def _budgeted(snapshot: Snapshot, units: int) -> Snapshot:
    return msgspec.structs.replace(snapshot, settings=msgspec.structs.replace(snapshot.settings, work_units=units))


def test_a_pool_that_selects_nothing_is_told_so(world: World) -> None:
    nothing = builders.nodepool(requirements=(NodeSelectorRequirement(labels.ARCH, Operator.IN, ("s390x",)),))
    world.cluster.put("nodepools", nothing)
    world.deploy(builders.pod("web"), 1)
    world.kubelets.reconcile()
    planned(world)
    (recorded_event,) = [event for event in world.cluster.events if event.reason == "NoCompatibleInstanceTypes"]
    assert "there is no architecture s390x; known: amd64, arm64" in recorded_event.message


@pytest.mark.parametrize(("given_", "units"), [("700", 700), ("0.5s", 25_000), ("2s", 100_000)])
def test_seconds_become_work_units_before_anything_is_decided(given_: str, units: int) -> None:
    assert decision_settings({"WORK_UNITS": given_}).work_units == units


@pytest.mark.parametrize("odd", ["0", "soon", "s", "0s", "1e3s", "601s", "-1s"])
def test_a_budget_that_means_nothing_is_named(odd: str) -> None:
    with pytest.raises(InvalidRequest, match="setting WORK_UNITS"):
        decision_settings({"WORK_UNITS": odd})


def test_what_is_promised_to_be_in_order_is_read_in_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims, nodes, pods: a slow list of anything else changes nothing about it."""
    read: list[str] = []
    for name in ("nodeclaims", "nodes", "pods"):
        _noted(world, monkeypatch, name, read)
    read_cluster(world.cluster, world.settings, world.clock.now())
    assert read == ["nodeclaims", "nodes", "pods"]


def _noted(world: World, monkeypatch: pytest.MonkeyPatch, name: str, read: list[str]) -> None:
    before = getattr(world.cluster, name)

    def noted() -> object:
        read.append(name)
        return before()

    monkeypatch.setattr(world.cluster, name, noted)


@pytest.mark.parametrize("kind", ["nodepools", "nodeclasses", "daemonsets", "pod_disruption_budgets", "namespaces"])
def test_nothing_is_decided_from_half_a_cluster(world: World, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    world.deploy(builders.pod("web"), 1)
    world.kubelets.reconcile()

    def unanswered() -> object:
        raise Unavailable(f"list {kind}: no answer")

    monkeypatch.setattr(world.cluster, kind, unanswered)
    with pytest.raises(Unavailable, match=kind):
        provision(world, clock=world.clock.now)
    assert not world.state.cluster().pending_decisions


def stored(world: World) -> list[Snapshot]:
    """The snapshots of the committed decisions, oldest first."""
    decisions = (decode_decision(world.blobs.get(key)) for key in world.state.cluster().pending_decisions)
    return [msgspec.json.decode(world.blobs.get(decision.snapshot_key), type=Snapshot) for decision in decisions]


def crowd(world: World) -> None:
    """More pods than are planned when next to no time is left, the younger half of them important."""
    world.deploy(builders.pod("old", cpu_millicores=200), 150)
    world.kubelets.reconcile()
    world.clock.advance(60)
    world.deploy(builders.pod("urgent", cpu_millicores=200, priority=100), 150)
    world.kubelets.reconcile()


def test_with_little_time_left_a_smaller_decision_is_made_and_the_rest_follows(world: World) -> None:
    crowd(world)
    handler = load_handler("provision", world).handler
    event = sqs_event([doorbell(world, "pods")])
    assert failed_messages(handler(event, Context(left_seconds=1))) == []
    (first,) = stored(world)
    kept = [pod for pod in first.pods if not pod.node_name]
    assert len(kept) == 200
    assert sum(pod.priority == 100 for pod in kept) == 150
    assert first.settings.work_units == 1
    key = world.state.cluster().head
    replayed = replay(key, blobs=world.blobs, catalogs=world.catalogs)
    assert replayed.agrees
    assert not replayed.plan.unschedulable_pods
    assert len(world.doorbells.messages_of("provision", "pods")) == 1
    assert failed_messages(handler(event, Context())) == []
    second = stored(world)[-1]
    assert second.settings.work_units == world.settings.work_units
    assert sum(not pod.node_name for pod in second.pods) == 100
    assert not world.doorbells.messages_of("provision", "pods")[1:]


def test_with_enough_time_everything_is_planned_at_once(world: World) -> None:
    crowd(world)
    handler = load_handler("provision", world).handler
    assert failed_messages(handler(sqs_event([doorbell(world, "pods")]), Context())) == []
    (only,) = stored(world)
    assert only.settings == world.settings
    assert sum(not pod.node_name for pod in only.pods) == 300
    assert not world.doorbells.messages_of("provision", "pods")


def test_where_nothing_could_be_placed_the_others_are_tried_a_little_later(world: World) -> None:
    world.deploy(builders.pod("huge", cpu_millicores=10_000_000, priority=1), 250)
    world.kubelets.reconcile()
    served = provision(world, clock=world.clock.now, seconds_left=lambda: 0.0)
    assert (served.decisions, served.postponed_pods) == ((), 50)
    (rung,) = world.doorbells.messages_of("provision", "pods")
    assert rung.at == world.clock.milliseconds() + 10_000
