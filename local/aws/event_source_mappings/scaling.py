"""How many batches of a standard queue run at once: five, then more for as long as they do not suffice.

Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
"""

from dataclasses import dataclass, field

FIRST_BATCHES = 5
# "Up to 300 more per minute", taken as five each second.
FURTHER_BATCHES_PER_SECOND = 5
# Of a mapping without MaximumConcurrency.
MOST_BATCHES = 1250


@dataclass
class Scaling:
    """Of one mapping. Seconds are those of a monotonic clock."""

    _full_since: float | None = field(default=None, init=False)

    def batches(self, running: int, maximum: int | None, now: float) -> int:
        """How many may run now, while ``running`` do; ``maximum`` is the mapping's MaximumConcurrency.

        Growth begins when the first five run, and begins anew when fewer do.
        """
        if running < FIRST_BATCHES:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        seconds = 0.0 if self._full_since is None else now - self._full_since
        grown = FIRST_BATCHES + FURTHER_BATCHES_PER_SECOND * int(seconds)
        return min(grown, MOST_BATCHES if maximum is None else maximum)
