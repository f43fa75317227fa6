"""Exceptions for the outside world, and nothing else: expected outcomes are values."""


class ApiError(Exception):
    """An API did not do what was asked. ``code`` is the vendor's own."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class NotFound(ApiError):
    """The API itself says that the thing is not there."""


class Conflict(ApiError):
    """A precondition did not hold: somebody else was faster, or it exists already."""


class Throttled(ApiError):
    """Too many requests, after our bounded retries. ``retry_after_seconds``: when the API takes more, 0 = not known."""

    def __init__(self, message: str, *, code: str = "", retry_after_seconds: int = 0) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds


class Denied(ApiError):
    """We may not."""


class InvalidRequest(ApiError):
    """The API calls our request wrong; repeating it is pointless."""


class Unavailable(ApiError):
    """No answer, or a 5xx, after our bounded retries: nothing may be concluded from it."""


class OutOfTime(Unavailable):
    """The invocation ends so soon that no answer is waited for: nothing was asked, or what was asked may be done."""


class MissingRegion(Exception):
    """Nothing names the AWS region: no request can be sent."""


class BadConfiguration(Exception):
    """A profile, a region or credentials of the environment make no client of AWS: no request can be sent."""


def error_code(error: Exception) -> str:
    """What a log line names an error by: the vendor's code, else the error's type."""
    return error.code if isinstance(error, ApiError) else type(error).__name__
