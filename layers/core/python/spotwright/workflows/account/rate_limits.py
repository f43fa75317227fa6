"""Keeping to EC2's request limits, for all clusters of the account: callers wait before EC2 has to throttle them."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from spotwright.aws import token_bucket
from spotwright.aws.token_bucket import TokenBucket
from spotwright.errors import ApiError, Conflict
from spotwright.workflows.batched_calls import BatchedCalls
from spotwright.workflows.ports.state import StatePort

ATTEMPTS: Final = 8
# Callers that must wait are spread over this many seconds.
SPREAD_SECONDS: Final = 4
# For so long a process may make calls that it counted ahead, and so much of the bucket is left to other callers.
AHEAD_MS: Final = 5_000
AHEAD_LEAVES_PERCENT: Final = 25

CREATE_FLEET: Final = "CreateFleet"
CREATE_LAUNCH_TEMPLATE: Final = "CreateLaunchTemplate"
TERMINATE_INSTANCES: Final = "TerminateInstances"
# Besides its calls EC2 counts the instances in them.
STARTED_INSTANCES: Final = token_bucket.STARTED_INSTANCES
TERMINATED_INSTANCES: Final = token_bucket.TERMINATED_INSTANCES
CREATE_TAGS: Final = "CreateTags"


class _Take(msgspec.Struct, frozen=True, eq=False):
    """What somebody wants to call now, how often, by action. Takes are different ones however much they are alike."""

    state: StatePort
    calls: tuple[tuple[str, int], ...]
    caller: str
    now_ms: int
    ahead: int = 0

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(action for action, _ in self.calls)


def acquire(state: StatePort, action: str, *, caller: str, now: datetime, calls: int = 1, ahead: int = 0) -> int:
    """0: the calls are counted and may be made now; else the seconds to wait. ``caller`` spreads the waits.

    What threads want to call at the same moment is counted by one write: who comes first gets what there is. A failure
    of the table is that of all of them.

    ``ahead``: of calls that come one by one, so many more are counted by the same write while a quarter of the
    bucket is left, and the process's next callers make them within AHEAD_MS; what is not made by then is lost.
    """
    return _TAKES(_Take(state, ((action, calls),), caller, _ms(now), ahead))


def acquire_all(state: StatePort, calls: Mapping[str, int], *, caller: str, now: datetime) -> int:
    """The same for what EC2 counts in several buckets: the calls by action, of which all are counted or none."""
    return _TAKES(_Take(state, tuple(sorted(calls.items())), caller, _ms(now)))


def _ms(now: datetime) -> int:
    return int(now.timestamp() * 1000)


def _take_all(takes: Sequence[_Take]) -> dict[_Take, int | Exception]:
    by_buckets: dict[tuple[int, tuple[str, ...]], list[_Take]] = {}
    for take in takes:
        by_buckets.setdefault((id(take.state), take.actions), []).append(take)
    answers: dict[_Take, int | Exception] = {}
    for alike in by_buckets.values():
        ready = dict.fromkeys((take for take in alike if take.ahead and _use_counted(take)), 0)
        answers |= ready
        left = [take for take in alike if take not in ready]
        try:
            answers |= _take_together(left) if left else {}
        except ApiError as failure:
            answers |= dict.fromkeys(left, failure)
    return answers


# Threads of an invocation would only lose the rows to each other.
_TAKES: Final = BatchedCalls(_take_all)


def _take_together(takes: Sequence[_Take]) -> dict[_Take, int]:
    """Takes from the same buckets, in their order; the seconds to wait for each."""
    state, actions = takes[0].state, takes[0].actions
    waits_ms: dict[_Take, int] = {}
    for _ in range(ATTEMPTS):
        new = {action: token_bucket.full_bucket(action, now_ms=takes[0].now_ms) for action in actions}
        before = new | {bucket.action: bucket for bucket in state.call_rates(actions)}
        after, waits_ms = _share(before, takes)
        if all(waits_ms.values()):
            break
        after, ahead = _take_ahead(after, takes)
        try:
            state.save_call_rates([after[action] for action in actions])
        except Conflict:
            continue
        if ahead:
            _counted.setdefault(state, {})[actions[0]] = (ahead, takes[-1].now_ms)
        return {take: _seconds(wait_ms, take.caller) for take, wait_ms in waits_ms.items()}
    # When every attempt was lost to other callers, there are enough of them to wait a little in any case.
    return {take: _seconds(max(1, wait_ms), take.caller) for take, wait_ms in waits_ms.items()}


# Calls that are counted and not made yet, by table and action: how many, and since when. Takes alone change it.
_counted: Final[WeakKeyDictionary[StatePort, dict[str, tuple[int, int]]]] = WeakKeyDictionary()


def _take_ahead(buckets: dict[str, TokenBucket], takes: Sequence[_Take]) -> tuple[dict[str, TokenBucket], int]:
    """The buckets without the calls that are counted ahead, and how many these are."""
    ahead = max(take.ahead for take in takes)
    if not ahead:
        return buckets, 0
    ((action, bucket),) = buckets.items()
    after, wait_ms = token_bucket.take(bucket, ahead, now_ms=takes[-1].now_ms)
    if wait_ms or token_bucket.percent_full(after) < AHEAD_LEAVES_PERCENT:
        return buckets, 0
    return {action: after}, ahead


def _use_counted(take: _Take) -> bool:
    """Whether the calls of a take were counted ahead, and were not made yet."""
    ((action, calls),) = take.calls
    counted = _counted.get(take.state, {})
    left, since = counted.get(action, (0, 0))
    if left < calls or not 0 <= take.now_ms - since <= AHEAD_MS:
        return False
    counted[action] = (left - calls, since)
    return True


def _share(buckets: dict[str, TokenBucket], takes: Iterable[_Take]) -> tuple[dict[str, TokenBucket], dict[_Take, int]]:
    """The buckets afterwards, and for how many milliseconds each has to wait, 0 = its calls are counted."""
    waits_ms: dict[_Take, int] = {}
    for take in takes:
        taken = [token_bucket.take(buckets[action], calls, now_ms=take.now_ms) for action, calls in take.calls]
        waits_ms[take] = max(wait_ms for _, wait_ms in taken)
        if not waits_ms[take]:
            buckets = buckets | {bucket.action: bucket for bucket, _ in taken}
    return buckets, waits_ms


def _seconds(wait_ms: int, caller: str) -> int:
    return -(-wait_ms // 1000) + zlib.crc32(caller.encode()) % SPREAD_SECONDS if wait_ms else 0


def slow_down(state: StatePort, action: str, *, now: datetime) -> None:
    """EC2 throttled a call: all clusters of the account make half as many from now on."""
    now_ms = _ms(now)
    _counted.get(state, {}).pop(action, None)
    for _ in range(ATTEMPTS):
        after = token_bucket.throttle(
            state.call_rate(action) or token_bucket.full_bucket(action, now_ms=now_ms), now_ms=now_ms
        )
        if after is None:
            return
        try:
            state.save_call_rate(after)
        except Conflict:
            continue
        return
