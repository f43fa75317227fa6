"""Nothing is reported but by naming its row, with the row's fields; and no row is never named."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotwright.log_metrics import SHARED_LOGGERS
from spotwright.telemetry.rows import EventRow, LogLine
from spotwright.telemetry.tables import event_rows, log_line_rows, metric_rows, prometheus_rows

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "layers/core/python/spotwright"
LOG_METHODS = {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}
ROW_TYPES = {"Event", "EventRow", "LogLine", "Metric", "PrometheusMetric", "GaugeMetricFamily", "CounterMetricFamily"}


def sources() -> Iterator[Path]:
    for directory in (LIBRARY, ROOT / "functions", ROOT / "forwarder"):
        for path in sorted(directory.rglob("*.py")):
            if path.parent != LIBRARY / "telemetry":
                yield path


def calls(source: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


def own_reports(source: str) -> list[str]:
    """Calls that report something without naming a row."""
    found = []
    for call in calls(source):
        match call.func:
            case ast.Attribute(value=receiver, attr=method) if method in LOG_METHODS:
                # math.log computes, parser.error answers on a command line.
                own = ast.unparse(receiver) not in ("math", "parser")
            case ast.Attribute(attr="add_metric"):
                own = any(keyword.arg == "name" for keyword in call.keywords)
            case ast.Name(id=name) if name in ROW_TYPES:
                own = True
            case ast.Attribute(attr="record_event"):
                own = any(keyword.arg in ("reason", "message", "type") for keyword in call.keywords)
            case _:
                own = False
        if own:
            found.append(ast.unparse(call))
    return found


def wrong_fields(source: str) -> list[str]:
    """Calls that name a row, with other fields than the row's. What is given as ** is checked as it is reported."""
    return [
        ast.unparse(call)
        for call in calls(source)
        if (row := named_row(call)) is not None
        and all(keyword.arg for keyword in call.keywords)
        and {keyword.arg for keyword in call.keywords} != fields(row)
    ]


def named_row(call: ast.Call) -> EventRow | LogLine | None:
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="events"), attr=name)):
            return event_rows().get(name)
        case ast.Call(func=ast.Name(id="log_line"), args=[_, ast.Attribute(value=ast.Name(id="log_lines"), attr=name)]):
            return log_line_rows()[name]
    return None


def fields(row: EventRow | LogLine) -> set[str]:
    if isinstance(row, LogLine):
        return set(row.fields)
    template = ast.parse(f"f{row.reason + row.message!r}", mode="eval")
    return {node.id for node in ast.walk(template) if isinstance(node, ast.Name)}


def test_nothing_is_reported_without_its_row() -> None:
    found = {str(path.relative_to(ROOT)): own for path in sources() if (own := own_reports(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        'log.info("launched nodeclaim", extra={"nodeclaim": name})',
        'logger.exception("failed")',
        'logging.warning("what")',
        'logging.getLogger("a").info("what")',
        'self._log.warning("what")',
        'metrics.add_metric(name="Launches", unit="Count", value=1)',
        'Event(row, "Reason", "message")',
        'ports.cluster.record_event("pods", about, type="Normal", reason="New", message="m", now=now)',
        'GaugeMetricFamily("name", "text")',
    ],
)
def test_such_a_report_would_be_noticed(source: str) -> None:
    assert own_reports(source) == [source.replace('"', "'")]


def test_every_report_has_the_fields_of_its_row() -> None:
    found = {str(path.relative_to(ROOT)): wrong for path in sources() if (wrong := wrong_fields(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "source", ["log_line(log, log_lines.DELETED_NODE, name=name)", "events.EVICTED()", "events.FINALIZED(a=1, b=2)"]
)
def test_a_wrong_field_would_be_noticed(source: str) -> None:
    assert wrong_fields(source) == [source]


def test_a_metric_names_the_functions_that_write_it() -> None:
    written = {
        (metric_rows()[name].name, path.parent.name)
        for path in (ROOT / "functions").glob("*/handler.py")
        for name in re.findall(r"\btelemetry\.([A-Z_]+)", path.read_text())
    }
    counted = {
        (metric.name, function)
        for metric in metric_rows().values()
        for line in metric.counted
        for function in functions_that_count(line)
    }
    failed = {(metric_rows()["WORK_FAILED"].name, function) for function in functions_with_batches()}
    declared = {(metric.name, function) for metric in metric_rows().values() for function in metric.functions}
    assert written | counted | failed == declared


def functions_that_count(line: LogLine) -> Iterator[str]:
    """Those whose handlers count the lines of the planners, if it is one of them, or else those of lifecycle."""
    planners = (LIBRARY / "workflows" / "planning").glob("*.py")
    names = {name for path in planners for name in re.findall(r"\blog_lines\.([A-Z_]+)", path.read_text())}
    counted = "spotwright.planning" if line in {log_line_rows()[name] for name in names} else "spotwright.lifecycle"
    for path in (ROOT / "functions").glob("*/handler.py"):
        if f'"{counted}"' in path.read_text():
            yield path.parent.name


def functions_with_batches() -> Iterator[str]:
    """Functions whose failures ``sqs_batch`` counts."""
    for path in (ROOT / "functions").glob("*/handler.py"):
        if "process_by_cluster(" in path.read_text():
            yield path.parent.name


def test_every_row_is_named_somewhere() -> None:
    rows = {**event_rows(), **log_line_rows(), **metric_rows(), **prometheus_rows()}
    code = [*sources(), LIBRARY / "telemetry/metrics.py"]
    named = {
        node.attr for path in code for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
    }
    counted = {name for name, metric in metric_rows().items() if metric.counted}
    assert rows.keys() - named - counted == set()


def test_every_logger_of_the_library_is_one_that_functions_write() -> None:
    named = {name for path in sources() for name in re.findall(r'getLogger\("(spotwright[^"]*)"\)', path.read_text())}
    handlers = "".join(path.read_text() for path in (ROOT / "functions").glob("*/handler.py"))
    assert named == {*SHARED_LOGGERS, *re.findall(r'"(spotwright\.[a-z]+)"', handlers)}
