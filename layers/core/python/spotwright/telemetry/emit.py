"""Reporting a row: the only place that writes log lines and CloudWatch metrics."""

import logging
from typing import Protocol

from spotwright.telemetry.rows import LogLine, Metric, check_fields


class NamedLogger(Protocol):
    """A logger of Python, or Powertools' around one."""

    @property
    def name(self) -> str: ...


class MetricSink(Protocol):
    """Powertools' Metrics."""

    def add_metric(self, name: str, unit: str, value: float) -> None: ...


def log_line(logger: NamedLogger, line: LogLine, /, **fields: object) -> None:
    """Write the line with exactly the fields that it declares."""
    check_fields(line.message, fields, line.fields)
    python_logger = logging.getLogger(logger.name)
    python_logger.log(line.level, line.message, exc_info=line.traceback, stacklevel=2, extra=fields)


def add_metric(metrics: MetricSink, metric: Metric, value: float) -> None:
    metrics.add_metric(name=metric.name, unit=metric.unit.value, value=value)
