"""Metrics from log lines: the rows of the table that count lines, or one of a line's fields."""

import logging
from collections import Counter
from typing import Final

from aws_lambda_powertools import Logger, Metrics

from spotwright.telemetry.emit import add_metric
from spotwright.telemetry.rows import Metric, Unit
from spotwright.telemetry.tables import metric_rows

_METRICS_BY_MESSAGE: Final[dict[str, list[Metric]]] = {}
for _metric in metric_rows().values():
    for _line in _metric.counted:
        _METRICS_BY_MESSAGE.setdefault(_line.message, []).append(_metric)


class LogMetrics(logging.Handler):
    """Adds up what counts in the lines, and keeps the seconds they state."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Metric] = Counter()
        self.durations: list[tuple[Metric, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        for metric in _METRICS_BY_MESSAGE.get(record.getMessage(), ()):
            value = vars(record)[metric.counted_field] if metric.counted_field else 1
            if metric.unit is Unit.SECONDS:
                self.durations.append((metric, value))
            else:
                self.counts[metric] += value

    def flush_into(self, metrics: Metrics) -> None:
        """Hand everything over and begin anew."""
        for metric, value in (*sorted(self.counts.items(), key=lambda count: count[0].name), *self.durations):
            add_metric(metrics, metric, value)
        self.counts.clear()
        self.durations.clear()


def count_log_lines(logger: Logger, *workflows: str) -> LogMetrics:
    """Let the library's loggers ``workflows`` write as the function's own, and count their lines. Once per process."""
    counter = LogMetrics()
    for workflow in workflows:
        workflow_logger = logging.getLogger(workflow)
        workflow_logger.setLevel(logger.log_level)
        # The runtime's own handler at the root would write each line a second time.
        workflow_logger.propagate = False
        workflow_logger.handlers = [*logger.handlers, counter]
    return counter
