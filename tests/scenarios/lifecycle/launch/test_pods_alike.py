"""Where all pods that wait are alike, no node is held for those that were planned for it: any may take any."""

import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.lifecycle.retry import NODE_TICK_SECONDS
from spotwright.model import labels
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.lifecycle.joining.nominations import BINDING_TIMEOUT, HELD_TAINT
from spotwright.workflows.planning.time_budget import MINIMUM_PODS
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import NominationRow
from spotwright.workflows.provision.workflow import provision
from tests.scenarios.lifecycle.launch.effects import calls, nominated, rows


def was_held(world: World, seconds: int = 60) -> bool:
    """Whether any node is held within so many seconds, or until all pods run."""

    def is_held() -> bool:
        return any(HELD_TAINT in node.taints for node in world.cluster.nodes())

    def all_run() -> bool:
        return all(pod.node_name for pod in world.cluster.all("pods"))

    world.run(seconds, until=lambda: is_held() or (all_run() and bool(world.running_pods())))
    return is_held()


def test_nodes_for_pods_that_are_alike_are_neither_held_nor_nominated(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=900), 7)
    with caplog.at_level(logging.INFO, logger="spotwright.lifecycle"):
        assert not was_held(world)
        world.run(30)
    assert len(world.running_pods()) == 7
    assert not calls(world, "nominate")
    assert {(row.phase, row.due) for row in rows(world)} == {("done", 0)}
    ended = [vars(record) for record in caplog.records if record.message == log_lines.NOMINATION_ENDED.message]
    assert sum(line["planned"] for line in ended) == sum(line["bound"] for line in ended) == 7


def test_a_pod_may_take_the_place_of_another_that_is_alike(world: World) -> None:
    """kube-scheduler binds them in another order than they were planned in, and nobody plans them again."""
    world.deploy(builders.pod("inflate", cpu_millicores=1500), 3)
    assert world.run(10, until=lambda: len(world.claims()) == 3)
    planned = {pod: row.claim for row in rows(world) for pod in row.pods}
    names = {claim.name: number for number, claim in enumerate(sorted(world.claims(), key=lambda claim: claim.name))}
    usual = world.kubelets._schedule
    hosts: dict[str, str] = {}

    def schedule(pod: Pod) -> Any:
        """Each pod to the node of the next claim."""
        claims = sorted(world.claims(), key=lambda claim: claim.name)
        wanted = claims[(names[planned[pod.key]] + 1) % 3]
        if wanted.node_name and all(claim.is_condition_true("Initialized") for claim in claims):
            hosts[pod.key] = wanted.node_name
            world.cluster.update("pods", pod.key, node_name=wanted.node_name, phase="Running")
        return None if wanted else usual(pod)

    world.kubelets._schedule = schedule  # type: ignore[method-assign]
    assert world.run(120, until=lambda: len(world.running_pods()) == 3)
    world.run(60)
    assert len(set(hosts.values())) == 3
    assert len(world.claims()) == 3
    assert {row.phase for row in rows(world)} == {"done"}


@pytest.mark.parametrize("deleted", [1, 2])
def test_pods_that_were_deleted_before_they_were_bound_did_not_land(
    world: World, caplog: pytest.LogCaptureFixture, deleted: int
) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=900), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 1)
    world.forget_deployments()
    for pod in world.cluster.all("pods")[:deleted]:
        world.cluster.remove("pods", pod.key)
    with caplog.at_level(logging.INFO, logger="spotwright.lifecycle"):
        world.run(90)
    (ended,) = (vars(record) for record in caplog.records if record.message == log_lines.NOMINATION_ENDED.message)
    assert (ended["planned"], ended["bound"]) == (2, 2 - deleted)


def test_pods_that_follow_on_deleted_ones_land_in_their_places(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=900), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 1)
    for pod in world.cluster.all("pods"):
        world.cluster.remove("pods", pod.key)
    with caplog.at_level(logging.INFO, logger="spotwright.lifecycle"):
        assert world.run(90, until=lambda: len(world.running_pods()) == 2)
        world.run(10)
    ended = next(vars(record) for record in caplog.records if record.message == log_lines.NOMINATION_ENDED.message)
    assert (ended["planned"], ended["bound"]) == (2, 2)


def with_late_node(world: World) -> NominationRow:
    """Two pods and their nodes, of which one comes later; its pod is bound to the other. The row of that other."""
    world.deploy(builders.pod("inflate", cpu_millicores=1500), 2)
    assert world.run(10, until=lambda: len([claim for claim in world.claims() if claim.provider_id]) == 2)
    first = min(pod.key for pod in world.cluster.all("pods"))
    (late,) = (row.claim for row in rows(world) if first in row.pods)
    for claim in world.claims():
        if claim.name == late:
            world.kubelets.broken_instances.add(instance_id(claim.provider_id))
    (early,) = (row for row in rows(world) if row.claim != late)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    assert [pod.key for pod in world.running_pods()] == [first]
    return early


def test_a_pod_whose_place_was_taken_is_not_nominated_for_the_full_node(world: World) -> None:
    """The place of the one that took it comes with another node."""
    early = with_late_node(world)
    world.run(NODE_TICK_SECONDS)
    assert {row.claim: row.due for row in rows(world)}[early.claim] == 0
    world.kubelets.broken_instances.clear()
    assert world.run(30, until=lambda: len(world.running_pods()) == 2)
    world.run(NODE_TICK_SECONDS)
    assert not calls(world, "nominate")
    assert not any(row.due for row in rows(world))
    assert world.state.cluster_row.version == 1, "no further node was bought"


def test_a_pod_whose_place_was_taken_is_not_planned_again_where_it_finds_another_a_moment_later(world: World) -> None:
    with_late_node(world)
    world.kubelets.ready_seconds = 1
    world.kubelets.broken_instances.clear()
    assert world.run(2, until=lambda: len(world.running_pods()) == 2)
    world.run(NODE_TICK_SECONDS)
    assert {(row.phase, row.due) for row in rows(world)} == {("done", 0)}


def opened(world: World, pods: int) -> Node:
    """The node of so many pods, a moment after it was initialized; kube-scheduler does nothing."""
    world.deploy(builders.pod("inflate", cpu_millicores=900), pods)
    assert world.run(10, until=lambda: len(world.claims()) == 1)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    (node,) = world.cluster.nodes()
    return node


@pytest.mark.parametrize(("others", "left"), [(1, 1), (2, 0), (3, 0)])
def test_where_others_took_places_only_as_many_pods_are_nominated_as_there_are_left(
    world: World, others: int, left: int
) -> None:
    """kube-scheduler counts them as if they were there: of two for one place it would bind neither."""
    schedule = world.kubelets._schedule
    node = opened(world, 2)
    for number in range(others):
        world.cluster.put("pods", builders.pod(f"other-{number}", cpu_millicores=900, node_name=node.name))
    assert world.run(30, until=lambda: bool(nominated(world)) or world.state.cluster_row.version == 2)
    assert len(nominated(world)) == left
    world.kubelets._schedule = schedule  # type: ignore[method-assign]
    world.run(2)
    assert len(world.running_pods()) == others + left
    assert world.run(60, until=lambda: len(world.running_pods()) == others + 2)
    assert len(world.claims()) == 2


def test_pods_of_daemonsets_take_no_place(world: World) -> None:
    node = opened(world, 1)
    world.cluster.put("pods", builders.daemonset_pod("agent", node.name))
    assert world.run(30, until=lambda: bool(nominated(world)))
    assert world.state.cluster_row.version == 1


def test_pods_are_not_read_before_they_should_have_come(world: World) -> None:
    usual, read = world.cluster.pod, list[str]()

    def pod(namespace: str, name: str) -> Pod | None:
        read.append(name)
        return usual(namespace, name)

    world.cluster.pod = pod  # type: ignore[method-assign]
    opened(world, 2)
    world.run(2)
    assert not read
    assert world.run(30, until=lambda: len(read) == 2)


def test_a_pod_of_the_same_name_that_came_after_it_is_not_nominated(world: World) -> None:
    opened(world, 1)
    world.forget_deployments()
    (pod,) = world.cluster.all("pods")
    world.cluster.remove("pods", pod.key)
    about = msgspec.structs.replace(pod.metadata, uid="", resource_version="")
    world.cluster.put("pods", msgspec.structs.replace(pod, metadata=about))
    assert world.run(NODE_TICK_SECONDS, until=lambda: [row.phase for row in rows(world)] == ["done"])
    assert not calls(world, "nominate")


@pytest.mark.parametrize("others", [0, 1])
def test_however_late_pods_are_nominated_they_are_looked_at_a_moment_later(world: World, others: int) -> None:
    node = opened(world, 2)
    world.doorbells.messages.clear()
    world.run(20)
    for number in range(others):
        world.cluster.put("pods", builders.pod(f"other-{number}", cpu_millicores=900, node_name=node.name))
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", world.claims()[0].name, epoch=1)])
    world.run(1)
    assert len(calls(world, "nominate")) == 1
    assert world.run(5, until=lambda: len(calls(world, "nominate")) >= 2)


def test_a_nominated_pod_whose_place_is_taken_waits_there_no_longer(world: World) -> None:
    """Also where all pods are alike by now: as long as it is nominated, kube-scheduler binds no other one."""
    node = opened(world, 2)
    assert world.run(30, until=lambda: len(nominated(world)) == 2)
    world.cluster.put("pods", builders.pod("other", cpu_millicores=900, node_name=node.name))
    assert world.run(10, until=lambda: len(nominated(world)) < 2)
    assert len(nominated(world)) == 1


def other_sizes(world: World) -> None:
    world.deploy(builders.pod("a", cpu_millicores=900), 2)
    world.deploy(builders.pod("b", cpu_millicores=800), 2)


def not_tried_yet(world: World) -> None:
    """kube-scheduler has not called it Unschedulable, and may bind it to any node that comes."""
    world.cluster.put("pods", builders.pod("new", cpu_millicores=100))
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    world.cluster.put("pods", builders.pod("a", cpu_millicores=900, unschedulable=True))


def selected_by_another(world: World) -> None:
    """Alike but for a label that a rule between pods looks at."""
    apart = PodAffinityTerm(labels.ZONE, (NodeSelectorRequirement("app", Operator.IN, ("b",)),), ("default",))
    guard = builders.pod("guard", cpu_millicores=100, pod_anti_affinity=(apart,))
    world.cluster.put("nodes", builders.unmanaged_node("theirs", taints=(Taint("theirs", "NoSchedule"),)))
    world.cluster.put("pods", msgspec.structs.replace(guard, node_name="theirs", phase="Running"))
    for app in "ab":
        world.deploy(builders.pod(app, cpu_millicores=900, labels={"app": app}), 1)


@pytest.mark.parametrize("wait", [other_sizes, not_tried_yet, selected_by_another])
def test_where_pods_of_several_kinds_wait_nodes_are_held(world: World, wait: Any) -> None:
    wait(world)
    assert was_held(world)


def test_a_decision_for_pods_of_several_kinds_says_so(world: World) -> None:
    """Before the next plan notes it."""
    other_sizes(world)
    world.kubelets.reconcile()
    assert provision(world.ports, clock=world.clock.now).decisions
    assert not world.state.cluster_row.pods_alike
    assert not calls(world, "note_other_pods")


def test_pods_for_which_there_is_no_time_yet_may_be_others(world: World) -> None:
    world.deploy(builders.pod("first", cpu_millicores=100, priority=10), MINIMUM_PODS)
    world.deploy(builders.pod("later", cpu_millicores=200), 1)
    world.kubelets.reconcile()
    result = provision(world.ports, clock=world.clock.now, seconds_left=lambda: 0.0)
    assert result.decisions
    assert result.postponed_pods == 1
    assert not world.state.cluster_row.pods_alike


def test_a_decision_that_moves_pods_says_that_they_are_not_alike(world: World) -> None:
    """What is evicted comes as other pods."""
    world.deploy(builders.pod("a", cpu_millicores=1500), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    assert world.state.cluster_row.pods_alike
    world.interrupt_spot(world.ec2.live_instances()[0].id)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    assert not world.state.cluster_row.pods_alike


def test_a_decision_that_launches_nothing_says_nothing_of_pods(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=0)
    world.deploy(builders.pod("a", cpu_millicores=1500), 2)
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    world.deploy(builders.pod("a", cpu_millicores=1500), 1)
    assert world.run(120, until=lambda: len(world.claims()) == 1)
    assert world.state.cluster_row.version == 2
    assert world.state.cluster_row.pods_alike


def test_pods_of_another_kind_that_come_while_nodes_boot_have_them_held(world: World) -> None:
    world.deploy(builders.pod("a", cpu_millicores=1500), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    assert world.state.cluster_row.pods_alike
    world.deploy(builders.pod("b", cpu_millicores=900), 1)
    assert world.run(10, until=lambda: len(world.claims()) > 2)
    assert not world.state.cluster_row.pods_alike
    assert not calls(world, "note_other_pods"), "the decision says so"
    assert was_held(world)


def test_pods_of_another_kind_that_need_no_node_of_their_own_have_nodes_held_too(world: World) -> None:
    """No decision says so: they fit beside the others, on one of the nodes and not on any."""
    world.deploy(builders.pod("a", cpu_millicores=1500), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    world.deploy(builders.pod("b", cpu_millicores=100), 1)
    assert world.run(10, until=lambda: not world.state.cluster_row.pods_alike)
    assert len(world.claims()) == 2
    world.deploy(builders.pod("c", cpu_millicores=90), 1)
    assert was_held(world)
    assert len(calls(world, "note_other_pods")) == 1


def test_other_pods_are_noted_by_a_later_plan_where_the_state_table_failed(world: World) -> None:
    world.kubelets.boot_seconds = 300
    world.deploy(builders.pod("a", cpu_millicores=1500), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    world.effects.inject(Fault("state", "note_other_pods", Unavailable("no answer")))
    world.deploy(builders.pod("b", cpu_millicores=100), 1)
    assert world.run(70, until=lambda: not world.state.cluster_row.pods_alike)
    assert [queue for queue, _ in world.failures] == ["provision"]
    assert was_held(world, 300)


def test_further_pods_of_the_kind_leave_nodes_open(world: World) -> None:
    world.deploy(builders.pod("a", cpu_millicores=1500), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    world.deploy(builders.pod("more", cpu_millicores=1500), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 4)
    assert not was_held(world)
    assert world.run(30, until=lambda: len(world.running_pods()) == 4)


def test_pods_of_daemonsets_are_of_no_account(world: World) -> None:
    waiting = msgspec.structs.replace(builders.daemonset_pod("agent", ""), phase="Pending", unschedulable=True)
    world.cluster.put("pods", waiting)
    world.deploy(builders.pod("a", cpu_millicores=900), 2)
    assert not was_held(world)


def test_where_the_state_does_not_say_whether_pods_are_alike_nodes_are_held(world: World) -> None:
    world.effects.inject(Fault("state", "pods_alike", Unavailable("no answer"), times=1000))
    world.deploy(builders.pod("a", cpu_millicores=900), 2)
    assert was_held(world)
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)


def stray(world: World) -> Node:
    """An open node of which another pod took the room before its own came."""
    world.deploy(builders.pod("inflate", cpu_millicores=1500), 1)
    assert world.run(10, until=lambda: len(world.claims()) == 1)
    schedule = world.kubelets._schedule
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: bool(world.cluster.nodes()) and world.cluster.nodes()[0].is_open)
    (node,) = world.cluster.nodes()
    world.cluster.put("pods", builders.pod("stray", cpu_millicores=1000, node_name=node.name, phase="Running"))
    world.kubelets._schedule = schedule  # type: ignore[method-assign]
    return node


def test_a_pod_whose_place_a_stranger_took_is_planned_again(world: World) -> None:
    node = stray(world)
    begun = world.clock.now()
    assert world.run(60, until=lambda: len(world.claims()) == 2)
    assert world.clock.now() - begun < BINDING_TIMEOUT
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    assert [pod.node_name for pod in world.running_pods() if "inflate" in pod.key] != [node.name]


def test_a_pod_that_nobody_binds_is_nominated_a_moment_after_its_node_is_initialized(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(10, until=lambda: len(world.claims()) == 1)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    assert not calls(world, "nominate")
    world.run(2)
    assert not calls(world, "nominate")
    assert world.run(30, until=lambda: bool(calls(world, "nominate")))
    assert rows(world)[0].phase == "nominated"
    (pod,) = world.cluster.all("pods")
    assert pod.nominated_node_name == world.cluster.nodes()[0].name


def test_a_node_that_opened_before_others_came_is_nominated_for(world: World) -> None:
    """Its pods are no longer all that wait."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(10, until=lambda: len(world.claims()) == 1)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    world.state.note_other_pods()
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", world.claims()[0].name)])
    world.run(1)
    assert [row.phase for row in rows(world)] == ["nominated"]


def test_start_up_taints_stay_as_they_are(world: World) -> None:
    taint = Taint("agent-not-ready", "NoSchedule")
    world.cluster.put("nodepools", builders.nodepool(startup_taints=(taint,)))
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(node.is_ready for node in world.cluster.nodes()))
    world.run(5)
    (node,) = world.cluster.nodes()
    assert node.taints == (taint,)
    world.cluster.update("nodes", node.name, taints=())
    assert world.run(30, until=lambda: len(world.running_pods()) == 1)
    assert world.run(timedelta(minutes=1).seconds, until=lambda: {row.phase for row in rows(world)} == {"done"})
