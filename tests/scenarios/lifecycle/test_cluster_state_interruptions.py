"""Interrupted nodes are replaced by the cluster state: which of them cost a list of the cluster, and when it fails."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import STATIC_CAPACITY, Settings
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.planning import confirmation, overlay
from spotwright.workflows.planning.overlay import RECENT
from spotwright.workflows.planning.snapshot import gather
from spotwright.workflows.provision.workflow import provision
from tests.scenarios.lifecycle.cluster_states import POD, everybody_runs, settled, shipping
from tests.scenarios.lifecycle.disruption.edits import edit, look, stamp


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
        monkeypatch.setattr(confirmation, "MAXIMUM_TAKING", 0)
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
