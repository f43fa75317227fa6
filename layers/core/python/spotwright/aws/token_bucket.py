"""How fast EC2 may be asked to change something: one bucket per action, shared by all clusters and functions.

EC2 counts requests per account, region and action in token buckets. It does not say how large an account's buckets are,
and other software in the account draws on them too. Calls begin with a share of the published size and rate, instances
with the whole size and a share of the rate: pods that need a thousand nodes at once would wait minutes for the rest.
The rate halves when EC2 throttles a call, and grows again with time. Source:
https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html.
Amounts are millionths of a call, so that integers lose nothing over milliseconds.
"""

from bisect import bisect_left
from typing import Final

import msgspec

TOKENS_PER_CALL: Final = 1_000_000
# No actions, but buckets of their own: the instances that are started and terminated, whatever the calls.
STARTED_INSTANCES: Final = "instances started"
TERMINATED_INSTANCES: Final = "instances terminated"
# EC2's message names this when instances, not calls, were too many.
INSTANCE_LIMIT_MESSAGE: Final = "resource rate limit"
# Published (size, calls per second); an action that is not listed has the limits of mutating actions.
_MUTATING: Final = (50, 5)
_LIMITS: Final = {
    STARTED_INSTANCES: (1000, 2),
    "TerminateInstances": (100, 5),
    TERMINATED_INSTANCES: (1000, 20),
    "CreateTags": (100, 10),
    "CreateLaunchTemplateVersion": (100, 5),
}
# The rest is left to other software in the account.
SHARE_PERCENT: Final = 80
# Of these the whole bucket is taken.
_INSTANCES: Final = (STARTED_INSTANCES, TERMINATED_INSTANCES)
# However often EC2 throttles, there is a call every five seconds.
MIN_REFILL_PER_SECOND: Final = TOKENS_PER_CALL // 5
# Calls that were under way together meet the same throttling: it halves the rate once.
SAME_THROTTLING_MS: Final = 5_000
# The rate grows by a twentieth of a call per second each second: from half to full in less than a minute.
RECOVERY_PER_MS: Final = TOKENS_PER_CALL // 20 // 1000


class TokenBucket(msgspec.Struct, frozen=True):
    """An action's bucket as of ``updated_at_ms`` (epoch milliseconds).

    ``refill_per_second`` and ``tokens``: millionths of a call. ``throttled_at_ms``: when EC2 last throttled a call, 0 =
    never. ``version``: optimistic lock, 0 = new.
    """

    action: str
    refill_per_second: int = msgspec.field(name="per_second")
    tokens: int
    updated_at_ms: int = msgspec.field(name="at")
    throttled_at_ms: int = msgspec.field(default=0, name="slowed_at")
    version: int = 0


def full_bucket(action: str, *, now_ms: int) -> TokenBucket:
    """The bucket of an action that was not called for a while: full."""
    return TokenBucket(action, max_refill_per_second(action), _size(action, max_refill_per_second(action)), now_ms)


def max_refill_per_second(action: str) -> int:
    return _LIMITS.get(action, _MUTATING)[1] * TOKENS_PER_CALL * SHARE_PERCENT // 100


def take(bucket: TokenBucket, calls: int, *, now_ms: int) -> tuple[TokenBucket, int]:
    """(the bucket without these calls, 0), or (the bucket as it is, milliseconds until it may hold them).

    More calls than the bucket ever holds are let through when it is full; its tokens are negative then.
    """
    now = _refill(bucket, now_ms)
    wanted = min(calls * TOKENS_PER_CALL, _size(now.action, now.refill_per_second))
    if now.tokens >= wanted:
        return msgspec.structs.replace(now, tokens=now.tokens - calls * TOKENS_PER_CALL), 0
    missing = wanted - now.tokens
    # At a rate that does not grow it lasts this long.
    longest = -(-missing * 1000 // now.refill_per_second)
    return now, bisect_left(range(longest), missing, key=lambda elapsed: _refilled(now, elapsed))


def throttle(bucket: TokenBucket, *, now_ms: int) -> TokenBucket | None:
    """The bucket after EC2 throttled a call: half as fast, and empty. None: the rate was halved for this already."""
    if bucket.throttled_at_ms and now_ms - bucket.throttled_at_ms < SAME_THROTTLING_MS:
        return None
    now = _refill(bucket, now_ms)
    return msgspec.structs.replace(
        now,
        refill_per_second=max(MIN_REFILL_PER_SECOND, now.refill_per_second // 2),
        tokens=min(0, now.tokens),
        throttled_at_ms=now_ms,
    )


def _refill(bucket: TokenBucket, now_ms: int) -> TokenBucket:
    elapsed = max(0, now_ms - bucket.updated_at_ms)
    per_second = min(max_refill_per_second(bucket.action), bucket.refill_per_second + elapsed * RECOVERY_PER_MS)
    tokens = min(_size(bucket.action, per_second), bucket.tokens + _refilled(bucket, elapsed))
    return msgspec.structs.replace(
        bucket, refill_per_second=per_second, tokens=tokens, updated_at_ms=max(bucket.updated_at_ms, now_ms)
    )


def _refilled(bucket: TokenBucket, elapsed_ms: int) -> int:
    """What comes into the bucket in this time, while its rate grows: nobody may have taken anything for minutes."""
    most = max_refill_per_second(bucket.action)
    growing = min(elapsed_ms, max(0, most - bucket.refill_per_second) // RECOVERY_PER_MS)
    grown = bucket.refill_per_second * growing + RECOVERY_PER_MS * growing * growing // 2
    return (grown + most * (elapsed_ms - growing)) // 1000


def _size(action: str, per_second: int) -> int:
    """How much a bucket holds: less while it is slow, at least one call."""
    share = 100 if action in _INSTANCES else SHARE_PERCENT
    full = _LIMITS.get(action, _MUTATING)[0] * TOKENS_PER_CALL * share // 100
    return max(TOKENS_PER_CALL, full * per_second // max_refill_per_second(action))
