"""The rows that stop provisioning and disruption of a cluster: the pause and the breaker."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotwright.adapters.aws.errors import translate_errors

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient


class PauseRow:
    """The pause of a cluster in the table of its cell."""

    def __init__(self, client: "DynamoDBClient", *, table: str, cluster: str) -> None:
        self._client, self._table, self._cluster = client, table, cluster

    def pause(self, reason: str) -> None:
        """Pause provisioning and disruption; replaces an earlier pause. Raises ApiError."""
        with translate_errors("PutItem pause"):
            self._client.put_item(
                TableName=self._table,
                Item={
                    "pk": {"S": self._cluster},
                    "sk": {"S": "pause"},
                    "schema": {"N": "1"},
                    "provisioning": {"BOOL": True},
                    "disruption": {"BOOL": True},
                    "reason": {"S": reason},
                    "at": {"S": datetime.now(UTC).isoformat(timespec="seconds")},
                },
            )

    def resume(self) -> None:
        """End the pause and close the breaker; no error when there is neither. Raises ApiError."""
        for row in ("pause", "breaker"):
            with translate_errors(f"DeleteItem {row}"):
                self._client.delete_item(TableName=self._table, Key={"pk": {"S": self._cluster}, "sk": {"S": row}})
