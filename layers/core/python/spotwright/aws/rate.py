"""How fast EC2 may be asked to change something: one bucket per action, shared by all clusters and functions.

EC2 counts requests per account, region and action in token buckets whose true size nobody is told; others of the
account draw on them too. We begin with a share of the published size, halve the rate when EC2 says that it was too
fast, and creep up again. Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html.
Amounts are millionths of a call, so that integers lose nothing over milliseconds.
"""

from typing import Final

import msgspec

CALL: Final = 1_000_000
# No actions, but buckets of their own: the instances that are started and terminated, whatever the calls.
STARTED_INSTANCES: Final = "instances started"
TERMINATED_INSTANCES: Final = "instances terminated"
# What EC2 says when it was one of those, and not the calls, that was used up.
OF_INSTANCES: Final = "resource rate limit"
# Published (size, calls per second); what is not listed is a mutating action like any other.
_MUTATING: Final = (50, 5)
_OF_ACTION: Final = {
    STARTED_INSTANCES: (1000, 2),
    "TerminateInstances": (100, 5),
    TERMINATED_INSTANCES: (1000, 20),
    "CreateTags": (100, 10),
    "CreateLaunchTemplateVersion": (100, 5),
}
# What is left to whoever else uses the account.
SHARE_PERCENT: Final = 80
# However slow EC2 wants us to be, there is a call every five seconds.
SLOWEST: Final = CALL // 5
# Calls that were under way together meet the same throttling: it halves the rate once.
WAVE_MS: Final = 5_000
# The rate grows by a twentieth of a call per second each second: from half to full in less than a minute.
CREEP_PER_MS: Final = CALL // 20 // 1000


class CallRate(msgspec.Struct, frozen=True):
    """An action's bucket as of ``at`` (epoch milliseconds). ``per_second`` and ``tokens``: millionths of a call.

    ``slowed_at``: when EC2 last said that it was too fast, 0 = never. ``version``: optimistic lock, 0 = new.
    """

    action: str
    per_second: int
    tokens: int
    at: int
    slowed_at: int = 0
    version: int = 0


def fresh(action: str, *, now_ms: int) -> CallRate:
    """The bucket of an action that was not called for a while: full."""
    return CallRate(action, fastest(action), _size(action, fastest(action)), now_ms)


def fastest(action: str) -> int:
    return _OF_ACTION.get(action, _MUTATING)[1] * CALL * SHARE_PERCENT // 100


def take(rate: CallRate, calls: int, *, now_ms: int) -> tuple[CallRate, int]:
    """(the bucket without these calls, 0), or (the bucket as it is, milliseconds until it may hold them).

    More calls than the bucket ever holds are let through when it is full, and are owed.
    """
    now = _refilled(rate, now_ms)
    wanted = min(calls * CALL, _size(now.action, now.per_second))
    if now.tokens >= wanted:
        return msgspec.structs.replace(now, tokens=now.tokens - calls * CALL), 0
    return now, -(-(wanted - now.tokens) * 1000 // now.per_second)


def slowed(rate: CallRate, *, now_ms: int) -> CallRate | None:
    """The bucket after EC2 refused a call for being too many: half as fast, and empty. None: it knew already."""
    if rate.slowed_at and now_ms - rate.slowed_at < WAVE_MS:
        return None
    now = _refilled(rate, now_ms)
    return msgspec.structs.replace(
        now, per_second=max(SLOWEST, now.per_second // 2), tokens=min(0, now.tokens), slowed_at=now_ms
    )


def _refilled(rate: CallRate, now_ms: int) -> CallRate:
    elapsed = max(0, now_ms - rate.at)
    per_second = min(fastest(rate.action), rate.per_second + elapsed * CREEP_PER_MS)
    tokens = min(_size(rate.action, per_second), rate.tokens + rate.per_second * elapsed // 1000)
    return msgspec.structs.replace(rate, per_second=per_second, tokens=tokens, at=max(rate.at, now_ms))


def _size(action: str, per_second: int) -> int:
    """How much a bucket holds: less while it is slow, at least one call."""
    full = _OF_ACTION.get(action, _MUTATING)[0] * CALL * SHARE_PERCENT // 100
    return max(CALL, full * per_second // fastest(action))
