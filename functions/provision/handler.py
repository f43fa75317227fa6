"""Unschedulable pods → a committed decision about new nodes."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import composition, edge
from spotwright.workflows.ports import Doorbell
from spotwright.workflows.provision import provision

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: edge.Context) -> edge.BatchAnswer:
    environment = composition.environment(os.environ)
    return edge.by_cluster(
        event, kinds=("pods",), clusters=environment.clusters, work=partial(_work, context), logger=logger,
        metrics=metrics,
    )  # fmt: skip


def _work(context: edge.Context, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    served = provision(
        composition.ports(cluster), clock=lambda: datetime.now(UTC), seconds_left=partial(edge.seconds_left, context)
    )
    if served.postponed:
        logger.warning("pods follow in the next round", extra={"cluster": cluster, "pods": served.postponed})
    for decision in served.decisions:
        logger.info(
            "computed new nodeclaim(s) to fit pod(s)",
            extra={
                "cluster": cluster,
                "decision": decision.id,
                "why": decision.why,
                "nodeclaims": [name for launch in decision.launches for name in launch.claims],
                "nodes": [node.reason for node in decision.plan.new_nodes],
            },
        )
    for plan in served.plans[-1:]:
        metrics.add_dimension(name="cluster", value=cluster)
        for seconds in served.waited_seconds:
            metrics.add_metric(name="EventToDecisionSeconds", unit=MetricUnit.Seconds, value=seconds)
        metrics.add_metric(name="PodsUnschedulable", unit=MetricUnit.Count, value=len(plan.unschedulable_pods))
        metrics.add_metric(name="NodesDecided", unit=MetricUnit.Count, value=len(plan.new_nodes))
        for refused in plan.unschedulable_pods:
            logger.info(
                "could not schedule pod", extra={"cluster": cluster, "pod": refused.pod, "reasons": refused.reasons}
            )
