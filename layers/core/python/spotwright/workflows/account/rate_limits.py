"""Keeping to EC2's request limits, for all clusters of the account: callers wait before EC2 has to throttle them."""

import zlib
from datetime import datetime
from threading import RLock
from typing import Final

from spotwright.aws import token_bucket
from spotwright.errors import Conflict
from spotwright.workflows.ports.state import StatePort

ATTEMPTS: Final = 8
# Callers that must wait are spread over this many seconds.
SPREAD_SECONDS: Final = 4

# Threads of an invocation would only lose the row to each other.
_TURN: Final = RLock()

CREATE_FLEET: Final = "CreateFleet"
CREATE_LAUNCH_TEMPLATE: Final = "CreateLaunchTemplate"
TERMINATE_INSTANCES: Final = "TerminateInstances"
# Besides its calls EC2 counts the instances in them.
STARTED_INSTANCES: Final = token_bucket.STARTED_INSTANCES
TERMINATED_INSTANCES: Final = token_bucket.TERMINATED_INSTANCES
CREATE_TAGS: Final = "CreateTags"


def acquire(state: StatePort, action: str, *, caller: str, now: datetime, calls: int = 1) -> int:
    """0: the calls are counted and may be made now; else the seconds to wait. ``caller`` spreads the waits."""
    now_ms = int(now.timestamp() * 1000)
    with _TURN:
        return _acquire(state, action, caller, now_ms, calls)


def _acquire(state: StatePort, action: str, caller: str, now_ms: int, calls: int) -> int:
    for _ in range(ATTEMPTS):
        before = state.call_rate(action) or token_bucket.full_bucket(action, now_ms=now_ms)
        after, wait_ms = token_bucket.take(before, calls, now_ms=now_ms)
        if wait_ms:
            return -(-wait_ms // 1000) + zlib.crc32(caller.encode()) % SPREAD_SECONDS
        try:
            state.save_call_rate(after)
        except Conflict:
            continue
        return 0
    # Every attempt lost to another caller: there are enough of them to wait a little in any case.
    return 1 + zlib.crc32(caller.encode()) % SPREAD_SECONDS


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
