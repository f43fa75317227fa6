"""Metrics from log lines: what a workflow says in Karpenter's words is counted under ours."""

import logging
from collections import Counter
from typing import Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

# Log line → metric. The dashboard and its reference page speak of these names.
COUNT_METRICS: Final = {
    "launched nodeclaim": "NodeClaimsLaunched",
    "registered nodeclaim": "NodeClaimsRegistered",
    "initialized nodeclaim": "NodeClaimsInitialized",
    "deleted nodeclaim": "NodesTerminated",
    "failed launching nodeclaim": "NodeClaimLaunchesFailed",
    "disrupting node(s)": "Disruptions",
    "failed to disrupt nodes": "DisruptionsFailed",
    "CreateFleet refused offerings": "OfferingsRefused",
    "CreateFleet answered an unknown error": "UnknownLaunchErrors",
    "CreateFleet was throttled": "CallsThrottled",
    "TerminateInstances was throttled": "CallsThrottled",
    "CreateTags was throttled": "CallsThrottled",
    "instance not terminated": "StepsInterrupted",
    "decided on interruption": "Interruptions",
    "terminated surplus instance": "SurplusInstancesTerminated",
    "step interrupted": "StepsInterrupted",
    "launch interrupted": "StepsInterrupted",
    "notice interrupted": "StepsInterrupted",
    "command interrupted": "StepsInterrupted",
    "doorbell failed": "WorkFailed",
}
# Log line → metric of its field ``seconds``.
SECONDS_METRICS: Final = {
    "launched nodeclaim": "DecisionToFleetSeconds",
    "initialized nodeclaim": "FleetToReadySeconds",
}

# Log line → its fields that are counts, each under a metric.
FIELD_METRICS: Final = {"followed the plan": {"planned": "PodsPlanned", "landed": "PodsLandedAsPlanned"}}


class LogMetrics(logging.Handler):
    """Counts the lines that have a metric, and keeps the seconds they state."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.durations: list[tuple[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if said in COUNT_METRICS:
            self.counts[COUNT_METRICS[said]] += 1
        for field, metric in FIELD_METRICS.get(said, {}).items():
            self.counts[metric] += record.__dict__.get(field, 0)
        if said in SECONDS_METRICS and "seconds" in record.__dict__:
            self.durations.append((SECONDS_METRICS[said], record.__dict__["seconds"]))

    def flush_into(self, metrics: Metrics) -> None:
        """Hand everything over and begin anew."""
        for name, count in sorted(self.counts.items()):
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
        for name, seconds in self.durations:
            metrics.add_metric(name=name, unit=MetricUnit.Seconds, value=seconds)
        self.counts.clear()
        self.durations.clear()


def count_log_lines(logger: Logger, workflow: str) -> LogMetrics:
    """Let the library's logger ``workflow`` write like the function's own, and count its lines. Once per process."""
    ours, counter = logging.getLogger(workflow), LogMetrics()
    ours.setLevel(logger.log_level)
    # The runtime's own handler at the root would write each line a second time.
    ours.propagate = False
    ours.handlers = [*logger.handlers, counter]
    return counter
