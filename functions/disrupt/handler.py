"""Disruption by choice: proposed every minute, validated after fifteen seconds, committed for lifecycle."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.log_metrics import count_log_lines
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.disrupt.inputs import DisruptResult
from spotwright.workflows.disrupt.workflow import disrupt
from spotwright.workflows.ports.doorbells import Doorbell

logger = Logger()
metrics = Metrics()
counter = count_log_lines(logger, "spotwright.planning", "spotwright.disruption")


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
        context=context,
        ring_again=partial(cluster_clients.ring_again, "disrupt"),
    )


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    try:
        results = disrupt(
            cluster_clients.ports(cluster),
            bells,
            clock=lambda: datetime.now(UTC),
            seconds_left=partial(sqs_batch.seconds_left, context),
        )
        for kind, result in results:
            _report(cluster, kind, result)
    finally:
        counter.flush_into(metrics)


def _report(cluster: str, kind: str, result: DisruptResult) -> None:
    log_line(logger, log_lines.EVALUATED_DISRUPTION, cluster=cluster, doorbell=kind, **msgspec.to_builtins(result))
    add_metric(metrics, telemetry.NODES_PROPOSED, len(result.proposed))
    add_metric(metrics, telemetry.NODES_DISRUPTED, len(result.committed))
    add_metric(metrics, telemetry.DISRUPTION_HELD_BACK, 1 if result.obstacle else 0)
    add_metric(metrics, telemetry.DISRUPTION_BREAKER_OPEN, 1 if result.breaker_open else 0)
