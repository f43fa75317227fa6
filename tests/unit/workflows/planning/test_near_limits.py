"""When what was planned of a cluster state is relied on near the limits of a NodePool."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.decisions.decide import decide
from spotwright.errors import OutOfTime
from spotwright.model import labels
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import NODE_OVERLAY, InFlightNodeClaim, Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.planning.confirmation import decide_on_read_nodes
from spotwright.workflows.planning.near_limits import NearLimitsError, check_limits, decide_for_others
from spotwright.workflows.planning.overlay import SETTLING, STATUS_AGE_PER_NODE, BehindError
from spotwright.workflows.planning.snapshot import gather
from tests.scenarios.lifecycle.conftest import fresh_world

POD = builders.pod("inflate", cpu_millicores=1800)


@pytest.fixture
def world() -> World:
    """Two nodes with a pod each, of a NodePool whose limits leave room for one more; and a pod that waits."""
    world = fresh_world()
    world.cluster.put("nodepools", builders.nodepool(limits={"cpu": 6000}))
    world.deploy(POD, 2)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    world.run(120)
    waiting = msgspec.structs.replace(POD.metadata, name="waiting", uid="waiting")
    world.cluster.put("pods", msgspec.structs.replace(POD, metadata=waiting, phase="Pending", unschedulable=True))
    return world


def planned(world: World, change: Callable[[NodeClaim, Snapshot], NodeClaim]) -> Plan:
    """The plan, with each NodeClaim changed in what was gathered."""
    return planned_with_lists(world, change)[0]


def planned_with_lists(world: World, change: Callable[[NodeClaim, Snapshot], NodeClaim]) -> tuple[Plan, int]:
    """And how often NodeClaims were listed for it after that."""
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    claims = tuple(change(claim, snapshot) for claim in snapshot.nodeclaims)
    snapshot = msgspec.structs.replace(snapshot, nodeclaims=claims)
    catalog, before = world.ports.catalogs.read(snapshot.catalog_key), world.effects.reads["cluster", "nodeclaims"]
    plan = decide_on_read_nodes(snapshot, catalog, world.ports, ())[1]
    return plan, world.effects.reads["cluster", "nodeclaims"] - before


def created(claim: NodeClaim, snapshot: Snapshot, age: timedelta) -> NodeClaim:
    metadata = msgspec.structs.replace(claim.metadata, creation_timestamp=snapshot.now - age)
    return msgspec.structs.replace(claim, metadata=metadata, conditions=())


def going(claim: NodeClaim, snapshot: Snapshot) -> NodeClaim:
    return msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=snapshot.now)
    )


def test_while_nothing_goes_or_joins_limits_hold_by_what_is_shown(world: World) -> None:
    plan, lists = planned_with_lists(world, lambda claim, snapshot: created(claim, snapshot, SETTLING))
    assert [node.pods for node in plan.new_nodes] == [("default/waiting",)]
    assert not lists


def test_nodes_that_have_just_joined_count_besides_the_status(world: World) -> None:
    """It may count them or not: nobody knows, so that NodeClaims are listed, which leave as much room as is shown."""
    plan, lists = planned_with_lists(world, lambda claim, snapshot: created(claim, snapshot, timedelta(seconds=1)))
    assert [node.pods for node in plan.new_nodes] == [("default/waiting",)]
    assert lists == 1


@pytest.mark.parametrize(("seconds", "lists"), [(1, 0), (-1, 1)])
def test_in_a_very_large_cluster_a_status_may_be_older(world: World, seconds: int, lists: int) -> None:
    world.cluster.put("nodepools", builders.nodepool("large", node_count=20_000))
    age = STATUS_AGE_PER_NODE * 20_000
    assert age > SETTLING
    age += timedelta(seconds=seconds)
    assert planned_with_lists(world, lambda claim, snapshot: created(claim, snapshot, age))[1] == lists


def test_nodes_that_go_leave_no_room_that_only_a_state_shows(world: World) -> None:
    with pytest.raises(BehindError, match=r"NodeClaims of NodePool default come to 10 of cpu, beyond its limit of 6"):
        planned(world, going)


def test_nodes_that_somebody_deletes_leave_room(world: World) -> None:
    """Which the API server shows, too, whatever the status of the NodePool counts."""
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    assert len(world.claims()) == 2
    assert len(planned(world, going).new_nodes) == 3


@pytest.mark.parametrize("is_managed", [True, False])
def test_nodes_that_ec2_takes_back_leave_room(world: World, is_managed: bool) -> None:
    """But NodeClaims of another controller's classes, with which nothing is done."""
    for claim in world.claims():
        if not is_managed:
            other = msgspec.structs.replace(claim.node_class_ref, group="example.com")
            world.cluster.update("nodeclaims", claim.name, node_class_ref=other)
        world.interrupt_spot(instance_id(claim.provider_id))
    if is_managed:
        assert len(planned(world, going).new_nodes) == 3
        return
    with pytest.raises(BehindError):
        planned(world, going)


def test_a_recommendation_to_leave_a_node_leaves_no_room(world: World) -> None:
    for claim in world.claims():
        world.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": instance_id(claim.provider_id)})
    with pytest.raises(BehindError):
        planned(world, going)


@pytest.mark.parametrize(("nodepool", "is_kept"), [("other", True), ("default", False)])
def test_only_nodeclaims_of_the_nodepool_count(world: World, nodepool: str, is_kept: bool) -> None:
    world.cluster.update("nodepools", "default", node_count=3, resources={"cpu": 6000})
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    claim = world.claims()[0]
    labeled = {**claim.metadata.labels, labels.NODEPOOL: nodepool}
    metadata = msgspec.structs.replace(claim.metadata, name="another", uid="another", labels=labeled)
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata))
    hidden = {"nodeclaims": snapshot.nodeclaims, "nodes": snapshot.nodes}
    if is_kept:
        assert planned_of_less(world, **hidden).new_nodes
        return
    with pytest.raises(BehindError):
        planned_of_less(world, **hidden)


@pytest.mark.parametrize(
    ("is_created", "nodepool", "is_kept"), [(True, "default", True), (False, "other", True), (False, "default", False)]
)
def test_a_node_on_the_way_counts_beside_the_nodeclaims_that_are_listed(
    world: World, is_created: bool, nodepool: str, is_kept: bool
) -> None:
    """Once, though its NodeClaim may have been created since rows were read. A node that was there is not shown."""
    world.cluster.update("nodepools", "default", node_count=3, resources={"cpu": 8000}, limits={"cpu": 8000})
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    claim, shown = snapshot.nodeclaims
    labeled = {**claim.metadata.labels, labels.NODEPOOL: nodepool}
    metadata = ObjectMeta(claim.name if is_created else "coming", labels=labeled)
    coming = msgspec.structs.replace(claim, metadata=metadata, provider_id="", node_name="", allocatable={"cpu": 1})
    nodes = tuple(node for node in snapshot.nodes if node.name == shown.node_name)
    hidden = {"nodeclaims": (shown,), "nodes": nodes, "in_flight": (InFlightNodeClaim(coming, ()),)}
    if is_kept:
        assert planned_of_less(world, **hidden).new_nodes
        return
    with pytest.raises(BehindError):
        planned_of_less(world, **hidden)


def test_far_from_its_limits_a_nodepool_grows_beside_nodes_that_go(world: World) -> None:
    world.cluster.update("nodepools", "default", limits={"cpu": 600_000})
    assert planned(world, going).new_nodes


def planned_of_less(world: World, **hidden: tuple[object, ...]) -> Plan:
    snapshot = msgspec.structs.replace(gather(world.ports, world.state.cluster(), now=world.clock.now()), **hidden)
    return decide_on_read_nodes(snapshot, world.ports.catalogs.read(snapshot.catalog_key), world.ports, ())[1]


@pytest.mark.parametrize("limits", [{"cpu": 5000}, {"nodes": 2}, {"cpu": 100_000, "nodes": 2}])
def test_a_state_that_hides_nodes_leaves_no_more_room_within_the_limits(world: World, limits: dict[str, int]) -> None:
    world.cluster.update("nodepools", "default", limits=limits)
    with pytest.raises(BehindError) as refused:
        planned_of_less(world, nodeclaims=(), nodes=())
    assert refused.value.code == "NearLimits"


def test_limits_of_a_nodepool_in_which_nothing_is_launched_keep_no_state_from_being_used(world: World) -> None:
    world.cluster.put("nodepools", builders.nodepool("other", limits={"cpu": 1000}, node_count=1))
    assert planned_of_less(world).new_nodes


def test_a_limit_below_what_there_is_does_not_concern_nodes_that_have_none_of_it(world: World) -> None:
    world.cluster.update("nodepools", "default", limits={"nvidia.com/gpu": 2}, resources={"nvidia.com/gpu": 4})
    assert planned_of_less(world).new_nodes


@pytest.mark.parametrize("limits", [{"cpu": 8000}, {"nodes": 4}])
def test_nodes_on_the_way_leave_no_room_that_a_state_says_others_have_left(
    world: World, limits: dict[str, int]
) -> None:
    """They have no NodeClaims yet; what it shows comes to what the status counts."""
    world.cluster.update("nodepools", "default", limits=limits)
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    claim, _ = snapshot.nodeclaims
    metadata, full = ObjectMeta("coming", labels=claim.metadata.labels), {"cpu": 1}
    created = msgspec.structs.replace(claim, metadata=metadata, provider_id="", node_name="", allocatable=full)
    coming = InFlightNodeClaim(created, ())
    nodes = tuple(node for node in snapshot.nodes if node.name != claim.node_name)
    with pytest.raises(BehindError, match=r"beyond its limit of [48]"):
        planned_of_less(world, nodeclaims=snapshot.nodeclaims[1:], nodes=nodes, in_flight=(coming,) * 2)


def test_what_is_new_in_another_nodepool_does_not_count(world: World) -> None:
    def of_another(claim: NodeClaim, snapshot: Snapshot) -> NodeClaim:
        new = created(claim, snapshot, timedelta(seconds=1))
        others = {**new.metadata.labels, labels.NODEPOOL: "other"}
        return msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, labels=others))

    assert planned(world, of_another).new_nodes


def test_nodes_on_the_way_for_another_nodepool_do_not_count(world: World) -> None:
    claim = gather(world.ports, world.state.cluster(), now=world.clock.now()).nodeclaims[0]
    metadata = ObjectMeta("coming", labels={**claim.metadata.labels, labels.NODEPOOL: "other"})
    coming = msgspec.structs.replace(claim, metadata=metadata, provider_id="", node_name="", allocatable={"cpu": 1})
    assert planned_of_less(world, in_flight=(InFlightNodeClaim(coming, ()),) * 4).new_nodes


@pytest.mark.parametrize(("nodes", "is_kept"), [(2, False), (3, True)])
def test_a_static_nodepool_has_no_more_nodes_than_its_limit_though_it_asks_for_more(
    world: World, nodes: int, is_kept: bool
) -> None:
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    catalog = world.ports.catalogs.read(snapshot.catalog_key)
    plan = decide(snapshot, catalog)
    assert len(plan.new_nodes) == 1
    pool = msgspec.structs.replace(snapshot.nodepools[0], replicas=5, limits={"nodes": nodes}, node_count=2)
    snapshot = msgspec.structs.replace(snapshot, nodepools=(pool,), nodeclaims=())
    if is_kept:
        check_limits(snapshot, plan, catalog, world.ports)
        return
    with pytest.raises(BehindError, match="come to 3 of nodes, beyond its limit of 2"):
        check_limits(snapshot, plan, catalog, world.ports)


def test_claims_that_are_new_count_with_what_a_nodeoverlay_gives_them() -> None:
    """No status of theirs says it yet, and the instance types alone have nothing of it."""
    device = "example.com/device"
    world = fresh_world()
    world.settings = msgspec.structs.replace(world.settings, feature_gates=frozenset({NODE_OVERLAY}))
    everywhere = (NodeSelectorRequirement("kubernetes.io/os", "Exists"),)
    world.cluster.put("nodeoverlays", NodeOverlay(ObjectMeta("devices"), everywhere, capacity={device: 1}))
    world.cluster.put("nodepools", builders.nodepool(limits={device: 1}))
    asking = msgspec.structs.replace(POD, requests=POD.requests | {device: 1}, unschedulable=True)
    world.cluster.put("pods", asking)
    world.run(3)
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    catalog = world.ports.catalogs.read(snapshot.catalog_key)
    plan = decide(msgspec.structs.replace(snapshot, pods=(asking,), nodeclaims=(), in_flight=(), nodes=()), catalog)
    assert len(plan.new_nodes) == 1
    (claim,) = snapshot.nodeclaims
    unlaunched = msgspec.structs.replace(created(claim, snapshot, timedelta(seconds=1)), capacity={}, allocatable={})
    pools = tuple(msgspec.structs.replace(pool, resources={}, node_count=0) for pool in snapshot.nodepools)
    shown = msgspec.structs.replace(snapshot, nodeclaims=(unlaunched,), nodepools=pools)
    with pytest.raises(BehindError, match=f"come to 2 of {device}"):
        check_limits(shown, plan, catalog, world.ports)


def wait(world: World, name: str, cpu_millicores: int, nodepool: str = "") -> None:
    selector = {labels.NODEPOOL: nodepool} if nodepool else {}
    pod = builders.pod(name, cpu_millicores=cpu_millicores, node_selector=selector, phase="Pending")
    world.cluster.put("pods", msgspec.structs.replace(pod, unschedulable=True))


def decided_for_others(world: World, *near: str) -> tuple[Snapshot, Plan]:
    """The plan without what these NodePools would launch, of a state that shows no NodeClaim called hidden."""
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    shown = tuple(claim for claim in snapshot.nodeclaims if not claim.name.startswith("hidden"))
    buffers = (CapacityBuffer(ObjectMeta("room")),)
    snapshot = msgspec.structs.replace(snapshot, nodeclaims=shown, capacity_buffers=buffers)
    catalog = world.ports.catalogs.read(snapshot.catalog_key)
    pools = [pool for pool in snapshot.nodepools if pool.name in near]
    error = NearLimitsError("near", snapshot, decide(snapshot, catalog), pools)
    return decide_for_others(error, catalog, world.ports)[:2]


def test_pods_that_another_nodepool_takes_get_no_node_of_one_that_is_near_its_limits(world: World) -> None:
    """Without the pods that its last node is for there would be room for them; and whoever has no place waits."""
    world.cluster.update("nodepools", "default", weight=10)
    world.cluster.put("nodepools", builders.nodepool("other"))
    wait(world, "second", 1800)
    wait(world, "nowhere", 1800, "absent")
    snapshot, plan = decided_for_others(world, "default")
    assert [node.nodepool for node in plan.new_nodes] == ["other"]
    assert {key for node in plan.new_nodes for key in node.pods} < {"default/second", "default/waiting"}
    assert not plan.unschedulable_pods
    assert not snapshot.capacity_buffers


def test_nodepools_that_turn_out_to_be_near_their_limits_are_left_out_one_after_the_other(world: World) -> None:
    world.cluster.put("nodepools", builders.nodepool("other", limits={"nodes": 3}, node_count=3))
    world.cluster.put("nodepools", builders.nodepool("third"))
    wait(world, "theirs", 1800, "other")
    wait(world, "last", 1800, "third")
    for number in range(3):
        claim = world.claims()[0]
        metadata = ObjectMeta(f"hidden-{number}", uid=f"hidden-{number}", labels={labels.NODEPOOL: "other"})
        world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata, provider_id="", node_name=""))
    _, plan = decided_for_others(world, "default")
    assert [(node.nodepool, node.pods) for node in plan.new_nodes] == [("third", ("default/last",))]


def test_where_nobody_is_left_that_would_get_a_node_it_is_as_before(world: World) -> None:
    with pytest.raises(NearLimitsError):
        decided_for_others(world, "default")


def test_when_time_runs_out_no_other_plan_is_made_for_want_of_a_list(world: World) -> None:
    snapshot = gather(world.ports, world.state.cluster(), now=world.clock.now())
    catalog = world.ports.catalogs.read(snapshot.catalog_key)
    shown = msgspec.structs.replace(snapshot, nodeclaims=(), nodes=())
    plan = decide(shown, catalog)
    world.effects.inject(Fault("cluster", "nodeclaims", OutOfTime("the invocation ends")))
    with pytest.raises(OutOfTime):
        check_limits(shown, plan, catalog, world.ports)
