"""Questions to AWS whose refusal is an answer, too: ``NotAsked``."""

from collections.abc import Callable

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, Denied, NotFound
from spotwright.workflows.install.preflight.facts import NotAsked


def ask[Answer](what: str, call: Callable[[], Answer]) -> Answer | NotAsked:
    """The answer, or why there is none."""
    answer = find(what, call)
    return NotAsked(f"{what} was answered with NotFound") if answer is None else answer


def find[Answer](what: str, call: Callable[[], Answer]) -> Answer | None | NotAsked:
    """The same; None when AWS says that it does not exist."""
    try:
        with translate_errors(what):
            return call()
    except NotFound:
        return None
    except Denied as refusal:
        return NotAsked(f"{what} is denied to you ({refusal.code})")
    except ApiError as failure:
        return NotAsked(" ".join(str(failure).split()))
