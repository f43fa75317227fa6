"""What is stored of one cluster: rows in DynamoDB, bodies in S3, and the catalog read from them."""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from spotwright.aws.token_bucket import TokenBucket
from spotwright.disruption.breaker import Breaker
from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import RegistrationHealth
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import LaunchedInMinute
from spotwright.workflows.ports.rows import (
    ClusterRow,
    CommandRow,
    CommitPause,
    LaunchRow,
    NominationRow,
    NoticeRow,
    Row,
)

# Of a transaction:
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
ROWS_TOGETHER: Final = 100
# How old the forwarder's heartbeat and a recent catalog key may be.
RECENT_SECONDS: Final = 5
# No two works of a kind are noted for times that differ by so much.
WRONG_CLOCK_MS: Final = 60_000
# A work of ``begin_planning``, whose end ``cluster`` tells: evaluations of disruption that list the cluster, and the
# pause after them.
LISTED_EVALUATIONS: Final = "listed evaluations"
# The same: the pause after a plan for pods that failed when it had begun to list the cluster.
FAILED_PLANS: Final = "failed plans"
# The same: that the cluster was listed for pods that wait long, and until when that will do.
LISTED_FOR_PODS: Final = "listing"


class StatePort(Protocol):
    """Rows of one cluster in DynamoDB. Writes are conditional; one that another write preceded raises Conflict."""

    def cluster(self) -> ClusterRow: ...
    def request_planning(self) -> int:
        """Count one more request for planning; the new ``planning_requests``."""
        ...

    def mark_served(self, requested: int, *, pause_until: int = 0, pause_digest: str = "") -> None:
        """Note that so many requests for planning are served; nothing changes when as many were served before.

        ``pause_until`` and ``pause_digest``: what the row says from now on of the pause of plans, 0 = there is none.
        """
        ...

    def pause_commits(self, pauses: tuple[CommitPause, ...]) -> None:
        """The ``commit_pauses`` from now on."""
        ...

    def begin_planning(self, work: str, *, now: int, until: int) -> bool:
        """Note that a planner works on this cluster until ``until``; False while another one does. Epoch milliseconds.

        A note that ends more than WRONG_CLOCK_MS after ``until`` is of a clock that is wrong, and holds nobody up.
        ``work``: provision | notices | disrupt | LISTED_EVALUATIONS | FAILED_PLANS | LISTED_FOR_PODS. It spares others
        the same work and no more; ``commit`` decides.
        """
        ...

    def end_planning(self, work: str, *, until: int, served: int | None = None) -> bool:
        """Take the note back that ends at ``until``; False when it is not there any more.

        With ``served``: False, too, and the note stays, when more than so many requests for planning were counted.
        """
        ...

    def throttle(self, work: str, *, now: int, until: int) -> int:
        """Note that nobody else begins this work, or rings for it, before ``until``. Epoch milliseconds.

        ``work``: nodepools (their status) | looks (at the notices that are being replaced) |
        notices_again (a look at new ones, beside or after a plan) | evaluations (of disruption) | canaries (the same,
        while a canary has not proved itself) | nominations (the same, for drifted nodes that are nominated no more) |
        consolidation timers (doorbells for those that are outdated) | plans_again (the doorbell after the pause of
        FAILED_PLANS). 0 when it is noted; otherwise until when an earlier note holds, and nothing changed. Notes of
        wrong clocks hold nobody up, as in ``begin_planning``.
        """
        ...

    def commit(
        self,
        *,
        expected_version: int,
        key: str,
        launched: tuple[LaunchedInMinute, ...] | None = None,
        pods_alike: bool | None = None,
    ) -> None:
        """version v → v+1, head = key, key appended to pending_decisions; Conflict when the version has changed.

        ``launched``, ``pods_alike``: the cluster's from now on; None = as before.
        """
        ...

    def pods_alike(self) -> bool:
        """The cluster's ``pods_alike``."""
        ...

    def note_other_pods(self) -> None:
        """``pods_alike`` is False from now on."""
        ...

    def mark_acted(self, key: str) -> None:
        """Take a decision's key out of ``pending_decisions``; no error when it is not there."""
        ...

    def set_other_provisioner(self, name: str) -> None:
        """Note who else provisions nodes in the cluster; "" = nobody does any more."""
        ...

    def create(self, row: Row) -> bool:
        """Put if absent; False when it existed."""
        ...

    def save[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, row: R) -> R:
        """Replace under the row's version (Conflict otherwise); the row with its new version."""
        ...

    def create_together(self, rows: Sequence[Row]) -> bool:
        """Create these rows, at most ROWS_TOGETHER, by a single write. False: none was created, since one exists or is
        being written by somebody else, or since one of them or all together are too large; each alone may go through.
        """
        ...

    def save_together(self, rows: Sequence[Row], *, created: Sequence[Row] = ()) -> bool:
        """Replace these rows under their versions, as ``create_together`` creates them, and create those of ``created``
        by the same write; at most ROWS_TOGETHER in all.
        """
        ...

    def launch(self, id: str) -> LaunchRow | None: ...
    def launches(self, *, created_after: int | None = None) -> tuple[LaunchRow, ...]:
        """Open launches, and finished ones that were created after this moment (epoch milliseconds)."""
        ...

    def command(self, id: str) -> CommandRow | None: ...
    def commands_by_id(self, ids: Collection[str]) -> tuple[CommandRow, ...]:
        """Those of these commands that exist, finished or not, ordered by id."""
        ...

    def commands(self, *, created_after: int | None = None) -> tuple[CommandRow, ...]:
        """Open commands, and finished ones that were created after this moment (epoch milliseconds)."""
        ...

    def notice(self, instance_id: str) -> NoticeRow | None: ...
    def notices_of(self, instances: Collection[str]) -> tuple[NoticeRow, ...]:
        """The notices that there are of these instances, finished or not, ordered by instance."""
        ...

    def notices(self) -> tuple[NoticeRow, ...]: ...
    def nomination(self, claim: str) -> NominationRow | None: ...
    def nominations(self) -> tuple[NominationRow, ...]: ...
    def due_rows(self, before: int) -> tuple[Row, ...]: ...
    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        """The offering health of the account, by key; some rows may have expired."""
        ...

    def save_offering_health(self, health: OfferingHealth) -> None:
        """Replace under the row's version; Conflict when another writer was first."""
        ...

    def call_rate(self, action: str) -> TokenBucket | None:
        """The account's bucket of an EC2 action; None when it was not called for a while."""
        ...

    def save_call_rate(self, rate: TokenBucket) -> None:
        """Replace under the row's version; Conflict when another writer was first."""
        ...

    def call_rates(self, actions: Collection[str]) -> tuple[TokenBucket, ...]:
        """The buckets that there are of these actions, ordered by action; a single one as ``call_rate``."""
        ...

    def save_call_rates(self, rates: Sequence[TokenBucket]) -> None:
        """Replace all of them under their versions by a single write, or none; a single one as ``save_call_rate``.
        Conflict when another writer was first at one of them, or is writing it.
        """
        ...

    def heartbeat(self) -> int:
        """Epoch milliseconds of the forwarder's last heartbeat; 0 = never. As it was at most RECENT_SECONDS ago."""
        ...

    def breaker(self) -> Breaker: ...
    def save_breaker(self, breaker: Breaker) -> None:
        """Replace under the version that was read; Conflict when another writer was first."""
        ...

    def registration_health(self, nodepool_uid: str) -> RegistrationHealth | None:
        """None: no outcome was stored, or none for long."""
        ...

    def save_registration_health(self, health: RegistrationHealth) -> None:
        """Replace under the version that was read; Conflict when another writer was first."""
        ...

    def refused_evictions(self) -> tuple[RefusedEvictions, ...]:
        """What PodDisruptionBudgets refuse, or refused within the last hour, ordered by key."""
        ...

    def save_refused_evictions(self, refused: RefusedEvictions) -> None:
        """Replace under the version that was read; Conflict when another writer was first."""
        ...

    def catalog_key(self) -> str: ...
    def recent_catalog_key(self) -> str:
        """As it was at most RECENT_SECONDS ago: for what may be known seconds later, and not for what is bought."""
        ...

    def set_catalog_key(self, key: str, at: int) -> None: ...
    def catalog_stored_at(self) -> int: ...
    def begin_region_read(self, now: int, *, since: int) -> bool:
        """Note that the region is read from now on; False while another does who began after ``since``.

        Epoch milliseconds. It spares a second reading and no more: whoever dies at it is not waited for long.
        """
        ...

    def end_region_read(self) -> None:
        """The region is not being read any more."""
        ...


class BlobPort(Protocol):
    """Content-addressed bodies in S3."""

    def key(self, kind: str, body: bytes) -> str:
        """Where a body would be stored."""
        ...

    def put(self, kind: str, body: bytes) -> str:
        """Store under ``<kind>/<cluster>/<sha256>.json``, of what grows with the cluster a compressed form under
        ``….json.gz``; the key. kind: decisions | snapshots | catalogs."""
        ...

    def get(self, key: str) -> bytes: ...


class InstanceCatalogPort(Protocol):
    """The cluster's instance catalog, read once per process and key."""

    def read(self, key: str) -> Catalog: ...
