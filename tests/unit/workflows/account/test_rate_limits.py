"""Calls of EC2 that threads want to make at the same moment are counted by one write."""

import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event

import msgspec
import pytest

from spotwright.aws.token_bucket import TOKENS_PER_CALL, TokenBucket, full_bucket
from spotwright.errors import ApiError, Conflict, Throttled, Unavailable
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Crash, Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.account import rate_limits
from spotwright.workflows.account.rate_limits import (
    CREATE_FLEET,
    CREATE_TAGS,
    TERMINATE_INSTANCES,
    TERMINATED_INSTANCES,
    acquire,
    acquire_all,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
FULL = full_bucket(CREATE_TAGS, now_ms=NOW_MS)


class State(FakeState):
    """Its first take of CREATE_FLEET waits for ``open``."""

    def __init__(self) -> None:
        self.effects, self.begun, self.open = Effects(Clock()), Event(), Event()
        self.failures: dict[tuple[str, str], BaseException] = {}
        super().__init__("a", self.effects)

    def fail(self, method: str, action: str, failure: BaseException) -> None:
        """Once, for a bucket."""
        self.failures[method, action] = failure

    def call_rate(self, action: str) -> TokenBucket | None:
        if action == CREATE_FLEET and not self.begun.is_set():
            self.begun.set()
            assert self.open.wait(10)
        self._fail("call_rate", action)
        return super().call_rate(action)

    def save_call_rate(self, rate: TokenBucket) -> None:
        self._fail("save_call_rate", rate.action)
        super().save_call_rate(rate)

    def _fail(self, method: str, action: str) -> None:
        if (method, action) in self.failures:
            raise self.failures.pop((method, action))

    def left(self, action: str = CREATE_TAGS) -> int:
        return self.rates[action].tokens // TOKENS_PER_CALL

    def have(self, calls: int, action: str = CREATE_TAGS) -> None:
        """The bucket holds so many calls."""
        self.rates[action] = msgspec.structs.replace(full_bucket(action, now_ms=NOW_MS), tokens=calls * TOKENS_PER_CALL)

    def writes(self) -> list[str]:
        return [effect.subject for effect in self.effects.select("state", "save_call_rate")]


@pytest.fixture
def state() -> State:
    return State()


def at_once(state: State, *takes: Callable[[], int]) -> list[Future[int]]:
    """The answers to takes that come, in this order, while another is under way."""
    with ThreadPoolExecutor(len(takes) + 1) as threads:
        first = threads.submit(acquire, state, CREATE_FLEET, caller="first", now=NOW)
        assert state.begun.wait(10)
        asked = list[Future[int]]()
        for take in takes:
            asked.append(threads.submit(take))
            time.sleep(0.05)
        state.open.set()
    assert first.result() == 0
    return asked


def tagging(state: State, caller: str, *, calls: int = 1, now: datetime = NOW) -> Callable[[], int]:
    return partial(acquire, state, CREATE_TAGS, caller=caller, now=now, calls=calls)


def spread(caller: str) -> int:
    return zlib.crc32(caller.encode()) % rate_limits.SPREAD_SECONDS


def test_takes_of_one_moment_are_one_read_and_one_write(state: State) -> None:
    waits = at_once(state, *(tagging(state, caller) for caller in "abcde"))
    assert [wait.result() for wait in waits] == [0] * 5
    assert state.writes() == [CREATE_FLEET, CREATE_TAGS]
    assert state.effects.reads["state", "call_rate"] == 2
    assert FULL.tokens - state.rates[CREATE_TAGS].tokens == 5 * TOKENS_PER_CALL


def test_who_comes_first_gets_what_there_is_and_each_of_the_others_waits_at_a_moment_of_its_own(state: State) -> None:
    state.have(2)
    waits = at_once(state, *(tagging(state, caller) for caller in "abcde"))
    assert [wait.result() for wait in waits] == [0, 0, *(1 + spread(caller) for caller in "cde")]
    assert state.left() == 0
    assert len({spread(caller) for caller in "cde"}) > 1


def test_a_caller_that_needs_more_calls_than_there_are_keeps_none_from_one_that_needs_less(state: State) -> None:
    state.have(3)
    waits = at_once(state, tagging(state, "a", calls=2), tagging(state, "b", calls=2), tagging(state, "c"))
    assert [wait.result() for wait in waits] == [0, 1 + spread("b"), 0]
    assert state.left() == 0


def test_a_moment_in_which_nobody_gets_anything_writes_nothing(state: State) -> None:
    state.have(0)
    waits = at_once(state, tagging(state, "a"), tagging(state, "b"))
    assert all(wait.result() for wait in waits)
    assert state.writes() == [CREATE_FLEET]


@pytest.mark.parametrize("seconds", [(0, 1), (1, 0)])
def test_each_caller_has_what_came_into_the_bucket_until_its_own_now(state: State, seconds: tuple[int, ...]) -> None:
    """Time never runs backwards for it: eight calls come in a second."""
    state.have(0)
    takes = [tagging(state, "a", calls=8, now=NOW + timedelta(seconds=second)) for second in seconds]
    assert [bool(wait.result()) for wait in at_once(state, *takes)] == [second == 0 for second in seconds]
    assert state.left() == 0
    assert state.rates[CREATE_TAGS].updated_at_ms == NOW_MS + 1000


def test_equal_takes_are_two(state: State) -> None:
    state.have(2)
    assert [wait.result() for wait in at_once(state, *(tagging(state, "a") for _ in range(2)))] == [0, 0]
    assert state.left() == 0


@pytest.mark.parametrize("failure", [Throttled("too many"), Unavailable("no answer")])
@pytest.mark.parametrize("action", ["call_rate", "save_call_rate"])
def test_a_failure_of_the_table_is_that_of_all_who_wait_for_the_same_bucket(
    state: State, failure: ApiError, action: str
) -> None:
    state.fail(action, CREATE_TAGS, failure)
    other = partial(acquire, state, TERMINATE_INSTANCES, caller="c", now=NOW)
    waits = at_once(state, tagging(state, "a"), other, tagging(state, "b"))
    assert [wait.exception() for wait in waits] == [failure, None, failure]
    assert tagging(state, "a")() == 0


def test_the_end_of_the_process_is_that_of_all_who_wait(state: State) -> None:
    state.fail("save_call_rate", CREATE_TAGS, Crash("the process died"))
    waits = at_once(state, tagging(state, "a"), tagging(state, "b"))
    assert [type(wait.exception()) for wait in waits] == [Crash, Crash]
    assert tagging(state, "a")() == 0


def test_a_take_that_another_invocation_preceded_is_made_again_on_what_that_one_left(state: State) -> None:
    state.have(3)
    state.begun.set()
    usual, beaten = state.save_call_rate, list[int]()

    def save(rate: TokenBucket) -> None:
        if not beaten:
            beaten.append(1)
            assert acquire(state, CREATE_TAGS, caller="other", now=NOW) == 0
        usual(rate)

    state.save_call_rate = save  # type: ignore[method-assign]
    assert acquire(state, CREATE_TAGS, caller="a", now=NOW, calls=2) == 0
    assert state.left() == 0


def test_takes_that_are_always_preceded_wait_a_little(state: State) -> None:
    def lose(rate: TokenBucket) -> None:
        state.rates[rate.action] = msgspec.structs.replace(rate, version=rate.version + 5)
        raise Conflict("another was first")

    state.begun.set()
    state.have(100)
    state.save_call_rate = lose  # type: ignore[method-assign]
    assert acquire(state, CREATE_TAGS, caller="a", now=NOW) == 1 + spread("a")


BOTH = {TERMINATE_INSTANCES: 1, TERMINATED_INSTANCES: 10}


def test_calls_of_several_buckets_are_counted_by_one_read_and_one_write(state: State) -> None:
    assert acquire_all(state, BOTH, caller="a", now=NOW) == 0
    assert state.effects.reads == {("state", "call_rates"): 1}
    assert [effect.action for effect in state.effects.log] == ["save_call_rates"]
    taken = [full_bucket(action, now_ms=NOW_MS).tokens - state.rates[action].tokens for action in BOTH]
    assert taken == [TOKENS_PER_CALL, 10 * TOKENS_PER_CALL]


@pytest.mark.parametrize("empty", BOTH)
def test_where_one_of_several_buckets_is_empty_nothing_is_taken_of_the_others(state: State, empty: str) -> None:
    for action in BOTH:
        state.have(0 if action == empty else 50, action)
    before = dict(state.rates)
    assert acquire_all(state, BOTH, caller="a", now=NOW) == 1 + spread("a")
    assert state.rates == before
    assert not state.effects.log


def test_who_needs_several_buckets_waits_for_the_one_that_takes_longest(state: State) -> None:
    """Four calls come in a second, and sixteen instances."""
    state.have(0, TERMINATE_INSTANCES)
    state.have(-22, TERMINATED_INSTANCES)
    assert acquire_all(state, BOTH, caller="a", now=NOW) == 2 + spread("a")


def test_takes_of_several_buckets_of_one_moment_are_one_write(state: State) -> None:
    state.have(25, TERMINATED_INSTANCES)
    takes = [partial(acquire_all, state, BOTH, caller=caller, now=NOW) for caller in "abc"]
    assert [wait.result() for wait in at_once(state, *takes)] == [0, 0, 1 + spread("c")]
    assert [effect.action for effect in state.effects.log] == ["save_call_rate", "save_call_rates"]
    assert state.left(TERMINATED_INSTANCES) == 5


def test_a_take_of_several_buckets_that_another_preceded_is_made_again(state: State) -> None:
    usual, beaten = state.save_call_rates, list[int]()

    def save(rates: Sequence[TokenBucket]) -> None:
        state.save_call_rates = usual  # type: ignore[method-assign]
        beaten.append(acquire(state, TERMINATED_INSTANCES, caller="other", now=NOW, calls=5))
        usual(rates)

    state.save_call_rates = save  # type: ignore[method-assign]
    state.have(15, TERMINATED_INSTANCES)
    assert acquire_all(state, BOTH, caller="a", now=NOW) == 0
    assert beaten == [0]
    assert state.left(TERMINATED_INSTANCES) == 0
    assert state.rates[TERMINATE_INSTANCES].version == 1


def test_takes_of_two_tables_are_two(state: State) -> None:
    other = State()
    other.begun.set()
    waits = at_once(state, tagging(state, "a"), tagging(other, "b"))
    assert [wait.result() for wait in waits] == [0, 0]
    assert [one.rates[CREATE_TAGS].version for one in (state, other)] == [1, 1]


def test_who_is_refused_beside_one_who_is_not_takes_nothing_of_the_other_bucket() -> None:
    state = State()
    state.have(50, TERMINATE_INSTANCES)
    state.have(10, TERMINATED_INSTANCES)
    takes = [
        rate_limits._Take(state, ((TERMINATE_INSTANCES, 1), (TERMINATED_INSTANCES, instances)), "c", NOW_MS)
        for instances in (20, 5)
    ]
    waits = rate_limits._take_all(takes)
    assert [bool(waits[take]) for take in takes] == [True, False]
    assert (state.left(TERMINATE_INSTANCES), state.left(TERMINATED_INSTANCES)) == (49, 5)
