"""One thing that happened, as the timeline keeps it and people read it."""

from dataclasses import dataclass, field
from typing import Any

type Json = dict[str, Any]


@dataclass(frozen=True)
class TimelineEntry:
    """One line of the timeline. ``at``: seconds since the epoch, as its source states it where it does."""

    at: float
    source: str
    subject: str
    event: str
    text: str
    data: Json = field(default_factory=dict, compare=False)
