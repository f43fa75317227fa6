"""NodeOverlays in a cluster: they count only with their gate on, say whether they do, and EC2 follows their prices."""

import json

import msgspec

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta, find_condition
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell

DEAR_SPOT = NodeOverlay(
    ObjectMeta("dear-spot"),
    (NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,)),),
    price_adjustment="+1000%",
)


def gated(world: World) -> World:
    world.settings = msgspec.structs.replace(world.settings, feature_gates=("NodeOverlay", "ReservedCapacity"))
    return world


def bought(world: World) -> str:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    (claim,) = world.claims()
    return claim.metadata.labels[labels.CAPACITY_TYPE]


def test_without_the_gate_an_overlay_changes_nothing(world: World) -> None:
    world.cluster.put("nodeoverlays", DEAR_SPOT)
    assert bought(world) == labels.SPOT


def test_a_node_is_bought_at_the_prices_that_an_overlay_states(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", DEAR_SPOT)
    assert bought(world) == labels.ON_DEMAND
    (claim,) = world.claims()
    assert claim.metadata.annotations[labels.PRICE_OVERLAY_APPLIED] == "true"
    row = world.state.launch(claim.metadata.annotations[labels.LAUNCH])
    assert row is not None
    assert json.loads(row.request)["OnDemandOptions"] == {"AllocationStrategy": "prioritized"}


FUSE = "example.com/fuse"
ZONE = builders.ZONES[1]
FUSED = NodeOverlay(ObjectMeta("fused"), (NodeSelectorRequirement(labels.ZONE, "In", (ZONE,)),), capacity={FUSE: 3})


def asked_for(world: World) -> set[str]:
    """Zones that CreateFleet was asked for."""
    (request,) = world.ec2.requests
    return {one["AvailabilityZone"] for config in request["LaunchTemplateConfigs"] for one in config["Overrides"]}


def fuse(name: str) -> Pod:
    pod = builders.pod(name)
    return msgspec.structs.replace(pod, requests=dict(pod.requests) | {FUSE: 2})


def test_what_an_overlay_adds_in_a_zone_is_bought_there(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", FUSED)
    world.deploy(fuse("fuse"), 1)
    assert world.run(60, until=lambda: any(nodeclaim.allocatable for nodeclaim in world.claims()))
    (claim,) = world.claims()
    assert asked_for(world) == {ZONE}
    assert (claim.capacity[FUSE], claim.allocatable[FUSE]) == (3, 3)
    assert claim.metadata.annotations[labels.CAPACITY_OVERLAY_APPLIED] == "true"


def test_who_does_not_need_it_is_bought_for_anywhere_and_a_claim_says_what_its_offering_has(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", FUSED)
    world.deploy(builders.pod("plain"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    (claim,) = world.claims()
    assert asked_for(world) == set(builders.ZONES)
    assert (FUSE in claim.capacity) is (claim.metadata.labels[labels.ZONE] == ZONE)


def test_nobody_is_bought_for_in_another_zone_when_that_one_is_empty(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", FUSED)
    world.ec2.capacity["*", "*", ZONE] = 0
    world.deploy(fuse("fuse"), 1)
    world.run(120)
    assert not world.ec2.live_instances()


def test_a_claim_whose_launch_was_lost_is_bought_with_what_the_overlay_adds(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", FUSED)
    about = ObjectMeta(
        "lost", labels={labels.NODEPOOL: "default"}, annotations={labels.CAPACITY_OVERLAY_APPLIED: "true"}
    )
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    world.cluster.put("nodeclaims", NodeClaim(about, reference, requests={"cpu": 1000, FUSE: 1}))
    assert world.run(60, until=lambda: any(nodeclaim.allocatable for nodeclaim in world.claims()))
    assert asked_for(world) == {ZONE}
    assert world.claims()[0].allocatable[FUSE] == 3


def test_an_overlay_says_whether_it_counts(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", DEAR_SPOT)
    world.cluster.put("nodeoverlays", NodeOverlay(ObjectMeta("free"), price="nothing"))
    world.cluster.put("nodeoverlays", msgspec.structs.replace(DEAR_SPOT, metadata=ObjectMeta("a-rival")))
    lifecycle(world, [Doorbell(builders.CLUSTER, "nodepools")], now=world.clock.now())
    told = {
        overlay.name: find_condition(overlay.conditions, "ValidationSucceeded")
        for overlay in world.cluster.nodeoverlays()
    }
    shown = {name: (condition.status, condition.reason) for name, condition in told.items() if condition is not None}
    assert shown == {
        "dear-spot": ("True", "ValidationSucceeded"),
        "free": ("False", "RuntimeValidation"),
        "a-rival": ("False", "Conflict"),
    }
    assert {event.reason for event in world.cluster.events if event.kind == "nodeoverlays"} >= {"RuntimeValidation"}


def test_an_overlay_whose_doorbell_is_lost_is_seen_within_a_minute_and_rung_for_once(world: World) -> None:
    gated(world)
    world.run(60)
    world.cluster.put("nodeoverlays", DEAR_SPOT)
    world.forget_changes()

    def is_said() -> bool:
        (overlay,) = world.cluster.nodeoverlays()
        return any(condition.type == "Ready" for condition in overlay.conditions)

    assert world.run(61, until=is_said)
    begun = len(world.effects.log)
    world.run(150)
    rung = [effect for effect in world.effects.log[begun:] if effect.subject == "lifecycle/nodepools:"]
    assert not rung


def test_overlays_are_read_by_the_poll_of_each_minute_alone(world: World) -> None:
    """While no forwarder is there, others come every ten seconds."""
    gated(world)
    reads = []
    for world.forwarder_runs in (True, False):
        world.run(60)
        before = world.effects.reads["cluster", "nodeoverlays"]
        world.run(180)
        reads.append(world.effects.reads["cluster", "nodeoverlays"] - before)
    assert reads[0] == reads[1]
