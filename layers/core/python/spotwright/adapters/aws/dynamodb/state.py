"""The state of a cluster in DynamoDB (StatePort).

A table with the key ``pk``/``sk``; ``body`` is the JSON of a row's Struct, ``version`` its optimistic lock. ``due``
(epoch milliseconds) and ``timer`` exist only while a row waits, so that the index ``due`` holds exactly the timers.
Finished rows stay for a day as history (``expires``, epoch seconds).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Final

import msgspec

from spotwright.adapters.aws.dynamodb.account_state import AccountState
from spotwright.adapters.aws.dynamodb.catalog_pointer import CatalogPointer
from spotwright.adapters.aws.dynamodb.cluster_row import ClusterItem
from spotwright.adapters.aws.dynamodb.items import (
    HISTORY_SECONDS,
    Item,
    decode_row,
    decode_timer_row,
    encode_refused_evictions,
    encode_registration_health,
    encode_row,
    number_attribute,
)
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.recent_reads import RecentRead
from spotwright.aws.token_bucket import TokenBucket
from spotwright.disruption.breaker import Breaker
from spotwright.errors import Conflict
from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import RegistrationHealth
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.snapshot import LaunchedInMinute
from spotwright.workflows.batched_calls import BatchedCalls
from spotwright.workflows.ports.rows import (
    FINAL_PHASES,
    ClusterRow,
    CommandRow,
    CommitPause,
    LaunchRow,
    NominationRow,
    NoticeRow,
    Row,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

# Of BatchGetItem: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
_ROWS_READ: Final = 100
_IS_NEW: Final = "attribute_not_exists(pk)"
_HAS_VERSION: Final = "version = :v"


class DynamoState:
    """See StatePort. ``memory_table``: see ``account_state``; "" = the cell's own table. ``recent_seconds``: how old a
    heartbeat and a recent catalog key may be, 0 = they are read each time.
    """

    def __init__(
        self,
        client: "DynamoDBClient",
        *,
        table: str,
        cluster: str,
        memory_table: str = "",
        recent_seconds: float = 0,
    ) -> None:
        self._table, self._cluster = Table(client, table), cluster
        self._cluster_item = ClusterItem(self._table, cluster)
        # Ten nodes that join or go are ten steps that ask for a row of their own at the same moment.
        self._item: Final = BatchedCalls(self._read_items)
        self._catalog = CatalogPointer(self._table, cluster)
        self._account = AccountState(self._table, Table(client, memory_table) if memory_table else None)
        self._heartbeat = RecentRead(self._read_heartbeat, recent_seconds)
        self._recent_catalog_key = RecentRead(self._catalog.key, recent_seconds)

    def cluster(self) -> ClusterRow:
        return self._cluster_item.read()

    def request_planning(self) -> int:
        return self._cluster_item.request_planning()

    def mark_served(self, requested: int, *, pause_until: int = 0, pause_digest: str = "") -> None:
        self._cluster_item.mark_served(requested, pause_until, pause_digest)

    def pause_commits(self, pauses: tuple[CommitPause, ...]) -> None:
        self._cluster_item.pause_commits(pauses)

    def begin_planning(self, work: str, *, now: int, until: int) -> bool:
        return self._cluster_item.begin_planning(work, now=now, until=until)

    def end_planning(self, work: str, *, until: int, served: int | None = None) -> bool:
        return self._cluster_item.end_planning(work, until=until, served=served)

    def throttle(self, work: str, *, now: int, until: int) -> int:
        return self._cluster_item.throttle(work, now=now, until=until)

    def commit(
        self,
        *,
        expected_version: int,
        key: str,
        launched: tuple[LaunchedInMinute, ...] | None = None,
        pods_alike: bool | None = None,
    ) -> None:
        self._cluster_item.commit(expected_version=expected_version, key=key, launched=launched, pods_alike=pods_alike)

    def pods_alike(self) -> bool:
        return self._cluster_item.pods_alike()

    def note_other_pods(self) -> None:
        self._cluster_item.note_other_pods()

    def mark_acted(self, key: str) -> None:
        self._cluster_item.mark_acted(key)

    def set_other_provisioner(self, name: str) -> None:
        self._cluster_item.set_other_provisioner(name)

    def create(self, row: Row) -> bool:
        try:
            self._put(row, _IS_NEW, {})
        except Conflict:
            return False
        return True

    def save[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, row: R) -> R:
        after = msgspec.structs.replace(row, version=row.version + 1)
        self._put(after, _HAS_VERSION, _version(row))
        return after

    def create_together(self, rows: Sequence[Row]) -> bool:
        return self._table.put_together(self._creation(row) for row in rows)

    def save_together(self, rows: Sequence[Row], *, created: Sequence[Row] = ()) -> bool:
        saved = (
            {
                "Item": encode_row(msgspec.structs.replace(row, version=row.version + 1), self._cluster),
                "ConditionExpression": _HAS_VERSION,
                "ExpressionAttributeValues": _version(row),
            }
            for row in rows
        )
        return self._table.put_together([*saved, *map(self._creation, created)])

    def launch(self, id: str) -> LaunchRow | None:
        return self._row(f"launch#{id}", LaunchRow)

    def launches(self, *, created_after: int | None = None) -> tuple[LaunchRow, ...]:
        return tuple(self._open("launch#", LaunchRow, created_after))

    def command(self, id: str) -> CommandRow | None:
        return self._row(f"command#{id}", CommandRow)

    def commands_by_id(self, ids: Collection[str]) -> tuple[CommandRow, ...]:
        return self._rows((f"command#{id}" for id in ids), CommandRow)

    def commands(self, *, created_after: int | None = None) -> tuple[CommandRow, ...]:
        return tuple(self._open("command#", CommandRow, created_after))

    def notice(self, instance_id: str) -> NoticeRow | None:
        return self._row(f"notice#{instance_id}", NoticeRow)

    def notices_of(self, instances: Collection[str]) -> tuple[NoticeRow, ...]:
        return self._rows((f"notice#{instance}" for instance in instances), NoticeRow)

    def notices(self) -> tuple[NoticeRow, ...]:
        return tuple(self._open("notice#", NoticeRow))

    def nomination(self, claim: str) -> NominationRow | None:
        return self._row(f"nomination#{claim}", NominationRow)

    def nominations(self) -> tuple[NominationRow, ...]:
        return tuple(self._open("nomination#", NominationRow))

    def due_rows(self, before: int) -> tuple[Row, ...]:
        items = self._table.query(
            IndexName="due",
            KeyConditionExpression="timer = :c AND due <= :t",
            ExpressionAttributeValues={":c": {"S": self._cluster}, ":t": {"N": str(before)}},
        )
        return tuple(decode_timer_row(item) for item in items)

    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        return self._account.offering_health(now)

    def save_offering_health(self, health: OfferingHealth) -> None:
        self._account.save_offering_health(health)

    def call_rate(self, action: str) -> TokenBucket | None:
        return self._account.call_rate(action)

    def save_call_rate(self, rate: TokenBucket) -> None:
        self._account.save_call_rate(rate)

    def call_rates(self, actions: Collection[str]) -> tuple[TokenBucket, ...]:
        return self._account.call_rates(actions)

    def save_call_rates(self, rates: Sequence[TokenBucket]) -> None:
        self._account.save_call_rates(rates)

    def heartbeat(self) -> int:
        return self._heartbeat()

    def _read_heartbeat(self) -> int:
        item = self._table.get(f"forwarder#{self._cluster}", "heartbeat")
        return 0 if item is None else number_attribute(item, "at")

    def breaker(self) -> Breaker:
        item = self._table.get(self._cluster, "breaker")
        return Breaker() if item is None else msgspec.json.decode(item["body"]["S"], type=Breaker)

    def save_breaker(self, breaker: Breaker) -> None:
        after = msgspec.structs.replace(breaker, version=breaker.version + 1)
        item: Item = {
            "pk": {"S": self._cluster}, "sk": {"S": "breaker"}, "schema": {"N": str(after.schema)},
            "version": {"N": str(after.version)}, "body": {"S": msgspec.json.encode(after).decode()},
        }  # fmt: skip
        self._table.put_versioned(item, breaker.version)

    def registration_health(self, nodepool_uid: str) -> RegistrationHealth | None:
        item = self._table.get(self._cluster, f"registrations#{nodepool_uid}")
        return None if item is None else msgspec.json.decode(item["body"]["S"], type=RegistrationHealth)

    def save_registration_health(self, health: RegistrationHealth) -> None:
        after = msgspec.structs.replace(health, version=health.version + 1)
        self._table.put_versioned(encode_registration_health(after, self._cluster), health.version)

    def refused_evictions(self) -> tuple[RefusedEvictions, ...]:
        items = self._table.query(
            ConsistentRead=True,
            KeyConditionExpression="pk = :p AND begins_with(sk, :s)",
            ExpressionAttributeValues={":p": {"S": self._cluster}, ":s": {"S": "refused#"}},
        )
        return tuple(msgspec.json.decode(item["body"]["S"], type=RefusedEvictions) for item in items)

    def save_refused_evictions(self, refused: RefusedEvictions) -> None:
        after = msgspec.structs.replace(refused, version=refused.version + 1)
        self._table.put_versioned(encode_refused_evictions(after, self._cluster), refused.version)

    def catalog_key(self) -> str:
        return self._catalog.key()

    def recent_catalog_key(self) -> str:
        return self._recent_catalog_key()

    def set_catalog_key(self, key: str, at: int) -> None:
        self._catalog.set_key(key, at)

    def catalog_stored_at(self) -> int:
        return self._catalog.stored_at()

    def begin_region_read(self, now: int, *, since: int) -> bool:
        return self._catalog.begin_region_read(now, since=since)

    def end_region_read(self) -> None:
        self._catalog.end_region_read()

    def _row[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, sort: str, kind: type[R]) -> R | None:
        item = self._item(sort)
        return None if item is None else decode_row(item, kind)

    def _read_items(self, sorts: Sequence[str]) -> dict[str, Item | None]:
        if len(sorts) == 1:
            return {sorts[0]: self._table.get(self._cluster, sorts[0])}
        found = self._items(sorts)
        return {sort: found.get(sort) for sort in sorts}

    def _items(self, sorts: Iterable[str]) -> dict[str, Item]:
        """Those that exist, by sort key."""
        items: dict[str, Item] = {}
        for some in batched(sorts, _ROWS_READ, strict=False):
            items |= self._table.get_rows(self._cluster, *some)
        return items

    def _rows[R: (CommandRow, NoticeRow)](self, sorts: Iterable[str], kind: type[R]) -> tuple[R, ...]:
        """Those that exist, ordered by id."""
        items = self._items(sorted(set(sorts)))
        return tuple(decode_row(items[sort], kind) for sort in sorted(items))

    def _open[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](
        self, prefix: str, kind: type[R], created_after: int | None = None
    ) -> Iterator[R]:
        """Rows that are not finished, or were created after a moment, ordered by id."""
        values: Item = {":p": {"S": self._cluster}, ":s": {"S": prefix}}
        condition = "attribute_not_exists(expires)"
        if created_after is not None:
            # Of a finished row, ``expires`` says in seconds when it was created.
            condition += " OR expires >= :e"
            values[":e"] = {"N": str(created_after // 1000 + HISTORY_SECONDS)}
        items = self._table.query(
            ConsistentRead=True,
            KeyConditionExpression="pk = :p AND begins_with(sk, :s)",
            FilterExpression=condition,
            ExpressionAttributeValues=values,
        )
        rows = (decode_row(item, kind) for item in items)
        return (row for row in rows if row.phase not in FINAL_PHASES or row.created > (created_after or 0))

    def _creation(self, row: Row) -> Item:
        """Of a transaction."""
        return {"Item": encode_row(row, self._cluster), "ConditionExpression": _IS_NEW}

    def _put(self, row: Row, condition: str, values: Item) -> None:
        request = {"ExpressionAttributeValues": values} if values else {}
        self._table.put(encode_row(row, self._cluster), ConditionExpression=condition, **request)


def _version(row: Row) -> Item:
    """The value of _HAS_VERSION."""
    return {":v": {"N": str(row.version)}}
