"""The first and the last step of a termination take the Node from the API server's cache, which may be behind."""

import pytest

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.node import NodeWithVolumes, instance_id
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import step_doorbells
from tests.scenarios.lifecycle.termination.drained_claims import STATE
from tests.scenarios.lifecycle.termination.running_nodes import delete, gone, running_node

OTHERS = Taint("another.example.com/taint", TaintEffect.NO_SCHEDULE)


class Behind:
    """The cache shows each Node as it was when this was made, so many times; whether reads of it may be behind."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self._usual, self._left = world.cluster.node_with_volumes, times
        self._old = {node.name: self._usual(node.name) for node in world.cluster.nodes()}
        self.reads: list[bool] = []
        monkeypatch.setattr(world.cluster, "node_with_volumes", self)

    def __call__(self, name: str, *, cached: bool = False) -> NodeWithVolumes | None:
        self.reads.append(cached)
        if cached and self._left:
            self._left -= 1
            return self._old[name]
        return self._usual(name)


def hear_of_the_end(world: World, claim: NodeClaim) -> None:
    """What EC2 tells of the claim's instance when it has terminated it."""
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    while any(instance.state != "terminated" for instance in world.ec2.all_instances()):
        world.pass_second()
    world.doorbells.messages.clear()
    world.deliver_event(STATE, {"instance-id": instance_id(claim.provider_id), "state": "terminated"})
    assert step_doorbells(world.ports, world.doorbells.receive("notices"), now=world.clock.now()) == {}


def test_only_the_first_and_the_last_step_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = running_node(world)
    world.run(10)
    cache = Behind(world, monkeypatch, 0)
    delete(world, claim)
    hear_of_the_end(world, claim)
    assert gone(world, claim)
    first, *between, last = cache.reads
    assert (first, last) == (True, True)
    assert between
    assert not any(between)


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_that_others_write_meanwhile_is_drained_and_goes(
    world: World, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    claim = running_node(world)
    world.run(10)
    Behind(world, monkeypatch, times)
    (node,) = world.cluster.nodes()
    world.cluster.set_taints(node, (*node.taints, OTHERS))
    delete(world, claim)
    assert world.run(60, until=lambda: not world.running_pods())
    (node,) = world.cluster.nodes()
    assert {OTHERS, DISRUPTED_TAINT} <= set(node.taints)
    assert world.run(120, until=lambda: gone(world, claim))
    assert not world.cluster.nodes()
    assert not world.failures


def test_a_finalizer_that_the_cache_does_not_know_keeps_the_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = running_node(world)
    world.run(10)
    cache = Behind(world, monkeypatch, 2)
    (node,) = world.cluster.nodes()
    world.cluster.set_taints(node, node.taints, metadata={"finalizers": [*node.metadata.finalizers, OTHERS.key]})
    delete(world, claim)
    hear_of_the_end(world, claim)
    assert cache.reads[-1]
    world.run(30)
    (node,) = world.cluster.nodes()
    assert node.metadata.finalizers == (OTHERS.key,)
    assert node.metadata.deletion_timestamp is not None
    world.cluster.set_taints(node, node.taints, metadata={"finalizers": []})
    assert world.run(120, until=lambda: gone(world, claim))
    assert not world.failures
