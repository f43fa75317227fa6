"""Sends doorbells to the queues (DoorbellPort).

The queues are standard ones. There a message group is no order: SQS hands out messages of quiet groups first while
another group has many (fair queues), so that a cluster that floods a queue keeps no other one waiting.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
"""

from collections.abc import Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Final

import msgspec

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import Unavailable
from spotwright.workflows.ports.doorbells import Doorbell

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

BATCH_SIZE: Final = 10
MAXIMUM_DELAY_SECONDS: Final = 900


class SqsDoorbells:
    """See DoorbellPort. ``urls``: queue name → URL."""

    def __init__(self, client: "SQSClient", *, urls: Mapping[str, str]) -> None:
        self._client, self._urls = client, urls

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        for doorbells in batched(bells, BATCH_SIZE, strict=False):
            entries: list[SendMessageBatchRequestEntryTypeDef] = [
                {
                    "Id": str(number),
                    "MessageBody": msgspec.json.encode(bell).decode(),
                    "DelaySeconds": min(max(delay_seconds, 0), MAXIMUM_DELAY_SECONDS),
                    "MessageGroupId": bell.cluster,
                }
                for number, bell in enumerate(doorbells)
            ]
            with translate_errors(f"SendMessageBatch {queue}"):
                answer = self._client.send_message_batch(QueueUrl=self._urls[queue], Entries=entries)
            if answer.get("Failed"):
                first = answer["Failed"][0]
                raise Unavailable(f"SendMessageBatch {queue}: {first.get('Message')}", code=first["Code"])
