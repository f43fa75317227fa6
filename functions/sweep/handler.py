"""The safety net: rings for whatever the facts still show and no message told."""

import os
from datetime import UTC, datetime
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.sweep.full import full_sweep
from spotwright.workflows.sweep.poll import SweepResult, poll

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event, kinds=("poll", "full"), clusters=environment.clusters, work=_work, logger=logger, metrics=metrics
    )


def _work(cluster: str, bells: tuple[Doorbell, ...]) -> None:
    ports, now = cluster_clients.ports(cluster), datetime.now(UTC)
    kinds = {bell.kind for bell in bells}
    if "full" in kinds:
        _tell(cluster, "full", full_sweep(ports, now=now))
    if "poll" in kinds:
        scheduled = any(bell.kind == "poll" and bell.epoch == 0 for bell in bells)
        _tell(cluster, "poll", poll(ports, now=now, scheduled=scheduled))


def _tell(cluster: str, gear: str, sweep_result: SweepResult) -> None:
    logger.info("swept", extra={"cluster": cluster, "gear": gear, "found": msgspec.to_builtins(sweep_result)})
    metrics.add_dimension(name="cluster", value=cluster)
    metrics.add_metric(name="PodsPending", unit=MetricUnit.Count, value=sweep_result.pending_pods)
    metrics.add_metric(name="NodeClaims", unit=MetricUnit.Count, value=sweep_result.nodeclaims)
    metrics.add_metric(name="OrphansRefused", unit=MetricUnit.Count, value=1 if sweep_result.orphans < 0 else 0)
    if gear == "poll" and sweep_result.nodes_by_capacity_type:
        for name, kind in (("NodesSpot", "spot"), ("NodesOnDemand", "on-demand"), ("NodesReserved", "reserved")):
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=sweep_result.nodes_by_capacity_type.get(kind, 0))
        metrics.add_metric(
            name="CostPerHour", unit=MetricUnit.NoUnit, value=sweep_result.price_picousd_per_hour / 10**12
        )
