"""Nodes that may go: proposed every minute, validated fifteen seconds later, committed for lifecycle to carry out."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.workflows.disrupt.evaluate import evaluate
from spotwright.workflows.disrupt.inputs import DisruptResult
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.ports.doorbells import Doorbell

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event,
        kinds=("evaluate", "validate"),
        clusters=environment.clusters,
        work=partial(_work, context),
        logger=logger,
        metrics=metrics,
    )


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    ports, left = cluster_clients.ports(cluster), partial(sqs_batch.seconds_left, context)
    for proposal in sorted({bell.key for bell in bells if bell.kind == "validate"}):
        _tell(cluster, "validate", validate(ports, proposal, now=datetime.now(UTC), seconds_left=left))
    if any(bell.kind == "evaluate" for bell in bells):
        _tell(cluster, "evaluate", evaluate(ports, now=datetime.now(UTC), seconds_left=left))


def _tell(cluster: str, kind: str, looked: DisruptResult) -> None:
    told = {"cluster": cluster, "doorbell": kind} | msgspec.to_builtins(looked)
    logger.info("looked for nodes to disrupt", extra=told)
    metrics.add_dimension(name="cluster", value=cluster)
    metrics.add_metric(name="NodesProposed", unit=MetricUnit.Count, value=len(looked.proposed))
    metrics.add_metric(name="NodesDisrupted", unit=MetricUnit.Count, value=len(looked.committed))
    metrics.add_metric(name="DisruptionHeldBack", unit=MetricUnit.Count, value=1 if looked.obstacle else 0)
    metrics.add_metric(name="DisruptionBreakerOpen", unit=MetricUnit.Count, value=1 if looked.breaker_open else 0)
