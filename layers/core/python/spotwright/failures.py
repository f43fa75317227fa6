"""Exceptions for the outside world, and nothing else: expected outcomes are values."""


class Failure(Exception):
    """An API did not do what was asked. ``code`` is the vendor's own."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class NotFound(Failure):
    """The API itself says that the thing is not there."""


class Conflict(Failure):
    """A precondition did not hold: somebody else was faster, or it exists already."""


class Throttled(Failure):
    """Too many requests, after our bounded retries."""


class Denied(Failure):
    """We may not."""


class InvalidRequest(Failure):
    """The API calls our request wrong; repeating it is pointless."""


class Unavailable(Failure):
    """No answer, or a 5xx, after our bounded retries: nothing may be concluded from it."""
