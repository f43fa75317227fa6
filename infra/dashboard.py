"""One page that answers, from left to right and top to bottom: is there work, is it done, how fast, what goes wrong."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.config import Config
from infra.functions import Function
from infra.queues import WorkQueue
from spotwright.telemetry.rows import Graph
from spotwright.telemetry.tables import metric_rows

_NAMESPACE = "Spotwright"
_MINUTE = Duration.minutes(1)

#: Powertools adds the dimension `service`; every metric of ours is per cluster.
_DIMENSIONS = f"{{{_NAMESPACE},cluster,service}}"


class Dashboard(Construct):
    """Six widgets: Spotwright's own metrics by graph, then queues and functions."""

    def __init__(
        self,
        scope: Construct,
        config: Config,
        *,
        queues: Mapping[str, WorkQueue],
        functions: Mapping[str, Function],
    ) -> None:
        super().__init__(scope, "Dashboard")
        widgets = (
            *(_graph(graph, _lines(graph, right_axis=False), _lines(graph, right_axis=True)) for graph in Graph),
            _graph(
                "Queues: age in seconds, and dead letters",
                [_age(name, work_queue) for name, work_queue in queues.items()],
                [_dead(name, work_queue) for name, work_queue in queues.items()],
            ),
            _graph(
                "Functions: errors and throttles, and duration (p90)",
                [metric for function in functions.values() for metric in _trouble(function)],
                [_duration(function) for function in functions.values()],
            ),
        )
        self.page = cloudwatch.Dashboard(
            self,
            "Page",
            # Dashboards are global in an account, so the name carries the region.
            dashboard_name=f"Spotwright-{config.cell}-{Stack.of(self).region}",
            widgets=[list(widgets[:3]), list(widgets[3:])],
        )


def _graph(
    title: str, left: Sequence[cloudwatch.IMetric], right: Sequence[cloudwatch.IMetric] = ()
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(left), right=list(right), width=8, height=7, period=_MINUTE)


def _lines(graph: Graph, *, right_axis: bool) -> list[cloudwatch.IMetric]:
    return [
        _search(metric.name, metric.line.statistic)
        for metric in metric_rows().values()
        if metric.line and (metric.line.graph, metric.line.right_axis) == (graph, right_axis)
    ]


def _search(name: str, statistic: str) -> cloudwatch.MathExpression:
    """One line per cluster, also for clusters that join the cell later."""
    search = f"SEARCH('{_DIMENSIONS} MetricName=\"{name}\"', '{statistic}', 60)"
    return cloudwatch.MathExpression(expression=search, label=name, using_metrics={}, period=_MINUTE)


def _age(name: str, queue: WorkQueue) -> cloudwatch.Metric:
    return queue.queue.metric_approximate_age_of_oldest_message(label=name, statistic="Maximum")


def _dead(name: str, queue: WorkQueue) -> cloudwatch.Metric:
    metric = queue.dead_letters.metric_approximate_number_of_messages_visible
    return metric(label=f"{name} dead", statistic="Maximum")


def _trouble(function: Function) -> list[cloudwatch.Metric]:
    name = function.spec.name
    return [
        function.function.metric_errors(label=f"{name} errors", statistic="Sum"),
        function.function.metric_throttles(label=f"{name} throttles", statistic="Sum"),
    ]


def _duration(function: Function) -> cloudwatch.Metric:
    return function.function.metric_duration(label=f"{function.spec.name} ms", statistic="p90")
