"""Laws of when doorbells are sent."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from forwarder.batching import (
    EMPTY,
    NEVER,
    Batch,
    BatchWindow,
    KeyedThrottle,
    add_to_batch,
    due_at,
    next_due_at,
    request_keys,
    take_due_keys,
)
from forwarder.doorbells import QueuedDoorbell

ROUNDING = 1e-6
BELLS = st.builds(
    QueuedDoorbell, queue=st.sampled_from(["a", "b"]), kind=st.just("k"), key=st.sampled_from(["", "x", "y"])
)
GAPS = st.floats(min_value=0, max_value=30, allow_nan=False)
RINGS = st.lists(st.tuples(GAPS, st.frozensets(BELLS, min_size=1)), min_size=1, max_size=40)
WINDOWS = st.builds(
    lambda idle, more: BatchWindow(idle, idle + more),
    st.floats(min_value=0.01, max_value=5),
    st.floats(min_value=0, max_value=20),
)


def played(rings: list[tuple[float, frozenset[QueuedDoorbell]]], window: BatchWindow) -> list[tuple[float, Batch]]:
    """What is sent when, by a loop that sends the moment a batch is due."""
    sent: list[tuple[float, Batch]] = []
    batch, now = EMPTY, 0.0
    for gap, bells in rings:
        now += gap
        if due_at(batch, window) <= now:
            sent.append((due_at(batch, window), batch))
            batch = EMPTY
        batch = add_to_batch(batch, bells, now)
    return [*sent, (due_at(batch, window), batch)]


@given(RINGS, WINDOWS)
def test_every_bell_is_sent_and_none_is_invented(
    rings: list[tuple[float, frozenset[QueuedDoorbell]]], window: BatchWindow
) -> None:
    sent: frozenset[QueuedDoorbell] = frozenset().union(*(batch.doorbells for _, batch in played(rings, window)))
    assert sent == frozenset().union(*(bells for _, bells in rings))


@given(RINGS, WINDOWS)
def test_no_bell_waits_longer_than_the_window(
    rings: list[tuple[float, frozenset[QueuedDoorbell]]], window: BatchWindow
) -> None:
    for at, batch in played(rings, window):
        assert at <= batch.first_at + window.max_seconds
        assert at <= batch.last_at + window.idle_seconds


@given(RINGS, WINDOWS)
def test_a_batch_is_not_sent_while_it_still_rings(
    rings: list[tuple[float, frozenset[QueuedDoorbell]]], window: BatchWindow
) -> None:
    """Only the longest wait cuts a burst short."""
    for at, batch in played(rings, window):
        assert at == batch.last_at + window.idle_seconds or at == batch.first_at + window.max_seconds


def test_a_burst_is_one_batch_and_a_steady_stream_ends_after_the_longest_wait() -> None:
    bell = frozenset({QueuedDoorbell("provision", "pods")})
    window = BatchWindow(1.0, 10.0)
    assert len(played([(0.5, bell)] * 5, window)) == 1
    assert played([(0.5, bell)] * 30, window)[0][0] == 10.5


def test_nothing_is_never_due() -> None:
    assert due_at(EMPTY, BatchWindow(1, 10)) == NEVER
    assert add_to_batch(EMPTY, frozenset(), 5.0) == EMPTY
    assert next_due_at(KeyedThrottle(10)) == NEVER


@given(st.lists(st.tuples(GAPS, st.sampled_from(["x", "y"])), min_size=1, max_size=40))
def test_one_bell_per_key_and_period_and_none_lost(asked: list[tuple[float, str]]) -> None:
    pace, now = KeyedThrottle(10.0), 0.0
    rang: dict[str, list[float]] = {"x": [], "y": []}
    last_asked: dict[str, float] = {}
    for gap, key in asked:
        moment = now + gap
        while next_due_at(pace) < moment:
            now = next_due_at(pace)
            keys, pace = take_due_keys(pace, now)
            for one in keys:
                rang[one].append(now)
        now = moment
        pace = request_keys(pace, {key}, now)
        last_asked[key] = now
    while next_due_at(pace) < NEVER:
        now = next_due_at(pace)
        keys, pace = take_due_keys(pace, now)
        for one in keys:
            rang[one].append(now)
    for key, times in rang.items():
        assert all(later - earlier >= 10.0 - ROUNDING for earlier, later in pairwise(times))
        if key in last_asked:
            assert last_asked[key] <= times[-1] <= last_asked[key] + 10.0 + ROUNDING


def test_what_is_long_ago_is_forgotten() -> None:
    pace = KeyedThrottle(10.0)
    for number in range(100):
        pace = request_keys(pace, {str(number)}, float(number * 11))
        _, pace = take_due_keys(pace, float(number * 11))
    assert len(pace.last_at) == 1
