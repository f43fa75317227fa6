"""Launches that our own filters refuse: what the planner decides can be bought, and what cannot is not made every
few seconds."""

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.lifecycle.launch.fleet_response import CLASS_SECONDS
from spotwright.workflows.ports.doorbells import Doorbell
from tests.real_forwarder import RealForwarder

FUSE = "example.com/fuse"


def made(world: World) -> set[str]:
    """Every NodeClaim that there was."""
    return {event.name for event in world.cluster.events if event.kind == "nodeclaims"}


def families(least: int) -> World:
    """Eighty types: forty-one of one family, the cheapest, and one of each of the others."""
    names = [f"m5.{number}xlarge" if number <= 40 else f"m{number}.large" for number in range(80)]
    types = [
        builders.instance_type(name, 2, 8, on_demand=0.1 + place / 1000, spot=0.04 + place / 1000)
        for place, name in enumerate(names)
    ]
    world = World(Catalog({"": tuple(types)}), forwarder=RealForwarder)
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    wanted = NodeSelectorRequirement(labels.INSTANCE_PREFIX + "family", "Exists", (), least)
    world.cluster.put("nodepools", builders.nodepool(requirements=(wanted,)))
    return world


def test_types_that_min_values_needs_are_asked_for_before_cheaper_ones() -> None:
    world = families(25)
    world.deploy(builders.pod("a"), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (request,) = world.ec2.requests
    asked = {one["InstanceType"] for config in request["LaunchTemplateConfigs"] for one in config["Overrides"]}
    assert len(asked) == 60
    assert len({name.partition(".")[0] for name in asked}) >= 25
    assert "m5.0xlarge" in asked


def test_what_an_overlay_adds_to_a_type_can_be_launched_for(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, feature_gates=("NodeOverlay", "ReservedCapacity"))
    world.cluster.put("nodeoverlays", NodeOverlay(ObjectMeta("fuse"), (), capacity={FUSE: 5}))
    pod = builders.pod("fuse")
    world.deploy(msgspec.structs.replace(pod, requests=dict(pod.requests) | {FUSE: 1}), 1)
    world.run(60)
    (claim,) = world.claims()
    assert len(world.ec2.live_instances()) == 1
    assert claim.allocatable[FUSE] == 5


def test_nothing_is_planned_for_a_class_that_is_being_deleted(world: World) -> None:
    about = msgspec.structs.replace(builders.nodeclass().metadata, deletion_timestamp=world.clock.now())
    world.cluster.put("ec2nodeclasses", builders.nodeclass(metadata=about))
    world.deploy(builders.pod("a"), 1)
    world.run(100)
    assert not made(world)


def test_what_would_be_refused_again_waits_and_says_why() -> None:
    """Sixty types cannot have more than sixty families, which no plan knows of."""
    world = families(35)
    least = NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 65)
    world.cluster.put("nodepools", builders.nodepool(requirements=(least,)))
    world.deploy(builders.pod("a"), 1)
    world.run(280)
    (claim,) = world.claims()
    assert made(world) == {claim.name}
    assert not world.ec2.requests
    launched = find_condition(claim.conditions, "Launched")
    assert launched is not None
    assert (launched.status, launched.reason) == ("Unknown", "InsufficientCapacity")
    said = [event.message for event in world.cluster.events if event.reason == "InsufficientCapacityError"]
    assert said
    assert "minValues of node.kubernetes.io/instance-type cannot be met with 60 types" in said[0]
    assert world.run(400, until=lambda: claim.name not in {nodeclaim.name for nodeclaim in world.claims()})
    assert len(made(world)) <= 3


def test_a_launch_follows_soon_when_its_class_is_resolved(world: World) -> None:
    """A class whose instance profile EC2 does not know yet takes some seconds; no pod waits for a claim of a user."""
    ready = builders.nodeclass()
    world.cluster.put("ec2nodeclasses", msgspec.structs.replace(ready, conditions=()))
    requirements = (NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("c5.large",)),)
    claim = NodeClaim(
        ObjectMeta("mine"),
        node_class_ref=NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", ready.name),
        requirements=requirements,
    )
    world.cluster.put("nodeclaims", claim)
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", "mine")])
    world.run(23)
    assert not world.ec2.requests
    world.cluster.put("ec2nodeclasses", ready)
    assert world.run(CLASS_SECONDS + 1, until=lambda: bool(world.ec2.live_instances()))


def test_why_a_launch_was_refused_is_still_said_where_the_api_server_fails_meanwhile(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = msgspec.structs.replace(
        builders.nodeclass(),
        conditions=(Condition("Ready", "False", "SubnetsNotReady", "no subnet", observed_generation=1),),
    )
    world.cluster.put("ec2nodeclasses", refused)
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", refused.name)
    world.cluster.put("nodeclaims", NodeClaim(ObjectMeta("mine"), node_class_ref=reference))
    world.effects.inject(Fault("cluster", "delete", Unavailable("no answer", code="Unavailable")))
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", "mine")])
    with caplog.at_level("WARNING", "spotwright"):
        assert world.run(60, until=lambda: not world.claims())
    errors = [
        vars(record)["error"]
        for record in caplog.records
        if record.message == log_lines.FAILED_LAUNCHING_NODECLAIM.message
    ]
    assert len(errors) == 2
    assert all(error.startswith("NodeClassNotReady: ") for error in errors)
