"""Metrics from log lines: the rows of the table that count lines, or one of a line's fields."""

import logging
from collections import Counter
from typing import Final

from aws_lambda_powertools import Logger, Metrics

from spotwright.telemetry.emit import add_metric
from spotwright.telemetry.rows import Metric, Unit
from spotwright.telemetry.tables import metric_rows

# Of what every function is composed of.
SHARED_LOGGERS: Final = ("spotwright.composition", "spotwright.memory")

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


def write_library_lines(logger: Logger, *workflows: str) -> None:
    """Let ``workflows``, and what every function uses, write as the function's own logger. Once per process."""
    for name in (*workflows, *SHARED_LOGGERS):
        library_logger = logging.getLogger(name)
        library_logger.setLevel(logger.log_level)
        # The runtime's own handler at the root would write each line a second time, without its fields.
        library_logger.propagate = False
        library_logger.handlers = list(logger.handlers)


def count_log_lines(logger: Logger, *workflows: str) -> LogMetrics:
    """The same, and count the lines of the loggers ``workflows``."""
    write_library_lines(logger, *workflows)
    counter = LogMetrics()
    for workflow in workflows:
        logging.getLogger(workflow).addHandler(counter)
    return counter
