"""Virtual time."""

from datetime import UTC, datetime, timedelta


class Clock:
    """A clock that moves only by ``advance``."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> datetime:
        self._now += timedelta(seconds=seconds)
        return self._now

    def seconds(self) -> datetime:
        """Now in whole seconds, as Kubernetes keeps its times."""
        return self._now.replace(microsecond=0)

    def milliseconds(self) -> int:
        return int(self._now.timestamp() * 1000)
