"""One page that answers, from left to right and top to bottom: is there work, is it done, how fast, what goes wrong."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.config import Config
from infra.functions import Function
from infra.queues import WorkQueue

_NAMESPACE = "Spotwright"
_MINUTE = Duration.minutes(1)

#: Powertools adds the dimension `service`; every metric of ours is per cluster.
_DIMENSIONS = f"{{{_NAMESPACE},cluster,service}}"

_PODS = ("PodsPending", "PodsUnschedulable", "NodesDecided")
_LANDED = ("PodsPlanned", "PodsLandedAsPlanned")
_NODES = ("NodesSpot", "NodesOnDemand", "NodesReserved")
_COST = ("CostPerHour",)
_LAUNCHES = ("NodeClaimsLaunched", "NodeClaimsInitialized", "NodeClaimLaunchesFailed", "OfferingsRefused")
_CLASSES = ("ClassesNotReady", "ClassResolutionFailed", "FactsNotRefreshed")
_HOPS = ("EventToDecisionSeconds", "DecisionToFleetSeconds", "FleetToReadySeconds")
_CHANGES = ("Interruptions", "Disruptions", "NodesTerminated")

#: Every metric of our own that the page shows.
DASHBOARD_METRICS = (*_PODS, *_LANDED, *_NODES, *_COST, *_LAUNCHES, *_CLASSES, *_HOPS, *_CHANGES)


class Dashboard(Construct):
    """Six widgets: pods, nodes, seconds per hop, what left, queues, functions."""

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
            _graph(
                "Pods pending and nodes decided, and pods that landed where they were planned",
                [_ours(name, "Maximum") for name in _PODS],
                [_ours(name, "Sum") for name in _LANDED],
            ),
            _graph(
                "Nodes by capacity type, and $ per hour",
                [_ours(name, "Maximum") for name in _NODES],
                [_ours(name, "Maximum") for name in _COST],
            ),
            _graph("Seconds per hop (p90)", [_ours(name, "p90") for name in _HOPS]),
            _graph(
                "Launches, classes that are not ready, interruptions and disruptions",
                [*(_ours(name, "Sum") for name in _LAUNCHES), *(_ours(name, "Maximum") for name in _CLASSES)],
                [_ours(name, "Sum") for name in _CHANGES],
            ),
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


def _ours(name: str, statistic: str) -> cloudwatch.MathExpression:
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
