"""A cluster with one ready class and pool, nothing running."""

import pytest

from spotwright.simulation import builders
from spotwright.simulation.world import World


@pytest.fixture
def world() -> World:
    return fresh_world()


def fresh_world() -> World:
    made = World()
    made.cluster.put("ec2nodeclasses", builders.nodeclass())
    made.cluster.put("nodepools", builders.nodepool())
    return made
