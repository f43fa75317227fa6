"""What all clusters of an account and region know together: offering health and EC2's call rates.

The rows are in the cell's own table, or in that of another cell (``memoryTable`` of the context), which all cells of
the account share then. If that one is gone, or may not be used, the cell learns alone: nothing else depends on it.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from spotwright.adapters.aws.dynamodb.items import HISTORY_SECONDS, Item, encode_offering_health
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.aws.token_bucket import TokenBucket
from spotwright.errors import ApiError
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

log: Final = logging.getLogger("spotwright.memory")

# DynamoDB's words for a table that is not there, that is not ours to use, and that is none of Spotwright's.
_UNUSABLE_CODES: Final = frozenset({"ResourceNotFoundException", "AccessDeniedException", "ValidationException"})


class AccountState:
    """``shared``: another cell's table, None = the own one. Once it was of no use, the process asks it no more."""

    def __init__(self, own: Table, shared: Table | None) -> None:
        self._own, self._shared = own, shared

    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        def ask(table: Table) -> tuple[OfferingHealth, ...]:
            items = table.query(
                ConsistentRead=True,
                KeyConditionExpression="pk = :p",
                FilterExpression="expires > :t",
                ExpressionAttributeValues={":p": {"S": "offering"}, ":t": {"N": str(now // 1000)}},
            )
            return tuple(msgspec.json.decode(item["body"]["S"], type=OfferingHealth) for item in items)

        return self._ask(ask)

    def save_offering_health(self, health: OfferingHealth) -> None:
        after = msgspec.structs.replace(health, version=health.version + 1)
        self._ask(lambda table: table.put_versioned(encode_offering_health(after), health.version))

    def call_rate(self, action: str) -> TokenBucket | None:
        item = self._ask(lambda table: table.get("rate", action))
        return None if item is None else _decode_rate(item)

    def save_call_rate(self, rate: TokenBucket) -> None:
        self._ask(lambda table: table.put_versioned(_encode_rate(rate), rate.version))

    def call_rates(self, actions: Collection[str]) -> tuple[TokenBucket, ...]:
        wanted = sorted(set(actions))
        if len(wanted) == 1:
            rate = self.call_rate(wanted[0])
            return () if rate is None else (rate,)
        items = self._ask(lambda table: table.get_rows("rate", *wanted))
        return tuple(_decode_rate(items[action]) for action in sorted(items))

    def save_call_rates(self, rates: Sequence[TokenBucket]) -> None:
        if len(rates) == 1:
            self.save_call_rate(rates[0])
            return
        # A transaction costs twice what single writes do, but a token of the first would be lost with the second.
        puts = [(_encode_rate(rate), rate.version) for rate in rates]
        self._ask(lambda table: table.put_all_versioned(puts))

    def _ask[R](self, ask: Callable[[Table], R]) -> R:
        # Another thread may find it unusable at the same time.
        shared = self._shared
        if shared is not None:
            try:
                return ask(shared)
            except ApiError as failure:
                if failure.code not in _UNUSABLE_CODES:
                    raise
                log_line(
                    log, log_lines.MEMORY_TABLE_UNUSABLE,
                    table=shared.name, code=failure.code, error=str(failure),
                )  # fmt: skip
                self._shared = None
        return ask(self._own)


def _decode_rate(item: Item) -> TokenBucket:
    return msgspec.json.decode(item["body"]["S"], type=TokenBucket)


def _encode_rate(rate: TokenBucket) -> Item:
    """With its next version."""
    after = msgspec.structs.replace(rate, version=rate.version + 1)
    return {
        "pk": {"S": "rate"},
        "sk": {"S": rate.action},
        "schema": {"N": "1"},
        "version": {"N": str(after.version)},
        "body": {"S": msgspec.json.encode(after).decode()},
        "expires": {"N": str(rate.updated_at_ms // 1000 + HISTORY_SECONDS)},
    }
