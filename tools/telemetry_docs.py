"""Writes docs/events.md, docs/logs.md and docs/metrics.md from the tables in spotwright.telemetry: `make docs`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.alarm_rows import alarm_rows
from spotwright.telemetry import tables
from spotwright.telemetry.rows import REPEAT_AFTER, Alarm, EventRow, Level, LogLine, Metric

DOCS = Path(__file__).parents[1] / "docs"
KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "nodepools": "NodePool",
    "nodeclaims": "NodeClaim",
    "nodeoverlays": "NodeOverlay",
    "ec2nodeclasses": "EC2NodeClass",
}
# What the page says instead of a reason that is the condition's own.
CONDITION_REASONS = {"{type}": "any condition's type", "{reason}": "the condition's reason"}
GENERATED = "<!-- Written by `make docs` from layers/core/python/spotwright/telemetry; edit there. -->"


def pages() -> dict[str, str]:
    """File name → content."""
    return {"events.md": events_page(), "logs.md": logs_page(), "metrics.md": metrics_page()}


def events_page() -> str:
    return _page(
        "Events",
        "What `kubectl describe` and `kubectl get events` show of Spotwright; the component is `spotwright`. Reasons"
        " and messages are Karpenter's where Karpenter has them. `{names}` stand for what the event fills in. An Event"
        " with the same message is not repeated on the same object within two minutes, or as the table says.",
        _table(
            ("Reason", "Type", "On", "Message", "When", "What to do"), map(_event_cells, tables.event_rows().values())
        ),
    )


def _event_cells(event: EventRow) -> tuple[str, ...]:
    when = event.when
    if event.repeat_after != REPEAT_AFTER:
        when += f" At most every {int(event.repeat_after.total_seconds() // 60)} min."
    kinds = ", ".join(KINDS[kind] for kind in event.objects)
    reason = CONDITION_REASONS.get(event.reason) or _code(event.reason)
    return (reason, event.type.value, kinds, _code(event.message), when, event.remedy)


def logs_page() -> str:
    return _page(
        "Log lines",
        "Every function writes JSON lines to its log group, the forwarder to its pod's log. Messages are Karpenter's"
        " where Karpenter logs the same. In CloudWatch Logs Insights:"
        ' `filter message = "launched nodeclaim" | stats avg(seconds) by instance_type`. Lines of level DEBUG need'
        " `POWERTOOLS_LOG_LEVEL=DEBUG`. Beside its own fields a line that is about a cluster carries `cluster`; one"
        " about a launch, or a NodeClaim that was launched, also `launch` and `decision`, from which it comes; one"
        " about a disruption `decision`.",
        _table(
            ("Message", "Level", "Fields", "When", "What to do"),
            map(_line_cells, sorted(tables.log_line_rows().values(), key=lambda line: line.message)),
        ),
    )


def _line_cells(line: LogLine) -> tuple[str, ...]:
    fields = ", ".join(_code(field) for field in line.fields) + (", the traceback" if line.traceback else "")
    return (_code(line.message), Level(line.level).name, fields.removeprefix(", "), line.when, line.remedy)


def metrics_page() -> str:
    metrics = tables.metric_rows().values()
    own = [_alarm_cells(metric.alarm, metric.name, "cluster") for metric in metrics if metric.alarm]
    of_aws = [_alarm_cells(row, "AWS's own", "queue, function or cell") for row in alarm_rows().values()]
    pages = [(_code(row.name), row.kind, row.when) for row in tables.prometheus_rows().values()]
    return _page(
        "Metrics",
        "In CloudWatch, namespace `Spotwright`, with the dimensions `cluster` and `service` (the function). The"
        " dashboard `Spotwright-<cell>-<region>` shows those that name a graph.",
        _table(("Metric", "Unit", "Function", "What it counts", "Graph", "Statistic"), map(_metric_cells, metrics)),
        "## Alarms\nAn alarm is called `Spotwright-<cell>-<cluster, queue or function>-<alarm>`; its description says"
        " what to do, and [the runbook](runbook.md) says more. They and their end go to the topic `alarmTopicArn`, or"
        " by mail to `alarmEmail`, whichever cdk.json names; without both they are shown in CloudWatch and tell"
        " nobody. An alarm on what is missing may ring for some minutes after a deployment that makes it.",
        _table(("Alarm", "Metric", "For each", "Rings after minutes", "What it means"), [*own, *of_aws]),
        "## The forwarder's page /metrics\nFor Prometheus, on the forwarder's pod; names and labels that begin with"
        " `karpenter_` are Karpenter's. A counter's name ends in `_total` on the page.",
        _table(("Metric", "Type", "Meaning"), pages),
    )


def _alarm_cells(alarm: Alarm, metric: str, subject: str) -> tuple[str, ...]:
    name = f"[`{alarm.name}`](runbook.md#{alarm.name.lower()})"
    meaning = alarm.meaning.replace("{subject}", "NAME")
    return (name, metric if "'" in metric else _code(metric), subject, str(alarm.minutes), meaning)


def _metric_cells(metric: Metric) -> tuple[str, ...]:
    graph, statistic = (metric.line.graph.value, metric.line.statistic) if metric.line else ("", "")
    return (_code(metric.name), metric.unit.value, ", ".join(metric.functions), metric.when, graph, statistic)


def _page(title: str, *parts: str) -> str:
    return f"# {title}\n{GENERATED}\n\n" + "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)
