"""Karpenter begins to run in a cluster of ours: nothing is launched twice, and what it made is not touched."""

from collections.abc import Callable

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.sweep.full import full_sweep

KARPENTER = "Deployment karpenter/karpenter"
THEIRS = "default-x7k2p"


def claim_of_karpenter(world: World) -> NodeClaim:
    """As Karpenter makes them: no launch of ours, and the finalizer that both have. It waits for its instance."""
    metadata = ObjectMeta(THEIRS, labels={labels.NODEPOOL: "default"}, finalizers=(labels.FINALIZER,))
    claim: NodeClaim = world.cluster.put("nodeclaims", NodeClaim(metadata, builders.nodepool().node_class_ref))
    return claim


def node_of_karpenter(world: World) -> NodeClaim:
    """A node with a pod, whose claim and instance carry no launch of ours."""
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    world.run(5)
    (claim,) = world.claims()
    annotations = {key: value for key, value in claim.metadata.annotations.items() if key != labels.LAUNCH}
    metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata))
    (instance,) = world.ec2.live_instances()
    tags = {key: value for key, value in instance.tags.items() if key != labels.LAUNCH_TAG}
    world.ec2.instances[instance.id] = msgspec.structs.replace(instance, tags=tags)
    world.ec2.requests.clear()
    return claim


def running(world: World) -> set[str]:
    return {instance.id for instance in world.ec2.live_instances()}


def test_while_karpenter_runs_nothing_is_launched_or_disrupted_and_it_goes_on_after_that(world: World) -> None:
    world.deploy(builders.pod("web", cpu_millicores=1800), 2)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    world.cluster.karpenter = KARPENTER
    world.run(60)
    nodes = running(world)
    world.deploy(builders.pod("more", cpu_millicores=1800), 3)
    world.deploy(builders.pod("web", cpu_millicores=1800), 0)
    world.run(900)
    assert running(world) == nodes
    (said,) = {event.message for event in world.cluster.events if event.reason == "OtherProvisioner"}
    assert said.startswith(f"{KARPENTER} manages the NodePools, too")
    world.cluster.karpenter = ""
    assert world.run(180, until=lambda: len(world.running_pods()) == 3)
    assert world.state.cluster().other_provisioner == ""


def test_a_claim_that_it_made_just_now_gets_no_second_instance(world: World) -> None:
    """The sweep has not seen it yet: before a launch it is asked anew."""
    world.run(5)
    world.cluster.karpenter = KARPENTER
    claim_of_karpenter(world)
    world.run(30)
    assert world.ec2.requests == []
    assert world.state.cluster().other_provisioner == KARPENTER


def test_when_it_has_gone_its_claims_are_taken_over(world: World) -> None:
    world.cluster.karpenter = KARPENTER
    claim_of_karpenter(world)
    world.run(90)
    assert world.ec2.requests == []
    world.cluster.karpenter = ""
    assert world.run(120, until=lambda: bool(world.claims()[0].provider_id))


@pytest.mark.parametrize("noticed", [True, False])
def test_a_deleted_claim_is_drained_and_terminated_by_who_made_it(world: World, noticed: bool) -> None:
    claim = node_of_karpenter(world)
    world.cluster.karpenter = KARPENTER
    world.run(65 if noticed else 0)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(300)
    assert len(running(world)) == len(world.running_pods()) == 1
    assert [left.name for left in world.claims()] == [claim.name]
    world.cluster.karpenter = ""
    world.deploy(builders.pod("web", cpu_millicores=1800), 0)
    assert world.run(180, until=lambda: not world.claims())
    assert running(world) == set()


def lost_instance(world: World, id: str) -> None:
    world.ec2.instances.pop(id)


def stopped_instance(world: World, id: str) -> None:
    world.ec2.stop(id, after_seconds=0)


def interrupted_instance(world: World, id: str) -> None:
    world.interrupt_spot(id)


@pytest.mark.parametrize("trouble", [lost_instance, stopped_instance, interrupted_instance])
def test_what_happens_to_its_instances_is_its_own_affair(world: World, trouble: Callable[[World, str], None]) -> None:
    node_of_karpenter(world)
    world.cluster.karpenter = KARPENTER
    world.run(65)
    (id,) = running(world)
    trouble(world, id)
    world.run(900)
    (claim,) = world.claims()
    assert claim.metadata.deletion_timestamp is None
    assert world.ec2.requests == []


def test_a_warning_for_its_instance_that_comes_before_its_claims_are_taken_over_is_not_lost(world: World) -> None:
    """Karpenter names the NodeClaim in the tags of its instance, and its instance in no label of the NodeClaim."""
    claim = node_of_karpenter(world)
    world.cluster.karpenter = KARPENTER
    world.run(65)
    (before,) = world.claims()
    own = {key: value for key, value in before.metadata.labels.items() if key != labels.INSTANCE_ID}
    metadata = msgspec.structs.replace(before.metadata, labels=own)
    world.cluster.put("nodeclaims", msgspec.structs.replace(before, metadata=metadata))
    (instance,) = world.ec2.live_instances()
    assert instance.tags[labels.NODECLAIM] == claim.name
    world.cluster.karpenter = ""
    world.interrupt_spot(instance.id)
    assert world.run(100, until=lambda: bool(world.effects.select("cluster", "evict")))
    assert len(world.ec2.requests) == 1


def test_its_instances_without_a_claim_are_no_orphans_until_it_has_gone(world: World) -> None:
    """Karpenter names an instance in its claim only after EC2 has launched it."""
    claim = node_of_karpenter(world)
    world.forget_deployments()
    world.cluster.karpenter = KARPENTER
    (id,) = running(world)
    world.cluster.remove("nodeclaims", claim.name)
    world.run(1300)
    assert full_sweep(world.ports, now=world.clock.now()).orphans == 0
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert running(world) == {id}
    world.cluster.karpenter = ""
    assert world.run(1300, until=lambda: running(world) == set())


def test_a_second_node_of_its_claim_is_said_and_its_claim_is_not_written(world: World) -> None:
    claim = node_of_karpenter(world)
    world.cluster.karpenter = KARPENTER
    world.run(60)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=ObjectMeta("second")))
    before = world.cluster.nodeclaim(claim.name)
    world.run(5)
    assert "DuplicateNodes" in {event.reason for event in world.cluster.events}
    assert world.cluster.nodeclaim(claim.name) == before


def test_claims_of_ours_go_on(world: World) -> None:
    """What was launched joins, and a claim that a user deletes is drained and goes."""
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: bool(world.ec2.requests))
    world.cluster.karpenter = KARPENTER
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    world.run(60)
    (claim,) = world.claims()
    world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(180, until=lambda: not world.claims())
    assert running(world) == set()
