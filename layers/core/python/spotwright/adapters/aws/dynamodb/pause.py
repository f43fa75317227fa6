"""The rows that stop provisioning and disruption of a cluster: the pause and the breaker."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.aws.errors import translate_errors
from spotwright.disruption import rollouts
from spotwright.workflows.ports.rows import epoch_ms

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient


class PauseRow:
    """The pause of a cluster in the table of its cell."""

    def __init__(self, client: "DynamoDBClient", *, table: str, cluster: str) -> None:
        self._client, self._table, self._cluster = client, table, cluster

    def pause(self, reason: str, *, provisioning: bool = True) -> None:
        """Pause disruption, and provisioning if it is asked for; replaces an earlier pause. Raises ApiError."""
        with translate_errors("PutItem pause"):
            self._client.put_item(
                TableName=self._table,
                Item={
                    "pk": {"S": self._cluster},
                    "sk": {"S": "pause"},
                    "schema": {"N": "1"},
                    "provisioning": {"BOOL": provisioning},
                    "disruption": {"BOOL": True},
                    "reason": {"S": reason},
                    "at": {"S": datetime.now(UTC).isoformat(timespec="seconds")},
                },
            )

    def resume(self) -> None:
        """End the pause, close the breaker, and forget replacements that failed; no error when there are none.

        Raises ApiError.
        """
        for row in ("pause", "breaker"):
            with translate_errors(f"DeleteItem {row}"):
                self._client.delete_item(TableName=self._table, Key={"pk": {"S": self._cluster}, "sk": {"S": row}})
        state = DynamoState(self._client, table=self._table, cluster=self._cluster)
        remembered = epoch_ms(datetime.now(UTC) - rollouts.REMEMBERED)
        for command in state.commands(created_after=remembered):
            if command.failed:
                state.save(msgspec.structs.replace(command, failed=0))
