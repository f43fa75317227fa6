"""The doorbells of an invocation are few calls, and what is urgent is not held back."""

import pytest

from spotwright.errors import Unavailable
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.gathered_doorbells import GatheredDoorbells
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world

CLUSTER = builders.CLUSTER


@pytest.fixture
def world() -> World:
    return fresh_world()


def calls(world: World) -> list[str]:
    return [effect.subject for effect in world.effects.select("doorbells", "ring")]


def test_equal_doorbells_are_sent_once_together_with_others_of_their_queue_and_delay(world: World) -> None:
    doorbells = GatheredDoorbells(world.doorbells)
    for name in ("a", "b", "a"):
        doorbells.ring("lifecycle", [Doorbell(CLUSTER, "claim", name)], delay_seconds=2)
        doorbells.ring("disrupt", [Doorbell(CLUSTER, "evaluate")])
    doorbells.ring("lifecycle", [Doorbell(CLUSTER, "claim", "a")], delay_seconds=5)
    assert calls(world) == []
    doorbells.send()
    assert calls(world) == ["lifecycle/claim:a lifecycle/claim:b", "disrupt/evaluate:", "lifecycle/claim:a"]
    doorbells.send()
    assert len(calls(world)) == 3


@pytest.mark.parametrize(
    ("queue", "kind"),
    [("notices", "notice"), ("provision", "pods"), ("lifecycle", "launch"), ("lifecycle", "decision")],
)
def test_what_somebody_waits_for_is_sent_at_once(world: World, queue: str, kind: str) -> None:
    GatheredDoorbells(world.doorbells).ring(queue, [Doorbell(CLUSTER, kind)])
    assert calls(world) == [f"{queue}/{kind}:"]


def test_a_queue_that_fails_does_not_keep_the_others(world: World) -> None:
    doorbells = GatheredDoorbells(world.doorbells)
    doorbells.ring("lifecycle", [Doorbell(CLUSTER, "claim", "a")])
    doorbells.ring("disrupt", [Doorbell(CLUSTER, "evaluate")])
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=1))
    with pytest.raises(Unavailable):
        doorbells.send()
    assert calls(world) == ["disrupt/evaluate:"]


def started(world: World, pods: int) -> list[Doorbell]:
    """Doorbells for NodeClaims that have just been launched."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), pods)
    assert world.run(60, until=lambda: len([claim for claim in world.claims() if claim.provider_id]) == pods)
    return [Doorbell(CLUSTER, "claim", claim.name, epoch=1) for claim in world.claims()]


def test_the_claims_of_an_invocation_ring_once_for_their_next_steps(world: World) -> None:
    bells = started(world, 10)
    before = len(calls(world))
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    rung = calls(world)[before:]
    assert [len(call.split()) for call in rung if "claim" in call] == [10]
    assert len(rung) <= 2
    assert world.run(120, until=lambda: len(world.running_pods()) == 10)


def test_every_step_is_taken_again_when_its_doorbells_cannot_be_sent(world: World) -> None:
    bells = started(world, 3)
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=5))
    failures = step_doorbells(world.ports, bells, now=world.clock.now())
    assert failures.keys() == set(bells)
    assert {type(failure) for failure in failures.values()} == {Unavailable}


def test_claims_that_move_together_ask_once_whether_somebody_has_rung_for_the_status_of_nodepools(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 10)
    assert world.run(60, until=lambda: len(world.running_pods()) == 10)
    world.run(30)
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    bells = [Doorbell(CLUSTER, "claim", claim.name) for claim in world.claims()]
    usual, asked = world.state.throttle, list[str]()

    def throttle(work: str, *, now: int, until: int) -> int:
        asked.append(work)
        return usual(work, now=now, until=until)

    monkeypatch.setattr(world.state, "throttle", throttle)
    before = len(calls(world))
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert asked == ["nodepools"]
    assert " ".join(calls(world)[before:]).split().count("lifecycle/nodepools:") == 1
