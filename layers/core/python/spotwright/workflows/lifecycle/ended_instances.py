"""Notices of instances whose NodeClaims are being deleted: most were terminated by that. Those of a look go together.

EC2 tells twice of each: that it shuts down, which is known, and that it is terminated. Then its NodeClaim takes its
last step here: a hundred that go at once need no doorbell each, and what EC2 shows of their instances is a single read.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from spotwright.aws.interruption_messages import ENDED_KINDS
from spotwright.errors import ApiError, Conflict
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.workflows.lifecycle.actions import ring_lifecycle
from spotwright.workflows.lifecycle.gathering import gathering
from spotwright.workflows.lifecycle.interruption_attempts import trying_again
from spotwright.workflows.lifecycle.interruption_facts import Facts, ends_with_claim, read_facts
from spotwright.workflows.lifecycle.nodeclaims import step_claim
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow, epoch_ms
from spotwright.workflows.rows_together import write_rows


def step_expected_ends(
    ports: LifecyclePorts, instances: Collection[str], *, now: datetime, seconds_left: SecondsLeft = None
) -> frozenset[str]:
    """One step of these notices, if all of them are ends that are expected: neither the other notices of the cluster
    are read for it, nor the planner loaded. Those for which no step was taken.
    """
    left = frozenset(instances)
    try:
        rows = [as_heard(row) for row in ports.state.notices_of(left) if row.phase == EXPECTED]
    except ApiError:
        # Their usual step reads them, and says so where it fails as well.
        return left
    if len(rows) < len(left):
        # A doorbell may ring for more than the notice that it names, and other notices come before ends.
        return left
    with trying_again(ports, left, ", ".join(sorted(left))):
        facts = read_facts(ports, rows, now)
        expected = [row for row in rows if is_expected(row, facts)]
        end_claims(ports, expected, facts, now, seconds_left)
        return left - {row.instance_id for row in expected}
    return frozenset()


def as_heard(row: NoticeRow) -> NoticeRow:
    """Of an end that is expected: whoever rings says that it has come, or its time is over."""
    return msgspec.structs.replace(row, phase="new", ended=True) if row.phase == EXPECTED else row


def is_expected(row: NoticeRow, facts: Facts) -> bool:
    """Whether it is the end of an instance whose only NodeClaim is being deleted, of which nothing was announced."""
    claims = facts.claims.get(row.instance_id, ())
    is_new = row.phase == "new" and row.kind in ENDED_KINDS and not row.warning
    return is_new and len(claims) == 1 and claims[0].metadata.deletion_timestamp is not None


def end_claims(
    ports: LifecyclePorts, rows: Sequence[NoticeRow], facts: Facts, now: datetime, seconds_left: SecondsLeft = None
) -> None:
    """One step of notices that are expected; they end when the steps of their NodeClaims are taken, or rung for."""
    names = [row.instance_id for row in rows]
    shared = gathering(ports, seconds_left)

    def end_claim(row: NoticeRow) -> NoticeRow | None:
        (claim,) = facts.claims[row.instance_id]
        with trying_again(ports, (row.instance_id,), row.instance_id):
            if row.ended:
                _step(shared, row, claim, facts, now)
            # What EC2 said before is no news any more, though it may come now.
            return msgspec.structs.replace(row, claim=claim.name, phase="done", created=epoch_ms(now), due=0)
        return None

    def save(row: NoticeRow) -> None:
        # Whoever wrote it meanwhile rings for it.
        with suppress(Conflict):
            ports.state.save(row)

    try:
        ended = [row for row in in_parallel(end_claim, rows) if row is not None]
        with trying_again(ports, names, ", ".join(names)):
            shared.doorbells.send()
            write_rows(ports.state.save_together, save, ended)
    finally:
        # Of claims that are gone nobody else tells.
        shared.events.write()


def _step(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, facts: Facts, now: datetime) -> None:
    """The claim's last step; any other one is rung for, in which its node may still be drained."""
    instance = facts.instances.get(row.instance_id)
    if ends_with_claim(row, claim) and isinstance(instance, Instance) and instance.state == "terminated":
        step_claim(ports, claim, [], now=now, instance=instance)
    else:
        ring_lifecycle(ports, "claim", [claim.name])
