"""Notices of ends that are expected: what EC2 says of instances that Spotwright terminates is known before."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.errors import ApiError, Conflict
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow, epoch_ms
from spotwright.workflows.rows_together import write_rows

# If EC2 has not told of the end of an instance by then, the notice of it ends with the next look.
EXPECTED_WITHIN: Final = timedelta(minutes=10)


def expect_ends(ports: LifecyclePorts, claims: Mapping[str, NodeClaim], now: datetime) -> dict[str, NoticeRow]:
    """A notice of each end before EC2 tells of it, all by one write; the rows by their instance. ``claims``: by
    instance.

    Where there is a notice of the instance, or the table does not answer, its end is a notice as of any other instance.
    """
    expected: dict[str, NoticeRow] = {}

    def create_together(rows: Sequence[NoticeRow]) -> bool:
        are_created = ports.state.create_together(rows)
        expected.update({row.instance_id: row for row in rows} if are_created else {})
        return are_created

    def create(row: NoticeRow) -> None:
        if ports.state.create(row):
            expected[row.instance_id] = row

    try:
        known = {row.instance_id: row for row in ports.state.notices_of(claims)} if claims else {}
        # An earlier step had to wait.
        expected.update({id: row for id, row in known.items() if row.phase == EXPECTED})
        rows = [_expected_end(ports, id, claims[id], now) for id in sorted(claims.keys() - known.keys())]
        write_rows(create_together, create, rows)
    except ApiError as failure:
        names = ", ".join(sorted(claims))
        log_line(log, log_lines.STEP_FAILED, kind="notice", object=names, code=failure.code, error=str(failure))
    return expected


def _expected_end(ports: LifecyclePorts, id: str, claim: NodeClaim, now: datetime) -> NoticeRow:
    return NoticeRow(
        instance_id=id,
        cluster=ports.cluster.name,
        kind=NoticeKind.INSTANCE_TERMINATED,
        claim=claim.name,
        phase=EXPECTED,
        created=epoch_ms(now),
        due=epoch_ms(now + EXPECTED_WITHIN),
    )


def end_notices(ports: LifecyclePorts, rows: Sequence[NoticeRow]) -> None:
    """What EC2 says of these instances is known. If a row cannot be written now, the message that comes ends it, or its
    time does.
    """

    def save(row: NoticeRow) -> None:
        # Whoever wrote it meanwhile rings for it.
        with suppress(Conflict):
            ports.state.save(row)

    # EC2's message may be of a later second than this.
    done = [msgspec.structs.replace(row, phase="done", ended=True, created=row.due, due=0) for row in rows]
    try:
        write_rows(ports.state.save_together, save, done)
    except ApiError as failure:
        names = ", ".join(row.claim for row in rows)
        log_line(log, log_lines.STEP_FAILED, kind="notice", object=names, code=failure.code, error=str(failure))
