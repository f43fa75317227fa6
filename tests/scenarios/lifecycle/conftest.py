"""A cluster with one ready class and pool, nothing running."""

import pytest

from spotwright.simulation import given
from spotwright.simulation.world import World


@pytest.fixture
def world() -> World:
    return fresh_world()


def fresh_world() -> World:
    made = World()
    made.cluster.put("ec2nodeclasses", given.node_class())
    made.cluster.put("nodepools", given.node_pool())
    return made
