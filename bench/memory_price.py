"""What a function costs with a memory size: of an invocation, of a million, and of a month in which nothing happens."""

import math
from collections.abc import Iterable
from typing import Final

#: US dollars in us-east-1 on arm64, as docs/cost.md has them. https://aws.amazon.com/lambda/pricing/
PER_GB_SECOND: Final = 0.0000133334
PER_REQUEST: Final = 0.20 / 10**6
#: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
MB_PER_PROCESSOR: Final = 1769


def invocation(milliseconds: float, memory_mb: int) -> float:
    """Lambda counts whole milliseconds."""
    return math.ceil(milliseconds) / 1000 * memory_mb / 1024 * PER_GB_SECOND + PER_REQUEST


def computed_milliseconds(processor_ms: float, waiting_ms: float, memory_mb: int) -> float:
    """How long work takes that computes and waits in turn, with the share of a processor that a memory size buys.

    One thread of Python cannot use more than one processor.
    """
    return processor_ms / min(1.0, memory_mb / MB_PER_PROCESSOR) + waiting_ms


def month(invocations: Iterable[tuple[float, int]], memory_mb: int) -> float:
    """Dollars of (milliseconds, times in a month)."""
    return sum(times * invocation(milliseconds, memory_mb) for milliseconds, times in invocations)
