"""Nodes and instances without a NodeClaim: drained first, terminated only if they are ours and nobody's."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.nodes_and_claims import (
    MINUTES,
    current,
    node_of,
    running_claim,
    unclaimed_node,
)


def test_a_node_without_a_claim_is_drained_before_it_goes(world: World) -> None:
    claim = unclaimed_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.cluster.delete_node(node_of(world, claim))
    world.run(15 * MINUTES)
    assert [pod.node_name for pod in world.running_pods()] == [claim.node_name], "its budget allows no eviction"
    assert instance_id(claim.provider_id) in {instance.id for instance in world.ec2.live_instances()}
    world.cluster.remove("poddisruptionbudgets", "default/keep")
    assert world.run(3 * MINUTES, until=lambda: world.cluster.node(claim.node_name) is None)
    assert instance_id(claim.provider_id) not in {instance.id for instance in world.ec2.live_instances()}
    evicted = world.effects.select("cluster", "evict")[-1]
    assert evicted.number < world.effects.select("ec2", "terminate")[-1].number


def test_a_node_that_is_drained_keeps_its_instance_whatever_its_name(world: World) -> None:
    """An AMI may name nodes otherwise than EC2 names their instances."""
    claim = unclaimed_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.cluster.delete_node(node_of(world, claim))
    world.run(15 * MINUTES)
    id = instance_id(claim.provider_id)
    world.ec2.instances[id] = msgspec.structs.replace(world.ec2.instances[id], private_dns_name="another-name")
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert id in {instance.id for instance in world.ec2.live_instances()}
    assert claim.node_name in {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "node")}


def test_a_node_without_a_claim_whose_instance_is_not_ours_is_drained_and_let_go(world: World) -> None:
    claim = unclaimed_node(world)
    world.forget_deployments()
    instance = world.ec2.instances[instance_id(claim.provider_id)]
    world.ec2.instances[instance.id] = msgspec.structs.replace(instance, tags={})
    world.cluster.delete_node(node_of(world, claim))
    assert world.run(3 * MINUTES, until=lambda: world.cluster.node(claim.node_name) is None)
    assert world.effects.select("cluster", "evict")
    assert not world.effects.select("ec2", "terminate")


def step_node(world: World, claim: NodeClaim) -> None:
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", claim.node_name)], now=world.clock.now())


def test_a_ready_node_without_a_claim_stays_when_ec2_only_does_not_find_its_instance(world: World) -> None:
    claim = unclaimed_node(world)
    del world.ec2.instances[instance_id(claim.provider_id)]
    for since in (timedelta(hours=1), timedelta(0)):
        ready = (Condition("Ready", "True", last_transition_time=world.clock.now() - since),)
        node = msgspec.structs.replace(node_of(world, claim), conditions=ready)
        world.cluster.put("nodes", node)
        step_node(world, claim)
        assert world.cluster.node(claim.node_name) is not None


@pytest.mark.parametrize(("seconds", "goes"), [(59, False), (60, True)])
def test_a_node_without_claim_and_instance_goes_when_its_kubelet_was_silent_for_a_minute(
    world: World, seconds: int, goes: bool
) -> None:
    claim = unclaimed_node(world)
    del world.ec2.instances[instance_id(claim.provider_id)]
    since = world.clock.now() - timedelta(seconds=seconds)
    silent = (Condition("Ready", "Unknown", last_transition_time=since),)
    world.cluster.put("nodes", msgspec.structs.replace(node_of(world, claim), conditions=silent))
    step_node(world, claim)
    assert (world.cluster.node(claim.node_name) is None) == goes


def test_a_node_without_claim_and_instance_goes_though_the_function_dies_when_it_has_let_it_go(world: World) -> None:
    """Without Spotwright's finalizer, and not deleted, it would be nobody's."""
    claim = unclaimed_node(world)
    id = instance_id(claim.provider_id)
    world.ec2.instances[id] = msgspec.structs.replace(world.ec2.instances[id], state="terminated")
    world.effects.crash_at("cluster", "set_taints")
    with pytest.raises(Crash):
        step_node(world, claim)
    assert world.cluster.node(claim.node_name) is None


def test_while_karpenter_runs_a_node_without_a_claim_is_left_to_it(world: World) -> None:
    """The sweep has not seen it yet."""
    claim = unclaimed_node(world)
    world.ec2.instances[instance_id(claim.provider_id)] = msgspec.structs.replace(
        world.ec2.instances[instance_id(claim.provider_id)], state="terminated"
    )
    world.cluster.karpenter = "Deployment karpenter/karpenter"
    step_node(world, claim)
    assert world.cluster.node(claim.node_name) is not None
    world.cluster.karpenter = ""
    world.state.set_other_provisioner("")
    step_node(world, claim)
    assert world.cluster.node(claim.node_name) is None


def test_an_instance_whose_claim_lacks_its_label_is_no_orphan(world: World) -> None:
    claim = running_claim(world)
    kept = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    metadata = msgspec.structs.replace(current(world, claim).metadata, labels=kept)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current(world, claim), metadata=metadata))
    id = instance_id(claim.provider_id)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert id in {instance.id for instance in world.ec2.live_instances()}


def test_an_instance_that_is_being_written_to_its_claim_is_no_orphan(world: World) -> None:
    """Its label is there, its provider id is not yet, and its launch row is lost."""
    claim = running_claim(world)
    world.cluster.update("nodeclaims", claim.name, provider_id="")
    world.state.rows.clear()
    id = instance_id(claim.provider_id)
    world.clock.advance(3600)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert id in {instance.id for instance in world.ec2.live_instances()}


@pytest.mark.parametrize(("seconds", "stays"), [(10, True), (61, False)])
def test_an_instance_that_was_just_launched_is_no_orphan_yet(world: World, seconds: int, stays: bool) -> None:
    """A claim or a row that names it may be written in this moment."""
    claim = unclaimed_node(world)
    world.forget_deployments()
    world.cluster.remove("nodes", claim.node_name)
    id = instance_id(claim.provider_id)
    launched = world.clock.now() - timedelta(seconds=seconds)
    world.ec2.instances[id] = msgspec.structs.replace(world.ec2.instances[id], launch_time=launched)
    for row in world.state.launches():
        assert id not in row.instances.values()
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert (id in {instance.id for instance in world.ec2.live_instances()}) == stays
