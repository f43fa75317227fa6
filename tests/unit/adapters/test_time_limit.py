"""Bodies that are being read when an invocation ends."""

import time
from contextlib import ExitStack

from spotwright.adapters import time_limit


class Response:
    """Counts how often it was ended; ``error``: what it raises then."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ended, self._error = 0, error

    def shutdown(self) -> None:
        self.ended += 1
        if self._error is not None:
            raise self._error


def test_the_end_of_an_invocation_ends_all_bodies_also_beside_those_that_have_just_been_read() -> None:
    responses = [Response(RuntimeError("released")), Response(ValueError("closed")), Response(OSError("gone"))]
    seconds = time_limit.CLOSING_SECONDS + 0.05
    with time_limit.invocation_ends_in(seconds), ExitStack() as read:
        for response in responses:
            read.enter_context(time_limit.reading(response))
        time.sleep(0.2)
    assert [response.ended for response in responses] == [1, 1, 1]


def test_the_end_of_an_invocation_ends_no_body_of_the_next_one() -> None:
    response = Response()
    with time_limit.invocation_ends_in(time_limit.CLOSING_SECONDS + 0.05):
        pass
    with time_limit.invocation_ends_in(60), time_limit.reading(response):
        time.sleep(0.2)
    assert response.ended == 0


def test_the_end_of_an_invocation_leaves_bodies_alone_that_were_read() -> None:
    """Their connections serve other requests by then."""
    response = Response()
    with time_limit.invocation_ends_in(time_limit.CLOSING_SECONDS + 0.05):
        with time_limit.reading(response):
            pass
        time.sleep(0.2)
    assert response.ended == 0


def test_a_body_that_begins_when_no_time_is_left_is_not_read() -> None:
    """Its head came at the last moment, and nothing ends it later."""
    response = Response(RuntimeError("released"))
    with time_limit.invocation_ends_in(time_limit.CLOSING_SECONDS - 1):
        time.sleep(0.1)
        with time_limit.reading(response):
            assert response.ended == 1
