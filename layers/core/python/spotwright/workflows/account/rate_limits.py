"""Keeping to EC2's request limits, for all clusters of the account: callers wait before EC2 has to throttle them."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws import token_bucket
from spotwright.aws.token_bucket import TokenBucket
from spotwright.errors import ApiError, Conflict
from spotwright.workflows.batched_calls import BatchedCalls
from spotwright.workflows.ports.state import StatePort

ATTEMPTS: Final = 8
# Callers that must wait are spread over this many seconds.
SPREAD_SECONDS: Final = 4

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

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(action for action, _ in self.calls)


def acquire(state: StatePort, action: str, *, caller: str, now: datetime, calls: int = 1) -> int:
    """0: the calls are counted and may be made now; else the seconds to wait. ``caller`` spreads the waits.

    What threads want to call at the same moment is counted by one write: who comes first gets what there is. A failure
    of the table is that of all of them.
    """
    return acquire_all(state, {action: calls}, caller=caller, now=now)


def acquire_all(state: StatePort, calls: Mapping[str, int], *, caller: str, now: datetime) -> int:
    """The same for what EC2 counts in several buckets: the calls by action, of which all are counted or none."""
    return _TAKES(_Take(state, tuple(sorted(calls.items())), caller, int(now.timestamp() * 1000)))


def _take_all(takes: Sequence[_Take]) -> dict[_Take, int | Exception]:
    by_buckets: dict[tuple[int, tuple[str, ...]], list[_Take]] = {}
    for take in takes:
        by_buckets.setdefault((id(take.state), take.actions), []).append(take)
    answers: dict[_Take, int | Exception] = {}
    for alike in by_buckets.values():
        try:
            answers |= _take_together(alike)
        except ApiError as failure:
            answers |= dict.fromkeys(alike, failure)
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
        try:
            state.save_call_rates([after[action] for action in actions])
        except Conflict:
            continue
        return {take: _seconds(wait_ms, take.caller) for take, wait_ms in waits_ms.items()}
    # When every attempt was lost to other callers, there are enough of them to wait a little in any case.
    return {take: _seconds(max(1, wait_ms), take.caller) for take, wait_ms in waits_ms.items()}


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
    now_ms = int(now.timestamp() * 1000)
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
