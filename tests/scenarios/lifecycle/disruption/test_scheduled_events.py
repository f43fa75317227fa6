"""EC2 calls off, postpones and adds events: what its status of the instance says in the last hour counts."""

from datetime import timedelta

import pytest

from spotwright.errors import Conflict, Unavailable
from spotwright.model.karpenter.nodepool import Budget
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.lifecycle.interruptions import step_notices
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.scheduled_events import (
    HOUR,
    POD,
    announce,
    instance,
    names,
    running,
    schedule,
    scheduled,
)
from tests.scenarios.lifecycle.disruption.sick_nodes import is_deleted


def kept_in_its_last_hour(world: World, hours: float) -> bool:
    """An hour before the time that comes in so many hours, and for half an hour more."""
    (before,) = world.claims()
    world.clock.advance((hours - 1) * HOUR - 120)
    world.run(1800)
    return [claim.metadata.deletion_timestamp for claim in world.claims() if claim.name == before.name] == [None]


def test_an_event_that_ec2_called_off_removes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=10)
    world.run(30)
    world.ec2.statuses.clear()
    assert kept_in_its_last_hour(world, 10)
    assert "EC2 has no event scheduled for the instance" in [getattr(line, "details", "") for line in caplog.records]
    assert not world.state.notices()


def test_an_event_that_comes_after_one_was_called_off_counts() -> None:
    """For another time, or for the very same."""
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=10)
    times = scheduled(world, before)
    world.run(30)
    world.ec2.statuses.clear()
    assert kept_in_its_last_hour(world, 10)
    schedule(world, before, *times)
    assert world.run(240, until=lambda: before.name not in names(world))


def test_an_event_that_ec2_postponed_is_waited_for_until_its_new_last_hour(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spotwright.lifecycle")
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=10)
    world.run(30)
    schedule(world, before, world.clock.seconds() + timedelta(hours=20))
    assert kept_in_its_last_hour(world, 10)
    assert "EC2 has postponed the event of instance" in [line.getMessage() for line in caplog.records]
    assert {row.phase for row in world.state.notices()} == {"scheduled"}
    world.clock.advance(9 * HOUR)
    world.run(1200)
    assert names(world) == {before.name}
    assert world.run(900, until=lambda: before.name not in names(world))


def test_of_two_workers_on_an_event_that_was_postponed_the_one_that_saves_its_row_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "spotwright.lifecycle")
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=10)
    world.run(30)
    schedule(world, before, world.clock.seconds() + timedelta(hours=20))
    world.clock.advance(9.5 * HOUR)
    world.effects.inject(Fault("state", "save", Conflict("another worker saved it", code="Conflict"), times=1))
    for lines in (0, 1):
        step_notices(world.ports, [instance(before)], now=world.clock.now())
        said = [line.getMessage() for line in caplog.records]
        assert said.count(log_lines.EVENT_POSTPONED.message) == lines


def test_while_ec2_does_not_say_whether_the_event_stands_it_is_asked_until_the_time_itself() -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=10)
    world.run(30)
    world.effects.inject(Fault("ec2", "unhealthy_instances", Unavailable("no answer"), times=10_000))
    reads = world.effects.reads["ec2", "unhealthy_instances"]
    assert kept_in_its_last_hour(world, 10)
    assert world.effects.reads["ec2", "unhealthy_instances"] - reads < 120, "a few times a minute, with the sweep's"
    world.run(1700)
    assert before.name in names(world)
    assert world.run(300, until=lambda: before.name not in names(world))


def test_in_the_last_hour_it_goes_as_soon_as_ec2_answers() -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=10)
    world.run(30)
    world.outages["ec2"] = Unavailable("no answer")
    assert kept_in_its_last_hour(world, 10)
    world.outages.clear()
    assert world.run(180, until=lambda: before.name not in names(world))


def test_of_several_events_the_earliest_counts() -> None:
    """EC2 lists them in no order."""
    world = running(1, Budget("0"))
    (before,) = world.claims()
    now = world.clock.seconds()
    schedule(world, before, now + timedelta(days=9), now + timedelta(minutes=50), now + timedelta(days=2))
    assert world.run(150, until=lambda: before.name not in names(world))


def test_an_earlier_event_that_the_status_shows_later_takes_the_place_of_a_later_one() -> None:
    world = running(1, Budget("0"))
    (before,) = world.claims()
    later = world.clock.seconds() + timedelta(days=9)
    schedule(world, before, later)
    world.run(150)
    assert [row.phase for row in world.state.notices()] == ["scheduled"]
    schedule(world, before, later, world.clock.seconds() + timedelta(minutes=30))
    assert world.run(150, until=lambda: before.name not in names(world))


def test_a_message_of_an_event_that_the_status_does_not_have_removes_nothing() -> None:
    """It came days late."""
    world = running(1, Budget("0"))
    (before,) = world.claims()
    announce(world, before, hours=-30)
    world.ec2.statuses.clear()
    assert not world.run(300, until=lambda: before.name not in names(world))


def test_a_node_that_has_not_joined_goes_days_before_its_event() -> None:
    """Nothing runs there: nothing need wait for budgets, and the next node has no event."""
    world = fresh_world()
    world.kubelets.boot_seconds = 300
    world.deploy(POD, 1)
    assert world.run(60, until=lambda: bool(world.claims()) and world.claims()[0].is_condition_true("Launched"))
    (before,) = world.claims()
    announce(world, before, days=3)
    assert world.run(10, until=lambda: before.name not in names(world) or is_deleted(world, before))
