"""Nodes that may go: proposed every minute, validated fifteen seconds later, committed for lifecycle to carry out."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import composition, edge
from spotwright.workflows import disrupt
from spotwright.workflows.ports import Doorbell

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: edge.Context) -> edge.BatchAnswer:
    environment = composition.environment(os.environ)
    return edge.by_cluster(
        event,
        kinds=("evaluate", "validate"),
        clusters=environment.clusters,
        work=partial(_work, context),
        logger=logger,
        metrics=metrics,
    )


def _work(context: edge.Context, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    ports, left = composition.ports(cluster), partial(edge.seconds_left, context)
    for proposal in sorted({bell.key for bell in bells if bell.kind == "validate"}):
        _tell(cluster, "validate", disrupt.validate(ports, proposal, now=datetime.now(UTC), seconds_left=left))
    if any(bell.kind == "evaluate" for bell in bells):
        _tell(cluster, "evaluate", disrupt.evaluate(ports, now=datetime.now(UTC), seconds_left=left))


def _tell(cluster: str, kind: str, looked: disrupt.Looked) -> None:
    told = {"cluster": cluster, "doorbell": kind} | msgspec.to_builtins(looked)
    logger.info("looked for nodes to disrupt", extra=told)
    metrics.add_dimension(name="cluster", value=cluster)
    metrics.add_metric(name="NodesProposed", unit=MetricUnit.Count, value=len(looked.proposed))
    metrics.add_metric(name="NodesDisrupted", unit=MetricUnit.Count, value=len(looked.committed))
    metrics.add_metric(name="DisruptionHeldBack", unit=MetricUnit.Count, value=1 if looked.why else 0)
    metrics.add_metric(name="DisruptionBreakerOpen", unit=MetricUnit.Count, value=1 if looked.breaker_open else 0)
