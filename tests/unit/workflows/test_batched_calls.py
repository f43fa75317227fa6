"""What threads ask for at the same moment, asked for by one call."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from spotwright.errors import ApiError, NotFound
from spotwright.workflows.batched_calls import BatchedCalls


class Source:
    """What is read: a key in capitals. ``reads``: of which keys each call was. The first call waits for ``open``."""

    def __init__(self, answer: Callable[[str], str | Exception] = str.upper) -> None:
        self.reads: list[list[str]] = []
        self.open = Event()
        self._answer = answer

    def __call__(self, keys: Sequence[str]) -> Mapping[str, str | Exception]:
        self.reads.append(sorted(keys))
        if len(self.reads) == 1:
            assert self.open.wait(10)
        return {key: self._answer(key) for key in keys}


@contextmanager
def beside_a_read(source: Source, *keys: str) -> Iterator[list[Future[str]]]:
    """While the key "first" is being read, the others are asked for; they are answered after the block."""
    batched = BatchedCalls(source)
    with ThreadPoolExecutor(len(keys) + 1) as threads:
        asked = [threads.submit(batched, "first")]
        while not source.reads:
            time.sleep(0.01)
        asked += [threads.submit(batched, key) for key in keys]
        time.sleep(0.2)
        yield asked
        source.open.set()


def test_what_is_asked_for_while_a_read_is_under_way_is_the_next_one_together() -> None:
    source = Source()
    with beside_a_read(source, "b", "a", "c") as asked:
        pass
    assert [answer.result() for answer in asked] == ["FIRST", "B", "A", "C"]
    assert source.reads == [["first"], ["a", "b", "c"]]


def test_an_answer_is_never_older_than_its_question() -> None:
    source = Source()
    with beside_a_read(source, "first", "first"):
        pass
    assert source.reads == [["first"], ["first"]]


def test_a_key_without_an_answer_does_not_fail_the_others() -> None:
    source = Source(lambda key: NotFound("a is not there") if key == "a" else key)
    with beside_a_read(source, "a", "b") as asked:
        pass
    with pytest.raises(NotFound, match="a is not there"):
        asked[1].result()
    assert asked[2].result() == "b"


@pytest.mark.parametrize("failure", [ApiError("no answer"), KeyboardInterrupt()])
def test_a_call_that_fails_is_the_failure_of_all_who_wait_for_it_and_of_nobody_else(failure: BaseException) -> None:
    source = Source()

    def fails(keys: Sequence[str]) -> Mapping[str, str | Exception]:
        found = source(keys)
        if keys != ("first",) and keys != ("later",):
            raise failure
        return found

    batched = BatchedCalls(fails)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(batched, "first")
        while not source.reads:
            time.sleep(0.01)
        others = [threads.submit(batched, key) for key in ("a", "b")]
        time.sleep(0.2)
        source.open.set()
    assert first.result() == "FIRST"
    assert [answer.exception() for answer in others] == [failure, failure]
    assert batched("later") == "LATER"


def test_a_key_that_the_call_forgot_keeps_nobody_waiting() -> None:
    source = Source()
    batched = BatchedCalls[str, str](lambda keys: {key: found for key, found in source(keys).items() if key != "b"})
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(batched, "first")
        while not source.reads:
            time.sleep(0.01)
        asked = threads.submit(batched, "a")
        time.sleep(0.1)
        forgotten = threads.submit(batched, "b")
        time.sleep(0.1)
        source.open.set()
    assert [first.result(), asked.result()] == ["FIRST", "A"]
    assert isinstance(forgotten.exception(), KeyError)


@pytest.mark.parametrize("asked", ["other", "first"])
def test_what_a_call_asks_for_itself_is_a_call_of_its_own(asked: str) -> None:
    """It does not wait for the call that it is a part of."""
    calls = list[Sequence[str]]()

    def asks_again(keys: Sequence[str]) -> Mapping[str, str | Exception]:
        calls.append(keys)
        return {key: batched(asked) if len(calls) == 1 else key.upper() for key in keys}

    batched, answers = BatchedCalls(asks_again), list[str]()
    thread = Thread(target=lambda: answers.append(batched("first")), daemon=True)
    thread.start()
    thread.join(10)
    assert answers == [asked.upper()]
    assert calls == [("first",), (asked,)]
