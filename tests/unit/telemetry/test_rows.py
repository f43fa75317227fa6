"""A row accepts exactly the fields that it declares, and rows are told apart."""

import logging
from collections import Counter

import pytest

from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_context, log_line
from spotwright.telemetry.rows import EventType, Level, Unit
from spotwright.telemetry.tables import event_rows, log_line_rows, metric_rows, prometheus_rows

LOG = logging.getLogger("test.telemetry")
# What Powertools adds to each line of a function.
POWERTOOLS_KEYS = {"level", "location", "message", "timestamp", "service", "cold_start", "function_name"}


def test_an_event_is_its_row_filled_in() -> None:
    event = events.DISRUPTION_TERMINATING(kind="Node", reason="Empty")
    assert (event.type, event.reason, event.message) == (
        EventType.NORMAL, "DisruptionTerminating", "Disrupting Node: Empty",
    )  # fmt: skip


def test_a_field_too_few_or_too_many_is_an_error() -> None:
    with pytest.raises(TypeError, match="reasons"):
        events.FAILED_SCHEDULING()
    with pytest.raises(TypeError, match="pod"):
        events.FAILED_SCHEDULING(reasons="none", pod="a")
    with pytest.raises(TypeError, match="node"):
        log_line(LOG, log_lines.DELETED_NODE, nodeclaim="a")


def test_a_log_line_has_its_level_message_fields_and_the_place_that_wrote_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger=LOG.name):
        log_line(LOG, log_lines.DELETED_NODE, node="a")
    (record,) = caplog.records
    assert (record.levelno, record.message, vars(record)["node"]) == (logging.INFO, "deleted node", "a")
    assert record.pathname == __file__


def test_no_two_rows_are_mistaken_for_each_other() -> None:
    messages = Counter(line.message for line in log_line_rows().values())
    names = Counter(metric.name for metric in metric_rows().values())
    names += Counter(metric.name for metric in prometheus_rows().values())
    described = Counter((event.reason, event.message) for event in event_rows().values())
    assert [name for counter in (messages, names, described) for name, count in counter.items() if count > 1] == []


def test_a_field_hides_nothing_that_a_log_record_has() -> None:
    taken = vars(logging.makeLogRecord({})).keys() | POWERTOOLS_KEYS
    for line in log_line_rows().values():
        assert not taken.intersection(line.fields), line.message


def test_levels_are_those_of_logging() -> None:
    assert {level.name: level.value for level in Level} == {
        name: number for name, number in logging.getLevelNamesMapping().items() if name in Level.__members__
    }


def test_a_warning_says_what_to_do() -> None:
    assert all(event.remedy for event in event_rows().values() if event.type is EventType.WARNING)
    assert all(line.remedy for line in log_line_rows().values() if line.level >= Level.WARNING)


def test_metrics_count_lines_that_state_what_they_count() -> None:
    for metric in metric_rows().values():
        assert all(not metric.counted_field or metric.counted_field in line.fields for line in metric.counted)
        assert (metric.unit is Unit.SECONDS) == metric.name.endswith("Seconds")


def test_lines_carry_the_fields_of_the_contexts_around_them_and_their_own_go_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger=LOG.name):
        with log_context(launch="l1", decision="d1", node="other"):
            with log_context(launch="", decision="d2"):
                log_line(LOG, log_lines.DELETED_NODE, node="a")
            log_line(LOG, log_lines.DELETED_NODE, node="b")
        log_line(LOG, log_lines.DELETED_NODE, node="c")
    found = [[vars(record).get(name) for name in ("node", "launch", "decision")] for record in caplog.records]
    assert found == [["a", "l1", "d2"], ["b", "l1", "d1"], ["c", None, None]]
