"""Unschedulable pods → a committed decision about new nodes."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.provision.workflow import provision

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event, kinds=("pods",), clusters=environment.clusters, work=partial(_work, context), logger=logger,
        metrics=metrics,
    )  # fmt: skip


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    served = provision(
        cluster_clients.ports(cluster),
        clock=lambda: datetime.now(UTC),
        seconds_left=partial(sqs_batch.seconds_left, context),
    )
    if served.postponed_pods:
        logger.warning("pods follow in the next round", extra={"cluster": cluster, "pods": served.postponed_pods})
    for decision in served.decisions:
        logger.info(
            "computed new nodeclaim(s) to fit pod(s)",
            extra={
                "cluster": cluster,
                "decision": decision.id,
                "why": decision.message,
                "nodeclaims": [name for launch in decision.launches for name in launch.claims],
                "nodes": [node.reason for node in decision.plan.new_nodes],
            },
        )
    for plan in served.plans[-1:]:
        metrics.add_dimension(name="cluster", value=cluster)
        for seconds in served.pod_wait_seconds:
            metrics.add_metric(name="EventToDecisionSeconds", unit=MetricUnit.Seconds, value=seconds)
        metrics.add_metric(name="PodsUnschedulable", unit=MetricUnit.Count, value=len(plan.unschedulable_pods))
        metrics.add_metric(name="NodesDecided", unit=MetricUnit.Count, value=len(plan.new_nodes))
        for refused in plan.unschedulable_pods:
            logger.info(
                "could not schedule pod", extra={"cluster": cluster, "pod": refused.pod, "reasons": refused.reasons}
            )
