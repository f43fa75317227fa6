"""What can be bought and how: class statuses, and the catalog of instance types with prices."""

import os
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import sqs_batch
from spotwright.composition import catalog_clients, cluster_clients
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
        _tell(cluster, "nodeclasses", resolve_nodeclasses(ports, names, now=now, attempt=attempt))
    if any(bell.kind == "region" for bell in bells):
        _tell(cluster, "region", refresh_region(ports, now=now))
    elif any(bell.kind == "shifts" for bell in bells) and (catalog_result := apply_zonal_shifts(ports, now=now)):
        _tell(cluster, "shifts", catalog_result)


def _tell(cluster: str, kind: str, catalog_result: CatalogResult) -> None:
    logger.info(
        "catalog made" if catalog_result.changed else "catalog unchanged",
        extra={
            "cluster": cluster,
            "doorbell": kind,
            "catalog": catalog_result.catalog_key,
            "ready": catalog_result.ready_classes,
            "refused": catalog_result.not_ready,
            "notes": catalog_result.notes,
        },
    )
    for name, failure in catalog_result.failures.items():
        logger.error("ec2nodeclass not resolved", extra={"cluster": cluster, "EC2NodeClass": name, "error": failure})
    metrics.add_dimension(name="cluster", value=cluster)
    metrics.add_metric(name="FactsNotRefreshed", unit=MetricUnit.Count, value=len(catalog_result.notes))
    metrics.add_metric(name="ClassesReady", unit=MetricUnit.Count, value=len(catalog_result.ready_classes))
    metrics.add_metric(name="ClassesNotReady", unit=MetricUnit.Count, value=len(catalog_result.not_ready))
    metrics.add_metric(name="ClassResolutionFailed", unit=MetricUnit.Count, value=len(catalog_result.failures))
