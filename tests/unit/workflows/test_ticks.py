"""Ticks of a NodeClaim: each rings for the next one, and the chain has an end."""

import pytest

from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.actions import ring_next_tick


@pytest.mark.parametrize(("number", "rings"), [(1, True), (400, True), (401, False), (10_000, False)])
def test_after_four_hundred_ticks_only_the_sweep_looks_at_a_claim(number: int, rings: bool) -> None:
    """A claim that never becomes ready would be looked at every minute for ever, each time by a paid invocation."""
    world = World()
    ring_next_tick(world.ports, "default-a", number)
    rung = [message.doorbell.epoch for message in world.doorbells.messages_of("lifecycle", "claim")]
    assert rung == ([number] if rings else [])


def test_a_claim_that_never_becomes_ready_is_looked_at_for_a_bounded_number_of_times() -> None:
    world = World()
    for number in range(1, 500):
        ring_next_tick(world.ports, "default-a", number, within_seconds=1.0)
    assert len(world.doorbells.messages) == 400
