"""The row with what EKS last said of a cluster: for processes that begin while it says nothing."""

from typing import Final

import msgspec

from spotwright.adapters.aws.dynamodb.items import Item
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.model.ec2.fleet import ClusterFacts

_SORT_KEY: Final = "facts"


class ClusterFactsRow:
    """The facts of one cluster. Nothing depends on the row while EKS answers."""

    def __init__(self, table: Table, cluster: str) -> None:
        self._table, self._cluster = table, cluster

    def read(self) -> ClusterFacts | None:
        """None when there are none, or none that this version can read. Raises ApiError."""
        item = self._table.get(self._cluster, _SORT_KEY)
        if item is None:
            return None
        try:
            return msgspec.json.decode(item["body"]["S"], type=ClusterFacts)
        except (KeyError, msgspec.DecodeError):
            return None

    def write(self, facts: ClusterFacts) -> None:
        """Replace the facts. Raises ApiError."""
        item: Item = {"pk": {"S": self._cluster}, "sk": {"S": _SORT_KEY}, "schema": {"N": "1"}}
        self._table.put(item | {"body": {"S": msgspec.json.encode(facts).decode()}})
