"""Limits, replicas and ceilings of NodePools hold, whatever a cluster state shows of their nodes."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import NODE_OVERLAY, STATIC_CAPACITY, Settings
from spotwright.simulation import builders
from spotwright.workflows.planning import overlay
from spotwright.workflows.planning.overlay import RECENT
from spotwright.workflows.provision.workflow import provision
from tests.scenarios.lifecycle.cluster_states import POD, invented, settled
from tests.scenarios.lifecycle.conftest import fresh_world


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
