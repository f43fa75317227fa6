"""Sends doorbells to the queues, and the forwarder's heartbeat to the table."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Any

import msgspec

from forwarder.doorbells import QueuedDoorbell, pods_first
from forwarder.epoch import SILENT_SECONDS, Epoch
from spotwright.adapters.aws.cluster_states import forwarder_partition
from spotwright.adapters.aws.dynamodb.items import number_attribute
from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, Conflict
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.ports.doorbells import Doorbell

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient
    from mypy_boto3_sqs.client import SQSClient

BATCH = 10
ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.2
# DynamoDB deletes the heartbeat of a forwarder that is gone after a day.
HEARTBEAT_EXPIRES_SECONDS = 24 * 3600
# Of two forwarders the younger one ships the cluster state: a heartbeat of the other would hide that it is the newest.
_YOUNGEST = "attribute_not_exists(epoch) OR epoch <= :epoch OR NOT (#at BETWEEN :earliest AND :latest)"

logger = logging.getLogger("forwarder")


class DoorbellSender:
    """``urls``: queue name → URL. Doorbells that could not be sent are returned, never lost silently."""

    def __init__(
        self,
        sqs: "SQSClient",
        *,
        cluster: str,
        urls: Mapping[str, str],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sqs = sqs
        self._cluster = cluster
        self._urls = urls
        self._pause = pause

    def send(self, bells: Iterable[QueuedDoorbell]) -> frozenset[QueuedDoorbell]:
        """Send each doorbell once, those for pods first; returns those that failed in every attempt."""
        by_queue: dict[str, list[QueuedDoorbell]] = {}
        for bell in sorted(bells, key=pods_first):
            by_queue.setdefault(bell.queue, []).append(bell)
        failed: set[QueuedDoorbell] = set()
        for queue, queued_doorbells in by_queue.items():
            for batch in batched(queued_doorbells, BATCH, strict=False):
                failed.update(self._send_batch(queue, batch))
        return frozenset(failed)

    def _send_batch(self, queue: str, bells: Sequence[QueuedDoorbell]) -> Sequence[QueuedDoorbell]:
        """Send at most ten; those that SQS refuses are sent again without the others."""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(random.uniform(0.5, 1.0) * FIRST_PAUSE_SECONDS * 2**attempt)
            try:
                bells = self._try_batch(queue, bells)
            except ApiError as failure:
                log_line(logger, log_lines.DOORBELLS_NOT_SENT, queue=queue, error=str(failure))
            if not bells:
                break
        return bells

    def _try_batch(self, queue: str, bells: Sequence[QueuedDoorbell]) -> Sequence[QueuedDoorbell]:
        """One SendMessageBatch; returns the doorbells that it refuses."""
        entries: list[Any] = [
            {"Id": str(number), "MessageBody": self._body(queued_doorbell), "MessageGroupId": self._cluster}
            for number, queued_doorbell in enumerate(bells)
        ]
        with translate_errors(f"SendMessageBatch {queue}"):
            answer = self._sqs.send_message_batch(QueueUrl=self._urls[queue], Entries=entries)
        refused = answer.get("Failed", [])
        for entry in refused:
            log_line(logger, log_lines.DOORBELL_REFUSED, queue=queue, error=entry.get("Message") or entry["Code"])
        return [bells[int(entry["Id"])] for entry in refused]

    def _body(self, bell: QueuedDoorbell) -> str:
        return msgspec.json.encode(Doorbell(self._cluster, bell.kind, bell.key)).decode()


def write_heartbeat(
    dynamodb: "DynamoDBClient",
    *,
    table: str,
    cluster: str,
    now: float,
    epoch: Epoch,
    sequence: int,
    leaving: bool = False,
) -> None:
    """Write the heartbeat, and note whose place it took. ``now``: epoch seconds; ``leaving``: the forwarder stops.

    ``sequence``: of the newest cluster state of the epoch; 0 = there is none. While a younger forwarder of the cluster
    writes heartbeats, as in a rolling update, those stand.

    Raises ApiError.
    """
    written = epoch.number, 0 if leaving else int(now * 1000)
    try:
        with translate_errors("PutItem heartbeat"):
            answer = dynamodb.put_item(
                TableName=table,
                Item={
                    "pk": {"S": forwarder_partition(cluster)},
                    "sk": {"S": "heartbeat"},
                    "schema": {"N": "1"},
                    "at": {"N": str(written[1])},
                    "epoch": {"N": str(written[0])},
                    **({"sequence": {"N": str(sequence)}} if sequence else {}),
                    "expires": {"N": str(int(now) + HEARTBEAT_EXPIRES_SECONDS)},
                },
                ReturnValues="ALL_OLD",
                ConditionExpression=_YOUNGEST,
                ExpressionAttributeNames={"#at": "at"},
                ExpressionAttributeValues={
                    ":epoch": {"N": str(written[0])},
                    ":earliest": {"N": str(int((now - SILENT_SECONDS) * 1000))},
                    ":latest": {"N": str(int((now + SILENT_SECONDS) * 1000))},
                },
            )
    except Conflict:
        epoch.heartbeat_refused()
    else:
        before = answer.get("Attributes")
        key = (number_attribute(before, "epoch"), number_attribute(before, "at")) if before else None
        epoch.heartbeat_written(written, key)
