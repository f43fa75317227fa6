"""Reporting a row: the only place that writes log lines and CloudWatch metrics."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, Protocol

from spotwright.telemetry.rows import LogLine, Metric, check_fields

_CONTEXT: Final[ContextVar[Mapping[str, str]]] = ContextVar("fields of every line", default=MappingProxyType({}))


class NamedLogger(Protocol):
    """A logger of Python, or Powertools' around one."""

    @property
    def name(self) -> str: ...


class MetricSink(Protocol):
    """Powertools' Metrics."""

    def add_metric(self, name: str, unit: str, value: float) -> None: ...


def log_line(logger: NamedLogger, line: LogLine, /, **fields: object) -> None:
    """Write the line with exactly the fields that it declares, and those of ``log_context``."""
    check_fields(line.message, fields, line.fields)
    fields = {**_CONTEXT.get(), **fields}
    python_logger = logging.getLogger(logger.name)
    python_logger.log(line.level, line.message, exc_info=line.traceback, stacklevel=2, extra=fields)


@contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Lines inside carry these fields as well, but for empty ones; a field of a line's own goes before it."""
    token = _CONTEXT.set({**_CONTEXT.get(), **{name: value for name, value in fields.items() if value}})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def add_metric(metrics: MetricSink, metric: Metric, value: float) -> None:
    metrics.add_metric(name=metric.name, unit=metric.unit.value, value=value)
