"""Metrics from log lines: what a workflow says in Karpenter's words is counted under ours."""

import logging
from collections import Counter
from typing import Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

# Log line → metric. The dashboard and its reference page speak of these names.
COUNTED: Final = {
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
TIMED: Final = {"launched nodeclaim": "DecisionToFleetSeconds", "initialized nodeclaim": "FleetToReadySeconds"}

# Log line → its fields that are counts, each under a metric.
SUMMED: Final = {"followed the plan": {"planned": "PodsPlanned", "landed": "PodsLandedAsPlanned"}}


class Counting(logging.Handler):
    """Counts the lines that have a metric, and keeps the seconds they state."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.times: list[tuple[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if said in COUNTED:
            self.seen[COUNTED[said]] += 1
        for field, metric in SUMMED.get(said, {}).items():
            self.seen[metric] += record.__dict__.get(field, 0)
        if said in TIMED and "seconds" in record.__dict__:
            self.times.append((TIMED[said], record.__dict__["seconds"]))

    def flush_into(self, metrics: Metrics) -> None:
        """Hand everything over and begin anew."""
        for name, count in sorted(self.seen.items()):
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
        for name, seconds in self.times:
            metrics.add_metric(name=name, unit=MetricUnit.Seconds, value=seconds)
        self.seen.clear()
        self.times.clear()


def counting(logger: Logger, workflow: str) -> Counting:
    """Let the library's logger ``workflow`` write like the function's own, and count its lines. Once per process."""
    ours, counter = logging.getLogger(workflow), Counting()
    ours.setLevel(logger.log_level)
    # The runtime's own handler at the root would write each line a second time.
    ours.propagate = False
    ours.handlers = [*logger.handlers, counter]
    return counter
