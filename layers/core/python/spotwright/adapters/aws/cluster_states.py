"""Writes the cluster state: bodies into the bucket, then the head as an item of the table (ADR 20)."""

import time
from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.aws.errors import translate_errors
from spotwright.adapters.cluster_state.bodies import state_key
from spotwright.adapters.cluster_state.head import encode_head
from spotwright.model.cluster_state import ClusterStateHead

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# The sort key of the head, in the partition of the cluster's forwarder.
HEAD_ITEM: Final = "state"
# DynamoDB deletes the head of a forwarder that is gone after a day, as S3 its bodies.
EXPIRES_SECONDS: Final = 24 * 3600

_LATER: Final = "attribute_not_exists(epoch) OR epoch < :e OR (epoch = :e AND #sequence < :s)"


def forwarder_partition(cluster: str) -> str:
    """The partition key of the items that a cluster's forwarder writes."""
    return f"forwarder#{cluster}"


class ClusterStateWriter:
    """The store of one cluster's state."""

    def __init__(self, s3: "S3Client", table: Table, *, bucket: str, cluster: str) -> None:
        self._s3, self._table, self._bucket, self._cluster = s3, table, bucket, cluster

    def put_body(self, body: bytes) -> str:
        """Store a body; returns its key. Raises ApiError."""
        key = state_key(self._cluster, body)
        with translate_errors(f"PutObject {key}"):
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/octet-stream")
        return key

    def put_head(self, head: ClusterStateHead) -> None:
        """Store the head. Raises Conflict when there is one of a later epoch or sequence, and other ApiErrors."""
        self._table.put(
            {
                "pk": {"S": forwarder_partition(self._cluster)},
                "sk": {"S": HEAD_ITEM},
                "schema": {"N": str(head.schema)},
                "epoch": {"N": str(head.epoch)},
                "sequence": {"N": str(head.sequence)},
                "body": {"S": encode_head(head)},
                "expires": {"N": str(int(time.time()) + EXPIRES_SECONDS)},
            },
            ConditionExpression=_LATER,
            ExpressionAttributeNames={"#sequence": "sequence"},
            ExpressionAttributeValues={":e": {"N": str(head.epoch)}, ":s": {"N": str(head.sequence)}},
        )
