"""Calls side by side: results in order, at most so many at once, and an end after a failure."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spotwright.errors import Unavailable
from spotwright.workflows import parallel
from spotwright.workflows.parallel import CALLS_AT_ONCE, in_parallel


def test_results_come_in_the_order_of_the_items_whichever_ends_first() -> None:
    second_ended = threading.Event()

    def work(item: int) -> int:
        if item == 1:
            assert second_ended.wait(300)
        if item == 2:
            second_ended.set()
        return -item

    assert in_parallel(work, [1, 2, 3]) == [-1, -2, -3]


def test_no_more_than_the_bound_run_at_once() -> None:
    running, most, lock, full = set[int](), [0], threading.Lock(), threading.Barrier(CALLS_AT_ONCE)

    def work(item: int) -> None:
        with lock:
            running.add(item)
            most[0] = max(most[0], len(running))
        full.wait(300)
        with lock:
            running.remove(item)

    in_parallel(work, range(3 * CALLS_AT_ONCE))
    assert most == [CALLS_AT_ONCE]


def test_after_a_failure_nothing_more_is_begun_and_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    is_shut_down = threading.Event()

    class Threads(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            """What is under way ends when what waits has been dropped."""
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            is_shut_down.set()
            super().shutdown(wait=wait)

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise Unavailable("no answer")
        assert is_shut_down.wait(300)

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Threads)
    with pytest.raises(Unavailable, match="no answer"):
        in_parallel(work, range(1000))
    assert len(begun) <= CALLS_AT_ONCE + 1


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_do_side_by_side_needs_no_thread(count: int) -> None:
    assert in_parallel(lambda _: threading.current_thread(), range(count)) == [threading.main_thread()] * count
