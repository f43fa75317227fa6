"""When a schedule fires: `rate(...)`, `cron(...)` and `at(...)` expressions. Pure.

Source: https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
"""

import calendar
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

_RATE = re.compile(r"rate\((\d+) (minute|minutes|hour|hours|day|days)\)")
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_CRON = re.compile(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)")
_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_MONTHS = {name.upper(): str(number) for number, name in enumerate(calendar.month_abbr) if name}
_WEEKDAYS = {name: str(number + 1) for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}
# A cron expression without a match in this time never matches (29 February comes within eight years).
_HORIZON_DAYS = 366 * 9


@dataclass(frozen=True)
class Rate:
    period_seconds: int


@dataclass(frozen=True)
class At:
    moment: datetime


@dataclass(frozen=True)
class Cron:
    """Six fields; `weekdays` count from 1 = Sunday. `L`, `W` and `#` are not supported."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    years: frozenset[int]
    zone: ZoneInfo

    def next_after(self, moment: datetime) -> datetime | None:
        """The first firing later than `moment` (aware), or None."""
        local = moment.astimezone(self.zone)
        for offset in range(_HORIZON_DAYS):
            day = local.date() + timedelta(days=offset)
            if self._is_on(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        candidate = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone)
                        if candidate > local:
                            return candidate
        return None

    def _is_on(self, day: date) -> bool:
        return (
            day.year in self.years
            and day.month in self.months
            and day.day in self.days
            and (day.isoweekday() % 7) + 1 in self.weekdays
        )


def parse_expression(expression: str, timezone: str = "UTC") -> Rate | At | Cron:
    """Raises ValueError for an expression AWS would refuse."""
    zone = ZoneInfo(timezone or "UTC")
    if found := _RATE.fullmatch(expression):
        count, unit = int(found[1]), found[2]
        if count < 1 or (count == 1) == unit.endswith("s"):
            raise ValueError(f"invalid schedule expression {expression}")
        return Rate(count * _UNIT_SECONDS[unit.removesuffix("s")])
    if found := _AT.fullmatch(expression):
        return At(datetime.fromisoformat(found[1]).replace(tzinfo=zone))
    if found := _CRON.fullmatch(expression):
        minutes, hours, days, months, weekdays, years = found.groups()
        if "?" not in (days, weekdays):
            raise ValueError(f"one of day-of-month and day-of-week must be ?: {expression}")
        return Cron(
            _field(minutes, 0, 59),
            _field(hours, 0, 23),
            _field(days, 1, 31),
            _field(_named(months, _MONTHS), 1, 12),
            _field(_named(weekdays, _WEEKDAYS), 1, 7),
            _field(years, 1970, 2199),
            zone,
        )
    raise ValueError(f"invalid schedule expression {expression}")


def _named(text: str, names: dict[str, str]) -> str:
    return re.sub(r"[A-Z]{3}", lambda match: names.get(match[0], match[0]), text.upper())


def _field(text: str, low: int, high: int) -> frozenset[int]:
    """Numbers of one field: `*`, `?`, lists, ranges, steps."""
    numbers: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span in ("*", "?"):
            begin, end = low, high
        else:
            begin = int(first)
            end = int(last) if last else (high if step else begin)
        if not low <= begin <= end <= high:
            raise ValueError(f"{text} is out of range {low}-{high}")
        numbers.update(range(begin, end + 1, int(step or 1)))
    return frozenset(numbers)
