"""NodeOverlays in a cluster: they count only with their gate on, say whether they do, and EC2 follows their prices."""

import json

import msgspec

from spotwright.model import labels
from spotwright.model.nodeoverlay import NodeOverlay
from spotwright.model.objects import Metadata, condition
from spotwright.model.requirements import Selector
from spotwright.simulation import given
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import lifecycle
from spotwright.workflows.ports import Doorbell

DEAR_SPOT = NodeOverlay(
    Metadata("dear-spot"), (Selector(labels.CAPACITY_TYPE, "In", (labels.SPOT,)),), price_adjustment="+1000%"
)


def gated(world: World) -> World:
    world.settings = msgspec.structs.replace(world.settings, feature_gates=("NodeOverlay", "ReservedCapacity"))
    return world


def bought(world: World) -> str:
    world.deploy(given.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running()))
    (claim,) = world.claims()
    return claim.metadata.labels[labels.CAPACITY_TYPE]


def test_without_the_gate_an_overlay_changes_nothing(world: World) -> None:
    world.cluster.put("nodeoverlays", DEAR_SPOT)
    assert bought(world) == labels.SPOT


def test_a_node_is_bought_at_the_prices_that_an_overlay_states(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", DEAR_SPOT)
    assert bought(world) == labels.ON_DEMAND
    (claim,) = world.claims()
    assert claim.metadata.annotations[labels.PRICE_OVERLAID] == "true"
    row = world.state.launch(claim.metadata.annotations[labels.LAUNCH])
    assert row is not None
    assert json.loads(row.request)["OnDemandOptions"] == {"AllocationStrategy": "prioritized"}


def test_an_overlay_says_whether_it_counts(world: World) -> None:
    gated(world).cluster.put("nodeoverlays", DEAR_SPOT)
    world.cluster.put("nodeoverlays", NodeOverlay(Metadata("free"), price="nothing"))
    world.cluster.put("nodeoverlays", msgspec.structs.replace(DEAR_SPOT, metadata=Metadata("a-rival")))
    lifecycle(world, [Doorbell(given.CLUSTER, "nodepools")], now=world.clock.now())
    told = {one.name: condition(one.conditions, "ValidationSucceeded") for one in world.cluster.nodeoverlays()}
    shown = {name: (one.status, one.reason) for name, one in told.items() if one is not None}
    assert shown == {
        "dear-spot": ("True", "ValidationSucceeded"),
        "free": ("False", "RuntimeValidation"),
        "a-rival": ("False", "Conflict"),
    }
    assert {one.reason for one in world.cluster.events if one.kind == "nodeoverlays"} >= {"RuntimeValidation"}
