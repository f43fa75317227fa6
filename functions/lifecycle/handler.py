"""The one hand: launches, NodeClaims, nodes, drains, terminations; one step for each doorbell."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from spotwright import composition, edge
from spotwright.edge_counting import counting
from spotwright.workflows import lifecycle
from spotwright.workflows.ports import Doorbell

logger = Logger()
metrics = Metrics()
counter = counting(logger, "spotwright.lifecycle")


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: edge.Context) -> edge.BatchAnswer:
    environment = composition.environment(os.environ)
    return edge.by_cluster(
        event, kinds=lifecycle.KINDS, clusters=environment.clusters, work=partial(_work, context), logger=logger,
        metrics=metrics,
    )  # fmt: skip


def _work(context: edge.Context, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    metrics.add_dimension(name="cluster", value=cluster)
    try:
        left = partial(edge.seconds_left, context)
        lifecycle.lifecycle(composition.ports(cluster), bells, now=datetime.now(UTC), seconds_left=left)
    finally:
        counter.flush_into(metrics)
