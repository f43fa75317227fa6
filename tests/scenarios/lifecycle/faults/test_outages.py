"""Something does not answer for minutes: nothing is lost meanwhile, and afterwards everything goes on."""

import pytest

from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.simulation import builders
from spotwright.simulation.world import World

OUTAGES = [
    ("cluster", Unavailable("no answer")),
    ("ec2", Throttled("too many requests")),
    ("state", Unavailable("table not found")),
    ("blobs", Unavailable("no such bucket")),
    ("doorbells", Unavailable("no such queue")),
]
POD = builders.pod("inflate", cpu_millicores=1800)


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=[port for port, _ in OUTAGES])
@pytest.mark.parametrize("begins", [0, 3, 25, 40])
def test_an_outage_of_four_minutes_costs_time_and_no_node(
    world: World, port: str, failure: ApiError, begins: int
) -> None:
    world.deploy(POD, 2)
    world.run(begins)
    world.outages[port] = failure
    world.run(240)
    ended = len([instance for instance in world.ec2.all_instances() if instance.state == "terminated"])
    assert ended == 0
    assert not [nodeclaim for nodeclaim in world.claims() if nodeclaim.metadata.deletion_timestamp is not None]
    world.outages.clear()
    assert world.run(900, until=lambda: len(world.running_pods()) == 2)
    world.run(180)
    assert len(world.ec2.live_instances()) == 2


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=[port for port, _ in OUTAGES])
def test_messages_do_not_multiply_in_an_outage(world: World, port: str, failure: ApiError) -> None:
    world.deploy(POD, 2)
    world.run(5)
    world.outages[port] = failure
    world.run(240)
    early = len(world.doorbells.messages)
    world.run(360)
    assert len(world.doorbells.messages) <= early + 20
