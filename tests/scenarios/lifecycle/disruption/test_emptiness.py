"""Nodes that nobody needs: when they go, how many at once, and everything that keeps them."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.disruption import blockers
from spotwright.errors import Denied, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.consolidation_timer import pods_digest
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference, find_condition
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.evaluate import evaluate
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.planning.snapshot import gather
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import CommandRow, epoch_ms
from tests.scenarios.lifecycle.conftest import are_initialized

ONE_EACH = builders.pod("inflate", cpu_millicores=1800)


def grown(world: World, nodes: int) -> None:
    """So many nodes with one pod each."""
    world.deploy(ONE_EACH, nodes)
    assert world.run(90, until=lambda: len(world.running_pods()) == nodes)
    assert len(world.claims()) == nodes
    assert world.run(10, until=lambda: are_initialized(world))


def test_an_empty_node_goes_and_says_why(world: World) -> None:
    grown(world, 1)
    (name,) = (claim.name for claim in world.claims())
    world.deploy(ONE_EACH, 0)
    assert world.run(200, until=lambda: not world.claims())
    assert not world.ec2.live_instances()
    assert decode_decision(world.blobs.get(world.state.cluster_row.head)).message == f"1 empty node: {name}"
    assert "Disrupting NodeClaim: Empty" in {event.message for event in world.cluster.events}
    reasons = [event.message for event in world.cluster.events if event.reason == "DisruptionReason"]
    assert any("Reason: Empty" in message for message in reasons)
    assert [row.phase for key, row in world.state.rows.items() if key.startswith("command#")] == ["done"]


def test_of_more_empty_nodes_than_a_row_has_room_for_the_rest_follow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotwright.workflows.disrupt.evaluate.MAXIMUM_CANDIDATES", 2)
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    grown(world, 5)
    world.deploy(ONE_EACH, 0)
    assert world.run(600, until=lambda: not world.claims())
    commands = [row for key in world.state.rows if (row := world.state.command(key.removeprefix("command#")))]
    assert max(len(row.candidates) for row in commands) == 2
    assert len(world.ec2.live_instances()) == 0


def test_a_node_with_pods_stays(world: World) -> None:
    grown(world, 2)
    world.run(300)
    assert len(world.claims()) == 2
    assert not [key for key in world.state.rows if key.startswith("command#")]


def test_consolidate_after_counts_from_the_last_pod(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=300)
    grown(world, 1)
    world.run(120)
    world.deploy(ONE_EACH, 0)
    left = world.clock.now()
    assert world.run(600, until=lambda: not world.ec2.live_instances())
    assert 300 <= (world.clock.now() - left).total_seconds() <= 300 + 60 + 60 + 30


@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
def test_an_empty_node_goes_by_every_policy(world: World, policy: str) -> None:
    world.cluster.update("nodepools", "default", consolidation_policy=policy, conditions=())
    grown(world, 1)
    world.deploy(ONE_EACH, 0)
    assert world.run(200, until=lambda: not world.claims())


def test_a_pod_whose_annotation_is_invalid_is_told_once(world: World) -> None:
    world.deploy(builders.pod("web", cpu_millicores=1800, annotations={labels.DO_NOT_DISRUPT: "soon"}), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    world.run(600)
    told = [event for event in world.cluster.events if event.reason == "InvalidDoNotDisruptAnnotation"]
    assert [event.kind for event in told] == ["pods"]


def test_never_is_never(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=None)
    grown(world, 1)
    world.deploy(ONE_EACH, 0)
    world.run(900)
    assert len(world.claims()) == 1


@pytest.mark.parametrize(("budget", "at_once"), [("1", 1), ("2", 2), ("25%", 1), ("30%", 2), ("100%", 4)])
def test_budgets_limit_how_many_go_at_once(world: World, budget: str, at_once: int) -> None:
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes=budget),))
    grown(world, 4)
    world.deploy(ONE_EACH, 0)
    most = 0
    for _ in range(600):
        world.run(1)
        # One whose instance terminates counts for no budget any more.
        claims = [claim for claim in world.claims() if not claim.is_condition_true("InstanceTerminating")]
        most = max(most, sum(claim.metadata.deletion_timestamp is not None for claim in claims))
        if not world.claims():
            break
    assert not world.claims()
    assert most == at_once


def test_a_closed_budget_keeps_everything(world: World) -> None:
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="0", reasons=("Empty",)), Budget(nodes="100%")))
    grown(world, 2)
    world.deploy(ONE_EACH, 0)
    world.run(300)
    assert len(world.claims()) == 2


def test_a_pod_that_binds_within_the_fifteen_seconds_saves_its_node_alone(world: World) -> None:
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    grown(world, 2)
    world.deploy(ONE_EACH, 0)
    assert world.run(120, until=lambda: any(key.startswith("command#") for key in world.state.rows))
    lucky, _ = world.claims()
    world.cluster.put(
        "pods", msgspec.structs.replace(ONE_EACH, node_name=lucky.node_name, phase="Running", is_ready=True)
    )
    assert world.run(120, until=lambda: len(world.claims()) == 1)
    assert world.claims()[0].name == lucky.name
    node = world.cluster.node(lucky.node_name)
    assert node is not None
    assert node.taints == ()


def test_a_pod_that_binds_after_the_commit_saves_its_node(world: World) -> None:
    """Our own last look: the decision may have waited for its executor."""
    grown(world, 1)
    (claim,) = world.claims()
    world.deploy(ONE_EACH, 0)
    assert world.run(120, until=lambda: bool(world.state.commands()))
    world.clock.advance(15)
    world.state.heartbeat_at = world.clock.milliseconds()
    committed = validate(world, world.state.commands()[0].id, clock=world.clock.now)
    assert committed.committed == (claim.name,)
    world.cluster.put(
        "pods", msgspec.structs.replace(ONE_EACH, node_name=claim.node_name, phase="Running", is_ready=True)
    )
    world.run(60)
    assert [nodeclaim.name for nodeclaim in world.claims()] == [claim.name]
    assert world.claims()[0].metadata.deletion_timestamp is None
    assert world.cluster.all("nodes")[0].taints == ()


def test_a_daemon_does_not_keep_a_node(world: World) -> None:
    grown(world, 1)
    world.cluster.put("pods", builders.daemonset_pod("agent", world.claims()[0].node_name))
    world.deploy(ONE_EACH, 0)
    assert world.run(200, until=lambda: not world.claims())


@pytest.mark.parametrize(
    "keep",
    [
        lambda world, claim: world.cluster.update(
            "nodes", claim.node_name, annotations={labels.DO_NOT_DISRUPT: "true"}
        ),
        lambda world, claim: world.cluster.put(
            "pods", builders.daemonset_pod("agent", claim.node_name, annotations={labels.DO_NOT_DISRUPT: "true"})
        ),
        lambda world, claim: setattr(
            world.state, "cluster_row", msgspec.structs.replace(world.state.cluster_row, paused=True)
        ),
        lambda world, claim: setattr(world.state, "current_catalog_key", ""),
        lambda world, claim: world.cluster.remove("nodepools", "default"),
    ],
    ids=["node annotation", "pod annotation", "paused", "no catalog", "no pool"],
)
def test_what_keeps_an_empty_node(world: World, keep: object) -> None:
    grown(world, 1)
    (claim,) = world.claims()
    assert callable(keep)
    keep(world, claim)
    world.run(60)
    world.deploy(ONE_EACH, 0)
    world.run(400)
    assert [nodeclaim.name for nodeclaim in world.claims()] == [claim.name]


def test_without_a_forwarder_two_reads_as_far_apart_as_consolidate_after_decide(world: World) -> None:
    """No heartbeat is needed where everything is read from the API server itself."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=300)
    grown(world, 1)
    world.forwarder_runs = False
    world.run(120)
    world.deploy(ONE_EACH, 0)
    left = world.clock.now()
    assert world.run(600, until=lambda: not world.ec2.live_instances())
    assert 300 <= (world.clock.now() - left).total_seconds() <= 300 + 60 + 60 + 60


def test_without_a_forwarder_a_pod_in_between_begins_the_time_anew(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=300)
    grown(world, 1)
    world.forwarder_runs = False
    world.deploy(ONE_EACH, 0)
    world.run(200)
    world.deploy(ONE_EACH, 1)
    world.run(70)
    world.deploy(ONE_EACH, 0)
    world.run(280)
    assert len(world.claims()) == 1
    assert world.run(400, until=lambda: not world.ec2.live_instances())


@pytest.mark.parametrize(("port", "action"), [("cluster", "pods"), ("cluster", "nodes"), ("state", "cluster")])
def test_whoever_does_not_answer_disrupts_nothing(world: World, port: str, action: str) -> None:
    grown(world, 1)
    world.forwarder_runs = False
    world.deploy(ONE_EACH, 0)
    world.effects.inject(Fault(port, action, Unavailable("no answer"), times=10_000))
    world.run(400)
    assert len(world.ec2.live_instances()) == 1
    ended = {effect.subject.partition("/")[0] for effect in world.effects.select("cluster", "delete")}
    assert ended <= {"pods"}, "only what the Deployment let go"


def test_a_launch_under_way_holds_disruption_back(world: World) -> None:
    grown(world, 1)
    world.deploy(ONE_EACH, 0)
    slow = builders.pod("slow", node_selector={labels.CAPACITY_TYPE: "on-demand"})
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=100))
    world.deploy(slow, 1)
    world.run(150)
    assert len(world.ec2.live_instances()) == 1


def test_followers_keep_no_last_node_and_cause_no_first_one(world: World) -> None:
    dns = builders.pod("coredns", cpu_millicores=100, namespace="kube-system", labels={"k8s-app": "kube-dns"})
    dns = msgspec.structs.replace(dns, tolerations=(Toleration("node.kubernetes.io/not-ready", "Exists"),))
    world.deploy(dns, 2)
    world.run(60)
    assert not world.claims(), "followers alone buy nothing"
    world.deploy(ONE_EACH, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 3)
    budget = builders.pod_disruption_budget("dns", "x", max_unavailable=1, namespace="kube-system")
    selector = (
        msgspec.structs.replace(budget.selector[0], key="k8s-app", values=("kube-dns",)) if budget.selector else None
    )
    world.cluster.put("poddisruptionbudgets", msgspec.structs.replace(budget, selector=(selector,)))
    world.deploy(ONE_EACH, 0)
    assert world.run(300, until=lambda: not world.ec2.live_instances())
    world.run(180)
    assert not world.ec2.live_instances(), "held at zero"
    assert [pod.unschedulable for pod in world.cluster.all("pods")] == [True, True]
    world.deploy(ONE_EACH, 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 3), "and back"


def test_followers_stay_while_somebody_is_there_to_follow(world: World) -> None:
    grown(world, 1)
    dns = builders.pod("coredns", cpu_millicores=1800, namespace="kube-system", labels={"k8s-app": "kube-dns"})
    world.deploy(dns, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    world.run(300)
    assert len(world.claims()) == 2


def test_pod_events_within_ten_seconds_count_once_and_later_ones_anew(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=600)
    grown(world, 1)
    world.run(120)
    stamps = []
    for pods, seconds in ((1, 6), (2, 6), (3, 30)):
        world.deploy(builders.pod("small", cpu_millicores=10, memory_bytes=1), pods)
        world.run(1)
        # The forwarder would ring ten seconds later; whatever else rings may be sooner.
        world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "node", world.claims()[0].node_name)])
        world.run(seconds - 1)
        (claim,) = world.claims()
        assert claim.metadata.annotations[labels.PODS_SEEN] == pods_digest(world.running_pods())
        assert claim.last_pod_event_time is not None
        stamps.append(claim.last_pod_event_time)
    assert stamps[0] == stamps[1] < stamps[2]


@pytest.mark.parametrize("second_of_the_minute", [0, 13, 29, 41, 55])
def test_an_empty_node_is_terminated_25_seconds_after_consolidate_after(
    world: World, second_of_the_minute: int
) -> None:
    """Fifteen seconds are Karpenter's validation; nothing waits for a schedule."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=30)
    grown(world, 1)
    world.run(120 - world.clock.now().second + second_of_the_minute)
    world.deploy(ONE_EACH, 0)
    assert world.run(10, until=lambda: not world.cluster.all("pods"))
    assert world.run(30 + 15 + 10, until=lambda: bool(world.effects.select("ec2", "terminate")))


@pytest.mark.parametrize("second_of_the_minute", [0, 13, 29, 41, 55])
def test_a_node_that_is_empty_soon_after_it_joined_is_terminated_when_it_is_nominated_no_more(
    world: World, second_of_the_minute: int
) -> None:
    """As where a NodePool that never consolidated is told to: the schedule is not waited for."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=0)
    world.run(second_of_the_minute)
    grown(world, 1)
    world.deploy(ONE_EACH, 0)
    left = (blockers.nominated_until(world.claims()[0]) - world.clock.now()).total_seconds()
    assert left > 10
    assert world.run(int(left) + 15 + 10, until=lambda: bool(world.effects.select("ec2", "terminate")))


def owned_by(kind: str) -> Pod:
    owners = (OwnerReference(kind, "inflate"),)
    return msgspec.structs.replace(ONE_EACH, metadata=ObjectMeta("inflate", "default", owner_references=owners))


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
@pytest.mark.parametrize("second_of_the_minute", [0, 13, 29, 41, 55])
def test_a_node_that_is_emptied_with_consolidate_after_0s_does_not_wait_for_the_schedule(
    world: World, second_of_the_minute: int, kind: str
) -> None:
    """The pod of a StatefulSet keeps its node until it is gone, which is no pod event."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=0)
    pods = owned_by(kind)
    world.deploy(pods, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.run(180 - world.clock.now().second + second_of_the_minute)
    world.deploy(pods, 0)
    # Pod events ring at most each ten seconds.
    assert world.run(10 + 11 + 15 + 10, until=lambda: bool(world.effects.select("ec2", "terminate")))


@pytest.mark.parametrize(("consolidate_after_seconds", "left"), [(0, 1), (None, 0)])
def test_nobody_evaluates_when_a_pod_leaves_a_node_that_stays(
    world: World, consolidate_after_seconds: int | None, left: int
) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=consolidate_after_seconds)
    pods = builders.pod("inflate", cpu_millicores=900)
    world.deploy(pods, 2)
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    assert len(world.claims()) == 1
    world.run(60)
    world.state.planners.clear()
    world.deploy(pods, left)
    world.run(30)
    assert len(world.cluster.all("pods")) == left
    assert "evaluations" not in world.state.planners


@pytest.mark.parametrize("second_of_the_minute", [0, 13, 29, 41, 55])
def test_empty_nodes_of_a_nodepool_that_is_told_to_consolidate_go_without_the_schedule(
    world: World, second_of_the_minute: int
) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=None)
    grown(world, 1)
    world.deploy(ONE_EACH, 0)
    world.run(180 - world.clock.now().second + second_of_the_minute)
    pool = world.cluster.find("nodepools", "default")
    about = msgspec.structs.replace(pool.metadata, generation=pool.metadata.generation + 1)
    world.cluster.put("nodepools", msgspec.structs.replace(pool, metadata=about, consolidate_after_seconds=0))
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "nodepools")])
    assert world.run(11 + 15 + 10, until=lambda: bool(world.effects.select("ec2", "terminate")))


@pytest.mark.parametrize("second_of_the_minute", [0, 13, 29, 41, 55])
def test_pods_that_go_soon_after_others_came_do_not_begin_the_time_anew_a_minute_later(
    world: World, second_of_the_minute: int
) -> None:
    """As in Karpenter, which counts pod events within ten seconds once. The second was found by the schedule, and the
    node stayed for as much longer."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=30)
    grown(world, 1)
    world.run(120 - world.clock.now().second + second_of_the_minute)
    small = builders.pod("small", cpu_millicores=50)
    world.deploy(small, 1)
    assert world.run(10, until=lambda: len(world.running_pods()) == 2)
    world.run(5)
    world.deploy(small, 0)
    world.deploy(ONE_EACH, 0)
    assert world.run(10, until=lambda: not world.cluster.all("pods"))
    # That they went rings ten seconds after the others had come.
    assert world.run(10 + 30 + 15 + 10, until=lambda: bool(world.effects.select("ec2", "terminate")))


def test_a_pod_that_takes_long_to_stop_does_not_begin_the_time_anew_when_it_is_gone(world: World) -> None:
    """As in Karpenter, where the pod event is the beginning of its termination."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=30)
    grown(world, 1)
    world.run(120)
    world.kubelets.stop_seconds = 25.0
    world.deploy(ONE_EACH, 0)
    assert world.run(60, until=lambda: not world.cluster.all("pods"))
    assert world.run(35, until=lambda: bool(world.effects.select("ec2", "terminate")))


def test_consolidatable_follows_the_pods(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=30)
    grown(world, 1)
    assert world.run(150, until=lambda: world.claims()[0].is_condition_true("Consolidatable"))
    world.deploy(builders.pod("small", cpu_millicores=50), 1)
    assert world.run(120, until=lambda: not world.claims()[0].is_condition_true("Consolidatable"))
    condition = find_condition(world.claims()[0].conditions, "Consolidatable")
    assert condition is not None
    assert condition.status == "False"


def test_outdated_timers_are_rung_for_once_a_minute(world: World) -> None:
    """Where 500 nodes joined, evaluations that followed each other in seconds rang nine times for each of them, which
    was more than all other steps of nodes together."""
    grown(world, 3)
    world.forwarder_runs = False
    world.run(60)
    world.cluster.update("nodepools", "default", consolidate_after_seconds=400)
    rung, began = [], world.clock.now()
    for seconds in (0, 5, 49, 50):
        world.clock.advance(seconds - (world.clock.now() - began).total_seconds())
        world.doorbells.messages.clear()
        evaluate(world.ports, gather=gather, clock=world.clock.now)
        rung.append(len(world.doorbells.messages_of("lifecycle", "claim")))
    assert rung == [3, 0, 0, 3]


def test_the_end_of_a_timer_is_rung_for_by_the_steps_that_follow_on_its_begin(world: World) -> None:
    """Each step that was taken meanwhile rang for the same second, and each of those steps again if the timer moved."""
    grown(world, 1)
    world.run(60)
    world.cluster.update("nodepools", "default", consolidate_after_seconds=60)
    (claim,) = world.claims()
    began, rung = world.clock.seconds(), []
    world.cluster.update("nodeclaims", claim.name, last_pod_event_time=began)
    for seconds in (5, 14, 15, 40):
        world.clock.advance(seconds - (world.clock.now() - began).total_seconds())
        world.doorbells.messages.clear()
        lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
        ends = [
            message.at - world.clock.milliseconds() for message in world.doorbells.messages_of("lifecycle", "claim")
        ]
        rung.append(ends)
    assert rung == [[55_000], [46_000], [], []]


def test_the_end_of_a_timer_without_a_pod_event_is_rung_for_by_each_step(world: World) -> None:
    """It began when the NodeClaim was initialized: until its pods are bound nobody rings for it."""
    grown(world, 1)
    world.run(60)
    world.cluster.update("nodepools", "default", consolidate_after_seconds=120)
    (claim,) = world.claims()
    began = world.clock.now()
    initialized = Condition("Initialized", "True", "Initialized", last_transition_time=began)
    others = tuple(condition for condition in claim.conditions if condition.type != "Initialized")
    world.cluster.update("nodeclaims", claim.name, last_pod_event_time=None, conditions=(*others, initialized))
    world.clock.advance(40)
    world.doorbells.messages.clear()
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    (end,) = world.doorbells.messages_of("lifecycle", "claim")
    assert end.at == (began.timestamp() + 120) * 1000


def refusing_taints(world: World, refused: str) -> None:
    """An admission webhook refuses every change of this node's taints."""
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        if node.name == refused:
            raise Denied("an admission webhook denied the request", code="Forbidden")
        return usual(node, taints, **more)

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]


def test_a_node_that_cannot_be_tainted_does_not_keep_the_others(world: World) -> None:
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    grown(world, 3)
    refused, *others = (claim.name for claim in world.claims())
    refusing_taints(world, world.claims()[0].node_name)
    world.deploy(ONE_EACH, 0)
    assert world.run(200, until=lambda: [claim.name for claim in world.claims()] == [refused])
    assert len(others) == 2


def test_a_claim_that_cannot_be_deleted_does_not_keep_the_others(world: World) -> None:
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    grown(world, 3)
    kept = world.claims()[0].name
    usual = world.cluster.delete

    def delete(kind: str, metadata: ObjectMeta, **options: Any) -> None:
        if metadata.name == kept:
            raise Denied("an admission webhook denied the request", code="Forbidden")
        usual(kind, metadata, **options)

    world.cluster.delete = delete  # type: ignore[method-assign]
    world.deploy(ONE_EACH, 0)
    assert world.run(200, until=lambda: [claim.name for claim in world.claims()] == [kept])


@pytest.mark.parametrize("phase", ["planned", "waiting"])
def test_a_claim_that_took_the_name_of_a_candidate_is_not_touched(world: World, phase: str) -> None:
    """The candidate was deleted since the decision, and somebody made another NodeClaim of its name."""
    grown(world, 1)
    (claim,) = world.claims()
    row = CommandRow(
        id="0123456789abcdef", cluster=builders.CLUSTER, decision="", reason="Drifted", candidates=(claim.name,),
        candidate_uids={claim.name: "of the earlier one"}, phase=phase, created=epoch_ms(world.clock.now()),
        deadline=epoch_ms(world.clock.now()) + 600_000,
    )  # fmt: skip
    world.state.create(row)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "command", row.id)], now=world.clock.now())
    stored = world.state.command(row.id)
    assert stored is not None
    assert stored.phase in ("aborted", "done")
    (left,) = world.claims()
    assert left.metadata.deletion_timestamp is None
    assert not left.is_condition_true("DisruptionReason")
    assert not any(taint.key == labels.DISRUPTED for node in world.cluster.nodes() for taint in node.taints)


def test_a_pool_whose_status_is_refused_does_not_keep_the_others(world: World) -> None:
    world.cluster.put("nodepools", builders.nodepool("aaa"))
    usual = world.cluster.set_conditions

    def set_conditions(
        kind: str,
        metadata: ObjectMeta,
        conditions: Sequence[Condition],
        *,
        removed: Collection[str] = (),
        seen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if metadata.name == "aaa":
            raise Denied("an admission webhook denied the request", code="Forbidden")
        usual(kind, metadata, conditions, removed=removed, seen=seen)

    world.cluster.set_conditions = set_conditions  # type: ignore[method-assign]
    world.cluster.update("nodepools", "default", conditions=())
    world.run(5)
    (default,) = [pool for pool in world.cluster.nodepools() if pool.name == "default"]
    assert find_condition(default.conditions, "Ready") is not None
