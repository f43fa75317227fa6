"""Unschedulable pods → a committed decision about new nodes."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from spotwright import sqs_batch
from spotwright.composition import cluster_clients
from spotwright.log_metrics import count_log_lines
from spotwright.scheduling.explain.node_choice import explain_node
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.provision.workflow import provision, unserved_request

logger = Logger()
metrics = Metrics()
counter = count_log_lines(logger, "spotwright.planning")


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    environment = cluster_clients.environment(os.environ)
    return sqs_batch.process_by_cluster(
        event,
        kinds=("pods",),
        clusters=environment.clusters,
        work=partial(_work, context),
        logger=logger,
        metrics=metrics,
        context=context,
        ring_again=partial(cluster_clients.ring_again, "provision"),
    )


def _work(context: sqs_batch.LambdaContext, cluster: str, bells: tuple[Doorbell, ...]) -> None:
    try:
        result = provision(
            cluster_clients.ports(cluster),
            clock=lambda: datetime.now(UTC),
            seconds_left=partial(sqs_batch.seconds_left, context),
            unserved_request=unserved_request(bells),
        )
    finally:
        counter.flush_into(metrics)
    if result.postponed_pods:
        log_line(logger, log_lines.POSTPONED_PODS, cluster=cluster, pods=result.postponed_pods)
    for decision in result.decisions:
        log_line(
            logger,
            log_lines.COMPUTED_NODECLAIMS,
            cluster=cluster,
            decision=decision.id,
            summary=decision.message,
            nodeclaims=[name for launch in decision.launches for name in launch.claims],
            nodes=[explain_node(node) for node in decision.plan.new_nodes],
        )
    for plan in result.plans[-1:]:
        for seconds in result.pod_wait_seconds:
            add_metric(metrics, telemetry.EVENT_TO_DECISION_SECONDS, seconds)
        add_metric(metrics, telemetry.PODS_UNSCHEDULABLE, len(plan.unschedulable_pods))
        add_metric(metrics, telemetry.NODES_DECIDED, len(plan.new_nodes))
        add_metric(metrics, telemetry.LAUNCHES_HELD_BACK, sum(held_back.nodes for held_back in plan.nodes_held_back))
        for held_back in plan.nodes_held_back:
            log_line(
                logger,
                log_lines.HELD_BACK_NODES,
                cluster=cluster,
                nodepool=held_back.nodepool,
                nodes=held_back.nodes,
                setting=held_back.setting,
                until=held_back.resumes_at.isoformat(),
                reason=held_back.reason,
            )
        for pod in plan.unschedulable_pods:
            log_line(logger, log_lines.COULD_NOT_SCHEDULE_POD, cluster=cluster, pod=pod.pod, reasons=pod.reasons)
