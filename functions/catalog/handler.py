"""Resolves EC2NodeClasses, and keeps the catalog of instance types and prices."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.composition import catalog_clients, cluster_clients
from spotwright.log_metrics import write_library_lines
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.catalog.workflow import CatalogResult, update_catalog
from spotwright.workflows.ports.doorbells import Doorbell

logger = Logger()
metrics = Metrics()
write_library_lines(logger)


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event,
        kinds=("region", "nodeclasses", "shifts"),
        clusters=environment.clusters,
        work=partial(_work, context),
        logger=logger,
        metrics=metrics,
        context=context,
        ring_again=partial(cluster_clients.ring_again, "catalog"),
    )


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    results = update_catalog(
        catalog_clients.ports(cluster, cluster_clients.environment(os.environ)),
        bells,
        clock=lambda: datetime.now(UTC),
        seconds_left=partial(sqs_batch.seconds_left, context),
    )
    for kind, result in results:
        _report(cluster, kind, result)


def _report(cluster: str, kind: str, result: CatalogResult) -> None:
    log_line(
        logger,
        log_lines.CATALOG_UPDATED if result.changed else log_lines.CATALOG_UNCHANGED,
        cluster=cluster,
        doorbell=kind,
        catalog=result.catalog_key,
        ready=result.ready_classes,
        not_ready=result.not_ready,
        notes=result.notes,
    )
    for name, error in result.failures.items():
        log_line(logger, log_lines.NODECLASS_FAILED, cluster=cluster, nodeclass=name, error=error)
    add_metric(metrics, telemetry.FACTS_NOT_REFRESHED, len(result.notes))
    add_metric(metrics, telemetry.CLASSES_READY, len(result.ready_classes))
    add_metric(metrics, telemetry.CLASSES_NOT_READY, len(result.not_ready))
    add_metric(metrics, telemetry.CLASS_RESOLUTION_FAILED, len(result.failures))
