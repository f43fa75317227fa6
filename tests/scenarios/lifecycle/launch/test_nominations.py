"""kube-scheduler is told which node each pod was planned for; what does not come about counts for nothing."""

import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.errors import Conflict, Unavailable
from spotwright.lifecycle.retry import NODE_TICK_SECONDS
from spotwright.model import labels
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import NominationRow
from tests.scenarios.lifecycle.conftest import fresh_world

pytestmark = pytest.mark.usefixtures("pods_differ")

BIG, SMALL = 3700, 900


def rows(world: World) -> tuple[NominationRow, ...]:
    return tuple(row for row in world.state.rows.values() if isinstance(row, NominationRow))


def pods(world: World) -> tuple[Pod, ...]:
    return world.cluster.all("pods")


def is_held(node: Node) -> bool:
    return any(taint.key == labels.HELD for taint in node.taints)


def batch(world: World) -> None:
    """Pods of which the small ones, left alone, take the room of the big ones."""
    world.deploy(builders.pod("a-small", cpu_millicores=SMALL, memory_bytes=builders.GIB), 8)
    world.deploy(builders.pod("b-big", cpu_millicores=BIG, memory_bytes=builders.GIB), 2)


def placed(world: World) -> dict[str, str]:
    """Pod → the claim on whose node it runs."""
    claims = {claim.node_name: claim.name for claim in world.claims()}
    return {pod.key: claims[pod.node_name] for pod in world.running_pods()}


def planned(world: World) -> dict[str, str]:
    """Pod → the claim that a decision gave it."""
    decisions = [decode_decision(body) for key, body in world.blobs.bodies.items() if key.startswith("decisions/")]
    launches = [launch for decision in decisions for launch in decision.launches]
    return {
        pod: claim
        for launch in launches
        for claim, of_claim in zip(launch.claims, launch.pods, strict=True)
        for pod in of_claim
    }


def test_every_pod_lands_where_it_was_planned(world: World, caplog: pytest.LogCaptureFixture) -> None:
    batch(world)
    with caplog.at_level(logging.INFO, logger="spotwright.lifecycle"):
        assert world.run(60, until=lambda: len(world.running_pods()) == 10)
        world.run(10)
    assert placed(world) == planned(world)
    assert {(row.phase, row.due) for row in rows(world)} == {("done", 0)}
    assert not any(is_held(node) for node in world.cluster.nodes())
    assert not any(pod.nominated_node_name for pod in pods(world))
    ended = [vars(record) for record in caplog.records if record.message == log_lines.NOMINATION_ENDED.message]
    assert sum(line["bound"] for line in ended) == sum(line["planned"] for line in ended) == 10


def test_a_node_whose_pods_are_still_to_come_is_not_consolidatable_yet(world: World) -> None:
    """However short consolidateAfter is."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=0)
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    assert not world.claims()[0].is_condition_true("Consolidatable")
    assert world.run(30, until=lambda: bool(world.running_pods()))
    assert world.run(10, until=lambda: world.claims()[0].is_condition_true("Consolidatable"))


def test_a_node_takes_no_pod_before_it_is_ready_and_its_pods_are_nominated(world: World) -> None:
    batch(world)
    assert world.run(60, until=lambda: bool(world.cluster.nodes()))
    assert world.run(2, until=lambda: any(node.is_registered for node in world.cluster.nodes()))
    assert all(is_held(node) for node in world.cluster.nodes() if node.is_registered)
    done = [(effect.action, effect.subject) for effect in world.effects.log]
    world.run(20, until=lambda: bool(world.running_pods()))
    later = [(effect.action, effect.subject) for effect in world.effects.log][len(done) :]
    node = world.running_pods()[0].node_name
    actions = [action for action, subject in later if subject == node and action in ("nominate", "set_taints")]
    assert actions[:2] == ["nominate", "set_taints"]


def test_the_write_that_opens_a_node_labels_it_as_initialized(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    done = len(world.effects.log)
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    (node,) = world.cluster.nodes()
    assert node.metadata.labels[labels.INITIALIZED] == "true"
    assert not is_held(node)
    subjects = (node.name, f"nodes/{node.name}")
    written = [effect.action for effect in world.effects.log[done:] if effect.subject in subjects]
    assert [action for action in written if action in ("set_taints", "patch_metadata")] == ["set_taints"]


def test_a_node_that_opens_before_it_is_initialized_is_labeled_later(world: World) -> None:
    """What registers a resource may be a pod, which needs an open node."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    (node,) = world.cluster.nodes()
    without = {name: size for name, size in node.allocatable.items() if name != "memory"}
    world.cluster.update("nodes", node.name, allocatable=without)
    assert world.run(60, until=lambda: not is_held(world.cluster.nodes()[0]))
    assert labels.INITIALIZED not in world.cluster.nodes()[0].metadata.labels
    world.cluster.update("nodes", node.name, allocatable=node.allocatable)
    assert world.run(60, until=lambda: labels.INITIALIZED in world.cluster.nodes()[0].metadata.labels)
    assert world.claims()[0].is_condition_true("Initialized")


def test_pods_on_their_way_are_not_planned_again(world: World) -> None:
    batch(world)
    world.run(10)
    before = len(world.claims())
    assert before > 1
    for _ in range(3):
        world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")])
        world.run(2)
    assert len(world.claims()) == before
    assert world.state.cluster_row.version == 1


def test_switched_off_nothing_is_promised_held_or_nominated(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, follow_plan="Off")
    world.deploy(builders.pod("inflate"), 3)
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    assert not rows(world)
    assert not [effect for effect in world.effects.log if effect.action in ("nominate", "clear_nominations")]


def test_where_nominating_fails_the_node_is_let_go(world: World) -> None:
    world.effects.inject(Fault("cluster", "nominate", Unavailable("no answer"), times=1000))
    world.deploy(builders.pod("inflate"), 3)
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    assert not any(is_held(node) for node in world.cluster.nodes())


def test_pods_are_nominated_though_another_worker_that_was_first_ended_before_it_did(world: World) -> None:
    """It had written the row; the node is opened by this one, and small pods would take the room of the big ones."""
    usual = world.state.save
    met = set[str]()

    def save(row: Any) -> Any:
        saved = usual(row)
        if isinstance(row, NominationRow) and row.phase == "nominated" and row.claim not in met:
            met.add(row.claim)
            raise Conflict("the row was changed", code="Conflict")
        return saved

    world.state.save = save  # type: ignore[method-assign]
    batch(world)
    assert world.run(120, until=lambda: len(world.running_pods()) == 10)
    assert met
    assert placed(world) == planned(world)


def test_a_lost_table_lets_the_node_go(world: World) -> None:
    world.deploy(builders.pod("inflate"), 3)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    catalog = world.state.current_catalog_key
    world.state.clear()
    world.state.current_catalog_key = catalog
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    assert not any(is_held(node) for node in world.cluster.nodes())


def test_an_overdue_nomination_is_cleared_and_its_pods_are_planned_anew(world: World) -> None:
    """The machine came out smaller than planned: kube-scheduler cannot follow."""
    world.deploy(builders.pod("inflate", cpu_millicores=1500), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    (node,) = world.cluster.nodes()
    short = {**node.allocatable, "cpu": 1000}
    world.cluster.update("nodes", node.name, allocatable=short)
    # The next tick of the claim looks at them.
    assert world.run(NODE_TICK_SECONDS, until=lambda: rows(world)[0].phase == "failed"), "it is not overdue yet"
    assert not pods(world)[0].nominated_node_name
    assert world.run(60, until=lambda: bool(world.running_pods()))
    assert world.running_pods()[0].node_name != node.name


def node_with_a_stray(world: World, *, with_small: bool = True) -> Node:
    """A new node, still held, on which another pod has the place of ``b-big``; there is room for ``a-small``."""
    if with_small:
        world.deploy(builders.pod("a-small", cpu_millicores=300, memory_bytes=builders.GIB // 4), 1)
    world.deploy(builders.pod("b-big", cpu_millicores=1400, memory_bytes=builders.GIB // 4), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    (node,) = world.cluster.nodes()
    size = {"cpu_millicores": 600, "memory_bytes": builders.GIB // 4}
    world.cluster.put("pods", builders.pod("stray", node_name=node.name, phase="Running", **size))
    return node


def test_a_pod_whose_place_another_got_is_planned_again_within_seconds(world: World) -> None:
    """Those that have their places keep them."""
    node = node_with_a_stray(world)
    assert world.run(10, until=lambda: rows(world)[0].phase != "promised")
    opened = world.clock.now()
    assert world.run(60, until=lambda: len(world.claims()) == 2)
    assert world.clock.now() - opened < timedelta(seconds=10)
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    assert [pod.node_name for pod in world.running_pods() if "a-small" in pod.key] == [node.name]


def test_a_displaced_pod_is_not_nominated_for_the_node_again_while_others_wait_for_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Before kube-scheduler has tried either of them."""
    node = node_with_a_stray(world)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]

    def nominated() -> dict[str, str]:
        return {pod.key.split("/")[1][:1]: pod.nominated_node_name for pod in pods(world) if not pod.node_name}

    assert world.run(20, until=lambda: nominated() == {"a": node.name, "b": node.name})
    assert world.run(10, until=lambda: nominated() == {"a": node.name, "b": ""})
    caplog.clear()
    with caplog.at_level("INFO", "spotwright"):
        for _ in range(12):
            world.run(1)
            assert nominated()["b"] != node.name
    assert nominated()["a"] == node.name
    assert log_lines.PODS_DISPLACED.message not in [record.message for record in caplog.records]


def test_of_pods_that_have_room_one_without_the_other_the_less_urgent_is_planned_again(world: World) -> None:
    """kube-scheduler binds neither while both are nominated: each would take the room of the other."""
    world.deploy(builders.pod("a-usual", cpu_millicores=700, memory_bytes=builders.GIB // 4), 1)
    world.deploy(builders.pod("b-urgent", cpu_millicores=700, memory_bytes=builders.GIB // 4, priority=10), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    (node,) = world.cluster.nodes()
    size = {"cpu_millicores": 600, "memory_bytes": builders.GIB // 4}
    world.cluster.put("pods", builders.pod("stray", node_name=node.name, phase="Running", **size))
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(10, until=lambda: rows(world)[0].phase == "nominated")
    assert world.run(5, until=lambda: len(world.claims()) == 2)
    assert {pod.key.split("/")[1][:1]: pod.nominated_node_name for pod in pods(world) if not pod.node_name} == {
        "a": "",
        "b": node.name,
    }


def test_a_pod_keeps_its_place_on_a_node_that_lacks_what_it_does_not_request(world: World) -> None:
    """As where a device of a pod that runs there has failed: kube-scheduler looks at what a pod requests."""
    wanted = {"cpu": 1000, "memory": builders.GIB, "pods": 1, "example.com/device": 0}
    world.deploy(builders.pod("waits", requests=wanted), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    (node,) = world.cluster.nodes()
    requests = {"cpu": 100, "memory": builders.GIB // 4, "pods": 1, "example.com/device": 1}
    world.cluster.put("pods", builders.pod("runs", node_name=node.name, phase="Running", requests=requests))
    world.cluster.put("pods", builders.pod("ended", cpu_millicores=1800, node_name=node.name, phase="Succeeded"))
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(10, until=lambda: rows(world)[0].phase == "nominated")
    world.run(10)
    assert rows(world)[0].phase == "nominated"
    assert {pod.nominated_node_name for pod in pods(world) if not pod.node_name} == {node.name}


@pytest.mark.parametrize("others_wait", [True, False])
def test_a_plan_that_begins_at_once_no_longer_counts_a_displaced_pod_on_the_node(
    world: World, monkeypatch: pytest.MonkeyPatch, others_wait: bool
) -> None:
    """A planner that is at work already reads the rows as soon as it is asked."""
    node_with_a_stray(world, with_small=others_wait)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    counted: list[bool] = []
    ring = world.doorbells.ring

    def ring_and_look(queue: str, *args: Any, **options: Any) -> None:
        if queue == "provision":
            counted.append(any("b-big" in key for row in rows(world) for key in row.pods))
        ring(queue, *args, **options)

    # It rings again for pods that wait, whatever the rows say.
    world.forwarder_runs = False
    monkeypatch.setattr(world.doorbells, "ring", ring_and_look)
    assert world.run(30, until=lambda: bool(counted))
    assert counted == [False] * len(counted)


def test_a_pod_whose_place_is_about_to_be_left_keeps_it(world: World) -> None:
    """As after a preemption: the pods that kube-scheduler has chosen still stop."""
    world.kubelets.stop_seconds = 20
    world.deploy(builders.pod("big", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: any(is_held(node) for node in world.cluster.nodes()))
    (node,) = world.cluster.nodes()
    leaving = builders.pod("leaving", cpu_millicores=600, node_name=node.name, phase="Running")
    about = msgspec.structs.replace(leaving.metadata, deletion_timestamp=world.clock.now() + timedelta(seconds=30))
    world.cluster.put("pods", msgspec.structs.replace(leaving, metadata=about))
    assert world.run(10, until=lambda: rows(world)[0].phase != "promised")
    world.run(10)
    assert rows(world)[0].phase == "nominated"
    assert world.run(15, until=lambda: len([pod for pod in world.running_pods() if "big" in pod.key]) == 1)
    assert len(world.claims()) == 1


def test_nominated_pods_that_are_not_bound_are_looked_at_less_and_less_often(world: World) -> None:
    """By ticks of the claim, later ones as long after as the node has been initialized: each look reads the pods and
    nominates them once more."""
    world.deploy(builders.pod("inflate"), 1)
    world.run(5)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    begun = len(world.effects.log)
    world.run(29)
    looks = [effect for effect in world.effects.log[begun:] if effect.action == "nominate"]
    assert 1 <= len(looks) <= 5
    assert rows(world)[0].phase == "nominated"
    assert world.run(3, until=lambda: rows(world)[0].phase == "failed"), "its end is not waited for any longer"


def test_a_pod_that_is_not_bound_is_nominated_again_though_others_have_come_to_the_node(world: World) -> None:
    """kube-scheduler took its nomination back, and nothing rings any more."""
    world.deploy(builders.pod("inflate", cpu_millicores=SMALL), 2)
    assert world.run(10, until=lambda: bool(world.claims()))
    schedule = world.kubelets._schedule
    world.kubelets._schedule = lambda pod: schedule(pod) if pod.name.endswith("1") else None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(labels.PODS_SEEN in claim.metadata.annotations for claim in world.claims()))
    (waiting,) = (pod for pod in pods(world) if not pod.node_name)
    world.cluster.update("pods", waiting.key, nominated_node_name="")
    assert world.run(
        NODE_TICK_SECONDS, until=lambda: all(pod.node_name or pod.nominated_node_name for pod in pods(world))
    )


def test_pods_that_came_without_a_doorbell_are_seen_by_the_first_tick(world: World) -> None:
    """Also where no pods are nominated, which ticks would wait for."""
    world.settings = msgspec.structs.replace(world.settings, follow_plan="Off")
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(10, until=lambda: bool(world.claims()))
    schedule = world.kubelets._schedule
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    world.kubelets._schedule = schedule  # type: ignore[method-assign]
    world.kubelets.reconcile()
    world.forget_changes()
    assert world.running_pods()
    assert not any(labels.PODS_SEEN in claim.metadata.annotations for claim in world.claims())
    assert world.run(
        NODE_TICK_SECONDS, until=lambda: all(labels.PODS_SEEN in claim.metadata.annotations for claim in world.claims())
    )


def test_a_nomination_that_stands_when_its_time_is_over_is_taken_back(world: World) -> None:
    world.cluster.put("pods", builders.pod("waits", unschedulable=True, nominated_node_name="gone-node"))
    (pod,) = pods(world)
    now = world.clock.milliseconds()
    row = NominationRow(
        "default-x", world.cluster.name, {pod.key: pod.metadata.uid}, "gone-node", "nominated", now, now
    )
    world.state.create(row)
    world.kubelets.reconcile = lambda: None  # type: ignore[method-assign]
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "nomination", "default-x")])
    world.run(1)
    assert pods(world)[0].nominated_node_name == ""
    assert world.state.rows["nomination#default-x"].phase == "failed"
    assert world.state.cluster_row.version == 1, "it was planned anew"


@pytest.mark.parametrize("by_doorbell", [True, False], ids=["its own doorbell", "a tick"])
@pytest.mark.parametrize("consolidate_after_seconds", [10, 60])
def test_when_a_nomination_is_overdue_the_end_of_consolidate_after_is_not_left_to_the_schedule(
    world: World, consolidate_after_seconds: int, by_doorbell: bool
) -> None:
    """One of two pods has come; where the other was not waited for any more, nobody rang for the node."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=consolidate_after_seconds)
    world.deploy(builders.pod("inflate", cpu_millicores=SMALL), 2)
    assert world.run(10, until=lambda: bool(world.claims()))
    schedule = world.kubelets._schedule
    world.kubelets._schedule = lambda pod: schedule(pod) if pod.name.endswith("1") else None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(labels.PODS_SEEN in claim.metadata.annotations for claim in world.claims()))
    world._schedules = lambda: None  # type: ignore[method-assign]
    (row,), (claim,) = rows(world), world.claims()
    until_due = (row.due - world.clock.milliseconds()) // 1000
    if by_doorbell:
        world.run(until_due - 1)
        world.doorbells.messages.clear()
        world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "nomination", claim.name)], delay_seconds=1)
    world.run(2 if by_doorbell else until_due + 1)
    assert rows(world)[0].phase == "failed"
    assert claim.last_pod_event_time is not None
    end = claim.last_pod_event_time.timestamp() + consolidate_after_seconds
    left = max(0, int(end - world.clock.now().timestamp()))
    assert world.run(left + 2, until=lambda: world.claims()[0].is_condition_true("Consolidatable"))


def test_the_timer_of_an_overdue_promise_is_found_by_the_sweep(world: World) -> None:
    now = world.clock.milliseconds()
    world.state.create(
        NominationRow("default-x", world.cluster.name, {"default/a": "uid"}, created=now, due=now + 5000)
    )
    world.run(120)
    assert world.state.rows["nomination#default-x"].phase == "failed"


def test_a_pod_of_the_same_name_is_another_pod(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    world.run(5)
    (pod,) = pods(world)
    world.forget_deployments()
    world.cluster.remove("pods", pod.key)
    about = msgspec.structs.replace(pod.metadata, uid="", resource_version="")
    world.cluster.put("pods", msgspec.structs.replace(pod, metadata=about, nominated_node_name=""))
    assert world.cluster.nominate("any", {pod.key: pod.metadata.uid}) == frozenset()
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    assert len(world.claims()) == 1, "the other pod takes the room that is on its way"


def test_a_nomination_of_kube_scheduler_is_left_alone(world: World) -> None:
    """It is making room for the pod by preemption while our node comes up."""
    world.deploy(builders.pod("inflate"), 2)
    world.run(5)
    first = pods(world)[0]
    world.cluster.put("nodes", builders.unmanaged_node("theirs", taints=(Taint("busy", "NoSchedule"),)))
    world.cluster.update("pods", first.key, nominated_node_name="theirs")
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    world.run(60)
    nominated = {pod.key: pod.nominated_node_name for pod in pods(world)}
    assert nominated[first.key] == "theirs"


def test_start_up_taints_are_not_doubled(world: World) -> None:
    """What lifts a start-up taint may be a pod that tolerates nothing but that."""
    world = fresh_world()
    taint = Taint("agent-not-ready", "NoSchedule")
    world.cluster.put("nodepools", builders.nodepool(startup_taints=(taint,)))
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(node.is_ready for node in world.cluster.nodes()))
    world.run(5)
    (node,) = world.cluster.nodes()
    assert node.taints == (taint,)
    world.cluster.update("nodes", node.name, taints=())
    assert world.run(30, until=lambda: len(world.running_pods()) == 1)


def test_a_promise_outlives_no_claim(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    world.run(5)
    (claim,) = world.claims()
    world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    assert world.running_pods()[0].node_name not in ("", claim.node_name)
    assert world.run(30, until=lambda: claim.name not in {nodeclaim.name for nodeclaim in world.claims()})


def test_a_promise_is_overdue_after_a_quarter_of_an_hour(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    world.run(5)
    (row,) = rows(world)
    assert row.due - row.created == timedelta(minutes=15).total_seconds() * 1000
