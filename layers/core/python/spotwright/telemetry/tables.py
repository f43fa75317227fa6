"""All rows of the tables, by their constants' names, in the order in which they are declared."""

from types import ModuleType

from spotwright.telemetry import events, log_lines, metrics
from spotwright.telemetry.rows import EventRow, LogLine, Metric, PrometheusMetric


def event_rows() -> dict[str, EventRow]:
    return _rows(events, EventRow)


def log_line_rows() -> dict[str, LogLine]:
    return _rows(log_lines, LogLine)


def metric_rows() -> dict[str, Metric]:
    return _rows(metrics, Metric)


def prometheus_rows() -> dict[str, PrometheusMetric]:
    return _rows(metrics, PrometheusMetric)


def _rows[Row](module: ModuleType, kind: type[Row]) -> dict[str, Row]:
    return {name: row for name, row in vars(module).items() if isinstance(row, kind)}
