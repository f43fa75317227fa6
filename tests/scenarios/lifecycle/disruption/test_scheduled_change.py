"""EC2 names a time at which it stops, reboots or retires an instance: its node goes before, as budgets have room."""

from datetime import timedelta

import pytest

from spotwright.disruption import scheduled_change
from spotwright.model import labels
from spotwright.model.ec2.instance_status import InstanceStatus, ScheduledEvent
from spotwright.model.karpenter.nodepool import Budget
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.planning.replay import replay
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.scheduled_events import (
    HOUR,
    announce,
    deliver,
    instance,
    names,
    running,
    schedule,
)


def reasons(world: World) -> list[tuple[str, str]]:
    return [(row.reason, row.phase) for row in world.state.commands(created_after=0)]


def test_days_ahead_the_replacement_is_launched_before_the_first_eviction() -> None:
    world = running()
    (before,) = world.claims()
    began = len(world.effects.log)
    announce(world, before, days=3)
    assert world.run(180, until=lambda: before.name not in names(world))
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    acts = [f"{effect.port}.{effect.action}" for effect in world.effects.log[began:]]
    assert acts.index("ec2.create_fleet") < acts.index("cluster.evict")
    assert reasons(world) == [(scheduled_change.REASON, "done")]
    assert "InstanceUnhealthy" in {event.reason for event in world.cluster.events}
    (key,) = [key for key, body in world.blobs.bodies.items() if b'"ScheduledChange"' in body and "decisions" in key]
    assert replay(key, blobs=world.blobs, catalogs=world.ports.catalogs).agrees


def test_a_closed_budget_is_waited_for_until_the_last_hour() -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=3)
    world.run(HOUR * 3 // 2)
    assert names(world) == {before.name}
    assert any("budgets of NodePool default" in event.message for event in world.cluster.events)
    assert world.run(HOUR, until=lambda: before.name not in names(world))
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)


def test_it_is_replaced_in_the_window_of_the_budgets() -> None:
    """Nodes may go from the full hour on, for half of it: the budget that allows none pauses then."""
    world = running(1, Budget("0", schedule="30 * * * *", duration="30m"), Budget("1"))
    assert world.run(HOUR, until=lambda: world.clock.now().minute == 31)
    (before,) = world.claims()
    announce(world, before, hours=5)
    assert world.run(HOUR, until=lambda: before.name not in names(world))
    assert world.clock.now().minute < 30


def test_nodes_go_as_budgets_allow_one_after_the_other() -> None:
    world = running(4, Budget("1"))
    before = names(world)
    for claim in world.claims():
        announce(world, claim, days=2)
    gone_at_once = 0
    for _ in range(450):
        world.run(2)
        leaving = [claim for claim in world.claims() if claim.metadata.deletion_timestamp is not None]
        # As budgets count them.
        there = [claim for claim in leaving if not claim.is_condition_true("InstanceTerminating")]
        gone_at_once = max(gone_at_once, len(there))
    assert gone_at_once == 1
    assert world.run(1800, until=lambda: not before & names(world))
    assert len(world.running_pods()) == 4


def test_a_pod_that_may_not_be_disrupted_keeps_its_node_until_the_last_hour() -> None:
    world = fresh_world()
    world.deploy(builders.pod("batch", cpu_millicores=1800, annotations={labels.DO_NOT_DISRUPT: "true"}), 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 1)
    (before,) = world.claims()
    announce(world, before, hours=2)
    world.run(HOUR // 2)
    assert world.claims()[0].metadata.deletion_timestamp is None
    assert any("do-not-disrupt" in event.message for event in world.cluster.events)
    assert world.run(HOUR, until=lambda: world.claims()[0].metadata.deletion_timestamp is not None)


def test_an_earlier_time_takes_the_place_of_a_later_one() -> None:
    """EC2 moves what it has scheduled, or schedules something else before it."""
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, days=3)
    world.run(30)
    announce(world, before, days=1)
    announce(world, before, days=2)
    world.run(30)
    world.clock.advance(23 * HOUR - 120)
    world.run(30)
    assert names(world) == {before.name}
    assert world.run(240, until=lambda: before.name not in names(world))


@pytest.mark.parametrize("status", ["closed", "RESOLVED"])
@pytest.mark.parametrize("days", [-1, 3])
def test_a_change_that_is_over_begins_nothing(status: str, days: int) -> None:
    """The maintenance has ended, or was canceled."""
    world = running()
    (before,) = world.claims()
    start = (world.clock.now() + timedelta(days=days)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    entity = {"entityValue": instance(before), "status": "RESOLVED" if status == "RESOLVED" else "PENDING"}
    status_code = "closed" if status == "closed" else "open"
    deliver(world, before, startTime=start, statusCode=status_code, affectedEntities=[entity])
    world.run(300)
    assert names(world) == {before.name}
    assert world.claims()[0].metadata.deletion_timestamp is None


@pytest.mark.parametrize("start", [None, "周二, 06 1月 2026 09:00:00 GMT"])
def test_at_an_unreadable_time_the_one_in_the_status_of_the_instance_counts(start: str | None) -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    event = ScheduledEvent("instance-stop", world.clock.seconds() + timedelta(hours=2))
    world.ec2.statuses[instance(before)] = InstanceStatus(instance(before), (), (event,))
    deliver(world, before, startTime=start)
    world.run(HOUR // 2)
    assert names(world) == {before.name}
    assert world.claims()[0].metadata.deletion_timestamp is None
    assert world.run(HOUR, until=lambda: before.name not in names(world))


def test_a_time_in_the_format_of_iso_8601_is_waited_for() -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    schedule(world, before, world.clock.seconds() + timedelta(hours=2))
    deliver(world, before, startTime=(world.clock.now() + timedelta(hours=2)).isoformat())
    world.run(HOUR // 2)
    assert names(world) == {before.name}
    assert world.run(HOUR, until=lambda: before.name not in names(world))
