"""EventBridge's messages about instances, written down as notices; each message stands or falls alone."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from spotwright import settings, sqs_batch
from spotwright.composition import interrupt_clients
from spotwright.errors import ApiError, InvalidRequest
from spotwright.workflows.interrupt import interrupt

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> sqs_batch.BatchResponse:
    clusters = interrupt_clients.ports(settings.environment(os.environ))
    failed = [record["messageId"] for record in event.get("Records") or () if not _noted(record, clusters)]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}


def _noted(record: Mapping[str, Any], clusters: Mapping[str, interrupt_clients.InterruptClients]) -> bool:
    """False for a message that must come back, or go to the dead letters."""
    try:
        notice = interrupt(clusters, _envelope(record["body"]), now=datetime.now(UTC))
    except ApiError as failure:
        logger.error(
            "notice not written down",
            extra={"message_id": record["messageId"], "code": failure.code, "error": str(failure)},
        )
        metrics.add_metric(name="WorkFailed", unit=MetricUnit.Count, value=1)
        return False
    if notice is not None:
        logger.info("notice", extra=msgspec.to_builtins(notice))
        metrics.add_metric(name="Notices", unit=MetricUnit.Count, value=1)
    return True


def _envelope(body: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"message is not an EventBridge event: {error}: {body[:200]!r}") from None
