"""Cluster states by whoever holds the forwarder's token: no lie removes a node, evicts a pod or keeps pods waiting."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import DaemonSet
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import CAPACITY_BUFFER
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.planning import overlay
from spotwright.workflows.planning.confirmation import ROUNDS
from spotwright.workflows.planning.overlay import RECENT
from spotwright.workflows.provision.workflow import provision
from tests.scenarios.lifecycle.cluster_states import POD, everybody_runs, invented, settled, shipping


def without(kind: str) -> Callable[[ClusterObjects], ClusterObjects]:
    return lambda objects: msgspec.structs.replace(objects, **{kind: ()})


def nodes_are_empty(objects: ClusterObjects) -> ClusterObjects:
    """Only pods that wait, and claims that have long been consolidatable."""
    waiting = tuple(pod for pod in objects.pods if not pod.node_name)
    return msgspec.structs.replace(objects, pods=waiting)


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
        (daemonsets_are_huge, 120),
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


@pytest.mark.parametrize("lag", [1, 20])
def test_nodes_have_room_for_daemonsets_that_a_state_does_not_show(lag: float) -> None:
    """Made together with the pods, as by one `kubectl apply`; or hidden for ever."""
    world = shipping(lag)
    settled(world, 1)
    template = msgspec.structs.replace(builders.daemonset_pod("agent", ""), requests={"cpu": 700}, phase="Running")
    world.cluster.put("daemonsets", DaemonSet(ObjectMeta("agent", "kube-system"), template))
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(objects, daemonsets=())
    world.deploy(POD, 2)
    assert world.run(120, until=lambda: everybody_runs(world, 2))
    newest = max(world.claims(), key=lambda claim: claim.metadata.creation_timestamp or world.clock.now())
    assert newest.requests["cpu"] == POD.requests["cpu"] + 700


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
    before = world.effects.reads["cluster", "pods"]
    world.run(1200)
    assert world.effects.reads["cluster", "pods"] - before <= 5, "the sweep lists as often"


def test_a_pod_that_waits_for_nodes_that_are_not_as_shown_keeps_no_other_from_its_node() -> None:
    """While hundreds of nodes join, each round of a plan finds others that have been taken meanwhile."""
    world = shipping(1)
    settled(world, ROUNDS + 2)
    world.cluster_state.lie = pods_are_hidden
    created = world.clock.now() - timedelta(minutes=1)
    for name, cpu in (("late", 1500), ("large", 3700)):
        pod = builders.pod(name, cpu_millicores=cpu, unschedulable=True)
        metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=created)
        world.cluster.put("pods", msgspec.structs.replace(pod, metadata=metadata))
    before = world.effects.reads["cluster", "pods"]
    world.run(2)
    assert "default/large" in {pod for row in world.state.nominations() for pod in row.pods}
    assert world.effects.reads["cluster", "pods"] == before, "nothing is listed for it"


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
    committed = validate(world, world.state.commands()[0].id, clock=world.clock.now).committed
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
