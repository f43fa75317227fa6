"""Nodes and NodeClaims that lose each other, or whose provider id is wrong: nothing is lost with them."""

from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.nodes_and_claims import (
    MINUTES,
    current,
    is_deleted,
    move_pods,
    node_of,
    running_claim,
    second_node,
    unclaimed_node,
)


def test_a_deleted_node_whose_doorbell_was_lost_goes_with_its_claim_and_instance(world: World) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    world.cluster.delete_node(node_of(world, claim))
    world.forget_changes()
    assert world.run(12 * MINUTES, until=lambda: not world.claims())
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()
    assert world.effects.select("cluster", "evict")


def test_a_deleted_node_ends_its_claim_though_neither_names_the_other(world: World) -> None:
    """The claim has no label of its instance, and somebody took the owner off the Node."""
    claim = running_claim(world)
    kept = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    metadata = msgspec.structs.replace(current(world, claim).metadata, labels=kept)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current(world, claim), metadata=metadata))
    node = node_of(world, claim)
    metadata = msgspec.structs.replace(node.metadata, owner_references=())
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=metadata))
    world.cluster.delete_node(node_of(world, claim))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", node.name)], now=world.clock.now())
    assert current(world, claim).metadata.deletion_timestamp is not None


def test_a_claim_whose_node_is_gone_with_its_finalizer_goes_and_its_pod_runs_elsewhere(world: World) -> None:
    """Somebody took the finalizer off; the instance runs on, and its kubelet does not make the Node anew."""
    claim = running_claim(world)
    world.cluster.remove("nodes", claim.node_name)
    assert world.run(11 * MINUTES, until=lambda: len(world.running_pods()) == 1)
    world.run(MINUTES)
    assert claim.name not in {each.name for each in world.claims()}
    assert instance_id(claim.provider_id) not in {instance.id for instance in world.ec2.live_instances()}


def test_a_node_that_cannot_be_read_is_not_gone(world: World) -> None:
    """Nobody knows which instance it has; its pods run on."""
    claim = running_claim(world)
    node = node_of(world, claim)
    world.cluster.put("nodes", Node(node.metadata, read_error="status.capacity: x is no quantity"))
    world.run(21 * MINUTES)
    assert not is_deleted(world, claim)
    assert instance_id(claim.provider_id) in {instance.id for instance in world.ec2.live_instances()}


def test_a_claim_whose_node_is_gone_stays_while_another_node_has_its_instance(world: World) -> None:
    """Its kubelet registered under another name, and the Node of the first one was removed."""
    claim = running_claim(world)
    world.forget_deployments()
    move_pods(world, second_node(world, claim, "zz-second"))
    world.run(MINUTES)
    world.cluster.remove("nodes", claim.node_name)
    world.run(21 * MINUTES)
    assert not is_deleted(world, claim)
    assert [pod.node_name for pod in world.running_pods()] == ["zz-second"]


def test_a_claim_whose_kubelet_registered_under_another_name_later_stays(world: World) -> None:
    """The claim does not know that name."""
    claim = running_claim(world)
    world.forget_deployments()
    first = node_of(world, claim)
    (pod,) = world.running_pods()
    world.cluster.remove("nodes", first.name)
    world.cluster.put("nodes", msgspec.structs.replace(first, metadata=ObjectMeta("renamed")))
    world.cluster.put("pods", msgspec.structs.replace(pod, node_name="renamed"))
    world.run(21 * MINUTES)
    assert not is_deleted(world, claim)
    assert instance_id(claim.provider_id) in {instance.id for instance in world.ec2.live_instances()}


def test_a_node_that_goes_while_it_is_registered_takes_its_claim_along(world: World) -> None:
    usual = world.cluster.set_taints

    def vanishes(node: Node, *arguments: Any, **more: Any) -> Any:
        world.cluster.remove("nodes", node.name)
        world.cluster.set_taints = usual  # type: ignore[method-assign]
        raise Conflict("nodes has been modified", code="Conflict")

    world.cluster.set_taints = vanishes  # type: ignore[method-assign]
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: any(claim.is_condition_true("Registered") for claim in world.claims()))
    (claim,) = world.claims()
    assert world.run(11 * MINUTES, until=lambda: len(world.running_pods()) == 1)
    assert claim.name not in {each.name for each in world.claims() if each.metadata.deletion_timestamp is None}


def test_a_node_that_somebody_tainted_as_disrupted_takes_pods_again_a_minute_later(world: World) -> None:
    """The forwarder does not ring for that taint; the poll finds it in the cluster state."""
    world.cluster_state.lag_seconds = 10.0
    claim = running_claim(world)
    world.run(80 - world.clock.now().second)
    node = node_of(world, claim)
    world.cluster.put("nodes", msgspec.structs.replace(node, taints=(*node.taints, DISRUPTED_TAINT)))
    world.forget_changes()
    assert world.run(MINUTES + 5, until=lambda: DISRUPTED_TAINT not in node_of(world, claim).taints)


def with_provider_id(world: World, provider_id: str) -> NodeClaim:
    """A claim of which somebody wrote that it is Initialized, without a node of that provider id."""
    metadata = ObjectMeta(
        "written",
        labels={labels.NODEPOOL: "default"},
        finalizers=(labels.FINALIZER,),
        creation_timestamp=world.clock.now(),
    )
    ready = tuple(Condition(kind, "True", kind) for kind in ("Launched", "Registered", "Initialized", "Ready"))
    reference = builders.nodepool().node_class_ref
    stored: NodeClaim = world.cluster.put(
        "nodeclaims", NodeClaim(metadata, reference, provider_id=provider_id, conditions=ready)
    )
    return stored


def test_a_claim_whose_instance_never_was_goes_whoever_wrote_its_provider_id(world: World) -> None:
    """Karpenter takes the last part of a provider id, whatever stands before it."""
    with_provider_id(world, "Provider:///AZ/i-01234567890123456")
    assert world.run(5 * MINUTES, until=lambda: not world.claims())


@pytest.mark.parametrize("provider_id", ["somewhere", "aws:///us-east-1a/mi-0123", "aws:///us-east-1a/i-", "i-"])
def test_a_deleted_claim_whose_provider_id_names_no_instance_goes(world: World, provider_id: str) -> None:
    claim = with_provider_id(world, provider_id)
    world.run(5 * MINUTES)
    assert current(world, claim).metadata.deletion_timestamp is None
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(2 * MINUTES, until=lambda: not world.claims())


def test_a_provider_id_that_was_overwritten_does_not_keep_the_instance(world: World) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current(world, claim), provider_id="somewhere"))
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(5 * MINUTES, until=lambda: not world.claims())
    assert not world.ec2.live_instances()


def test_a_node_that_its_claim_and_its_instance_left_behind_goes(world: World) -> None:
    claim = unclaimed_node(world)
    world.forget_deployments()
    world.ec2.forget_instance(instance_id(claim.provider_id))
    assert world.run(2 * MINUTES, until=lambda: not world.cluster.nodes())
