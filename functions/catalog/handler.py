"""Resolves EC2NodeClasses, and keeps the catalog of instance types and prices."""

import os
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.composition import catalog_clients, cluster_clients
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.catalog.workflow import CatalogResult, apply_zonal_shifts, refresh_region, resolve_nodeclasses
from spotwright.workflows.ports.doorbells import Doorbell

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event,
        kinds=("region", "nodeclasses", "shifts"),
        clusters=environment.clusters,
        work=_work,
        logger=logger,
        metrics=metrics,
    )


def _work(cluster: str, bells: tuple[Doorbell, ...]) -> None:
    ports = catalog_clients.ports(cluster, cluster_clients.environment(os.environ))
    now = datetime.now(UTC)
    classes = [bell for bell in bells if bell.kind == "nodeclasses"]
    if classes:
        names = [] if any(not bell.key for bell in classes) else sorted({bell.key for bell in classes})
        attempt = min(bell.epoch for bell in classes)
        _report(cluster, "nodeclasses", resolve_nodeclasses(ports, names, now=now, attempt=attempt))
    if any(bell.kind == "region" for bell in bells):
        _report(cluster, "region", refresh_region(ports, now=now))
    elif any(bell.kind == "shifts" for bell in bells) and (result := apply_zonal_shifts(ports, now=now)):
        _report(cluster, "shifts", result)


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
    metrics.add_dimension(name="cluster", value=cluster)
    add_metric(metrics, telemetry.FACTS_NOT_REFRESHED, len(result.notes))
    add_metric(metrics, telemetry.CLASSES_READY, len(result.ready_classes))
    add_metric(metrics, telemetry.CLASSES_NOT_READY, len(result.not_ready))
    add_metric(metrics, telemetry.CLASS_RESOLUTION_FAILED, len(result.failures))
