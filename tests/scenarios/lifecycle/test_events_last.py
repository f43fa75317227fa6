"""Steps do their work first: the Events of an invocation are recorded when all of it is done."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.lifecycle.drain import MINIMUM_DRAIN, PLANNING_PERIOD
from spotwright.model.ec2.fleet import Instance
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import workflow
from spotwright.workflows.lifecycle.gathered_events import LATE_SECONDS
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell

NODES = 3
PODS = 2 * NODES


def deleted(world: World) -> list[Doorbell]:
    """Doorbells of NodeClaims that were deleted, of whose nodes each has two pods, which may be evicted now."""
    world.deploy(builders.pod("inflate", cpu_millicores=900), PODS)
    assert world.run(60, until=lambda: len(world.running_pods()) == PODS)
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    bells = [Doorbell(world.cluster.name, "claim", claim.name) for claim in world.claims()]
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    world.clock.advance(PLANNING_PERIOD.total_seconds())
    return bells


def drained(world: World) -> list[Doorbell]:
    """The same, when the pods have stopped and the drains are over."""
    bells = deleted(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    world.clock.advance(MINIMUM_DRAIN.total_seconds())
    return bells


def terminated(world: World) -> list[Doorbell]:
    """Doorbells of what EC2 says of the instances of such claims: that they are terminated."""
    assert step_doorbells(world.ports, drained(world), now=world.clock.now()) == {}
    while any(instance.state != "terminated" for instance in world.ec2.all_instances()):
        world.pass_second()
    world.doorbells.messages.clear()
    for claim in world.claims():
        detail = {"instance-id": instance_id(claim.provider_id), "state": "terminated"}
        world.deliver_event("EC2 Instance State-change Notification", detail)
    return list(world.doorbells.receive("notices"))


def kept(world: World) -> list[Doorbell]:
    """The same as ``deleted``, of pods that a PodDisruptionBudget keeps."""
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    return deleted(world)


def short_of_time(world: World) -> list[Doorbell]:
    """Doorbells of NodeClaims that were deleted, whose pods do not have their whole grace period."""
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=15)
    world.deploy(builders.pod("inflate", cpu_millicores=900), PODS)
    assert world.run(60, until=lambda: len(world.running_pods()) == PODS)
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    return [Doorbell(world.cluster.name, "claim", claim.name) for claim in world.claims()]


class Recorded:
    """From its making on: the Events, and how many changes others had been made by then."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log, self._before = world.effects.log, len(world.effects.log)
        self.reasons: list[str] = []
        self.changes_before: list[list[str]] = []
        usual = world.cluster.record_event

        def record(kind: str, metadata: Any, event: Any, *, now: Any) -> None:
            self.reasons.append(event.reason)
            self.changes_before.append(self.changes())
            usual(kind, metadata, event, now=now)

        monkeypatch.setattr(world.cluster, "record_event", record)

    def changes(self) -> list[str]:
        return [effect.action for effect in self._log[self._before :]]

    def are_last(self) -> bool:
        return all(changes == self.changes() for changes in self.changes_before)


@pytest.mark.parametrize(
    ("rung", "changes", "reasons"),
    [
        (deleted, ["evict"] * PODS, ["Evicted"] * PODS),
        (kept, ["save_refused_evictions"], ["FailedDraining"] * 2 * NODES),
        (short_of_time, ["delete"] * PODS, ["TerminationGracePeriodExpiring"] * NODES),
        (short_of_time, ["delete"] * PODS, ["Disrupted"] * PODS),
        (drained, ["terminate", *["write_nodeclaim_status"] * NODES], ["InstanceTerminating"] * NODES),
        (terminated, ["delete"] * NODES, ["Finalized"] * NODES),
    ],
    ids=["no pod waits", "kept", "deadline", "deleted", "no instance waits", "no claim waits"],
)
def test_events_are_recorded_last(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    rung: Callable[[World], Iterable[Doorbell]],
    changes: list[str],
    reasons: list[str],
) -> None:
    bells = rung(world)
    recorded = Recorded(world, monkeypatch)
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert [change for change in recorded.changes() if change in changes] == changes
    assert [reason for reason in recorded.reasons if reason in reasons] == reasons
    assert recorded.are_last()


def test_events_are_recorded_though_doorbells_cannot_be_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bells = deleted(world)
    recorded = Recorded(world, monkeypatch)
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=10))
    assert step_doorbells(world.ports, [*bells, Doorbell(world.cluster.name, "nodepools", "")], now=world.clock.now())
    assert recorded.reasons.count("Evicted") == PODS


def test_that_claims_are_gone_is_told_though_the_doorbell_for_another_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EC2 still shows its instance as it was; of those that are gone nobody else tells."""
    bells = terminated(world)
    staying, usual = instance_id(world.claims()[0].provider_id), world.ec2.instances_by_id

    def shown(ids: Collection[str]) -> tuple[Instance, ...]:
        return tuple(
            msgspec.structs.replace(instance, state="shutting-down") if instance.id == staying else instance
            for instance in usual(ids)
        )

    monkeypatch.setattr(world.ec2, "instances_by_id", shown)
    recorded = Recorded(world, monkeypatch)
    world.effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=2))
    step_doorbells(world.ports, bells, now=world.clock.now())
    assert len(world.claims()) == 1
    assert recorded.reasons.count("Finalized") == NODES - 1


def test_events_are_recorded_though_the_invocation_ends_by_a_mistake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells = deleted(world)
    recorded = Recorded(world, monkeypatch)

    def fail(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(workflow, "terminate_all", fail)
    with pytest.raises(ValueError, match="a mistake"):
        step_doorbells(world.ports, bells, now=world.clock.now())
    assert recorded.reasons.count("Evicted") == PODS


@pytest.mark.parametrize("rung", [deleted, terminated])
@pytest.mark.parametrize(("left", "are_last"), [(LATE_SECONDS - 1, False), (LATE_SECONDS + 1, True)])
def test_events_are_recorded_at_once_where_the_invocation_ends_soon(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    rung: Callable[[World], Iterable[Doorbell]],
    left: float,
    are_last: bool,
) -> None:
    """A step may take all the time that is left, and then nothing is sent any more."""
    bells = rung(world)
    recorded = Recorded(world, monkeypatch)
    assert step_doorbells(world.ports, bells, now=world.clock.now(), seconds_left=lambda: left) == {}
    assert recorded.are_last() == are_last
    assert recorded.reasons.count("Evicted" if rung is deleted else "Finalized") == (PODS if rung is deleted else NODES)


@pytest.mark.side_by_side
def test_events_of_steps_side_by_side_are_all_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bells = deleted(world)
    recorded = Recorded(world, monkeypatch)
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert recorded.reasons.count("Evicted") == PODS
    assert recorded.are_last()
