"""Launches, NodeClaims, nodes, drains, terminations: one step for each doorbell."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.log_metrics import count_log_lines
from spotwright.workflows.lifecycle.workflow import DOORBELL_KINDS, step_doorbells
from spotwright.workflows.ports.doorbells import Doorbell

logger = Logger()
metrics = Metrics()
counter = count_log_lines(logger, "spotwright.lifecycle", "spotwright.planning")


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event,
        kinds=DOORBELL_KINDS,
        clusters=environment.clusters,
        work=partial(_work, context),
        logger=logger,
        metrics=metrics,
        context=context,
        ring_again=partial(cluster_clients.ring_again, "lifecycle"),
    )


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> dict[Doorbell, Exception]:
    try:
        seconds_left = partial(sqs_batch.seconds_left, context)
        return step_doorbells(cluster_clients.ports(cluster), bells, now=datetime.now(UTC), seconds_left=seconds_left)
    finally:
        counter.flush_into(metrics)
