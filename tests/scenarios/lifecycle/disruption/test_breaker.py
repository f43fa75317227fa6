"""Disruption that goes faster than it should stops itself; users stop it too, and see that it is stopped."""

import msgspec

from spotwright.disruption import breaker
from spotwright.errors import Conflict
from spotwright.model.karpenter.nodepool import Budget
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World

NODES = 44
ONE_EACH = builders.pod("inflate", cpu_millicores=1800)


def emptied(world: World, nodes: int = NODES) -> None:
    """So many nodes that are all empty at once, and budgets that let them all go."""
    world.cluster.update("nodepools", "default", budgets=(Budget(nodes="100%"),))
    world.deploy(ONE_EACH, nodes)
    assert world.run(180, until=lambda: len(world.running_pods()) == nodes)
    assert len(world.claims()) == nodes
    world.deploy(ONE_EACH, 0)


def told(world: World) -> list[str]:
    return [
        event.message
        for event in world.cluster.events
        if event.reason == "DisruptionBlocked" and event.kind == "nodepools"
    ]


def test_a_mistake_takes_half_the_nodes_and_no_more(world: World) -> None:
    emptied(world)
    world.run(500)
    assert len(world.ec2.live_instances()) == NODES // 2
    assert any("Disruption is stopped until" in message for message in told(world))


def test_it_closes_by_itself_and_goes_on(world: World) -> None:
    emptied(world)
    world.run(500)
    assert world.run(breaker.OPEN_MS // 1000, until=lambda: len(world.ec2.live_instances()) < NODES // 2)
    assert breaker.is_open(world.state.stored_breaker, world.clock.milliseconds()) or not world.ec2.live_instances()


def test_resuming_closes_it_at_once(world: World) -> None:
    emptied(world)
    world.run(400)
    world.state.stored_breaker = breaker.Breaker()
    assert world.run(240, until=lambda: len(world.ec2.live_instances()) < NODES // 2)


def test_small_clusters_go_to_zero_in_one_step(world: World) -> None:
    emptied(world, breaker.MIN_NODES)
    assert world.run(300, until=lambda: not world.ec2.live_instances())
    assert not told(world)


def test_an_interruption_goes_on_while_it_is_open(world: World) -> None:
    emptied(world, 3)
    world.deploy(ONE_EACH, 3)
    world.run(5)
    assert len(world.running_pods()) == 3
    open_until = world.clock.milliseconds() + 3_600_000
    world.state.stored_breaker = breaker.Breaker(open_until_ms=open_until, trips=1, reason="a test", version=1)
    victim = world.ec2.live_instances()[0].id
    world.interrupt_spot(victim)
    assert world.run(150, until=lambda: victim not in {instance.id for instance in world.ec2.live_instances()})
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)


def test_two_who_count_at_once_count_both(world: World) -> None:
    emptied(world, 2)
    world.effects.inject(Fault("state", "save_breaker", Conflict("another was faster")))
    assert world.run(300, until=lambda: not world.ec2.live_instances())
    assert sum(batch.nodes for batch in world.state.stored_breaker.batches) == 2


def test_a_paused_cluster_neither_launches_nor_disrupts(world: World) -> None:
    emptied(world, 2)
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, paused=True)
    world.run(300)
    assert len(world.ec2.live_instances()) == 2
    world.deploy(builders.pod("more", cpu_millicores=1800), 4)
    world.run(120)
    assert len(world.ec2.live_instances()) == 2
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, paused=False)
    assert world.run(120, until=lambda: len(world.running_pods()) == 4)
