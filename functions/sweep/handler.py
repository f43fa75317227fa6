"""The safety net: rings for whatever the facts still show and no message told."""

import os
from datetime import UTC, datetime
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import composition, edge
from spotwright.workflows import sweep
from spotwright.workflows.ports import Doorbell

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> edge.BatchAnswer:
    environment = composition.environment(os.environ)
    return edge.by_cluster(
        event, kinds=("poll", "full"), clusters=environment.clusters, work=_work, logger=logger, metrics=metrics
    )


def _work(cluster: str, bells: tuple[Doorbell, ...]) -> None:
    ports, now = composition.ports(cluster), datetime.now(UTC)
    kinds = {bell.kind for bell in bells}
    if "full" in kinds:
        _tell(cluster, "full", sweep.full(ports, now=now))
    if "poll" in kinds:
        scheduled = any(bell.kind == "poll" and bell.epoch == 0 for bell in bells)
        _tell(cluster, "poll", sweep.poll(ports, now=now, again=scheduled))


def _tell(cluster: str, gear: str, found: sweep.Found) -> None:
    logger.info("swept", extra={"cluster": cluster, "gear": gear, "found": msgspec.to_builtins(found)})
    metrics.add_dimension(name="cluster", value=cluster)
    metrics.add_metric(name="PodsPending", unit=MetricUnit.Count, value=found.pending)
    metrics.add_metric(name="NodeClaims", unit=MetricUnit.Count, value=found.nodes)
    metrics.add_metric(name="OrphansRefused", unit=MetricUnit.Count, value=1 if found.orphans < 0 else 0)
    if gear == "poll" and found.capacity:
        for name, kind in (("NodesSpot", "spot"), ("NodesOnDemand", "on-demand"), ("NodesReserved", "reserved")):
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=found.capacity.get(kind, 0))
        metrics.add_metric(name="CostPerHour", unit=MetricUnit.NoUnit, value=found.price_picousd_per_hour / 10**12)
