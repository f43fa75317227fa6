"""The status of a NodePool follows its claims within seconds, and is written seldom where much moves."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import actions
from spotwright.workflows.lifecycle.status import node_capacities, nodepools
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import epoch_ms

ONE_EACH = builders.pod("inflate", cpu_millicores=1800)


def deploy(world: World, nodes: int) -> None:
    """Returns when so many nodes run a pod each."""
    world.run(1)
    world.deploy(ONE_EACH, nodes)
    assert world.run(60, until=lambda: len(world.running_pods()) == nodes)


def pool(world: World) -> NodePool:
    found = world.cluster.nodepool("default")
    assert found is not None
    return found


def test_nodes_count_seconds_after_they_are_ready_and_after_they_are_deleted(world: World) -> None:
    world.run(1)
    world.deploy(ONE_EACH, 2)
    assert world.run(60, until=lambda: [node.is_initialized for node in world.cluster.nodes()] == [True, True])
    assert world.run(5, until=lambda: pool(world).node_count == 2)
    world.run(5)
    assert pool(world).resources["cpu"] == sum(node.capacity["cpu"] for node in world.cluster.nodes()) > 0
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(6, until=lambda: pool(world).node_count == 0)
    assert pool(world).resources["cpu"] == 0


def test_of_two_counts_at_once_the_older_does_not_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker lists later and writes first. The number of NodeClaims, which polls compare, is the same."""
    world.run(1)
    world.deploy(ONE_EACH, 2)
    assert world.run(60, until=lambda: pool(world).node_count == 2)
    world.run(20)
    monkeypatch.setattr(node_capacities, "READ_BY_NAME", 1)
    usual, bell = world.cluster.nodes, Doorbell(world.cluster.name, "nodepools")

    def nodes() -> tuple[Node, ...]:
        listed = usual()
        monkeypatch.setattr(world.cluster, "nodes", usual)
        world.cluster.update("nodes", listed[0].name, capacity=dict(listed[0].capacity) | {"nvidia.com/gpu": 1})
        world.forget_changes()
        lifecycle(world.ports, [bell], now=world.clock.now())
        assert pool(world).resources["nvidia.com/gpu"] == 1
        return listed

    monkeypatch.setattr(world.cluster, "nodes", nodes)
    lifecycle(world.ports, [bell], now=world.clock.now())
    assert "nvidia.com/gpu" not in pool(world).resources
    assert world.run(5, until=lambda: "nvidia.com/gpu" in pool(world).resources)


def test_a_resource_of_which_no_node_is_left_is_not_shown_any_more(world: World) -> None:
    """What a status patch leaves out stays; limits would be compared with it."""
    world.run(1)
    world.deploy(ONE_EACH, 2)
    assert world.run(60, until=lambda: pool(world).node_count == 2)
    world.run(20)
    gpu, other = world.cluster.nodes()
    world.cluster.update("nodes", gpu.name, capacity=dict(gpu.capacity) | {"nvidia.com/gpu": 1})
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())
    assert pool(world).resources["nvidia.com/gpu"] == 1
    world.cluster.update("nodes", gpu.name, capacity=dict(other.capacity))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())
    assert "nvidia.com/gpu" not in pool(world).resources
    writes = len(world.effects.select("cluster", "patch_status"))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())
    assert len(world.effects.select("cluster", "patch_status")) == writes


def test_a_pool_with_very_many_errors_says_so_and_keeps_no_other_waiting(world: World) -> None:
    """The API server takes messages of 32,768 characters."""
    wrong = NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", tuple(f"c5.large{number} " for number in range(600)))
    world.cluster.update("nodepools", "default", requirements=(wrong,))
    world.cluster.put("nodepools", builders.nodepool("other", conditions=()))
    world.run(61)
    found = find_condition(pool(world).conditions, "ValidationSucceeded")
    assert found is not None
    assert found.status == "False"
    assert found.message.startswith(f"spec.template.spec.requirements[{labels.INSTANCE_TYPE}]: 'c5.large0 ' is not")
    assert found.message.endswith("...")
    other = world.cluster.nodepool("other")
    assert other is not None
    assert find_condition(other.conditions, "ValidationSucceeded") is not None
    writes = len(world.effects.select("cluster", "set_conditions"))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())
    assert len(world.effects.select("cluster", "set_conditions")) == writes
    assert not world.failures


def test_a_burst_is_counted_a_few_times(world: World) -> None:
    world.run(1)
    before = world.effects.reads["cluster", "nodes"]
    world.deploy(ONE_EACH, 40)
    assert world.run(90, until=lambda: len(world.running_pods()) == 40)
    world.run(5)
    assert pool(world).node_count == 40
    assert world.effects.reads["cluster", "nodes"] - before < 20


def count(world: World) -> None:
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())


class Others:
    """``values``, and what ``others`` has beside them."""

    def __init__(self, others: Any, **values: Any) -> None:
        self._others = others
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)


def of_another_process(world: World) -> Any:
    """Ports of which nothing is remembered."""
    return Others(world.ports, cluster=Others(world.cluster))


def reads_of_nodes(world: World) -> tuple[int, int]:
    """Lists, and reads by name."""
    return world.effects.reads["cluster", "nodes"], world.effects.reads["cluster", "node"]


def test_nodes_of_settled_claims_are_not_read_for_each_claim_that_moves(world: World) -> None:
    deploy(world, 5)
    world.run(150)
    count(world)
    lists, by_name = reads_of_nodes(world)
    count(world)
    assert reads_of_nodes(world) == (lists, by_name)
    other = world.claims()[0]
    about = msgspec.structs.replace(other.metadata, name="new", uid="new")
    new = msgspec.structs.replace(other, metadata=about, provider_id="aws:///z/i-1", node_name="none")
    world.cluster.put("nodeclaims", new)
    count(world)
    assert reads_of_nodes(world) == (lists, by_name + 1)
    assert pool(world).node_count == 6


def test_of_many_new_claims_the_nodes_are_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_capacities, "READ_BY_NAME", 4)
    deploy(world, 5)
    lists, by_name = reads_of_nodes(world)
    count(world)
    assert reads_of_nodes(world) == (lists + 1, by_name)
    assert pool(world).resources["cpu"] == sum(node.capacity["cpu"] for node in world.cluster.nodes())


def test_what_a_node_has_is_read_again_while_it_is_new_and_every_ten_minutes(world: World) -> None:
    """A device plugin may report what it has late, or anew."""

    def gpus() -> int:
        count(world)
        return pool(world).resources.get("nvidia.com/gpu", 0)

    def report(number: int) -> None:
        capacity = dict(world.cluster.nodes()[0].capacity) | {"nvidia.com/gpu": number}
        world.cluster.update("nodes", world.cluster.nodes()[0].name, capacity=capacity)

    deploy(world, 1)
    for number in (1, 2):
        report(number)
        assert gpus() == number
    world.run(150)
    assert gpus() == 2
    report(3)
    assert gpus() == 2
    world.run(600)
    assert gpus() == 3


def test_what_was_read_at_a_time_to_come_is_read_again(world: World) -> None:
    """A clock that was an hour ahead would have it remembered for that hour."""
    deploy(world, 1)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now() + timedelta(hours=1))
    (node,) = world.cluster.nodes()
    world.cluster.update("nodes", node.name, capacity=dict(node.capacity) | {"nvidia.com/gpu": 1})
    count(world)
    assert pool(world).resources["nvidia.com/gpu"] == 1


def test_two_workers_that_remember_different_things_of_a_node_do_not_write_in_turns(world: World) -> None:
    """One read the Node before its device plugin reported something else, the other one after; each rang the other."""
    deploy(world, 1)
    world.run(150)
    workers = [of_another_process(world), of_another_process(world)]
    bell = Doorbell(world.cluster.name, "nodepools")
    lifecycle(workers[0], [bell], now=world.clock.now())
    (node,) = world.cluster.nodes()
    world.cluster.update("nodes", node.name, capacity=dict(node.capacity) | {"nvidia.com/gpu": 1})
    lifecycle(workers[1], [bell], now=world.clock.now())
    for _ in range(3):
        for worker in workers:
            lifecycle(worker, [bell], now=world.clock.now())
            assert pool(world).resources["nvidia.com/gpu"] == 1
    lists = reads_of_nodes(world)
    for worker in workers:
        lifecycle(worker, [bell], now=world.clock.now())
    assert reads_of_nodes(world) == lists


def test_a_claim_that_has_the_name_of_another_is_not_taken_for_it(world: World) -> None:
    deploy(world, 1)
    world.run(150)
    count(world)
    (claim,) = world.claims()
    about = msgspec.structs.replace(claim.metadata, uid="another")
    world.cluster.put("nodeclaims", msgspec.structs.replace(
        claim, metadata=about, provider_id="", node_name="", capacity={"cpu": 64_000}))  # fmt: skip
    count(world)
    assert pool(world).resources["cpu"] == 64_000


def test_what_a_node_that_was_made_anew_has_is_read_again_until_it_is_initialized(world: World) -> None:
    """Of its NodeClaim, which was launched for a GPU, that counts until then."""
    deploy(world, 1)
    world.run(150)
    (claim,), (node,) = world.claims(), world.cluster.nodes()
    world.cluster.update("nodeclaims", claim.name, capacity=dict(claim.capacity) | {"nvidia.com/gpu": 1})
    world.cluster.remove("nodes", node.name)
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=ObjectMeta(node.name)))
    another = of_another_process(world)
    for initialized in (False, True):
        if initialized:
            world.cluster.update("nodes", node.name, labels={labels.INITIALIZED: "true"})
        lifecycle(another, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())
        assert ("nvidia.com/gpu" in pool(world).resources) is not initialized


def test_a_large_cluster_is_counted_less_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodepools, "PAUSE_MS_PER_CLAIM", 10_000)
    world.run(1)
    world.deploy(ONE_EACH, 2)
    assert world.run(60, until=lambda: pool(world).node_count == 2)
    counted_at = world.clock.now()
    world.deploy(ONE_EACH, 3)
    assert world.run(60, until=lambda: pool(world).node_count == 3)
    assert 15 <= (world.clock.now() - counted_at).total_seconds() <= 30
    assert world.run(60, until=lambda: pool(world).resources["cpu"] == 3 * world.claims()[0].capacity["cpu"])


def test_the_pause_of_a_very_large_cluster_is_not_taken_for_the_note_of_a_wrong_clock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodepools, "PAUSE_MS_PER_CLAIM", 100_000)
    world.run(1)
    world.deploy(ONE_EACH, 1)
    assert world.run(60, until=lambda: pool(world).node_count == 1)
    until = epoch_ms(world.clock.now()) + actions.STATUS_SECONDS * 1000
    assert world.ports.state.throttle("nodepools", now=epoch_ms(world.clock.now()), until=until)


def test_where_nobody_rings_the_poll_counts(world: World) -> None:
    world.effects.inject(Fault("state", "throttle", Unavailable("no answer"), times=1_000))
    world.run(1)
    world.deploy(ONE_EACH, 1)
    assert world.run(130, until=lambda: pool(world).node_count == 1)
    assert len(world.running_pods()) == 1
    assert not world.failures, "no count failed for want of the next one"


def test_a_pool_of_a_class_of_another_kind_is_left_alone_and_not_rung_for(world: World) -> None:
    reference = NodeClassReference("karpenter.azure.com", "AKSNodeClass", "default")
    foreign = msgspec.structs.replace(builders.nodepool("foreign"), node_class_ref=reference, conditions=())
    world.cluster.put("nodepools", foreign)
    world.run(130)
    left = world.cluster.nodepool("foreign")
    assert left is not None
    assert (left.conditions, left.metadata.annotations) == ((), foreign.metadata.annotations)
    before = world.effects.reads["cluster", "nodes"]
    world.run(120)
    assert world.effects.reads["cluster", "nodes"] - before <= 2


@pytest.mark.parametrize("others", [False, True])
def test_nobody_evaluates_for_a_nodepool_whose_spec_did_not_change(world: World, others: bool) -> None:
    """Its class becomes ready or not by itself; and a condition of others may be about any generation."""
    deploy(world, 1)
    world.run(30)
    world.state.planners.clear()
    if others:
        stale = Condition("Others", "True", observed_generation=pool(world).metadata.generation - 1)
        world.cluster.update("nodepools", "default", conditions=(*pool(world).conditions, stale))
    else:
        world.cluster.update("ec2nodeclasses", "default", conditions=())
    lifecycle(world.ports, [Doorbell(world.cluster.name, "nodepools")], now=world.clock.now())
    ready = find_condition(pool(world).conditions, "Ready")
    assert ready is not None
    assert ready.status == ("True" if others else "False")
    assert "evaluations" not in world.state.planners
