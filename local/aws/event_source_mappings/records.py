"""The event of an SQS batch, and what a function's answer means for it. Pure.

Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

from moto.sqs.models import Message

from local.aws.queues.messages import trace_header


def batch_event(messages: Sequence[Message], queue_arn: str, region: str) -> dict[str, Any]:
    return {"Records": [_record(message, queue_arn, region) for message in messages]}


def _record(message: Message, queue_arn: str, region: str) -> dict[str, Any]:
    record = {
        "messageId": message.id,
        "receiptHandle": message.receipt_handle,
        "body": message.body,
        "attributes": _attributes(message),
        "messageAttributes": {name: _message_attribute(value) for name, value in message.message_attributes.items()},
        "md5OfBody": message.body_md5,
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": region,
    }
    if message.message_attributes:
        record["md5OfMessageAttributes"] = message.attribute_md5
    return record


def _attributes(message: Message) -> dict[str, str]:
    attributes = {
        "ApproximateReceiveCount": str(message.approximate_receive_count),
        "SentTimestamp": str(message.sent_timestamp),
        "SenderId": message.sender_id,
        "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
        "AWSTraceHeader": trace_header(message),
        "MessageGroupId": message.group_id or "",
        "MessageDeduplicationId": message.deduplication_id or "",
        "SequenceNumber": message.sequence_number or "",
    }
    return {name: value for name, value in attributes.items() if value}


def _message_attribute(value: dict[str, Any]) -> dict[str, Any]:
    binary = value.get("BinaryValue")
    if isinstance(binary, bytes):
        binary = base64.b64encode(binary).decode()
    return {
        "dataType": value.get("DataType"),
        "stringValue": value.get("StringValue"),
        "binaryValue": binary,
        "stringListValues": [],
        "binaryListValues": [],
    }


def failed_message_ids(answer: bytes, message_ids: Sequence[str]) -> frozenset[str]:
    """The messages that stay on the queue, by a function that reports batch item failures.

    An answer that cannot be understood fails the whole batch, as does an id that is not of the batch.
    """
    everything = frozenset(message_ids)
    try:
        report = json.loads(answer or b"null")
    except ValueError:
        return everything
    if report is None:
        return frozenset()
    if not isinstance(report, dict):
        return everything
    failures = report.get("batchItemFailures") or []
    if not isinstance(failures, list):
        return everything
    failed = {item.get("itemIdentifier") if isinstance(item, dict) else None for item in failures}
    return everything if failed - everything else frozenset(id for id in failed if id)
