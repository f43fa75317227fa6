"""Bounded retries of requests to an API server."""

import random
import time
from collections.abc import Callable
from typing import Final

from spotwright.errors import OutOfTime, Throttled, Unavailable

ATTEMPTS: Final = 4
# Full jitter between 0 and the step, which doubles: at most 0.1 + 0.2 + 0.4 s of waiting.
FIRST_PAUSE_SECONDS: Final = 0.1
# So long it is waited besides where the API server says for how long it takes no more: a second where its queues are
# full, in which all attempts would be lost otherwise. It says more while it shuts down, when another one takes over.
LONGEST_RETRY_AFTER_SECONDS: Final = 1


def with_attempts[Answer](send: Callable[[], Answer], attempts: int = ATTEMPTS) -> Answer:
    """What ``send`` answers; again while the API server throttles or does not answer."""
    for attempt in range(1, attempts):
        try:
            return send()
        except OutOfTime:
            raise
        except (Throttled, Unavailable) as error:
            stated = error.retry_after_seconds if isinstance(error, Throttled) else 0
            pause = random.uniform(0, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            time.sleep(min(stated, LONGEST_RETRY_AFTER_SECONDS) + pause)
    return send()
