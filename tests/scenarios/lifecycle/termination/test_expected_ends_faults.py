"""Ends that are expected: invocations end at any change, and what EC2 tells is lost, doubled, late or out of order."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.interrupt import interrupt
from spotwright.workflows.lifecycle.termination.expected_ends import EXPECTED_WITHIN
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.drained_claims import STATE, drained, step

# Of EC2's messages; the last is more than an hour.
LATE_SECONDS = (0, 0, 1, 3, 20, 60, 700, 3700)
VISIBILITY_SECONDS = 30


def is_over(world: World, claims: Sequence[NodeClaim]) -> bool:
    """Nothing is left of the claims, and no notice is open."""
    rows = world.state.notices_of([instance_id(claim.provider_id) for claim in claims])
    ended = all(instance.state == "terminated" for instance in world.ec2.all_instances())
    left = world.claims() or world.cluster.all("nodes") or world.failures
    return ended and not left and {row.phase for row in rows} <= {"done"}


def bear_crashes(world: World) -> None:
    """The messages of an invocation that dies come back."""
    usual = world._invoke

    def invoke(queue: str, work: Callable[..., Any], bells: tuple[Doorbell, ...]) -> None:
        try:
            usual(queue, work, bells)
        except Crash:
            world.doorbells.ring(queue, bells, delay_seconds=VISIBILITY_SECONDS)

    world._invoke = invoke  # type: ignore[method-assign]


def run(world: World, seconds: int, until: Callable[[], bool]) -> bool:
    """As ``World.run``; what dies may be a schedule."""
    for _ in range(seconds):
        with suppress(Crash):
            world.settle()
        if until():
            return True
        world.pass_second()
    return False


@pytest.mark.parametrize("changes", range(1, 50, 2))
def test_wherever_an_invocation_ends_claims_go_and_no_notice_stays(world: World, changes: int) -> None:
    claims = drained(world)
    bear_crashes(world)
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", claim.name) for claim in claims])
    world.effects.crash_after(changes)
    assert run(world, 300, until=lambda: not world.claims())
    world.effects.crash_after(None)
    assert run(world, int(EXPECTED_WITHIN.total_seconds()) + 120, until=lambda: is_over(world, claims))


@pytest.mark.parametrize("seed", range(6))
def test_however_messages_come_claims_go_in_time_and_no_notice_stays(world: World, seed: int) -> None:
    chance, claims = random.Random(seed), drained(world)
    ids = {instance_id(claim.provider_id) for claim in claims}
    said, due = set[tuple[str, str]](), list[tuple[int, dict[str, Any]]]()
    world.deliver_event = lambda *_, **__: None  # type: ignore[method-assign]
    step(world)
    for second in range(max(LATE_SECONDS) + 200):
        world.settle()
        for instance in world.ec2.all_instances():
            told = instance.id, instance.state
            if instance.id in ids and instance.state in ("shutting-down", "terminated") and told not in said:
                said.add(told)
                message = {
                    "version": "0", "id": " ".join(told), "detail-type": STATE, "source": "aws.ec2", "account": "1",
                    "time": world.clock.now().isoformat(), "region": "ap-northeast-2", "resources": [],
                    "detail": {"instance-id": instance.id, "state": instance.state},
                }  # fmt: skip
                due += [(second + chance.choice(LATE_SECONDS), message) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
        for at, message in due:
            if at == second:
                interrupt({world.cluster.name: world.ports}, world.ports.ec2, message, now=world.clock.now())
        world.pass_second()
        assert second < 150 or not world.claims()
    assert world.run(300, until=lambda: is_over(world, claims))
    assert not world.state.health, "no offering was interrupted"
