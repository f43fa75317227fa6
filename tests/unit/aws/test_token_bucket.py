"""The pace at which EC2 is asked to change something."""

from hypothesis import given
from hypothesis import strategies as st

from spotwright.aws import token_bucket
from spotwright.aws.token_bucket import TOKENS_PER_CALL, TokenBucket

SECOND = 1_000


def calls_let_through(bucket: TokenBucket, seconds: int, *, per_second: int) -> tuple[int, TokenBucket]:
    done = 0
    for now in range(bucket.updated_at_ms, bucket.updated_at_ms + seconds * SECOND, SECOND // per_second):
        bucket, wait = token_bucket.take(bucket, 1, now_ms=now)
        done += wait == 0
    return done, bucket


def test_a_burst_takes_the_bucket_and_then_its_rate() -> None:
    done, _ = calls_let_through(token_bucket.full_bucket("CreateFleet", now_ms=0), 10, per_second=50)
    assert 40 + 10 * 4 - 4 <= done <= 40 + 10 * 4


def test_a_thousand_instances_start_at_once_and_then_at_four_fifths_of_the_published_rate() -> None:
    bucket = token_bucket.full_bucket("instances started", now_ms=0)
    bucket, wait = token_bucket.take(bucket, 1000, now_ms=0)
    assert wait == 0
    assert token_bucket.take(bucket, 100, now_ms=0)[1] == 62_500
    slower = token_bucket.throttle(token_bucket.full_bucket("instances started", now_ms=0), now_ms=1)
    assert slower is not None
    assert token_bucket.take(slower, 1, now_ms=1)[1] > 0, "who is throttled by what others start waits"


def test_being_refused_halves_the_rate_once_for_all_calls_under_way() -> None:
    bucket = token_bucket.full_bucket("CreateFleet", now_ms=0)
    slower = token_bucket.throttle(bucket, now_ms=10 * SECOND)
    assert slower is not None
    assert slower.refill_per_second == bucket.refill_per_second // 2
    assert token_bucket.throttle(slower, now_ms=10 * SECOND + token_bucket.SAME_THROTTLING_MS - 1) is None
    again = token_bucket.throttle(slower, now_ms=10 * SECOND + token_bucket.SAME_THROTTLING_MS)
    assert again is not None
    assert again.refill_per_second < slower.refill_per_second


def test_a_rate_creeps_up_to_what_it_was() -> None:
    slower = token_bucket.throttle(token_bucket.full_bucket("CreateFleet", now_ms=0), now_ms=1)
    assert slower is not None
    _, wait = token_bucket.take(slower, 1, now_ms=1)
    assert wait > 0
    later, wait = token_bucket.take(slower, 1, now_ms=60 * SECOND)
    assert wait == 0
    assert later.refill_per_second == token_bucket.max_refill_per_second("CreateFleet")


def test_many_instances_wait_no_longer_than_a_rate_that_grows_again_takes() -> None:
    """A launch of a hundred waited by the halved rate as long as nothing was taken: longer than its NodeClaims live."""
    bucket = token_bucket.full_bucket("instances started", now_ms=0)
    for number in range(1, 6):
        bucket = token_bucket.throttle(bucket, now_ms=number * token_bucket.SAME_THROTTLING_MS) or bucket
    now, waits = bucket.updated_at_ms, list[int]()
    after, wait = token_bucket.take(bucket, 100, now_ms=now)
    while wait:
        waits.append(wait)
        now += wait
        after, wait = token_bucket.take(bucket, 100, now_ms=now)
    assert len(waits) == 1
    assert 62 * SECOND < waits[0] < 90 * SECOND
    assert 0 <= after.tokens < TOKENS_PER_CALL
    assert token_bucket.take(bucket, 100, now_ms=now - 1)[1] == 1, "no longer than that"


@given(st.integers(200_000, 1_600_000), st.integers(0, 60_000), st.integers(0, 60_000))
def test_a_look_at_a_rate_that_grows_changes_nothing(rate: int, first: int, second: int) -> None:
    bucket = TokenBucket("instances started", rate, 0, 0)
    looked, _ = token_bucket.take(bucket, 0, now_ms=first)
    once = token_bucket.take(bucket, 0, now_ms=first + second)[0]
    twice = token_bucket.take(looked, 0, now_ms=first + second)[0]
    assert once.refill_per_second == twice.refill_per_second
    assert abs(once.tokens - twice.tokens) <= TOKENS_PER_CALL // 1000, "rounding"


def test_however_often_it_is_refused_there_is_a_call_every_few_seconds() -> None:
    bucket = token_bucket.full_bucket("CreateFleet", now_ms=0)
    for number in range(1, 30):
        bucket = token_bucket.throttle(bucket, now_ms=number * token_bucket.SAME_THROTTLING_MS) or bucket
    _, wait = token_bucket.take(bucket, 1, now_ms=30 * token_bucket.SAME_THROTTLING_MS + 5 * SECOND)
    assert wait == 0


def test_more_calls_than_a_bucket_holds_are_owed() -> None:
    bucket, wait = token_bucket.take(token_bucket.full_bucket("CreateLaunchTemplate", now_ms=0), 60, now_ms=0)
    assert (wait, bucket.tokens) == (0, -20 * TOKENS_PER_CALL)
    assert token_bucket.take(bucket, 1, now_ms=0)[
        1
    ] == 21 * TOKENS_PER_CALL * 1000 // token_bucket.max_refill_per_second("CreateLaunchTemplate")


@given(st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from(["call", "refused"])), max_size=60))
def test_never_more_than_the_bucket_and_its_rate(steps: list[tuple[int, str]]) -> None:
    bucket, now, done = token_bucket.full_bucket("CreateFleet", now_ms=0), 0, 0
    for gap, step in steps:
        now += gap
        if step == "refused":
            bucket = token_bucket.throttle(bucket, now_ms=now) or bucket
        else:
            bucket, wait = token_bucket.take(bucket, 1, now_ms=now)
            done += wait == 0
    assert (
        done * TOKENS_PER_CALL
        <= 40 * TOKENS_PER_CALL + token_bucket.max_refill_per_second("CreateFleet") * now // SECOND
    )
    assert (
        token_bucket.MIN_REFILL_PER_SECOND
        <= bucket.refill_per_second
        <= token_bucket.max_refill_per_second("CreateFleet")
    )


@given(st.integers(0, 10**7), st.integers(0, 10**5))
def test_a_wait_is_long_enough(tokens: int, elapsed: int) -> None:
    bucket = TokenBucket(
        "CreateFleet", token_bucket.max_refill_per_second("CreateFleet") // 3, tokens % TOKENS_PER_CALL, 0
    )
    after, wait = token_bucket.take(bucket, 1, now_ms=elapsed)
    assert wait == 0 or token_bucket.take(after, 1, now_ms=elapsed + wait)[1] == 0
