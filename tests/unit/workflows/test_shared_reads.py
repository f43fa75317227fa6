"""What the steps of one invocation read once for all of them."""

import threading
from collections.abc import Callable
from threading import Barrier, Thread
from time import sleep
from types import FrameType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from spotwright.errors import Conflict, Unavailable
from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import Outcome, RegistrationHealth
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import shared_reads
from spotwright.workflows.lifecycle.shared_reads import reading_once
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.state import StatePort


@pytest.fixture
def world() -> World:
    return World()


READS: dict[str, Callable[[StatePort], object]] = {
    "heartbeat": lambda state: state.heartbeat(),
    "catalog_key": lambda state: state.catalog_key(),
    "recent_catalog_key": lambda state: state.recent_catalog_key(),
    "pods_alike": lambda state: state.pods_alike(),
    "registration_health": lambda state: state.registration_health("uid"),
    "refused_evictions": lambda state: state.refused_evictions(),
}


def failing(read: Callable[[], Any]) -> StatePort:
    state = SimpleNamespace(
        heartbeat=read, catalog_key=read, recent_catalog_key=read, pods_alike=read,
        registration_health=lambda _: read(), refused_evictions=read,
    )  # fmt: skip
    return reading_once(cast("StatePort", state))


class Counted:
    """A state whose first answer is a failure, if it is to be."""

    def __init__(self, world: World, *, fails: bool) -> None:
        self._state, self._fails = world.state, fails
        self.reads = 0

    def heartbeat(self) -> int:
        return self._count(self._state.heartbeat())

    def catalog_key(self) -> str:
        return self._count(self._state.catalog_key())

    def recent_catalog_key(self) -> str:
        return self._count(self._state.recent_catalog_key())

    def pods_alike(self) -> bool:
        return self._count(self._state.pods_alike())

    def registration_health(self, nodepool_uid: str) -> RegistrationHealth | None:
        return self._count(self._state.registration_health(nodepool_uid))

    def save_registration_health(self, health: RegistrationHealth) -> None:
        self._state.save_registration_health(health)

    def refused_evictions(self) -> tuple[RefusedEvictions, ...]:
        return self._count(self._state.refused_evictions())

    def save_refused_evictions(self, refused: RefusedEvictions) -> None:
        self._state.save_refused_evictions(refused)

    def _count[Value](self, answer: Value) -> Value:
        self.reads += 1
        if self._fails and self.reads == 1:
            raise Unavailable("the table does not answer", code="Unavailable")
        return answer


@pytest.mark.parametrize("what", sorted(READS))
def test_steps_side_by_side_read_once(world: World, what: str) -> None:
    counted = Counted(world, fails=False)
    shared = reading_once(cast("StatePort", counted))
    answers = in_parallel(lambda _: READS[what](shared), range(10))
    assert counted.reads == 1
    assert answers == [READS[what](world.state)] * 10


@pytest.mark.parametrize("what", sorted(READS))
def test_steps_that_take_turns_at_each_line_read_once(world: World, what: str) -> None:
    def pause(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != shared_reads.__file__:
            return None
        sleep(0.001)
        return pause

    counted = Counted(world, fails=False)
    shared = reading_once(cast("StatePort", counted))
    threading.settrace(pause)
    try:
        in_parallel(lambda _: READS[what](shared), range(10))
    finally:
        threading.settrace(None)
    assert counted.reads == 1


@pytest.mark.parametrize("what", sorted(READS))
def test_what_failed_is_read_again(world: World, what: str) -> None:
    counted = Counted(world, fails=True)
    shared = reading_once(cast("StatePort", counted))
    with pytest.raises(Unavailable):
        READS[what](shared)
    assert READS[what](shared) == READS[what](shared) == READS[what](world.state)
    assert counted.reads == 2


@pytest.mark.parametrize("what", sorted(READS))
def test_a_failure_is_not_waited_for_by_one_step_after_the_other(world: World, what: str) -> None:
    """Ten steps would otherwise wait ten times as long as a call waits for a table that does not answer."""
    reads = list[str]()

    def fails() -> Any:
        reads.append(what)
        sleep(0.3)
        raise Unavailable("the table does not answer", code="Unavailable")

    def step(_: int) -> bool:
        together.wait()
        with pytest.raises(Unavailable):
            READS[what](shared)
        return True

    together = Barrier(5)
    shared = failing(fails)
    assert in_parallel(step, range(5)) == [True] * 5
    assert len(reads) == 1


@pytest.mark.parametrize("what", sorted(READS))
def test_nobody_waits_for_a_read_of_a_process_that_ends(what: str) -> None:
    def ends() -> Any:
        raise SystemExit(1)

    def step() -> None:
        with pytest.raises(SystemExit):
            READS[what](shared)

    shared = failing(ends)
    step()
    later = Thread(target=step, daemon=True)
    later.start()
    later.join(5)
    assert not later.is_alive()


def test_everything_else_is_asked_for_each_time(world: World) -> None:
    shared = reading_once(world.state)
    before = shared.cluster().planning_requests
    shared.request_planning()
    assert shared.cluster().planning_requests == before + 1


def test_the_registration_health_of_a_nodepool_is_read_anew_when_it_was_written_or_another_wrote_it(
    world: World,
) -> None:
    counted = Counted(world, fails=False)
    shared = reading_once(cast("StatePort", counted))
    health = RegistrationHealth("uid", outcomes=(Outcome("first", is_registered=True),))
    assert shared.registration_health("uid") is None
    shared.save_registration_health(health)
    stored = shared.registration_health("uid")
    assert stored is not None
    assert stored.outcomes == health.outcomes
    world.state.save_registration_health(msgspec.structs.replace(stored, outcomes=()))
    with pytest.raises(Conflict):
        shared.save_registration_health(msgspec.structs.replace(stored, reason="late"))
    assert shared.registration_health("uid") == world.state.registration_health("uid")
    assert shared.registration_health("another") is None
    assert counted.reads == 4


def test_refused_evictions_are_read_anew_when_one_was_written_or_another_wrote_it(world: World) -> None:
    counted = Counted(world, fails=False)
    shared = reading_once(cast("StatePort", counted))
    refused = RefusedEvictions("default", ("keep",), ((),), True, since_ms=1)
    assert shared.refused_evictions() == ()
    shared.save_refused_evictions(refused)
    assert [found.key for found in shared.refused_evictions()] == [refused.key]
    shared.refused_evictions()
    assert counted.reads == 2
    world.state.save_refused_evictions(RefusedEvictions("default", ("other",), ((),), True, since_ms=1))
    with pytest.raises(Conflict):
        shared.save_refused_evictions(refused)
    assert len(shared.refused_evictions()) == 2
    assert counted.reads == 3


def test_the_registration_health_that_another_step_reads_while_it_is_written_is_read_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, shared = world.state.save_registration_health, reading_once(world.state)

    def save_beside(health: RegistrationHealth) -> None:
        assert shared.registration_health("uid") is None
        save(health)

    monkeypatch.setattr(world.state, "save_registration_health", save_beside)
    shared.save_registration_health(RegistrationHealth("uid", reason="first"))
    stored = shared.registration_health("uid")
    assert stored is not None
    assert stored.reason == "first"


def test_the_registration_health_may_be_written_twice_without_being_read_in_between(world: World) -> None:
    shared = reading_once(world.state)
    for reason in ("first", "second"):
        health = world.state.registration_health("uid") or RegistrationHealth("uid")
        shared.save_registration_health(msgspec.structs.replace(health, reason=reason))
    stored = shared.registration_health("uid")
    assert stored is not None
    assert stored.reason == "second"


def test_steps_side_by_side_ask_a_throttle_once_and_have_one_answer(world: World) -> None:
    shared = reading_once(world.state)
    asked = {"now": 1_000, "until": 4_000}
    assert in_parallel(lambda _: shared.throttle("nodepools", **asked), range(10)) == [0] * 10
    assert shared.throttle("evaluations", **asked) == 0
    assert len(world.effects.select("state", "throttle")) == 2
    later = reading_once(world.state)
    assert later.throttle("nodepools", now=2_000, until=5_000) == 4_000
    assert later.throttle("nodepools", now=4_000, until=7_000) == 0


def test_a_throttle_that_fails_is_asked_again(world: World) -> None:
    world.effects.inject(Fault("state", "throttle", Unavailable("the table does not answer")))
    shared = reading_once(world.state)
    with pytest.raises(Unavailable):
        shared.throttle("nodepools", now=1_000, until=4_000)
    assert shared.throttle("nodepools", now=1_000, until=4_000) == 0
