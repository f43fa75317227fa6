"""A cluster with one ready class and pool, nothing running; what happens is the same in every run."""

from collections.abc import Iterator

import pytest

from spotwright.model.ec2.instance_type import Catalog
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.campaign.serial import serial_calls
from tests.real_forwarder import RealForwarder


@pytest.fixture(autouse=True)
def one_after_the_other(request: pytest.FixtureRequest) -> Iterator[None]:
    """Calls and steps that functions make side by side, unless the test is about that."""
    if request.node.get_closest_marker("side_by_side"):
        yield
        return
    with serial_calls():
        yield


@pytest.fixture
def world() -> World:
    return fresh_world()


@pytest.fixture
def pods_differ(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are held for their pods, as where pods of several kinds wait."""
    monkeypatch.setattr(world.state, "pods_alike", lambda: False)


def are_initialized(world: World) -> bool:
    """Whether all nodes are, which is some seconds after pods came to them."""
    return all(claim.is_condition_true("Initialized") for claim in world.claims())


def fresh_world(catalog: Catalog | None = None) -> World:
    made = World(catalog, forwarder=RealForwarder)
    made.cluster.put("ec2nodeclasses", builders.nodeclass())
    made.cluster.put("nodepools", builders.nodepool())
    return made
