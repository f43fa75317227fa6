"""A claim whose instance is gone ends within minutes, also when EC2's message about the instance was lost."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import format_time
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell

MINUTES = 60


def running_claim(world: World) -> NodeClaim:
    """The claim of a node that runs a pod, which a ReplicaSet replaces."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (claim,) = world.claims()
    return claim


def terminate(world: World, claim: NodeClaim) -> None:
    """Somebody terminates the instance; EventBridge's message about it never arrives."""
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)


def forget(world: World, claim: NodeClaim) -> None:
    """EC2 does not know the id any more."""
    world.ec2.forget_instance(instance_id(claim.provider_id))


def stop(world: World, claim: NodeClaim) -> None:
    """Somebody stops the instance, whose kubelet falls silent."""
    instance = world.ec2.instances[instance_id(claim.provider_id)]
    world.ec2.instances[instance.id] = msgspec.structs.replace(instance, state="stopped")


def look(world: World, claim: NodeClaim) -> None:
    """Compare the claim with its instance."""
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim-instance", claim.name)], now=world.clock.now())


def has_ended(world: World, claim: NodeClaim) -> bool:
    """The claim is gone, and its pod runs on another node."""
    return claim.name not in {each.name for each in world.claims()} and len(world.running_pods()) == 1


@pytest.mark.parametrize("lose", [terminate, forget, stop])
def test_a_lost_instance_ends_its_claim_and_its_pods_run_elsewhere(
    world: World, lose: Callable[[World, NodeClaim], None]
) -> None:
    claim = running_claim(world)
    lose(world, claim)
    assert world.run(6 * MINUTES, until=lambda: has_ended(world, claim))
    assert world.cluster.node(claim.node_name) is None


def test_an_instance_that_dies_before_its_node_joins_ends_its_claim(world: World) -> None:
    world.kubelets.boot_seconds = 3600
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: any(claim.provider_id for claim in world.claims()))
    (claim,) = world.claims()
    terminate(world, claim)
    world.kubelets.boot_seconds = 20
    assert world.run(5 * MINUTES, until=lambda: has_ended(world, claim)), "long before 15 minutes without registration"


def test_an_instance_that_ec2_does_not_find_for_a_moment_keeps_its_claim(world: World) -> None:
    """Not found, found running, and an hour later not found: that is not twice in a row."""
    claim = running_claim(world)
    world.kubelets.broken_instances.add(instance_id(claim.provider_id))
    usual = world.ec2.instance

    def is_noticed() -> bool:
        (current,) = world.claims()
        return labels.INSTANCE_NOT_FOUND in current.metadata.annotations

    for _ in range(2):
        world.ec2.instance = lambda instance_id: None  # type: ignore[method-assign]
        world.ec2.listed_ids = frozenset()
        assert world.run(150, until=is_noticed)
        world.ec2.instance, world.ec2.listed_ids = usual, None  # type: ignore[method-assign]
        world.run(60 * MINUTES)
        (after,) = world.claims()
        assert (after.name, after.metadata.deletion_timestamp) == (claim.name, None)
        assert not is_noticed()


def test_a_ready_node_keeps_a_claim_whose_instance_ec2_does_not_find(world: World) -> None:
    claim = running_claim(world)
    world.ec2.instance = lambda instance_id: None  # type: ignore[method-assign]
    world.ec2.listed_ids = frozenset()
    world.run(10 * MINUTES)
    assert [each.metadata.deletion_timestamp for each in world.claims()] == [None]
    assert claim.name in {each.name for each in world.claims()}


@pytest.mark.parametrize("minutes", [-60, 60], ids=["in the past", "of a clock that was fast"])
def test_a_read_of_an_hour_ago_is_not_the_first_of_two_in_a_row(world: World, minutes: int) -> None:
    """The node was Ready at that time, and nobody read its instance again when EC2 found it."""
    claim = running_claim(world)
    long_ago = format_time(world.clock.now() + timedelta(minutes=minutes))
    world.cluster.update("nodeclaims", claim.name, annotations={labels.INSTANCE_NOT_FOUND: long_ago})
    world.kubelets.broken_instances.add(instance_id(claim.provider_id))
    world.run(10)
    usual = world.ec2.instance
    world.ec2.instance = lambda instance_id: None  # type: ignore[method-assign]
    look(world, claim)
    (now,) = world.claims()
    assert now.metadata.deletion_timestamp is None
    assert now.metadata.annotations[labels.INSTANCE_NOT_FOUND] == format_time(world.clock.now())
    world.clock.advance(61)
    world.ec2.instance = usual  # type: ignore[method-assign]
    look(world, claim)
    (after,) = world.claims()
    assert (after.name, after.metadata.deletion_timestamp) == (claim.name, None)
    assert labels.INSTANCE_NOT_FOUND not in after.metadata.annotations


def test_while_ec2_does_not_answer_no_claim_goes(world: World) -> None:
    claim = running_claim(world)
    world.outages["ec2"] = Unavailable("no answer")
    world.run(10 * MINUTES)
    assert {each.name for each in world.claims()} == {claim.name}
    assert world.claims()[0].metadata.deletion_timestamp is None


def test_what_a_list_leaves_out_is_read_before_anything_is_concluded(world: World) -> None:
    claim = running_claim(world)
    world.ec2.listed_ids = frozenset()
    world.run(10 * MINUTES)
    assert [each.name for each in world.claims() if each.metadata.deletion_timestamp is None] == [claim.name]
    assert labels.INSTANCE_NOT_FOUND not in world.claims()[0].metadata.annotations
