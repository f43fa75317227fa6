"""The kinds of rows: an Event, a log line, a metric, each with the fields that it names."""

from collections.abc import Collection
from datetime import timedelta
from enum import IntEnum, StrEnum
from functools import cache
from string import Formatter
from typing import Final

import msgspec

# How long an Event with the same message is not recorded again on the same object, unless its row says otherwise.
REPEAT_AFTER: Final = timedelta(minutes=2)


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class Event(msgspec.Struct, frozen=True):
    """A Kubernetes Event to record: a row with its fields filled in. Only a row makes one."""

    row: "EventRow"
    reason: str
    message: str

    @property
    def type(self) -> EventType:
        return self.row.type


class EventRow(msgspec.Struct, frozen=True):
    """An Event. ``reason`` and ``message`` are templates with named fields; ``objects``: plural names of kinds.

    ``when``: when it is recorded, a sentence; ``remedy``: what to do about it, a sentence, "" = nothing.
    """

    reason: str
    type: EventType
    objects: tuple[str, ...]
    message: str
    when: str
    remedy: str = ""
    repeat_after: timedelta = REPEAT_AFTER

    def __call__(self, **fields: object) -> Event:
        check_fields(self.message, fields, _template_fields(self.reason) | _template_fields(self.message))
        return Event(self, self.reason.format(**fields), self.message.format(**fields))


class Level(IntEnum):
    """The numbers of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class LogLine(msgspec.Struct, frozen=True):
    """A log line: its message, and the names of the fields beside it. ``traceback``: the exception's is added."""

    level: Level
    message: str
    fields: tuple[str, ...]
    when: str
    remedy: str = ""
    traceback: bool = False


class Unit(StrEnum):
    """CloudWatch's units."""

    COUNT = "Count"
    SECONDS = "Seconds"
    NONE = "None"


class Graph(StrEnum):
    """The dashboard's graphs of Spotwright's own metrics, in their order; the values are their titles."""

    PODS = "Pods pending, unschedulable, and bound where they were planned"
    NODES = "Nodes by capacity type, and $ per hour"
    LATENCY = "Seconds from pod to decision to instance to ready node (p90)"
    CHANGES = "Launches, EC2NodeClasses that are not ready, interruptions and disruptions"


class Line(msgspec.Struct, frozen=True):
    """A metric's line in a graph of the dashboard."""

    graph: Graph
    statistic: str
    right_axis: bool = False


class Alarm(msgspec.Struct, frozen=True):
    """Rings for a cluster, queue or function when a metric is at least ``threshold`` for so many ``minutes`` in a row.

    ``name``: the end of the alarm's name, and its section in docs/runbook.md. ``meaning``: what happened and what it
    means; ``remedy``: what to do first; sentences in which {subject} stands for the cluster, queue or function.
    ``statistic``: of each period of ``period_minutes``. ``is_missed``: rings when there is no value for so long.
    """

    name: str
    minutes: int
    meaning: str
    remedy: str
    threshold: int = 1
    period_minutes: int = 1
    statistic: str = "Sum"
    is_missed: bool = False

    def description(self, subject: str) -> str:
        """What the alarm says of itself, with the section that says more."""
        return f"{self.meaning} {self.remedy} docs/runbook.md#{self.name.lower()}".replace("{subject}", subject)


class Metric(msgspec.Struct, frozen=True):
    """A CloudWatch metric in the namespace Spotwright, by cluster and function.

    ``functions``: who writes it. ``counted``: log lines, each of which adds one, or its field ``counted_field``.
    """

    name: str
    unit: Unit
    functions: tuple[str, ...]
    when: str
    counted: tuple[LogLine, ...] = ()
    counted_field: str = ""
    line: Line | None = None
    alarm: Alarm | None = None


class PrometheusMetric(msgspec.Struct, frozen=True):
    """A metric of the forwarder's page /metrics. ``kind``: gauge | counter."""

    name: str
    kind: str
    when: str


def check_fields(row: str, fields: Collection[str], declared: Collection[str]) -> None:
    """Raise TypeError unless ``fields`` are exactly those that the row declares."""
    if set(fields) != set(declared):
        raise TypeError(f"{row!r} has the fields {sorted(declared)}, not {sorted(fields)}")


@cache
def _template_fields(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)
