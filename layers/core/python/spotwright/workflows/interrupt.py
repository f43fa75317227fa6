"""EventBridge's messages about instances become notice rows; lifecycle acts on those whose instance has a NodeClaim.

A notice concerns the cluster that its instance is tagged for. The tags of a batch are read in a single call, which is
given up after two seconds: where they are not known, every cluster of the cell has a row and is rung for, as each would
have to be without the call. Tags are there as soon as the instance is; a row for each instance would have to be written
at every launch, and a notice that comes before it would find none. Only an instance that Spotwright terminates has a
row before EC2 tells of its end: in a cell of a single cluster EC2 is not asked about it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import ENDED_KINDS, REPLACED_KINDS, Notice
from spotwright.errors import ApiError, Conflict, Unavailable
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.notice_rows import Target, change_of, is_end, notice_row, severity_order
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import InterruptPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.ec2 import InstanceTagsPort
from spotwright.workflows.ports.rows import NoticeRow
from spotwright.workflows.ports.state import ROWS_TOGETHER, StatePort

log: Final = logging.getLogger("spotwright.interrupt")


def interrupt(
    clusters: Mapping[str, InterruptPorts], instances: InstanceTagsPort, envelope: Mapping[str, Any], *, now: datetime
) -> Notice | None:
    """Record the notice of a message; None when it is none. Raises InvalidRequest for a malformed one.

    ``clusters``: the ports of the cell's clusters, by name.
    """
    notice = interruption_messages.parse_notice(envelope, now=now)
    if notice is not None:
        for failure in record_batch(clusters, instances, {"": notice}, now=now).values():
            raise failure
    return notice


def record_batch(
    clusters: Mapping[str, InterruptPorts],
    instances: InstanceTagsPort,
    notices: Mapping[str, Notice],
    *,
    now: datetime,
    may_begin: Callable[[], bool] = lambda: True,
) -> dict[str, ApiError]:
    """``record_notices`` for the clusters that the instances of these messages may belong to."""
    named = {instance for notice in notices.values() for instance in notice.instance_ids}
    known = _rows_beside_ends(clusters, notices.values(), named)
    own = {row.instance_id: tuple(clusters) for row in known.values() if row.claim}
    others = named - own.keys()
    concerned = {**find_clusters(clusters, instances, others), **own}
    # While EC2 was asked, any of the rows may have changed.
    return record_notices(clusters, concerned, notices, now=now, may_begin=may_begin, known={} if others else known)


# Rows of the only cluster of a cell, by instance.
type _KnownRows = Mapping[str, NoticeRow]


def _rows_beside_ends(
    clusters: Mapping[str, InterruptPorts], notices: Iterable[Notice], instances: Collection[str]
) -> _KnownRows:
    """What is stored of the instances of a batch in which EC2 tells of an end: mostly Spotwright terminates the
    instance, and its row says so, which saves the call of EC2. Of several clusters each would have to be read.
    """
    if len(clusters) != 1 or not any(notice.kind in ENDED_KINDS for notice in notices):
        return {}
    (ports,) = clusters.values()
    try:
        return {row.instance_id: row for row in ports.state.notices_of(sorted(instances))}
    except ApiError:
        # Each row is read again before it is written.
        return {}


def find_clusters(
    clusters: Collection[str], instances: InstanceTagsPort, instance_ids: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Instance → those of ``clusters`` that it may belong to: all of them where EC2 does not say. Never raises.

    No cluster where the instance is tagged for none of them.
    """
    ids = frozenset(instance_ids)
    every = dict.fromkeys(ids, tuple(sorted(clusters)))
    if not ids:
        return every
    try:
        listed = instances.instances_by_id(ids)
    except ApiError as failure:
        log_line(log, log_lines.INSTANCES_NOT_LOOKED_UP, instances=len(ids), code=failure.code, error=str(failure))
        return every
    return every | {
        instance.id: tuple(name for name in sorted(clusters) if instance.may_be_of(name)) for instance in listed
    }


def record_notices(
    clusters: Mapping[str, InterruptPorts],
    concerned: Mapping[str, Iterable[str]],
    notices: Mapping[str, Notice],
    *,
    now: datetime,
    may_begin: Callable[[], bool] = lambda: True,
    known: _KnownRows | None = None,
) -> dict[str, ApiError]:
    """A row for each instance of a batch and each cluster that it may belong to; then each cluster is rung for once.

    Where Spotwright terminates the instance there is a row already: that it shuts down is known, and rings for nothing.

    ``notices``: by message; ``concerned``: clusters by instance; ``may_begin``: whether time is left for a further row;
    ``known``: the rows of all these instances as they were read a moment ago, where they were.
    The answer: messages that must come back, and why. A message fails with any row of its instances, and with the ring
    of any of their clusters.
    """
    targets = {message: _targets(notice, concerned) for message, notice in notices.items()}
    outcomes = _write_rows(clusters, _severest_first(notices, targets), now, may_begin, known or {})
    rung = _ring(clusters, {target: notice for target, notice in outcomes.items() if isinstance(notice, Notice)})
    failures = {target: failure for target, failure in outcomes.items() if isinstance(failure, ApiError)}
    return {
        message: failed[0]
        for message, rows in targets.items()
        if (failed := [failure for row in rows if (failure := failures.get(row) or rung[row.cluster]) is not None])
    }


def _targets(notice: Notice, concerned: Mapping[str, Iterable[str]]) -> list[Target]:
    return [Target(cluster, instance) for instance in notice.instance_ids for cluster in concerned[instance]]


def _severest_first(
    notices: Mapping[str, Notice], targets: Mapping[str, Iterable[Target]]
) -> dict[Target, list[Notice]]:
    """The notices of each row, equally severe ones in the order of their messages."""
    by_target: dict[Target, list[Notice]] = {}
    for message, notice in notices.items():
        for target in dict.fromkeys(targets[message]):
            by_target.setdefault(target, []).append(notice)
    return {target: sorted(several, key=severity_order, reverse=True) for target, several in by_target.items()}


def _write_rows(
    clusters: Mapping[str, InterruptPorts],
    notices: Mapping[Target, Sequence[Notice]],
    now: datetime,
    may_begin: Callable[[], bool],
    known: _KnownRows,
) -> dict[Target, Notice | ApiError | None]:
    """Those of a cluster together, and where that is refused side by side; of each row the notice that counts, None =
    it is known already, or why it could not be written."""

    def write_together(cluster: str) -> dict[Target, Notice | None]:
        own = {target: several for target, several in notices.items() if target.cluster == cluster}
        # A message may name any number of instances.
        if 1 < len(own) <= ROWS_TOGETHER:
            with suppress(ApiError):
                return _write_together(clusters[cluster].state, own, now, may_begin, known)
        return {}

    def write(target: Target) -> Notice | ApiError | None:
        if not may_begin():
            return Unavailable("no time was left to write the row of its notice", code="NoTimeLeft")
        try:
            return _write_notice(clusters[target.cluster].state, target, notices[target], now, known)
        except ApiError as failure:
            return failure

    outcomes: dict[Target, Notice | ApiError | None] = {}
    for written in in_parallel(write_together, sorted({target.cluster for target in notices})):
        outcomes |= written
    alone = [target for target in notices if target not in outcomes]
    if len(notices) > 1:
        # Where rows were refused together, another may have written one of them since it was read.
        known = {}
    return outcomes | dict(zip(alone, in_parallel(write, alone), strict=True))


def _ring(clusters: Mapping[str, InterruptPorts], written: Mapping[Target, Notice]) -> dict[str, ApiError | None]:
    """Ring once for all rows of a cluster. By cluster of the cell, why it failed, None also where there is no row.

    All that EC2 takes back is replaced by one plan, whichever of it a doorbell names: one of them is enough.
    """
    bells_by_cluster: dict[str, list[Doorbell]] = {}
    replaced: set[str] = set()
    for target in sorted(written):
        if written[target].kind in REPLACED_KINDS:
            if target.cluster in replaced:
                continue
            replaced.add(target.cluster)
        bells_by_cluster.setdefault(target.cluster, []).append(Doorbell(target.cluster, "notice", target.instance))

    def ring(cluster: str) -> ApiError | None:
        return _failure_of(lambda: clusters[cluster].doorbells.ring("notices", bells_by_cluster[cluster]))

    rung = dict(zip(bells_by_cluster, in_parallel(ring, bells_by_cluster), strict=True))
    return {cluster: rung.get(cluster) for cluster in clusters}


def _failure_of(work: Callable[[], None]) -> ApiError | None:
    try:
        work()
    except ApiError as failure:
        return failure
    return None


def _write_together(
    state: StatePort,
    notices: Mapping[Target, Sequence[Notice]],
    now: datetime,
    may_begin: Callable[[], bool],
    known: _KnownRows,
) -> dict[Target, Notice | None]:
    """The rows of a cluster by a single write, after a read where some may exist; of each row the notice that counts,
    None = it is known already. Empty where that is refused, or no time is left for the second call.
    """
    is_read_first = any(map(is_end, notices.values()))
    if not is_read_first:
        rows = [notice_row(target, several[0], several, now) for target, several in notices.items()]
        if state.create_together(rows):
            return {target: several[0] for target, several in notices.items()}
        if not may_begin():
            return {}
    existing = known or {row.instance_id: row for row in state.notices_of([target.instance for target in notices])}
    changes = {
        target: change_of(target, several, now, existing.get(target.instance)) for target, several in notices.items()
    }
    rows = [change.row for change in changes.values() if change.row is not None]
    saved = [row for row in rows if row.instance_id in existing]
    created = [row for row in rows if row.instance_id not in existing]
    if rows and is_read_first and not may_begin():
        return {}
    if rows and not state.save_together(saved, created=created):
        return {}
    return {target: change.notice for target, change in changes.items()}


def _write_notice(
    state: StatePort, target: Target, notices: Sequence[Notice], now: datetime, known: _KnownRows
) -> Notice | None:
    """The row of the severest of these notices that is news; the notice that was written, or the severest of all, None
    = it is known already."""
    try:
        return _write_once(state, target, notices, now, known)
    except Conflict:
        # Another invocation wrote the row meanwhile: one more attempt, then SQS delivers the message again.
        return _write_once(state, target, notices, now, {})


def _write_once(
    state: StatePort, target: Target, notices: Sequence[Notice], now: datetime, known: _KnownRows
) -> Notice | None:
    new = notice_row(target, notices[0], notices, now)
    if not is_end(notices) and state.create(new):
        return notices[0]
    existing = known.get(target.instance) or state.notice(target.instance)
    if existing is None:
        if state.create(new):
            return notices[0]
        raise Conflict("another invocation wrote the row of a notice meanwhile", code="Conflict")
    change = change_of(target, notices, now, existing)
    if change.row is not None:
        state.save(change.row)
    return change.notice
