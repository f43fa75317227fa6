"""Records EventBridge's messages about instances as notices, a batch together; each message fails alone."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from aws_lambda_powertools import Logger, Metrics

from spotwright import settings, sqs_batch
from spotwright.adapters import time_limit
from spotwright.aws.interruption_messages import Notice, parse_notice
from spotwright.composition import interrupt_clients
from spotwright.errors import ApiError, InvalidRequest
from spotwright.log_metrics import write_library_lines
from spotwright.model.quoting import quote
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.interrupt import record_batch

# No further row is begun with less time left: about what it and the doorbells take with retries.
LAST_SECONDS = 2
# So many entities of a message of AWS Health are named in a line.
ENTITIES_SHOWN = 20

logger = Logger()
metrics = Metrics()
write_library_lines(logger, "spotwright.interrupt")


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    with time_limit.invocation_ends_in(sqs_batch.seconds_left(context)):
        return _process(event, context)


def _process(event: dict[str, Any], context: sqs_batch.LambdaContext) -> sqs_batch.BatchResponse:
    clusters = interrupt_clients.ports(settings.environment(os.environ))
    notices: dict[str, Notice] = {}
    now = datetime.now(UTC)
    failed: list[str] = []
    for record in event.get("Records") or ():
        try:
            notice = parse_notice(_envelope(record["body"]), now=now)
        except InvalidRequest as failure:
            _report(record["messageId"], failure)
            failed.append(record["messageId"])
            continue
        if notice is not None:
            notices[record["messageId"]] = notice
    failed += _record(clusters, notices, context, now)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _record(
    clusters: Mapping[str, interrupt_clients.InterruptClients],
    notices: Mapping[str, Notice],
    context: sqs_batch.LambdaContext,
    now: datetime,
) -> list[str]:
    """Record the notices of a batch, by message; the messages that must come back, or go to the dead letters."""
    failures = record_batch(
        clusters, interrupt_clients.instances(), notices,
        now=now, may_begin=lambda: sqs_batch.seconds_left(context) >= LAST_SECONDS,
    )  # fmt: skip
    for message_id, notice in notices.items():
        if message_id in failures:
            _report(message_id, failures[message_id])
            continue
        _report_recorded(notice)
    sqs_batch.end_with_expired_credentials([failure.code for failure in failures.values()], logger)
    return list(failures)


def _report_recorded(notice: Notice) -> None:
    """What was recorded of a message, and what was left out."""
    if notice.instance_ids:
        log_line(
            logger, log_lines.RECORDED_NOTICE,
            kind=notice.kind, instance_ids=notice.instance_ids, deadline=notice.deadline, code=notice.code,
        )  # fmt: skip
        add_metric(metrics, telemetry.NOTICES, 1)
    for part in notice.left_out:
        fields = {
            "event": notice.event, "code": notice.code, "reason": part.reason, "count": len(part.entities),
            "entities": part.entities[:ENTITIES_SHOWN],
        }  # fmt: skip
        if part.is_unreadable:
            log_line(logger, log_lines.UNREADABLE_CHANGE, **fields)
            add_metric(metrics, telemetry.CHANGES_UNREADABLE, 1)
        else:
            log_line(logger, log_lines.IGNORED_CHANGE, **fields)
            add_metric(metrics, telemetry.CHANGES_IGNORED, 1)


def _report(message_id: str, failure: ApiError) -> None:
    log_line(
        logger, log_lines.FAILED_RECORDING_NOTICE,
        message_id=message_id, code=failure.code, error=str(failure),
    )  # fmt: skip
    add_metric(metrics, telemetry.WORK_FAILED, 1)


def _envelope(body: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"message is not an EventBridge event: {error}: {quote(body)}") from None
