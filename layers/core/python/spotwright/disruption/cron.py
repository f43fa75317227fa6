"""Cron schedules of disruption budgets: five fields or a macro, always in UTC.

Source: the standard parser of ``github.com/robfig/cron`` v3, which Karpenter uses: day of month and day of week are
alternatives when both are restricted, ranges do not wrap, Sunday is 0 only.
"""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from spotwright.model.quoting import quote

_MACROS: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_DAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}


class CronError(ValueError):
    """An invalid schedule; the message names field, value and what is allowed."""


class Field(msgspec.Struct, frozen=True):
    """The allowed values of a field. ``unrestricted``: it is ``*`` or ``?``."""

    values: frozenset[int]
    unrestricted: bool


class Schedule(msgspec.Struct, frozen=True):
    minute: Field
    hour: Field
    day_of_month: Field
    month: Field
    day_of_week: Field

    def last_activation(self, *, after: datetime, until: datetime) -> datetime | None:
        """The latest moment of the schedule with ``after`` < moment ≤ ``until``; None if there is none."""
        day = until.date()
        while day >= after.date():
            if self._includes_day(day) and (moment := self._last_time_on(day, until)) is not None:
                return moment if moment > after else None
            day -= timedelta(days=1)
        return None

    def _includes_day(self, day: date) -> bool:
        if day.month not in self.month.values:
            return False
        by_month, by_week = day.day in self.day_of_month.values, day.isoweekday() % 7 in self.day_of_week.values
        if self.day_of_month.unrestricted or self.day_of_week.unrestricted:
            return by_month and by_week
        return by_month or by_week

    def _last_time_on(self, day: date, until: datetime) -> datetime | None:
        for hour in sorted(self.hour.values, reverse=True):
            for minute in sorted(self.minute.values, reverse=True):
                moment = datetime.combine(day, time(hour, minute), tzinfo=until.tzinfo)
                if moment <= until:
                    return moment
        return None


def parse(text: str) -> Schedule:
    """A schedule; raises CronError."""
    if text.startswith("TZ=") or text.startswith("CRON_TZ="):
        raise CronError(f"{quote(text)}: schedules are in UTC, a time zone cannot be given")
    fields = _MACROS.get(text, text).split()
    if len(fields) != 5:
        raise CronError(f"{quote(text)} has {len(fields)} fields; 5 are needed, or one of {', '.join(sorted(_MACROS))}")
    return Schedule(
        _field("minute", fields[0], 0, 59, {}),
        _field("hour", fields[1], 0, 23, {}),
        _field("day of month", fields[2], 1, 31, {}),
        _field("month", fields[3], 1, 12, _MONTHS),
        _field("day of week", fields[4], 0, 6, _DAYS),
    )


def _field(name: str, text: str, low: int, high: int, names: Mapping[str, int]) -> Field:
    values: set[int] = set()
    unrestricted = False
    for part in text.split(","):
        value_range, slash, step_text = part.partition("/")
        step = _number(name, step_text, {}) if slash else 1
        if step < 1:
            raise CronError(f"{name} {quote(part)}: the step must be at least 1")
        if value_range in ("*", "?"):
            first, last = low, high
            unrestricted = unrestricted or step == 1
        else:
            begin, dash, end = value_range.partition("-")
            first = _number(name, begin, names)
            last = _number(name, end, names) if dash else (high if slash else first)
        if not low <= first <= last <= high:
            order = ", the first not after the last" if first != last else ""
            raise CronError(f"{name} {quote(part)}: must lie within {low} and {high}{order}")
        values.update(range(first, last + 1, step))
    return Field(frozenset(values), unrestricted)


def _number(name: str, text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.isascii() or not text.isdigit():
        allowed = f" or one of {', '.join(names)}" if names else ""
        raise CronError(f"{name} {quote(text)}: must be a number{allowed}")
    # A Decimal is read from any number of digits, an int is not.
    return int(Decimal(text))
