"""A pytest plugin (``-p tests.recording``) that writes down which rows of the telemetry tables each test reports.

Log lines are seen as Python makes their records, Events as they reach the fake cluster, metrics as they reach
Powertools.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools import Metrics

from spotwright.simulation.cluster import FakeCluster
from spotwright.telemetry.rows import Event
from spotwright.telemetry.tables import event_rows, log_line_rows, metric_rows

# Where the plugin writes: test → names of rows; what has no row stands there as "unknown: …".
RECORDING = "SPOTWRIGHT_RECORDING"
ROOT = Path(__file__).parents[1]
SOURCES = tuple(str(ROOT / directory) for directory in ("layers", "functions", "forwarder"))

_LINES = {line.message: name for name, line in log_line_rows().items()}
_METRICS = {metric.name: name for name, metric in metric_rows().items()}
_EVENTS = {row: name for name, row in event_rows().items()}
_recorded: dict[str, set[str]] = {}
_reported: set[str] = set()


def pytest_configure() -> None:
    logging.setLogRecordFactory(_recording_lines(logging.getLogRecordFactory()))
    Metrics.add_metric = _recording_metrics(Metrics.add_metric)  # type: ignore[method-assign]
    FakeCluster.record_event = _recording_events(FakeCluster.record_event)  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _reported.clear()
    yield
    _recorded[item.nodeid] = set(_reported)


def pytest_sessionfinish() -> None:
    recorded = {test: sorted(rows) for test, rows in sorted(_recorded.items())}
    Path(os.environ[RECORDING]).write_text(json.dumps(recorded, indent=1))


def _recording_lines(make: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    def make_record(*args: Any, **fields: Any) -> logging.LogRecord:
        record = make(*args, **fields)
        if record.pathname.startswith(SOURCES):
            message = record.getMessage()
            _reported.add(_LINES.get(message, f"unknown: {message}"))
        return record

    return make_record


def _recording_metrics(add: Callable[..., None]) -> Callable[..., None]:
    def add_metric(self: Metrics, name: str, unit: str, value: float) -> None:
        _reported.add(_METRICS.get(name, f"unknown: {name}"))
        add(self, name=name, unit=unit, value=value)

    return add_metric


def _recording_events(record: Callable[..., None]) -> Callable[..., None]:
    def record_event(self: FakeCluster, kind: str, metadata: Any, event: Event, *, now: Any) -> None:
        on_declared = kind in event.row.objects
        _reported.add(_EVENTS[event.row] if on_declared else f"unknown: {event.reason} on {kind}")
        record(self, kind, metadata, event, now=now)

    return record_event
