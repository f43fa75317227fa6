"""Records EventBridge's messages about instances as notices; each message succeeds or fails alone."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics

from spotwright import settings, sqs_batch
from spotwright.composition import interrupt_clients
from spotwright.errors import ApiError, InvalidRequest
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.interrupt import interrupt

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> sqs_batch.BatchResponse:
    clusters = interrupt_clients.ports(settings.environment(os.environ))
    failed = [record["messageId"] for record in event.get("Records") or () if not _record_notice(record, clusters)]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _record_notice(record: Mapping[str, Any], clusters: Mapping[str, interrupt_clients.InterruptClients]) -> bool:
    """False for a message that must come back, or go to the dead letters."""
    try:
        notice = interrupt(clusters, _envelope(record["body"]), now=datetime.now(UTC))
    except ApiError as failure:
        log_line(
            logger, log_lines.FAILED_RECORDING_NOTICE,
            message_id=record["messageId"], code=failure.code, error=str(failure),
        )  # fmt: skip
        add_metric(metrics, telemetry.WORK_FAILED, 1)
        return False
    if notice is not None:
        log_line(
            logger, log_lines.RECORDED_NOTICE,
            kind=notice.kind, instance_ids=notice.instance_ids, deadline=notice.deadline,
        )  # fmt: skip
        add_metric(metrics, telemetry.NOTICES, 1)
    return True


def _envelope(body: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"message is not an EventBridge event: {error}: {body[:200]!r}") from None
