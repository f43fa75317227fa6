"""Sends doorbells to the queues (DoorbellPort).

The queues are standard ones. There a message group is no order: SQS hands out messages of quiet groups first while
another group has many (fair queues), so that a cluster that floods a queue keeps no other one waiting.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
"""

import random
import time
from collections.abc import Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Final

import msgspec

from spotwright.adapters import time_limit
from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import Unavailable
from spotwright.workflows.ports.doorbells import Doorbell

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

BATCH_SIZE: Final = 10
MAXIMUM_DELAY_SECONDS: Final = 900
# Pauses before doorbells that SQS refused are sent again without the others of their batch, at most. The SDK repeats
# only requests that failed as a whole, and a step whose doorbell was not sent is taken again three minutes later.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
_PAUSES_SECONDS: Final = (0.1, 0.4, 1.0)
# A pause ends so long before the invocation does.
_LAST_TRY_SECONDS: Final = 1.0


class SqsDoorbells:
    """See DoorbellPort. ``urls``: queue name → URL."""

    def __init__(self, client: "SQSClient", *, urls: Mapping[str, str]) -> None:
        self._client, self._urls = client, urls

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        for doorbells in batched(bells, BATCH_SIZE, strict=False):
            entries: Sequence[SendMessageBatchRequestEntryTypeDef] = [
                {
                    "Id": str(number),
                    "MessageBody": msgspec.json.encode(bell).decode(),
                    "DelaySeconds": min(max(delay_seconds, 0), MAXIMUM_DELAY_SECONDS),
                    "MessageGroupId": bell.cluster,
                }
                for number, bell in enumerate(doorbells)
            ]
            for pause_seconds in (*_PAUSES_SECONDS, None):
                with translate_errors(f"SendMessageBatch {queue}"):
                    answer = self._client.send_message_batch(QueueUrl=self._urls[queue], Entries=entries)
                refused = {entry["Id"]: entry for entry in answer.get("Failed", ())}
                entries = [entry for entry in entries if entry["Id"] in refused]
                if not entries:
                    break
                if pause_seconds is not None:
                    left = time_limit.seconds_left(_LAST_TRY_SECONDS)
                    time.sleep(max(0.0, min(random.uniform(0, pause_seconds), left)))
            if entries:
                first = refused[entries[0]["Id"]]
                raise Unavailable(f"SendMessageBatch {queue}: {first.get('Message')}", code=first["Code"])
