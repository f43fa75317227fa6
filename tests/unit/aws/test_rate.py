"""The pace at which EC2 is asked to change something."""

from hypothesis import given
from hypothesis import strategies as st

from spotwright.aws import rate
from spotwright.aws.rate import CALL, CallRate

SECOND = 1_000


def calls_let_through(known: CallRate, seconds: int, *, per_second: int) -> tuple[int, CallRate]:
    done = 0
    for now in range(known.at, known.at + seconds * SECOND, SECOND // per_second):
        known, wait = rate.take(known, 1, now_ms=now)
        done += wait == 0
    return done, known


def test_a_burst_takes_the_bucket_and_then_its_rate() -> None:
    done, _ = calls_let_through(rate.fresh("CreateFleet", now_ms=0), 10, per_second=50)
    assert 40 + 10 * 4 - 4 <= done <= 40 + 10 * 4


def test_being_refused_halves_the_rate_once_for_all_calls_under_way() -> None:
    known = rate.fresh("CreateFleet", now_ms=0)
    slower = rate.slowed(known, now_ms=10 * SECOND)
    assert slower is not None
    assert slower.per_second == known.per_second // 2
    assert rate.slowed(slower, now_ms=10 * SECOND + rate.WAVE_MS - 1) is None
    again = rate.slowed(slower, now_ms=10 * SECOND + rate.WAVE_MS)
    assert again is not None
    assert again.per_second < slower.per_second


def test_a_rate_creeps_up_to_what_it_was() -> None:
    slower = rate.slowed(rate.fresh("CreateFleet", now_ms=0), now_ms=1)
    assert slower is not None
    _, wait = rate.take(slower, 1, now_ms=1)
    assert wait > 0
    later, wait = rate.take(slower, 1, now_ms=60 * SECOND)
    assert wait == 0
    assert later.per_second == rate.fastest("CreateFleet")


def test_however_often_it_is_refused_there_is_a_call_every_few_seconds() -> None:
    known = rate.fresh("CreateFleet", now_ms=0)
    for number in range(1, 30):
        known = rate.slowed(known, now_ms=number * rate.WAVE_MS) or known
    _, wait = rate.take(known, 1, now_ms=30 * rate.WAVE_MS + 5 * SECOND)
    assert wait == 0


def test_more_calls_than_a_bucket_holds_are_owed() -> None:
    known, wait = rate.take(rate.fresh("CreateLaunchTemplate", now_ms=0), 60, now_ms=0)
    assert (wait, known.tokens) == (0, -20 * CALL)
    assert rate.take(known, 1, now_ms=0)[1] == 21 * CALL * 1000 // rate.fastest("CreateLaunchTemplate")


@given(st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from(["call", "refused"])), max_size=60))
def test_never_more_than_the_bucket_and_its_rate(steps: list[tuple[int, str]]) -> None:
    known, now, done = rate.fresh("CreateFleet", now_ms=0), 0, 0
    for gap, step in steps:
        now += gap
        if step == "refused":
            known = rate.slowed(known, now_ms=now) or known
        else:
            known, wait = rate.take(known, 1, now_ms=now)
            done += wait == 0
    assert done * CALL <= 40 * CALL + rate.fastest("CreateFleet") * now // SECOND
    assert rate.SLOWEST <= known.per_second <= rate.fastest("CreateFleet")


@given(st.integers(0, 10**7), st.integers(0, 10**5))
def test_a_wait_is_long_enough(tokens: int, elapsed: int) -> None:
    known = CallRate("CreateFleet", rate.fastest("CreateFleet") // 3, tokens % CALL, 0)
    after, wait = rate.take(known, 1, now_ms=elapsed)
    assert wait == 0 or rate.take(after, 1, now_ms=elapsed + wait)[1] == 0
