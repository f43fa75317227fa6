"""Rows, blobs, queues and catalogs in memory (StatePort, BlobPort, DoorbellPort, InstanceCatalogPort)."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from spotwright.aws.instance_types.offering_health import HEALTH_TTL_SECONDS
from spotwright.aws.token_bucket import TokenBucket
from spotwright.disruption.breaker import Breaker
from spotwright.errors import ApiError, Conflict, InvalidRequest, NotFound
from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import RegistrationHealth
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import LaunchedInMinute
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import (
    FINAL_PHASES,
    ClusterRow,
    CommandRow,
    CommitPause,
    LaunchRow,
    NominationRow,
    NoticeRow,
    Row,
    sort_key,
)
from spotwright.workflows.ports.state import (
    FAILED_PLANS,
    LISTED_EVALUATIONS,
    LISTED_FOR_PODS,
    ROWS_TOGETHER,
    WRONG_CLOCK_MS,
)

# DynamoDB's limit for an item, names of attributes included.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
MAXIMUM_ITEM_BYTES: Final = 400 * 1024
# The same for all items of a transaction.
MAXIMUM_TRANSACTION_BYTES: Final = 4 * 1024 * 1024
# Keys, version and timer beside a row's body, at most.
_ATTRIBUTE_BYTES: Final = 1024
# A queue takes messages of 256 KiB unless it is told to take larger ones, up to 1 MiB.
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
MAXIMUM_MESSAGE_BYTES: Final = 256 * 1024


class FakeState:
    """See StatePort. ``clear`` is the loss of the whole table."""

    def __init__(self, cluster: str, effects: Effects) -> None:
        self._cluster, self._effects = cluster, effects
        self.clear()

    def clear(self) -> None:
        self.cluster_row = ClusterRow(self._cluster)
        self.rows: dict[str, Row] = {}
        self.health: dict[str, OfferingHealth] = {}
        self.rates: dict[str, TokenBucket] = {}
        self.heartbeat_at = 0
        self.stored_breaker = Breaker()
        self.registrations: dict[str, RegistrationHealth] = {}
        self.refused: dict[str, RefusedEvictions] = {}
        self.current_catalog_key = ""
        self.catalog_time = 0
        self.region_read_began = 0
        # By work, whether a planner's or one that is throttled: until when its note holds.
        self.planners: dict[str, int] = {}

    def cluster(self) -> ClusterRow:
        self._effects.before_read("state", "cluster")
        return self.cluster_row

    def request_planning(self) -> int:
        with self._effects.record("state", "request_planning"):
            self.cluster_row = msgspec.structs.replace(
                self.cluster_row, planning_requests=self.cluster_row.planning_requests + 1
            )
            return self.cluster_row.planning_requests

    def mark_served(self, requested: int, *, pause_until: int = 0, pause_digest: str = "") -> None:
        with self._effects.record("state", "mark_served"):
            if requested > self.cluster_row.served_requests:
                self.cluster_row = msgspec.structs.replace(
                    self.cluster_row,
                    served_requests=requested,
                    plans_pause_until=pause_until,
                    plans_pause_digest=pause_digest,
                )

    def pause_commits(self, pauses: tuple[CommitPause, ...]) -> None:
        with self._effects.record("state", "pause_commits"):
            self.cluster_row = msgspec.structs.replace(self.cluster_row, commit_pauses=pauses)

    def begin_planning(self, work: str, *, now: int, until: int) -> bool:
        with suppress(Conflict), self._effects.record("state", "begin_planning", work):
            if now < self.planners.get(work, 0) <= until + WRONG_CLOCK_MS:
                raise Conflict("another planner is at work", code="ConditionalCheckFailed")
            self._note_planner(work, until)
            return True
        return False

    def end_planning(self, work: str, *, until: int, served: int | None = None) -> bool:
        with suppress(Conflict), self._effects.record("state", "end_planning", work):
            requested = self.cluster_row.planning_requests
            if self.planners.get(work) != until or (served is not None and requested > served):
                raise Conflict("planning goes on", code="ConditionalCheckFailed")
            self._note_planner(work, 0)
            return True
        return False

    def throttle(self, work: str, *, now: int, until: int) -> int:
        noted = self.planners.get(work, 0)
        with suppress(Conflict), self._effects.record("state", "throttle", work):
            if now < noted <= until + WRONG_CLOCK_MS:
                raise Conflict("another was first", code="ConditionalCheckFailed")
            self.planners[work] = until
            return 0
        return noted

    def _note_planner(self, work: str, until: int) -> None:
        self.planners[work] = until
        if work == "provision":
            self.cluster_row = msgspec.structs.replace(self.cluster_row, planner_until=until)
        if work == FAILED_PLANS:
            self.cluster_row = msgspec.structs.replace(self.cluster_row, failed_plans_pause_until=until)
        if work == LISTED_FOR_PODS:
            self.cluster_row = msgspec.structs.replace(self.cluster_row, listed_for_pods_until=until)
        if work == LISTED_EVALUATIONS:
            self.cluster_row = msgspec.structs.replace(self.cluster_row, evaluations_pause_until=until)

    def commit(
        self,
        *,
        expected_version: int,
        key: str,
        launched: tuple[LaunchedInMinute, ...] | None = None,
        pods_alike: bool | None = None,
    ) -> None:
        with self._effects.record("state", "commit", key):
            if self.cluster_row.version != expected_version:
                raise Conflict(f"cluster is at version {self.cluster_row.version}", code="ConditionalCheckFailed")
            self.cluster_row = msgspec.structs.replace(
                self.cluster_row,
                version=expected_version + 1,
                head=key,
                pending_decisions=(*self.cluster_row.pending_decisions, key),
                launched=self.cluster_row.launched if launched is None else launched,
                pods_alike=self.cluster_row.pods_alike if pods_alike is None else pods_alike,
            )

    def pods_alike(self) -> bool:
        self._effects.before_read("state", "pods_alike")
        return self.cluster_row.pods_alike

    def note_other_pods(self) -> None:
        with self._effects.record("state", "note_other_pods"):
            self.cluster_row = msgspec.structs.replace(self.cluster_row, pods_alike=False)

    def mark_acted(self, key: str) -> None:
        with self._effects.record("state", "mark_acted", key):
            self.cluster_row = msgspec.structs.replace(
                self.cluster_row,
                pending_decisions=tuple(
                    pending_decision
                    for pending_decision in self.cluster_row.pending_decisions
                    if pending_decision != key
                ),
            )

    def set_other_provisioner(self, name: str) -> None:
        with self._effects.record("state", "set_other_provisioner", name):
            self.cluster_row = msgspec.structs.replace(self.cluster_row, other_provisioner=name)

    def create(self, row: Row) -> bool:
        key = sort_key(row)
        if key in self.rows:
            return False
        with self._effects.record("state", "create", key):
            _check_size(key, row)
            return self.rows.setdefault(key, row) is row

    def save[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, row: R) -> R:
        key = sort_key(row)
        with self._effects.record("state", "save", f"{key} {row.phase}"):
            stored = self.rows.get(key)
            if stored is None or stored.version != row.version:
                raise Conflict(f"{key} was changed by another", code="ConditionalCheckFailed")
            after = msgspec.structs.replace(row, version=row.version + 1)
            _check_size(key, after)
            self.rows[key] = after
        return after

    def create_together(self, rows: Sequence[Row]) -> bool:
        with suppress(Conflict, InvalidRequest), self._record_together("create_together", rows):
            if any(sort_key(row) in self.rows for row in rows):
                raise Conflict("a row exists", code="TransactionCanceledException")
            self.rows |= {sort_key(row): row for row in rows}
            return True
        return False

    def save_together(self, rows: Sequence[Row], *, created: Sequence[Row] = ()) -> bool:
        with suppress(Conflict, InvalidRequest), self._record_together("save_together", [*rows, *created]):
            stored = [self.rows.get(sort_key(row)) for row in rows]
            if any(before is None or before.version != row.version for before, row in zip(stored, rows, strict=True)):
                raise Conflict("a row was changed by another", code="TransactionCanceledException")
            if any(sort_key(row) in self.rows for row in created):
                raise Conflict("a row exists", code="TransactionCanceledException")
            self.rows |= {sort_key(row): msgspec.structs.replace(row, version=row.version + 1) for row in rows}
            self.rows |= {sort_key(row): row for row in created}
            return True
        return False

    @contextmanager
    def _record_together(self, action: str, rows: Sequence[Row]) -> Iterator[None]:
        keys = [sort_key(row) for row in rows]
        with self._effects.record("state", action, " ".join(keys)):
            sizes = [_check_size(key, row) for key, row in zip(keys, rows, strict=True)]
            if len(rows) > ROWS_TOGETHER or len(set(keys)) < len(keys) or sum(sizes) > MAXIMUM_TRANSACTION_BYTES:
                raise InvalidRequest("the transaction is too large", code="ValidationException")
            yield

    def launch(self, id: str) -> LaunchRow | None:
        row = self.rows.get(f"launch#{id}")
        return row if isinstance(row, LaunchRow) else None

    def launches(self, *, created_after: int | None = None) -> tuple[LaunchRow, ...]:
        return tuple(row for row in self._open(created_after) if isinstance(row, LaunchRow))

    def command(self, id: str) -> CommandRow | None:
        row = self.rows.get(f"command#{id}")
        return row if isinstance(row, CommandRow) else None

    def commands_by_id(self, ids: Collection[str]) -> tuple[CommandRow, ...]:
        return tuple(row for id in sorted(set(ids)) if (row := self.command(id)) is not None)

    def commands(self, *, created_after: int | None = None) -> tuple[CommandRow, ...]:
        return tuple(row for row in self._open(created_after) if isinstance(row, CommandRow))

    def notice(self, instance_id: str) -> NoticeRow | None:
        row = self.rows.get(f"notice#{instance_id}")
        return row if isinstance(row, NoticeRow) else None

    def notices_of(self, instances: Collection[str]) -> tuple[NoticeRow, ...]:
        self._effects.before_read("state", "notices_of")
        return tuple(row for instance in sorted(set(instances)) if (row := self.notice(instance)) is not None)

    def notices(self) -> tuple[NoticeRow, ...]:
        return tuple(row for row in self._open() if isinstance(row, NoticeRow))

    def nomination(self, claim: str) -> NominationRow | None:
        row = self.rows.get(f"nomination#{claim}")
        return row if isinstance(row, NominationRow) else None

    def nominations(self) -> tuple[NominationRow, ...]:
        return tuple(row for row in self._open() if isinstance(row, NominationRow))

    def due_rows(self, before: int) -> tuple[Row, ...]:
        waiting = (row for row in tuple(self.rows.values()) if row.due and row.due <= before)
        return tuple(sorted(waiting, key=lambda row: (row.due, sort_key(row))))

    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        self._effects.before_read("state", "offering_health")
        health_by_key = self.health.copy()
        kept = (health_by_key[key] for key in sorted(health_by_key))
        return tuple(health for health in kept if health.changed_at_ms + HEALTH_TTL_SECONDS * 1000 > now)

    def save_offering_health(self, health: OfferingHealth) -> None:
        with self._effects.record("state", "save_offering_health", health.key):
            before = self.health.get(health.key)
            if (before.version if before else 0) != health.version:
                raise Conflict(f"offering {health.key} was changed by another", code="ConditionalCheckFailed")
            self.health[health.key] = msgspec.structs.replace(health, version=health.version + 1)

    def call_rate(self, action: str) -> TokenBucket | None:
        self._effects.before_read("state", "call_rate")
        return self.rates.get(action)

    def save_call_rate(self, rate: TokenBucket) -> None:
        with self._effects.record("state", "save_call_rate", rate.action):
            before = self.rates.get(rate.action)
            if (before.version if before else 0) != rate.version:
                raise Conflict(f"rate of {rate.action} was changed by another", code="ConditionalCheckFailed")
            self.rates[rate.action] = msgspec.structs.replace(rate, version=rate.version + 1)

    def call_rates(self, actions: Collection[str]) -> tuple[TokenBucket, ...]:
        wanted = sorted(set(actions))
        if len(wanted) == 1:
            rate = self.call_rate(wanted[0])
            return () if rate is None else (rate,)
        self._effects.before_read("state", "call_rates")
        return tuple(rate for action in wanted if (rate := self.rates.get(action)) is not None)

    def save_call_rates(self, rates: Sequence[TokenBucket]) -> None:
        if len(rates) == 1:
            self.save_call_rate(rates[0])
            return
        with self._effects.record("state", "save_call_rates", " ".join(rate.action for rate in rates)):
            for rate in rates:
                before = self.rates.get(rate.action)
                if (before.version if before else 0) != rate.version:
                    raise Conflict(f"rate of {rate.action} was changed", code="TransactionCanceledException")
            self.rates |= {rate.action: msgspec.structs.replace(rate, version=rate.version + 1) for rate in rates}

    def heartbeat(self) -> int:
        return self.heartbeat_at

    def breaker(self) -> Breaker:
        self._effects.before_read("state", "breaker")
        return self.stored_breaker

    def save_breaker(self, breaker: Breaker) -> None:
        with self._effects.record("state", "save_breaker"):
            if breaker.version != self.stored_breaker.version:
                raise Conflict("the breaker was changed by another", code="ConditionalCheckFailed")
            self.stored_breaker = msgspec.structs.replace(breaker, version=breaker.version + 1)

    def registration_health(self, nodepool_uid: str) -> RegistrationHealth | None:
        self._effects.before_read("state", "registration_health")
        return self.registrations.get(nodepool_uid)

    def save_registration_health(self, health: RegistrationHealth) -> None:
        with self._effects.record("state", "save_registration_health", health.nodepool_uid):
            before = self.registrations.get(health.nodepool_uid)
            if health.version != (before.version if before else 0):
                raise Conflict("the row was changed by another", code="ConditionalCheckFailed")
            after = msgspec.structs.replace(health, version=health.version + 1)
            self.registrations[health.nodepool_uid] = after

    def refused_evictions(self) -> tuple[RefusedEvictions, ...]:
        self._effects.before_read("state", "refused_evictions")
        refused_by_key = self.refused.copy()
        return tuple(refused_by_key[key] for key in sorted(refused_by_key))

    def save_refused_evictions(self, refused: RefusedEvictions) -> None:
        with self._effects.record("state", "save_refused_evictions", refused.key):
            before = self.refused.get(refused.key)
            if refused.version != (before.version if before else 0):
                raise Conflict("the row was changed by another", code="ConditionalCheckFailed")
            self.refused[refused.key] = msgspec.structs.replace(refused, version=refused.version + 1)

    def catalog_key(self) -> str:
        return self.current_catalog_key

    def recent_catalog_key(self) -> str:
        return self.current_catalog_key

    def set_catalog_key(self, key: str, at: int) -> None:
        with self._effects.record("state", "set_catalog_key", key):
            self.current_catalog_key, self.catalog_time = key, at

    def catalog_stored_at(self) -> int:
        return self.catalog_time

    def begin_region_read(self, now: int, *, since: int) -> bool:
        if self.region_read_began > since:
            return False
        self.region_read_began = now
        return True

    def end_region_read(self) -> None:
        self.region_read_began = 0

    def _open(self, created_after: int | None = None) -> tuple[Row, ...]:
        rows_by_key = self.rows.copy()
        rows = (rows_by_key[key] for key in sorted(rows_by_key))
        return tuple(
            row
            for row in rows
            if row.phase not in FINAL_PHASES or (created_after is not None and row.created > created_after)
        )


def _check_size(key: str, row: Row) -> int:
    """Refuse a row that DynamoDB would refuse; its bytes."""
    size = len(msgspec.json.encode(row)) + _ATTRIBUTE_BYTES
    if size > MAXIMUM_ITEM_BYTES:
        raise InvalidRequest(
            f"{key}: item size of {size} bytes exceeds the maximum of {MAXIMUM_ITEM_BYTES}", code="ValidationException"
        )
    return size


class FakeBlobs:
    """See BlobPort."""

    def __init__(self, cluster: str, effects: Effects) -> None:
        self._cluster, self._effects = cluster, effects
        self.bodies: dict[str, bytes] = {}

    def key(self, kind: str, body: bytes) -> str:
        return f"{kind}/{self._cluster}/{hashlib.sha256(body).hexdigest()}.json"

    def put(self, kind: str, body: bytes) -> str:
        key = self.key(kind, body)
        with self._effects.record("blobs", "put", key):
            self.bodies[key] = body
        return key

    def get(self, key: str) -> bytes:
        self._effects.before_read("blobs", "get")
        if key not in self.bodies:
            raise NotFound(f"{key} is not there", code="NoSuchKey")
        return self.bodies[key]


class DoorbellMessage(msgspec.Struct, frozen=True):
    """A message in a queue. ``at``: epoch milliseconds from which it can be received."""

    queue: str
    doorbell: Doorbell
    at: int


class FakeDoorbells:
    """See DoorbellPort: queues with delays. Messages may be taken, left, taken twice or lost."""

    def __init__(self, clock: Clock, effects: Effects) -> None:
        self._clock, self._effects = clock, effects
        self.messages: list[DoorbellMessage] = []

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        if not 0 <= delay_seconds <= 900:
            raise ValueError(f"delay_seconds: {delay_seconds} is not within 0 and 900")
        for doorbell in bells:
            if len(msgspec.json.encode(doorbell)) > MAXIMUM_MESSAGE_BYTES:
                raise ApiError(f"{queue}: the message is too long", code="BatchRequestTooLong")
        with self._effects.record(
            "doorbells", "ring", " ".join(f"{queue}/{doorbell.kind}:{doorbell.key}" for doorbell in bells)
        ):
            at = self._clock.milliseconds() + delay_seconds * 1000
            self.messages.extend(DoorbellMessage(queue, doorbell, at) for doorbell in bells)

    def receive(self, queue: str) -> tuple[Doorbell, ...]:
        """The messages that can be received now, each once, oldest first."""
        now = self._clock.milliseconds()
        ready = [message for message in self.messages if message.queue == queue and message.at <= now]
        self.messages = [message for message in self.messages if message not in ready]
        return tuple(
            dict.fromkeys(
                doorbell_message.doorbell
                for doorbell_message in sorted(ready, key=lambda doorbell_message: doorbell_message.at)
            )
        )

    def messages_of(self, queue: str, kind: str) -> tuple[DoorbellMessage, ...]:
        """The messages of a kind that wait in a queue."""
        return tuple(message for message in self.messages if (message.queue, message.doorbell.kind) == (queue, kind))


class FakeCatalogs:
    """See InstanceCatalogPort: one catalog, whatever the key; an empty one for no key."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def read(self, key: str) -> Catalog:
        return self.catalog if key else Catalog(source="no catalog yet")
