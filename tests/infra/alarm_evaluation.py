"""CloudWatch's side of an alarm: minutes of metrics in, whether the alarm of a template rings out.

As far as the stack's alarms go: plain metrics and sums of them, and missing data that breach or do not.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
"""

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.infra.template import Resource

type Dimensions = frozenset[tuple[str, str]]

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
}
_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {"Sum": sum, "Maximum": max, "SampleCount": len}


class Metrics:
    """What was written, by namespace, name and dimensions; then by minute."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, Dimensions], dict[int, list[float]]] = {}

    def put(self, namespace: str, name: str, dimensions: Mapping[str, str], minute: int, *values: float) -> None:
        by_minute = self._values.setdefault((namespace, name, frozenset(dimensions.items())), {})
        by_minute.setdefault(minute, []).extend(values)

    def put_output(self, output: str, minute: int) -> None:
        """What a function printed in the embedded metric format; tests number their services."""
        for line in output.splitlines():
            if not line.startswith("{") or "CloudWatchMetrics" not in line:
                continue
            said = json.loads(line)
            for part in said["_aws"]["CloudWatchMetrics"]:
                for names in part["Dimensions"]:
                    dimensions = {name: re.sub(r"-\d+$", "", said[name]) for name in names}
                    for metric in part["Metrics"]:
                        self.put(part["Namespace"], metric["Name"], dimensions, minute, *said[metric["Name"]])

    def statistic(self, stat: Mapping[str, Any], first: int, minutes: int) -> float | None:
        """Of a metric over a period that begins with the minute ``first``; None = there is no value."""
        metric = stat["Metric"]
        dimensions = frozenset((each["Name"], each["Value"]) for each in metric.get("Dimensions", ()))
        by_minute = self._values.get((metric["Namespace"], metric["MetricName"], dimensions), {})
        values = [value for minute in range(first, first + minutes) for value in by_minute.get(minute, ())]
        return float(_STATISTICS[stat["Stat"]](values)) if values else None


def metric_stats(alarm: Resource) -> list[dict[str, Any]]:
    """The metrics of an alarm as statistics, each with its period in seconds."""
    if "Metrics" not in alarm:
        metric = {name: alarm[name] for name in ("Namespace", "MetricName", "Dimensions") if name in alarm}
        return [{"Metric": metric, "Period": alarm["Period"], "Stat": alarm["Statistic"]}]
    (summed,) = (each for each in alarm["Metrics"] if "Expression" in each)
    assert summed["Expression"] == "SUM(METRICS())"
    parts = [each for each in alarm["Metrics"] if "MetricStat" in each]
    assert [each.get("ReturnData", True) for each in parts] == [False] * len(parts)
    return [each["MetricStat"] for each in parts]


def rings(alarm: Resource, metrics: Metrics, end: int) -> bool:
    """Whether the alarm is in ALARM after the minute before ``end``."""
    stats = metric_stats(alarm)
    (seconds,) = {each["Period"] for each in stats}
    minutes, periods = seconds // 60, alarm["EvaluationPeriods"]
    breaches = _COMPARISONS[alarm["ComparisonOperator"]]
    for number in range(periods):
        first = end - (number + 1) * minutes
        values = [value for each in stats if (value := metrics.statistic(each, first, minutes)) is not None]
        is_breaching = breaches(sum(values), alarm["Threshold"]) if values else alarm["TreatMissingData"] == "breaching"
        if not is_breaching:
            return False
    return True
