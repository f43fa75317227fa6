"""Planners that read the cluster state: late, late without saying so, absent, or written by who stole the token."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.cluster_state import ClusterObjects, ClusterStateError
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import DaemonSet
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import CAPACITY_BUFFER, NODE_OVERLAY, STATIC_CAPACITY, Settings
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.planning import confirmation, overlay
from spotwright.workflows.planning.cluster_state import FRESH, IN_CONTACT
from spotwright.workflows.planning.overlay import RECENT
from spotwright.workflows.planning.snapshot import gather
from spotwright.workflows.provision.workflow import provision
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.edits import edit, look, stamp

# A watch that broke without a word: so long the state may lack its changes and counts as fresh.
SILENT = (IN_CONTACT + FRESH).total_seconds()
# One fills a small node.
POD = builders.pod("inflate", cpu_millicores=1800)


def shipping(lag: float, *, stated: float | None = None) -> World:
    """A world whose forwarder ships a state that is ``lag`` seconds behind, and says that it is ``stated`` old."""
    world = fresh_world()
    world.cluster_state.lag_seconds, world.cluster_state.stated_lag_seconds = lag, stated
    return world


def everybody_runs(world: World, pods: int) -> bool:
    waiting = [pod for pod in world.cluster.all("pods") if not pod.node_name]
    return not waiting and len(world.running_pods()) == pods


def test_a_fresh_state_is_read_instead_of_lists() -> None:
    world = shipping(1)
    world.deploy(POD, 4)
    assert world.run(120, until=lambda: everybody_runs(world, 4))
    assert world.effects.reads["cluster_state", "load"] > 0
    assert world.effects.reads["cluster", "pods"] == 0
    assert len(world.claims()) == len(world.ec2.live_instances())


@pytest.mark.parametrize("lag", [0, 1, 5, 15, 29, 31, 60, SILENT])
@pytest.mark.parametrize("honest", [True, False])
def test_a_burst_after_a_burst_buys_nothing_twice(lag: float, honest: bool) -> None:
    """Pods come every few seconds while earlier ones are being seated; the state shows them late."""
    world = shipping(lag, stated=None if honest else 0)
    for pods in range(2, 11, 2):
        world.deploy(POD, pods)
        world.run(4)
    assert world.run(240, until=lambda: everybody_runs(world, 10))
    launched = len(world.ec2.all_instances())
    assert launched == len(world.claims()) == 10


@pytest.mark.parametrize("lag", [0, 5, 29, 60, SILENT])
@pytest.mark.parametrize("honest", [True, False])
def test_interruptions_and_scale_downs_leave_nobody_waiting(lag: float, honest: bool) -> None:
    world = shipping(lag, stated=None if honest else 0)
    world.deploy(POD, 6)
    assert world.run(240, until=lambda: everybody_runs(world, 6))
    world.run(70)
    for claim in world.claims()[:3]:
        world.interrupt_spot(instance_id(claim.provider_id))
    world.run(20)
    world.deploy(POD, 8)
    world.run(30)
    world.deploy(POD, 4)
    world.run(300)
    assert everybody_runs(world, 4)
    claims = world.claims()
    assert len(claims) == len(world.ec2.live_instances())
    assert len(world.ec2.all_instances()) <= 6 + 3 + 2


@pytest.mark.parametrize("lag", [5, 29])
def test_a_launch_without_capacity_is_planned_again(lag: float) -> None:
    """The state still shows the claim that got no instance, and that was deleted."""
    world = shipping(lag)
    world.ec2.capacity[("spot", "*", "*")] = 0
    world.deploy(POD, 1)
    assert world.run(100, until=lambda: everybody_runs(world, 1))


def test_pods_that_are_gone_buy_nothing() -> None:
    """The state shows pods that wait; they were deleted since."""
    world = shipping(1)
    before = settled(world, 1)
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(
        objects, pods=(*objects.pods, *invented(objects, pods=20).pods)
    )
    world.cluster.put("pods", builders.pod("nobody", cpu_millicores=10**6))
    world.run(120)
    assert world.claims() == before


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda world: setattr(world.cluster_state, "lag_seconds", None), "Absent"),
        (lambda world: setattr(world.cluster_state, "lag_seconds", 31), "NotFresh"),
        (
            lambda world: setattr(world.cluster_state, "error", ClusterStateError("schema 2", code="OtherSchema")),
            "OtherSchema",
        ),
        (lambda world: world.effects.inject(Fault("cluster_state", "load", Unavailable("S3"), 100)), "NoAnswer"),
        (lambda world: world.effects.inject(Fault("cluster_state", "head", Unavailable("DynamoDB"), 100)), "NoAnswer"),
    ],
)
def test_without_a_state_that_can_be_used_the_cluster_is_listed(
    broken: Callable[[World], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = shipping(1)
    broken(world)
    with caplog.at_level("INFO", logger="spotwright.planning"):
        world.deploy(POD, 1)
        assert world.run(120, until=lambda: everybody_runs(world, 1))
    assert world.effects.reads["cluster", "pods"] > 0
    reasons = {vars(record).get("reason") for record in caplog.records if record.message == "listed cluster"}
    assert reasons == {reason}


# A state by whoever holds the forwarder's token


def without(kind: str) -> Callable[[ClusterObjects], ClusterObjects]:
    return lambda objects: msgspec.structs.replace(objects, **{kind: ()})


def nodes_are_empty(objects: ClusterObjects) -> ClusterObjects:
    """Only pods that wait, and claims that have long been consolidatable."""
    waiting = tuple(pod for pod in objects.pods if not pod.node_name)
    return msgspec.structs.replace(objects, pods=waiting)


def settled(world: World, pods: int) -> tuple[NodeClaim, ...]:
    """The claims of a cluster in which nothing has happened for long."""
    world.deploy(POD, pods)
    assert world.run(240, until=lambda: everybody_runs(world, pods))
    world.run(400)
    return world.claims()


@pytest.mark.parametrize(
    "lie", [nodes_are_empty, without("pods"), without("nodeclaims"), without("nodes"), without("daemonsets")]
)
def test_no_state_deletes_or_evicts_what_exists(lie: Callable[[ClusterObjects], ClusterObjects]) -> None:
    world = shipping(1)
    before = settled(world, 3)
    pods = {pod.metadata.uid for pod in world.running_pods()}
    world.cluster_state.lie = lie
    world.run(900)
    assert {claim.metadata.uid for claim in before} <= {claim.metadata.uid for claim in world.claims()}
    assert pods == {pod.metadata.uid for pod in world.running_pods()}
    assert not world.effects.select("cluster", "evict")


def test_no_pod_is_evicted_before_its_place_exists_though_the_state_hides_it() -> None:
    world = shipping(1)
    (claim,) = settled(world, 1)
    world.cluster_state.lie = nodes_are_empty
    world.interrupt_spot(instance_id(claim.provider_id))
    began = len(world.effects.log)
    assert world.run(300, until=lambda: claim.name not in {left.name for left in world.claims()})
    assert everybody_runs(world, 1)
    actions = [effect.action for effect in world.effects.log[began:]]
    assert actions.index("create_fleet") < actions.index("evict")


def nodes_are_huge(objects: ClusterObjects) -> ClusterObjects:
    size = {"cpu": 10**7, "memory": 2**50, "pods": 1000}
    nodes = tuple(msgspec.structs.replace(node, allocatable=size, capacity=size) for node in objects.nodes)
    return msgspec.structs.replace(objects, nodes=nodes)


def pods_are_hidden(objects: ClusterObjects) -> ClusterObjects:
    return msgspec.structs.replace(objects, pods=tuple(pod for pod in objects.pods if not pod.node_name))


def pods_are_tiny(objects: ClusterObjects) -> ClusterObjects:
    pods = (msgspec.structs.replace(pod, requests={}) if pod.node_name else pod for pod in objects.pods)
    return msgspec.structs.replace(objects, pods=tuple(pods))


def pods_are_finished(objects: ClusterObjects) -> ClusterObjects:
    pods = (msgspec.structs.replace(pod, phase="Succeeded") if pod.node_name else pod for pod in objects.pods)
    return msgspec.structs.replace(objects, pods=tuple(pods))


def pods_of_negative_size(objects: ClusterObjects) -> ClusterObjects:
    negative = tuple(
        msgspec.structs.replace(
            POD,
            metadata=ObjectMeta(f"negative-{node.name}", "default"),
            node_name=node.name,
            requests={"cpu": -(10**6)},
        )
        for node in objects.nodes
    )
    return msgspec.structs.replace(objects, pods=(*objects.pods, *negative))


def nodes_are_huge_besides(objects: ClusterObjects) -> ClusterObjects:
    """Each twice, by one name, first as it is not."""
    return msgspec.structs.replace(objects, nodes=(*nodes_are_huge(objects).nodes, *objects.nodes))


def one_more_node(objects: ClusterObjects) -> ClusterObjects:
    invented = (
        msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, name=f"zz-{node.name}", uid="zz"))
        for node in objects.nodes[:1]
    )
    return msgspec.structs.replace(objects, nodes=(*objects.nodes, *invented))


def claims_without_nodes(objects: ClusterObjects) -> ClusterObjects:
    """As many as there are, Initialized, so that nobody waits for them."""
    invented = (
        msgspec.structs.replace(
            claim,
            metadata=msgspec.structs.replace(claim.metadata, name=f"zz-{claim.name}", uid=f"zz-{claim.name}"),
            provider_id=f"{claim.provider_id}ff",
            node_name="",
        )
        for claim in objects.nodeclaims
    )
    return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, *invented))


def claims_by_the_names_of_nodes(objects: ClusterObjects) -> ClusterObjects:
    invented = (
        msgspec.structs.replace(
            claim,
            metadata=msgspec.structs.replace(claim.metadata, name=claim.node_name, uid=f"zz-{claim.name}"),
            provider_id=f"{claim.provider_id}ff",
            node_name="",
        )
        for claim in objects.nodeclaims
    )
    return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, *invented))


def claims_twice(objects: ClusterObjects) -> ClusterObjects:
    """By one name, first as if it had no Node."""
    without_nodes = (msgspec.structs.replace(claim, provider_id="", node_name="") for claim in objects.nodeclaims)
    return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, *without_nodes))


def claims_of_other_instances(objects: ClusterObjects) -> ClusterObjects:
    claims = (
        msgspec.structs.replace(claim, provider_id=f"{claim.provider_id}ff", node_name="")
        for claim in objects.nodeclaims
    )
    return msgspec.structs.replace(objects, nodeclaims=tuple(claims))


def nodes_of_other_instances(objects: ClusterObjects) -> ClusterObjects:
    nodes = (msgspec.structs.replace(node, provider_id=f"{node.provider_id}ff") for node in objects.nodes)
    return msgspec.structs.replace(objects, nodes=tuple(nodes))


def claims_of_somebody_else_besides(objects: ClusterObjects) -> ClusterObjects:
    """With the same instances, so that the Nodes seem to be theirs."""
    others = (
        msgspec.structs.replace(
            claim,
            metadata=msgspec.structs.replace(claim.metadata, name=f"zz-{claim.name}", uid="zz"),
            node_class_ref=msgspec.structs.replace(claim.node_class_ref, group="example.com"),
        )
        for claim in objects.nodeclaims
    )
    return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, *others))


def budgets_that_allow_no_eviction(objects: ClusterObjects) -> ClusterObjects:
    """Pods that may never be evicted get no other place."""
    budget = builders.pod_disruption_budget("lie", "inflate", max_unavailable=0)
    return msgspec.structs.replace(objects, pod_disruption_budgets=(budget,))


def pods_that_keep_others_away(objects: ClusterObjects) -> ClusterObjects:
    """On a node in each zone there are: no zone is left."""
    away = PodAffinityTerm(labels.ZONE, (NodeSelectorRequirement("app", Operator.IN, ("inflate",)),), ("default",))
    nodes = tuple(
        Node(ObjectMeta(f"zz-{zone}", uid=f"zz-{zone}", labels={labels.ZONE: zone}))
        for zone in sorted({node.metadata.labels[labels.ZONE][:-1] + end for node in objects.nodes for end in "abcdef"})
    )
    pods = tuple(
        builders.pod(f"away-{node.name}", pod_anti_affinity=(away,), node_name=node.name, phase="Running")
        for node in nodes
    )
    return msgspec.structs.replace(objects, nodes=(*objects.nodes, *nodes), pods=(*objects.pods, *pods))


def daemonsets_are_huge(objects: ClusterObjects) -> ClusterObjects:
    everywhere = builders.daemonset_pod("lie", "")
    template = msgspec.structs.replace(everywhere, requests={"cpu": 10**6})
    return msgspec.structs.replace(objects, daemonsets=(DaemonSet(ObjectMeta("lie", "kube-system"), template),))


@pytest.mark.parametrize(
    ("lie", "seconds"),
    [
        (nodes_are_huge, 120),
        (nodes_are_huge_besides, 120),
        (pods_are_hidden, 120),
        (pods_are_tiny, 120),
        (pods_are_finished, 120),
        (pods_of_negative_size, 120),
        (one_more_node, 120),
        (without("nodes"), 120),
        (claims_without_nodes, 120),
        (claims_by_the_names_of_nodes, 120),
        (claims_twice, 120),
        (daemonsets_are_huge, 15 * 60),
    ],
)
def test_no_lie_keeps_pods_without_a_node(lie: Callable[[ClusterObjects], ClusterObjects], seconds: int) -> None:
    world = shipping(1)
    settled(world, 2)
    world.cluster_state.lie = lie
    world.deploy(POD, 3)
    assert world.run(seconds, until=lambda: everybody_runs(world, 3))


def test_invented_pods_do_not_hide_for_ever_those_that_wait() -> None:
    """So many wait by the state that those that do are not read."""
    world = shipping(1)
    settled(world, 2)

    def lie(objects: ClusterObjects) -> ClusterObjects:
        size = {"cpu": 10**7}
        waiting = tuple(
            msgspec.structs.replace(
                pod,
                metadata=msgspec.structs.replace(pod.metadata, creation_timestamp=world.clock.now()),
                requests=size,
            )
            for pod in invented(objects, overlay.MAXIMUM_WAITING + 1).pods
        )
        return msgspec.structs.replace(objects, pods=(*(pod for pod in objects.pods if pod.node_name), *waiting))

    world.cluster_state.lie = lie
    world.deploy(POD, 3)
    assert world.run(15 * 60, until=lambda: everybody_runs(world, 3))


def test_a_state_that_hides_daemonsets_keeps_no_pod_waiting_for_nodes_that_are_too_small() -> None:
    """One after the other is bought, and full as soon as the pod of the DaemonSet runs on it."""
    world = shipping(1)
    template = msgspec.structs.replace(builders.daemonset_pod("agent", ""), requests={"cpu": 700}, phase="Running")
    world.cluster.put("daemonsets", DaemonSet(ObjectMeta("agent", "kube-system"), template))

    def runs(pods: int) -> bool:
        """The pods of the DaemonSet are the first on each node."""
        on = {pod.node_name for pod in world.cluster.all("pods") if pod.metadata.name.startswith("agent")}
        for node in world.cluster.all("nodes"):
            if node.name not in on:
                metadata = ObjectMeta(f"agent-{node.metadata.uid}", "kube-system", uid=f"agent-{node.metadata.uid}")
                world.cluster.put("pods", msgspec.structs.replace(template, metadata=metadata, node_name=node.name))
        seated = [pod.node_name for pod in world.cluster.all("pods") if pod.metadata.name.startswith("inflate")]
        return len(seated) == pods and all(seated)

    world.deploy(POD, 1)
    assert world.run(120, until=lambda: runs(1))
    world.cluster_state.lie = without("daemonsets")
    world.deploy(POD, 2)
    assert world.run(300, until=lambda: runs(2))


@pytest.mark.parametrize(
    "lie",
    [
        nodes_are_huge,
        nodes_are_huge_besides,
        pods_are_hidden,
        pods_are_tiny,
        pods_are_finished,
        pods_of_negative_size,
        one_more_node,
        without("nodes"),
        without("nodeclaims"),
        claims_without_nodes,
        claims_by_the_names_of_nodes,
        claims_twice,
        claims_of_other_instances,
        nodes_of_other_instances,
        claims_of_somebody_else_besides,
        budgets_that_allow_no_eviction,
        daemonsets_are_huge,
        pods_that_keep_others_away,
    ],
)
def test_no_lie_evicts_a_pod_of_a_node_that_ec2_takes_before_it_has_a_place(
    lie: Callable[[ClusterObjects], ClusterObjects],
) -> None:
    world = shipping(1)
    claim, *_ = settled(world, 2)
    world.cluster_state.lie = lie
    began = len(world.effects.log)
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(300, until=lambda: claim.name not in {left.name for left in world.claims()})
    assert world.run(60, until=lambda: everybody_runs(world, 2))
    actions = [effect.action for effect in world.effects.log[began:]]
    assert actions.index("create_fleet") < actions.index("evict")


def test_a_state_that_hides_an_old_claim_leaves_its_pods_a_place_when_ec2_takes_its_node() -> None:
    """It was launched so long ago that no row is laid over the state."""
    world = shipping(1)
    claim, *_ = settled(world, 2)
    world.run(RECENT // timedelta(seconds=1))
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, nodeclaims=())
    began = len(world.effects.log)
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(300, until=lambda: claim.name not in {left.name for left in world.claims()})
    assert everybody_runs(world, 2)
    actions = [effect.action for effect in world.effects.log[began:]]
    assert actions.index("create_fleet") < actions.index("evict")


def test_budgets_that_a_state_invents_evict_no_pod_before_its_place_exists() -> None:
    """One after the other the pods of a node would need all the time that EC2 leaves them."""
    world = shipping(1)
    world.deploy(builders.pod("inflate", cpu_millicores=300), 5)
    assert world.run(240, until=lambda: everybody_runs(world, 5))
    world.run(400)
    (claim,) = world.claims()
    budget = builders.pod_disruption_budget("lie", "inflate", disruptions_allowed=0)
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, pod_disruption_budgets=(budget,))
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(120, until=lambda: bool(world.effects.select("cluster", "evict")))
    ready = [node.name for node in world.cluster.nodes() if node.is_ready and node.name != claim.node_name]
    assert ready, "evicted before there is a place"


def test_budgets_that_cannot_be_read_keep_no_interrupted_node_from_being_replaced() -> None:
    world = shipping(1)
    claim, *_ = settled(world, 2)
    world.effects.inject(Fault("cluster", "pod_disruption_budgets", Unavailable("context deadline exceeded"), 1000))
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(10, until=lambda: len(world.ec2.all_instances()) == 3)


def test_a_lie_that_leaves_pods_without_a_node_costs_a_list_of_the_cluster_in_ten_minutes() -> None:
    world = shipping(1)
    settled(world, 1)
    world.cluster.put("pods", builders.pod("nobody-has-room", cpu_millicores=10**6))
    world.run(600)
    before = world.effects.reads["cluster", "daemonsets"]
    world.run(1200)
    assert world.effects.reads["cluster", "daemonsets"] - before <= 5, "the sweep lists as often"


def test_a_proposal_that_came_of_a_late_state_ends_at_the_api_server() -> None:
    """A pod came to the node after the state was taken."""
    world = shipping(25)
    (claim,) = settled(world, 1)
    world.deploy(POD, 0)
    world.run(20)
    world.deploy(POD, 1)
    world.run(300)
    assert everybody_runs(world, 1)
    assert len(world.claims()) == 1
    assert claim.name


def nothing(world: World) -> None:
    """Happens."""


def validated(world: World, meanwhile: Callable[[World], None] = nothing) -> tuple[tuple[str, ...], set[str]]:
    """The claims that the only proposal commits after its fifteen seconds, and which lists were read for it."""
    assert world.run(200, until=lambda: bool(world.state.commands()))
    meanwhile(world)
    world.clock.advance(15)
    world.state.heartbeat_at = world.clock.milliseconds()
    world.cluster_state.take()
    before = world.effects.reads.copy()
    committed = validate(world, world.state.commands()[0].id, now=world.clock.now()).committed
    read = world.effects.reads - before
    return committed, {action for action in ("pods", "nodes", "nodeclaims") if read["cluster", action]}


def test_empty_nodes_are_read_before_they_go() -> None:
    """Pods of the cluster are not listed; claims and nodes are, which budgets count."""
    world = shipping(0)
    settled(world, 3)
    world.deploy(POD, 1)
    committed, lists = validated(world)
    assert len(committed) == 1
    assert lists == {"nodeclaims", "nodes"}


def test_of_many_empty_nodes_not_each_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.workflows.planning.overlay.MAXIMUM_CANDIDATES", 1)
    world = shipping(0)
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    settled(world, 3)
    world.deploy(POD, 1)
    committed, lists = validated(world)
    assert len(committed) == 2
    assert lists == {"pods", "nodes", "nodeclaims"}


def test_claims_that_a_state_invents_widen_no_budget() -> None:
    world = shipping(0)
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="25%"),))
    settled(world, 4)

    def lie(objects: ClusterObjects) -> ClusterObjects:
        pairs = [(claim, f"lie-{number}") for number, claim in enumerate(objects.nodeclaims * 10)]
        more = (
            msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, name=name, uid=name))
            for claim, name in pairs
        )
        return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, *more))

    world.deploy(POD, 0)
    world.cluster_state.lie = lie
    committed, _ = validated(world)
    assert len(committed) == 1


def test_a_node_that_is_not_ready_counts_in_budgets_though_a_state_shows_it_ready() -> None:
    def fail(world: World) -> None:
        node = world.cluster.node(world.running_pods()[0].node_name)
        assert node is not None
        world.cluster.update("nodes", node.name, conditions=(Condition("Ready", "False", "KubeletNotReady"),))
        world.cluster_state.lie = lambda objects: msgspec.structs.replace(
            objects, nodes=(node, *(shown for shown in objects.nodes if shown.name != node.name))
        )

    world = shipping(0)
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="1"),))
    settled(world, 4)
    world.deploy(POD, 3)
    committed, _ = validated(world, fail)
    assert committed == ()


@pytest.mark.parametrize("most_reads", [2, 3])
def test_nodes_whose_pods_a_state_does_not_show_take_no_pods_of_an_empty_one(
    most_reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They joined since it was taken: they are full, and the pod that waits needs the empty one."""

    def join(world: World) -> None:
        full = {pod.node_name for pod in world.running_pods()}
        world.cluster_state.lie = lambda objects: msgspec.structs.replace(
            objects,
            nodes=tuple(node for node in objects.nodes if node.name not in full),
            pods=tuple(pod for pod in objects.pods if pod.node_name not in full),
        )
        late = msgspec.structs.replace(POD, metadata=ObjectMeta("late", "default", "late"), unschedulable=True)
        world.cluster.put("pods", late)

    world = shipping(0)
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    settled(world, 4)
    world.deploy(POD, 3)
    monkeypatch.setattr(overlay, "MAXIMUM_READS", most_reads)
    committed, lists = validated(world, join)
    assert committed == ()
    assert ("pods" in lists) is (most_reads < 3), "where they are many, the cluster is listed"


def test_a_state_that_hides_who_is_followed_removes_no_node_of_followers() -> None:
    """CoreDNS on a node of its own counts as nobody once nobody else is left; the state shows nobody else."""
    world = shipping(0)
    (followed,) = settled(world, 1)
    world.cluster.update("nodes", followed.node_name, annotations={labels.DO_NOT_DISRUPT: "true"})
    dns = builders.pod("coredns", cpu_millicores=1800, namespace="kube-system", labels={"k8s-app": "kube-dns"})
    world.deploy(dns, 1)
    assert world.run(90, until=lambda: everybody_runs(world, 2))
    before = {claim.metadata.uid for claim in world.claims()}
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(
        objects, pods=tuple(pod for pod in objects.pods if pod.metadata.namespace == "kube-system")
    )
    world.run(400)
    assert any(row.reason == "Empty" for row in world.state.commands(created_after=0))
    assert {claim.metadata.uid for claim in world.claims()} == before
    assert everybody_runs(world, 2)


def test_a_lie_about_a_static_pool_removes_no_node() -> None:
    """It shows more nodes than there are: the pool seems to have more than its replicas."""
    world = fresh_world()
    world.settings = msgspec.structs.replace(Settings(), feature_gates=frozenset({STATIC_CAPACITY}))
    world.cluster.put("nodepools", msgspec.structs.replace(builders.nodepool("static"), replicas=2))
    world.cluster_state.lag_seconds = 1
    assert world.run(240, until=lambda: len([node for node in world.cluster.all("nodes") if node.is_ready]) == 2)
    before = {claim.metadata.uid for claim in world.claims()}

    def lie(objects: ClusterObjects) -> ClusterObjects:
        more = [
            msgspec.structs.replace(
                claim, metadata=msgspec.structs.replace(claim.metadata, name=f"zz-{number}", uid=f"lie-{number}")
            )
            for number, claim in enumerate(objects.nodeclaims * 5)
        ]
        return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, *more))

    world.cluster_state.lie = lie
    world.run(300)
    assert before == {claim.metadata.uid for claim in world.claims()}


def test_a_state_that_hides_nodes_of_a_static_pool_makes_none_beyond_its_replicas(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were launched so long ago that no row is laid over the state."""
    caplog.set_level("INFO")
    world = fresh_world()
    world.settings = msgspec.structs.replace(Settings(), feature_gates=frozenset({STATIC_CAPACITY}))
    world.cluster.put("nodepools", builders.nodepool("static", replicas=3, limits={"nodes": 20}))
    world.cluster_state.lag_seconds = 1
    assert world.run(240, until=lambda: len([node for node in world.cluster.all("nodes") if node.is_ready]) == 3)
    world.run(RECENT // timedelta(seconds=1))
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, nodeclaims=(), nodes=())
    for _ in range(10):
        provision(world.ports, clock=world.clock.now)
        world.run(2)
    assert len(world.ec2.all_instances()) == 3
    listed = [vars(record).get("details", "") for record in caplog.records]
    assert any("beyond its replicas of 3" in details for details in listed)


def invented(objects: ClusterObjects, pods: int = 10_000) -> ClusterObjects:
    """So many pods that nobody made, and no node or claim that exists."""
    waiting = tuple(
        msgspec.structs.replace(
            POD,
            metadata=ObjectMeta(f"lie-{number:05d}", "default", uid=f"lie-{number}"),
            phase="Pending",
            unschedulable=True,
        )
        for number in range(pods)
    )
    return msgspec.structs.replace(objects, pods=waiting, nodes=(), nodeclaims=())


@pytest.fixture
def believed_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where as many others wait indeed: of more than a thousand pods that a state invents none is asked for."""
    monkeypatch.setattr(overlay, "FIRST_WAITING", 0)


@pytest.mark.usefixtures("believed_burst")
def test_an_invented_burst_buys_no_more_than_the_limits_allow() -> None:
    """Again and again, while it hides what was bought before; the limits are read from the API server."""
    world = fresh_world()
    pool = builders.nodepool(limits={"cpu": 16_000})
    world.cluster.put("nodepools", pool)
    world.cluster_state.lag_seconds = 1

    def lie(objects: ClusterObjects) -> ClusterObjects:
        unlimited = tuple(msgspec.structs.replace(pool, limits={}) for pool in objects.nodepools)
        return msgspec.structs.replace(invented(objects), nodepools=unlimited)

    world.cluster_state.lie = lie
    world.deploy(POD, 1)
    highest = 0
    for _ in range(20):
        world.run(15)
        live = [world.cluster.nodeclaim(claim.name) for claim in world.claims()]
        highest = max(highest, sum(claim.capacity.get("cpu", 0) for claim in live if claim is not None))
    assert 0 < highest <= 16_000


@pytest.mark.usefixtures("believed_burst")
def test_an_invented_burst_gets_no_more_of_what_a_nodeoverlay_states_than_the_limits_allow() -> None:
    """The instance types alone have nothing of it. What was bought is so old that no row is laid over the state."""
    device = "example.com/device"
    world = fresh_world()
    world.settings = msgspec.structs.replace(world.settings, feature_gates=(NODE_OVERLAY,))
    everywhere = (NodeSelectorRequirement("kubernetes.io/os", "Exists"),)
    world.cluster.put("nodeoverlays", NodeOverlay(ObjectMeta("devices"), everywhere, capacity={device: 1}))
    world.cluster.put("nodepools", builders.nodepool(limits={device: 3}))
    world.cluster_state.lag_seconds = 1
    world.deploy(msgspec.structs.replace(POD, requests=POD.requests | {device: 1}), 3)
    world.run(RECENT // timedelta(seconds=1) + 120)
    assert len(world.claims()) == 3

    def lie(objects: ClusterObjects) -> ClusterObjects:
        burst = invented(objects, 1100)
        asking = (msgspec.structs.replace(pod, requests=pod.requests | {device: 1}) for pod in burst.pods)
        return msgspec.structs.replace(burst, pods=tuple(asking))

    world.cluster_state.lie = lie
    for _ in range(4):
        provision(world.ports, clock=world.clock.now)
        world.run(5)
    assert len(world.claims()) == 3


def test_a_state_that_says_that_nodes_cost_nothing_buys_no_more_than_the_ceilings_allow() -> None:
    """NodeOverlays state prices; by those of the API server there is money for a node or two."""

    def launched(lie: Callable[[ClusterObjects], ClusterObjects] | None) -> set[str]:
        world = fresh_world()
        world.settings = msgspec.structs.replace(
            world.settings, feature_gates=(NODE_OVERLAY, "ReservedCapacity"), max_dollars_per_hour=1
        )
        world.cluster_state.lag_seconds, world.cluster_state.lie = 1, lie
        world.deploy(builders.pod("inflate", cpu_millicores=7000), 20)
        world.run(120)
        return {instance.id for instance in world.ec2.all_instances()}

    free = NodeOverlay(ObjectMeta("lie"), (NodeSelectorRequirement("kubernetes.io/os", "Exists"),), price="0")
    honest = launched(None)
    assert 0 < len(honest) < 20
    assert len(launched(lambda objects: msgspec.structs.replace(objects, nodeoverlays=(free,)))) == len(honest)


def test_a_buffer_of_no_namespace_ends_no_planner() -> None:
    """What a state alone shows may have any name; events and statuses come after the decision."""
    world = shipping(1)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=(CAPACITY_BUFFER,))
    buffer = CapacityBuffer(ObjectMeta("lie", "", uid="lie"), template_pod=POD, replicas=1)
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, capacity_buffers=(buffer,))
    world.deploy(POD, 1)
    assert len(provision(world.ports, clock=world.clock.now).decisions) == 1


@pytest.mark.parametrize("lie", [without("capacity_buffers"), nodes_are_huge, one_more_node])
def test_no_state_removes_nodes_that_hold_room_for_a_capacity_buffer(
    lie: Callable[[ClusterObjects], ClusterObjects],
) -> None:
    """It hides the buffer, or shows its room elsewhere."""
    world = shipping(1)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=(CAPACITY_BUFFER,))
    buffer = CapacityBuffer(ObjectMeta("warm", "default", uid="warm"), template_pod=POD, replicas=2)
    world.cluster.put("capacitybuffers", buffer)
    world.deploy(POD, 1)
    world.run(120)
    provision(world.ports, clock=world.clock.now)
    world.run(240)
    before = {claim.metadata.uid for claim in world.claims()}
    assert len(before) == 3
    world.cluster_state.lie = lie
    world.run(300)
    assert before <= {claim.metadata.uid for claim in world.claims()}


def test_a_state_alone_removes_no_node_of_a_static_pool() -> None:
    """It shows a second node of a pool of one, which the API server does not."""
    world = fresh_world()
    world.settings = msgspec.structs.replace(world.settings, feature_gates=(STATIC_CAPACITY,))
    world.cluster.put("nodepools", builders.nodepool("fixed", replicas=1))
    assert world.run(180, until=lambda: [claim.is_condition_true("Initialized") for claim in world.claims()] == [True])

    def lie(objects: ClusterObjects) -> ClusterObjects:
        (claim,) = objects.nodeclaims
        second = msgspec.structs.replace(claim.metadata, name="a-second", uid="second")
        return msgspec.structs.replace(objects, nodeclaims=(claim, msgspec.structs.replace(claim, metadata=second)))

    world.cluster_state.lag_seconds, world.cluster_state.lie = 0, lie
    before = world.state.cluster().head
    provision(world.ports, clock=world.clock.now)
    assert world.state.cluster().head == before


@pytest.mark.usefixtures("believed_burst")
def test_nodes_that_are_said_to_be_small_leave_no_more_room_within_the_limits() -> None:
    """It shows as many nodes as there are, each with next to no capacity; who stole the token rings as well."""
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 16_000}))
    world.cluster_state.lag_seconds = 1

    def lie(objects: ClusterObjects) -> ClusterObjects:
        small = {"capacity": {"cpu": 1}, "allocatable": {}}
        claims = tuple(msgspec.structs.replace(claim, **small) for claim in objects.nodeclaims)
        nodes = tuple(msgspec.structs.replace(node, **small) for node in objects.nodes)
        return msgspec.structs.replace(invented(objects, 1100), nodes=nodes, nodeclaims=claims)

    world.cluster_state.lie = lie
    world.deploy(POD, 1)
    for _ in range(3):
        world.run(20)
        provision(world.ports, clock=world.clock.now)
    assert 0 < sum(claim.capacity["cpu"] for claim in world.cluster.all("nodeclaims")) <= 16_000


def of_no_nodepool(node: Node) -> Node:
    others = node.metadata.labels | {labels.NODEPOOL: "other"}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=others))


def nodes_of_no_nodepool(objects: ClusterObjects) -> ClusterObjects:
    return msgspec.structs.replace(objects, nodes=tuple(map(of_no_nodepool, objects.nodes)))


def nodes_of_no_cpu(objects: ClusterObjects) -> ClusterObjects:
    nodes = (msgspec.structs.replace(node, capacity={"cpu": 0}, allocatable={}) for node in objects.nodes)
    return msgspec.structs.replace(objects, nodes=tuple(nodes))


def a_node_of_negative_size(objects: ClusterObjects) -> ClusterObjects:
    metadata = ObjectMeta("negative", uid="negative", labels={labels.NODEPOOL: "default"})
    return msgspec.structs.replace(objects, nodes=(*objects.nodes, Node(metadata, capacity={"cpu": -(10**9)})))


def claims_that_cannot_be_read(objects: ClusterObjects) -> ClusterObjects:
    claims = (msgspec.structs.replace(claim, read_error="unreadable") for claim in objects.nodeclaims)
    return msgspec.structs.replace(objects, nodeclaims=tuple(claims), nodes=())


def instances_that_terminate(objects: ClusterObjects) -> ClusterObjects:
    terminating = (Condition("InstanceTerminating", "True"),)
    claims = (msgspec.structs.replace(claim, conditions=terminating) for claim in objects.nodeclaims)
    return msgspec.structs.replace(objects, nodeclaims=tuple(claims))


@pytest.mark.usefixtures("believed_burst")
@pytest.mark.parametrize(
    "lie",
    [
        nodes_of_no_nodepool,
        nodes_of_no_cpu,
        a_node_of_negative_size,
        claims_that_cannot_be_read,
        instances_that_terminate,
    ],
)
def test_what_a_plan_counts_is_no_less_than_the_status_of_a_pool_with_limits(
    lie: Callable[[ClusterObjects], ClusterObjects],
) -> None:
    """All claims are shown with their sizes, of which the plan counts none, or less than there is."""
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 16_000}))
    world.cluster_state.lag_seconds = 1

    def with_burst(objects: ClusterObjects) -> ClusterObjects:
        burst = invented(objects, 1100)
        return lie(msgspec.structs.replace(burst, nodes=objects.nodes, nodeclaims=objects.nodeclaims))

    world.cluster_state.lie = with_burst
    world.deploy(POD, 1)
    for _ in range(4):
        world.run(20)
        provision(world.ports, clock=world.clock.now)
    assert 0 < sum(claim.capacity["cpu"] for claim in world.cluster.all("nodeclaims")) <= 16_000


def claims_on_their_way_out(objects: ClusterObjects) -> ClusterObjects:
    claims = (
        msgspec.structs.replace(
            claim,
            metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=claim.metadata.creation_timestamp),
        )
        for claim in objects.nodeclaims
    )
    return msgspec.structs.replace(objects, nodeclaims=tuple(claims))


def claims_of_no_size(objects: ClusterObjects) -> ClusterObjects:
    claims = (msgspec.structs.replace(claim, capacity={"cpu": 1}) for claim in objects.nodeclaims)
    return msgspec.structs.replace(objects, nodeclaims=tuple(claims))


@pytest.mark.usefixtures("believed_burst")
@pytest.mark.parametrize("lie", [claims_on_their_way_out, claims_of_no_size])
def test_new_claims_count_in_limits_before_the_status_counts_them(
    lie: Callable[[ClusterObjects], ClusterObjects],
) -> None:
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 16_000}))
    world.cluster_state.lag_seconds = 0
    world.cluster_state.lie = lambda objects: lie(
        msgspec.structs.replace(invented(objects, 1100), nodeclaims=objects.nodeclaims)
    )
    highest = 0
    for _ in range(60):
        world.run(1)
        provision(world.ports, clock=world.clock.now)
        highest = max(highest, sum(claim.capacity.get("cpu", 0) for claim in world.claims()))
    assert 0 < highest <= 16_000


@pytest.mark.usefixtures("believed_burst")
def test_a_node_that_goes_is_no_larger_than_it_is_where_limits_are_near() -> None:
    """It shows the node that EC2 takes back as large as all, and the others with next to no capacity."""
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 16_000}))
    world.cluster_state.lag_seconds = 0
    taken, *_ = settled(world, 6)
    size = taken.capacity["cpu"]

    def lie(objects: ClusterObjects) -> ClusterObjects:
        nodes = (
            msgspec.structs.replace(
                node, capacity={"cpu": 100_000 if node.name == taken.node_name else 1}, allocatable={}
            )
            for node in objects.nodes
        )
        burst = invented(objects, 1100)
        return msgspec.structs.replace(burst, nodes=tuple(nodes), nodeclaims=objects.nodeclaims)

    world.cluster_state.lie = lie
    world.deliver_event("EC2 Spot Instance Interruption Warning", {"instance-id": instance_id(taken.provider_id)})
    highest = 0
    for _ in range(60):
        world.run(1)
        provision(world.ports, clock=world.clock.now)
        highest = max(highest, sum(claim.capacity.get("cpu", 0) for claim in world.claims()))
    assert highest > 6 * size, "nothing was launched in place of what goes"
    assert highest <= 16_000 + size


@pytest.mark.usefixtures("believed_burst")
def test_many_new_claims_do_not_hide_that_a_state_shows_too_little() -> None:
    """More are new than are read one by one; the state shows none of them, and the Nodes with next to no capacity."""
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 200_000}))
    world.cluster_state.lag_seconds = 0
    settled(world, 30)

    def lie(objects: ClusterObjects) -> ClusterObjects:
        nodes = (msgspec.structs.replace(node, capacity={"cpu": 1}, allocatable={}) for node in objects.nodes)
        old = {claim.name for claim in objects.nodeclaims if claim.node_name}
        claims = tuple(claim for claim in objects.nodeclaims if claim.name in old)
        return msgspec.structs.replace(invented(objects, 1100), nodes=tuple(nodes), nodeclaims=claims)

    world.deploy(POD, 90)
    world.run(3)
    assert len(world.claims()) > 80, "more than are read one by one"
    world.cluster_state.lie = lie
    highest = 0
    for _ in range(20):
        world.run(1)
        provision(world.ports, clock=world.clock.now)
        highest = max(highest, sum(claim.capacity.get("cpu", 0) for claim in world.claims()))
    assert 0 < highest <= 200_000


@pytest.mark.usefixtures("believed_burst")
def test_a_state_hides_no_more_of_old_nodes_than_the_status_counts_while_claims_are_new() -> None:
    """It shows old nodes smaller by as much as is new: all together is what the status, which is behind, counts."""
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 40_000}))
    world.cluster_state.lag_seconds = 0
    old = {claim.node_name for claim in settled(world, 8)}
    (pool,) = world.cluster.nodepools()

    def lie(objects: ClusterObjects) -> ClusterObjects:
        new = sum(claim.capacity.get("cpu", 0) for claim in world.claims() if claim.node_name not in old)
        sizes = dict.fromkeys(sorted(old), 0)
        left = max(0, pool.resources["cpu"] - new)
        for node in objects.nodes:
            if node.name in sizes:
                sizes[node.name] = min(node.capacity["cpu"], left)
                left -= sizes[node.name]
        nodes = (
            msgspec.structs.replace(node, capacity={**node.capacity, "cpu": sizes.get(node.name, 0)}, allocatable={})
            for node in objects.nodes
        )
        return msgspec.structs.replace(invented(objects, 1100), nodes=tuple(nodes), nodeclaims=objects.nodeclaims)

    highest = 0
    world.deploy(POD, 12)
    for _ in range(40):
        provision(world.ports, clock=world.clock.now)
        world.run(1)
        world.cluster_state.lie = lie if any(claim.node_name not in old for claim in world.claims()) else None
        world.cluster.update("nodepools", pool.name, resources=pool.resources, node_count=pool.node_count)
        highest = max(highest, sum(claim.capacity.get("cpu", 0) for claim in world.claims()))
    assert 16_000 < highest <= 40_000


def cluster_at_its_limits(lag: float) -> World:
    world = shipping(lag)
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 12_000}))
    settled(world, 6)
    return world


def static_cluster(lag: float) -> World:
    world = shipping(lag)
    world.settings = msgspec.structs.replace(Settings(), feature_gates=frozenset({STATIC_CAPACITY}))
    world.cluster.put("nodepools", builders.nodepool("static", replicas=6))
    world.run(RECENT // timedelta(seconds=1))
    return world


@pytest.mark.parametrize("lag", [1, 8])
@pytest.mark.parametrize("seconds", [5, 45])
@pytest.mark.parametrize("made", [cluster_at_its_limits, static_cluster])
def test_interruptions_of_a_nodepool_that_is_at_its_limits_list_no_cluster(
    made: Callable[[float], World], seconds: int, lag: float
) -> None:
    """Its status counts the nodes that go, too; a second wave comes while the first is replaced."""
    world = made(lag)
    claims = world.claims()
    assert len(claims) == 6
    before = world.effects.reads["cluster", "pods"]
    for claim in claims[:3]:
        world.interrupt_spot(instance_id(claim.provider_id))
    world.run(seconds)
    for claim in claims[3:5]:
        world.interrupt_spot(instance_id(claim.provider_id))
    world.run(300)
    assert len(world.claims()) == 6
    assert len(world.ec2.all_instances()) == 6 + 5
    assert world.effects.reads["cluster", "pods"] == before


def test_pods_that_come_while_a_node_of_a_nodepool_near_its_limits_is_replaced_list_no_cluster() -> None:
    """The node and its replacement both count in the status, and in the list of NodeClaims."""
    world = shipping(1)
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 14_000}, budgets=(Budget("1"),)))
    stamp(world)
    look(world, "nodepools")
    settled(world, 6)
    edit(world, "nodepools", labels={"team": "a"})
    look(world, "nodepools")
    assert world.run(120, until=lambda: any(row.phase == "waiting" for row in world.state.commands()))
    before = world.effects.reads["cluster", "pods"]
    world.deploy(POD, 8)
    world.run(6)
    assert len(world.claims()) == 8, "one that goes, its replacement, and one more: not two"
    assert world.effects.reads["cluster", "pods"] == before


@pytest.mark.parametrize(("hides", "is_listed"), [(False, False), (True, True)])
def test_many_nodes_that_went_young_list_no_cluster_unless_the_state_hides_them(
    monkeypatch: pytest.MonkeyPatch, hides: bool, is_listed: bool
) -> None:
    """Rows of launches name them for twenty minutes, and there are more than are read one by one."""
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 3)
    world = shipping(1)
    world.deploy(POD, 5)
    assert world.run(240, until=lambda: everybody_runs(world, 5))
    world.run(150)
    if hides:
        world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, nodeclaims=())
    else:
        world.deploy(POD, 0)
        for claim in world.claims():
            world.cluster.delete("nodeclaims", claim.metadata)
        assert world.run(180, until=lambda: not world.claims())
        world.run(2)
    before = world.effects.reads["cluster", "pods"]
    provision(world.ports, clock=world.clock.now)
    assert (world.effects.reads["cluster", "pods"] > before) is is_listed


def test_young_claims_that_a_state_hides_beside_many_that_have_gone_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few to list the cluster for them, they are of the list of NodeClaims: their room would be bought again."""
    monkeypatch.setattr(overlay, "MAXIMUM_READS", 3)
    world = shipping(1)
    world.deploy(POD, 7)
    assert world.run(240, until=lambda: everybody_runs(world, 7))
    world.run(150)
    world.deploy(POD, 2)
    empty = {claim.node_name for claim in world.claims()} - {pod.node_name for pod in world.running_pods()}
    for claim in world.claims():
        if claim.node_name in empty:
            world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(180, until=lambda: len(world.claims()) == 2)
    world.run(2)
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, nodeclaims=())
    before = world.effects.reads["cluster", "pods"]
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    assert {claim.name for claim in snapshot.nodeclaims} == {claim.name for claim in world.claims()}
    assert world.effects.reads["cluster", "pods"] == before


@pytest.mark.parametrize("is_here_only", [True, False], ids=["no node takes it", "too many Nodes take pods"])
def test_a_cluster_that_cannot_be_listed_keeps_no_pods_of_interrupted_nodes_from_their_places(
    monkeypatch: pytest.MonkeyPatch, is_here_only: bool
) -> None:
    """Where a pod has no place, as one whose volume is there, or where more Nodes take pods than are read one by one.
    Nor where a list takes longer than the function may run, as of a cluster ten times larger."""
    world = shipping(1)
    claims = settled(world, 4)
    here = {labels.HOSTNAME: claims[0].node_name} if is_here_only else {}
    pod = builders.pod("stays", cpu_millicores=10, node_name=claims[0].node_name, phase="Running", node_selector=here)
    world.cluster.put("pods", pod)
    if not is_here_only:
        monkeypatch.setattr(confirmation, "MAXIMUM_READS", 0)
    world.effects.inject(Fault("cluster", "namespaces", Unavailable("context deadline exceeded"), 1000))
    for claim in claims[:3]:
        world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(60, until=lambda: len(world.ec2.all_instances()) == 4 + 3)
    assert not world.effects.select("cluster", "evict")


def test_limits_hold_for_interrupted_nodes_in_a_cluster_that_cannot_be_listed() -> None:
    """A state that hides NodeClaims makes no launch that their NodePool has no room for."""
    world = shipping(1)
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 12_000}))
    claims = settled(world, 6)
    world.run(RECENT // timedelta(seconds=1))
    hidden = {claim.name for claim in claims[2:]}
    waiting = builders.pod("waits", cpu_millicores=1800, phase="Pending", unschedulable=True)
    world.cluster.put("pods", waiting)

    def lie(objects: ClusterObjects) -> ClusterObjects:
        shown = tuple(claim for claim in objects.nodeclaims if claim.name not in hidden)
        nodes = tuple(node for node in objects.nodes if node.name not in {claim.node_name for claim in claims[2:]})
        return msgspec.structs.replace(objects, nodeclaims=shown, nodes=nodes)

    world.cluster_state.lie = lie
    world.effects.inject(Fault("cluster", "namespaces", Unavailable("context deadline exceeded"), 1000))
    world.interrupt_spot(instance_id(claims[0].provider_id))
    world.run(60)
    assert len(world.ec2.all_instances()) == 6
