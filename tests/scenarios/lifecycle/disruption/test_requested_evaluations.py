"""Doorbells for evaluations: one for all NodeClaims and pods of a moment, and none that fails what rang."""

from collections.abc import Callable

import pytest

from spotwright.errors import Unavailable
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.actions import (
    CLAIMS_SECONDS,
    EVALUATION_SECONDS,
    SHOWN_SECONDS,
    request_disruption_of_claims,
    request_disruption_soon,
)
from spotwright.workflows.ports.doorbells import READ_NODECLAIMS

type Request = Callable[..., None]
REQUESTS = [
    (request_disruption_of_claims, CLAIMS_SECONDS, CLAIMS_SECONDS, READ_NODECLAIMS),
    (request_disruption_soon, EVALUATION_SECONDS, SHOWN_SECONDS, ""),
]


def rung(world: World) -> list[tuple[str, int]]:
    """The keys of doorbells for disruption, and in how many milliseconds each can be received."""
    now = world.clock.milliseconds()
    return [(bell.doorbell.key, bell.at - now) for bell in world.doorbells.messages if bell.queue == "disrupt"]


@pytest.mark.parametrize(("request_evaluation", "pause", "delay", "key"), REQUESTS)
def test_ten_requests_are_one_doorbell_and_a_later_one_another(
    world: World, request_evaluation: Request, pause: int, delay: int, key: str
) -> None:
    for _ in range(10):
        request_evaluation(world.ports, now=world.clock.now())
    assert rung(world) == [(key, delay * 1000)]
    world.clock.advance(pause)
    request_evaluation(world.ports, now=world.clock.now())
    assert len(rung(world)) == 2


def test_requests_of_both_kinds_wait_for_none_of_the_other(world: World) -> None:
    request_disruption_soon(world.ports, now=world.clock.now())
    request_disruption_of_claims(world.ports, now=world.clock.now())
    assert [key for key, _ in rung(world)] == ["", READ_NODECLAIMS]


@pytest.mark.parametrize(("request_evaluation", "pause", "delay", "key"), REQUESTS)
def test_a_request_that_cannot_be_noted_is_left_to_the_schedule(
    world: World, request_evaluation: Request, pause: int, delay: int, key: str
) -> None:
    world.effects.inject(Fault("state", "throttle", Unavailable("no answer"), times=1))
    request_evaluation(world.ports, now=world.clock.now())
    assert rung(world) == []
    request_evaluation(world.ports, now=world.clock.now())
    assert rung(world) == [(key, delay * 1000)]
