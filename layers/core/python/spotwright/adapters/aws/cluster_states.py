"""Writes the cluster state: bodies into the bucket, then the head as an item of the table (ADR 20)."""

import time
from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.dynamodb.items import Item, number_attribute
from spotwright.adapters.aws.dynamodb.table import Table, refused_row
from spotwright.adapters.aws.errors import translate_errors
from spotwright.adapters.cluster_state.bodies import state_key
from spotwright.adapters.cluster_state.head import encode_head
from spotwright.errors import Conflict
from spotwright.model.cluster_state import ClusterStateHead

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# The sort key of the head, in the partition of the cluster's forwarder.
HEAD_ITEM: Final = "state"
# DynamoDB deletes the head of a forwarder that is gone after a day, as S3 its bodies.
EXPIRES_SECONDS: Final = 24 * 3600

_LATER: Final = "attribute_not_exists(epoch) OR epoch < :e OR (epoch = :e AND #sequence < :s)"
_THE_SAME: Final = "epoch = :e AND #sequence = :s"


class LaterHead(Conflict):
    """There is a head of a later epoch or sequence than the one to be stored; 0 = DynamoDB does not say which."""

    def __init__(self, message: str, *, code: str, epoch: int, sequence: int) -> None:
        super().__init__(message, code=code)
        self.epoch, self.sequence = epoch, sequence


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

    def put_head(self, head: ClusterStateHead, *, replaces: LaterHead | None = None) -> None:
        """Store the head, or only in the place of the one that it ``replaces``.

        Raises LaterHead when there is another one, and ApiErrors.
        """
        epoch, sequence = (replaces.epoch, replaces.sequence) if replaces else (head.epoch, head.sequence)
        item: Item = {
            "pk": {"S": forwarder_partition(self._cluster)},
            "sk": {"S": HEAD_ITEM},
            "schema": {"N": str(head.schema)},
            "epoch": {"N": str(head.epoch)},
            "sequence": {"N": str(head.sequence)},
            "body": {"S": encode_head(head)},
            "expires": {"N": str(int(time.time()) + EXPIRES_SECONDS)},
        }
        try:
            self._table.put(
                item,
                ConditionExpression=_THE_SAME if replaces else _LATER,
                ExpressionAttributeNames={"#sequence": "sequence"},
                ExpressionAttributeValues={":e": {"N": str(epoch)}, ":s": {"N": str(sequence)}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except Conflict as conflict:
            found = refused_row(conflict)
            epoch, sequence = number_attribute(found, "epoch"), number_attribute(found, "sequence")
            raise LaterHead(str(conflict), code=conflict.code, epoch=epoch, sequence=sequence) from conflict
