"""A cluster with one ready class and pool, nothing running."""

import pytest

from spotwright.simulation import builders
from spotwright.simulation.world import World


@pytest.fixture
def world() -> World:
    return fresh_world()


def fresh_world() -> World:
    made = World()
    made.cluster.put("ec2nodeclasses", builders.node_class())
    made.cluster.put("nodepools", builders.node_pool())
    return made
