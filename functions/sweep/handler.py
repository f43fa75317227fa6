"""Rings for whatever is left to do and whose message was lost."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.log_metrics import write_library_lines
from spotwright.model import labels
from spotwright.model.ec2.instance_status import StatusCheck
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.sweep.poll import SCHEDULED_EVENT, SweepResult
from spotwright.workflows.sweep.workflow import sweep

NODE_METRICS = (
    (telemetry.NODES_SPOT, labels.SPOT),
    (telemetry.NODES_ON_DEMAND, labels.ON_DEMAND),
    (telemetry.NODES_RESERVED, labels.RESERVED),
)
TROUBLE_METRICS = (
    (telemetry.INSTANCES_SYSTEM_IMPAIRED, StatusCheck.SYSTEM),
    (telemetry.INSTANCES_INSTANCE_IMPAIRED, StatusCheck.INSTANCE),
    (telemetry.INSTANCES_EBS_IMPAIRED, StatusCheck.ATTACHED_EBS),
    (telemetry.INSTANCES_WITH_EVENT, SCHEDULED_EVENT),
)

logger = Logger()
metrics = Metrics()
write_library_lines(logger, "spotwright.sweep")


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event,
        kinds=("poll", "full"),
        clusters=environment.clusters,
        work=partial(_work, context),
        logger=logger,
        metrics=metrics,
        context=context,
        ring_again=partial(cluster_clients.ring_again, "sweep"),
    )


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    results = sweep(
        cluster_clients.ports(cluster),
        bells,
        clock=lambda: datetime.now(UTC),
        seconds_left=partial(sqs_batch.seconds_left, context),
    )
    for kind, result in results:
        _report(cluster, kind, result)


def _report(cluster: str, kind: str, result: SweepResult) -> None:
    log_line(logger, log_lines.SWEPT, cluster=cluster, doorbell=kind, result=msgspec.to_builtins(result))
    add_metric(metrics, telemetry.PODS_PENDING, result.pending_pods)
    add_metric(metrics, telemetry.NODECLAIMS, result.nodeclaims)
    add_metric(metrics, telemetry.ORPHANS_REFUSED, 1 if result.orphans < 0 else 0)
    if result.oldest_pending_seconds:
        add_metric(metrics, telemetry.OLDEST_PENDING_POD_SECONDS, result.oldest_pending_seconds)
    if result.nodepools_not_ready:
        add_metric(metrics, telemetry.NODEPOOLS_NOT_READY, result.nodepools_not_ready)
    if result.other_provisioner:
        add_metric(metrics, telemetry.OTHER_PROVISIONERS, 1)
    if result.forwarder_silent:
        add_metric(metrics, telemetry.FORWARDER_SILENT, 1)
    if kind == "poll" and result.nodes_by_capacity_type:
        for metric, capacity_type in NODE_METRICS:
            add_metric(metrics, metric, result.nodes_by_capacity_type.get(capacity_type, 0))
        for metric, trouble in TROUBLE_METRICS:
            add_metric(metrics, metric, result.instances_in_trouble.get(trouble, 0))
        add_metric(metrics, telemetry.COST_PER_HOUR, result.price_picousd_per_hour / 10**12)
