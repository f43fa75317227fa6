"""A campaign: episode after episode until so many steps were made, or until an invariant does not hold."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from tests.campaign.episode import Episode, Result
from tests.campaign.serial import serial_calls

EPISODE_STEPS: Final = 500
# A failing episode is run so often with fewer events and faults, at most.
SHRINKING_RUNS: Final = 80


class Failure(msgspec.Struct, frozen=True):
    """The episode in which an invariant did not hold; ``steps``: how many it was to have."""

    episode: int
    steps: int
    result: Result


def run_campaign(
    *, seed: int, steps: int, tell: Callable[[int, Result], None] = lambda _, __: None
) -> tuple[Result, Failure | None]:
    """Everything that the episodes did, and the first that failed. ``tell``: called after each with its number."""
    total, episode = Result(), 0
    while total.steps < steps:
        episode += 1
        wanted = min(EPISODE_STEPS, steps - total.steps)
        result = run_episode(seed, episode, wanted)
        total = _add(total, result)
        tell(episode, result)
        if result.violation is not None:
            return total, Failure(episode, wanted, result)
    return total, None


def run_episode(seed: int, episode: int, steps: int, *, left_out: Collection[int] = ()) -> Result:
    """One episode, always the same for the same arguments."""
    with serial_calls(), _without_log_lines():
        return Episode(f"{seed}/{episode}", left_out=left_out).run(steps)


def shrink(seed: int, failure: Failure) -> tuple[Result, frozenset[int]]:
    """The episode with fewer events and faults that breaks the same invariant, and the steps that it leaves out.

    Runs of consecutive steps are left out together, at first the half of them, at last single ones.
    """
    assert failure.result.violation is not None
    best, left_out = failure.result, frozenset[int]()
    runs, size = 0, max(1, len(best.happened) // 2)
    while runs < SHRINKING_RUNS:
        shorter = False
        for chunk in _chunks(sorted(best.happened), size):
            runs += 1
            result = run_episode(seed, failure.episode, failure.steps, left_out=left_out | chunk)
            if result.violation is not None and result.violation.invariant == failure.result.violation.invariant:
                best, left_out, shorter = result, left_out | chunk, True
                break
            if runs >= SHRINKING_RUNS:
                break
        if not shorter and size == 1:
            break
        size = size if shorter else max(1, size // 2)
    return best, left_out


def _chunks(steps: list[int], size: int) -> Iterator[frozenset[int]]:
    """Last ones first: what is near the end is seldom the cause of what went before."""
    for end in range(len(steps), 0, -size):
        yield frozenset(steps[max(0, end - size) : end])


def _add(total: Result, more: Result) -> Result:
    return Result(
        steps=total.steps + more.steps,
        seconds=total.seconds + more.seconds,
        events=Counter(total.events) + Counter(more.events),
        faults=Counter(total.faults) + Counter(more.faults),
        invocations=Counter(total.invocations) + Counter(more.invocations),
        checks=Counter(total.checks) + Counter(more.checks),
        met=Counter(total.met) + Counter(more.met),
        longest_rest_seconds=max(total.longest_rest_seconds, more.longest_rest_seconds),
        largest_row_bytes=max(total.largest_row_bytes, more.largest_row_bytes),
        most_messages=max(total.most_messages, more.most_messages),
        violation=more.violation,
    )


@contextmanager
def _without_log_lines() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
