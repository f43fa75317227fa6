"""Validating a proposal after fifteen seconds against the API server, and committing what is left of it.

What is said to be empty is read by name. Where the rest of the cluster matters to it, everything is listed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial

from spotwright.decisions.decision import Disruption
from spotwright.disruption import consolidation, emptiness
from spotwright.disruption.emptiness import Emptiness
from spotwright.errors import Conflict
from spotwright.model.plurals import counted
from spotwright.model.snapshot import CAPACITY_BUFFER, Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.disrupt.consolidate import validate_again, validate_consolidation
from spotwright.workflows.disrupt.inputs import (
    VALIDATION_SECONDS,
    DisruptResult,
    abort_proposal,
    admit,
    gather_and_plan,
    locked_claims,
)
from spotwright.workflows.disrupt.pauses import is_pausing, pausing
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.snapshot import BeforeList, NotListedError, gather_claims, gather_live
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import CommandRow, epoch_ms


def validate(
    ports: ProvisionPorts, proposal: str, *, clock: Callable[[], datetime], seconds_left: SecondsLeft = None
) -> DisruptResult:
    """Commit the nodes of a proposal that are still empty; abort it when none is.

    When another invocation committed a decision meanwhile, it is validated again a second later, or after the pause
    of lists. A proposal that needs a list of the cluster while these pause is given up.
    """
    row, now = ports.state.command(proposal), clock()
    if row is None or row.phase != "proposed":
        return DisruptResult()
    early = row.created + VALIDATION_SECONDS * 1000 - epoch_ms(now)
    if early > 0:
        ports.doorbells.ring("disrupt", [Doorbell(row.cluster, "validate", proposal)], delay_seconds=-(-early // 1000))
        return DisruptResult()
    if row.reason == consolidation.REASON:
        return validate_consolidation(ports, row, clock=clock, seconds_left=seconds_left)
    return _validate_empty_nodes(ports, row, clock, seconds_left)


def _validate_empty_nodes(
    ports: ProvisionPorts, row: CommandRow, clock: Callable[[], datetime], seconds_left: SecondsLeft
) -> DisruptResult:
    """Most are read by name. Where the cluster is listed, a pause of lists comes before and after it."""
    pause_seconds: Callable[[], int] = int

    def begin_list() -> None:
        nonlocal pause_seconds
        if is_pausing(ports, row.reason, row.digest, now=clock()):
            raise NotListedError("lists for these nodes pause")
        pause_seconds = lists.enter_context(pausing(ports, row.reason, row.digest, clock))

    def again() -> None:
        validate_again(ports, row, clock(), pause_seconds())

    with ExitStack() as lists:
        try:
            return _commit(ports, row, clock(), seconds_left, begin_list, again)
        except NotListedError:
            abort_proposal(ports, row)
            return DisruptResult()


def _commit(
    ports: ProvisionPorts,
    row: CommandRow,
    now: datetime,
    seconds_left: SecondsLeft,
    before_list: BeforeList,
    again: Callable[[], None],
) -> DisruptResult:
    version = ports.state.cluster().version
    snapshot, plan, obstacle = _gather(ports, row, now, seconds_left, before_list)
    locked = locked_claims(ports, snapshot, but=row.id)
    empty_nodes = Emptiness() if obstacle else emptiness.find_empty_nodes(snapshot, plan, locked=locked)
    uids = {claim.name: claim.metadata.uid for claim in snapshot.nodeclaims}
    claims = tuple(
        name for name in row.candidates if name in empty_nodes.claims and uids[name] == row.candidate_uids[name]
    )
    try:
        admitted, breaker_open = admit(ports, snapshot, row.id, len(claims))
        claims = claims[:admitted]
    except Conflict:
        again()
        return DisruptResult(emptiness=empty_nodes)
    if not claims:
        abort_proposal(ports, row)
        return DisruptResult(obstacle, breaker_open, emptiness=empty_nodes)
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=snapshot,
        cluster_version=version,
        plan=Plan(),
        kind="disrupt",
        message=f"{counted(len(claims), 'empty node')}: {', '.join(claims)}",
        disruptions=(
            Disruption(
                row.id,
                emptiness.REASON,
                claims,
                {name: uids[name] for name in claims},
                locked_claims=tuple(sorted(locked)),
            ),
        ),
    )
    if decision is None:
        again()
        return DisruptResult(emptiness=empty_nodes)
    ports.doorbells.ring("lifecycle", [Doorbell(row.cluster, "decision", decision.id)])
    return DisruptResult(breaker_open=breaker_open, reason=emptiness.REASON, committed=claims, emptiness=empty_nodes)


def _gather(
    ports: ProvisionPorts, row: CommandRow, now: datetime, seconds_left: SecondsLeft, before_list: BeforeList
) -> tuple[Snapshot, Plan, str]:
    """See ``gather_and_plan``. Whether followers keep a node depends on every pod, and whether a CapacityBuffer does on
    every node: these are not taken on trust."""
    is_listed = False

    def begin_list() -> None:
        nonlocal is_listed
        before_list()
        is_listed = True

    if _has_capacity_buffers(ports):
        begin_list()
        return gather_and_plan(ports, gather_live, now, seconds_left)
    gather_candidates = partial(gather_claims, claims=row.candidates, before_list=begin_list)
    snapshot, plan, obstacle = gather_and_plan(ports, gather_candidates, now, seconds_left)
    if not obstacle and not is_listed and emptiness.has_only_followers(snapshot, plan):
        begin_list()
        return gather_and_plan(ports, gather_live, now, seconds_left)
    return snapshot, plan, obstacle


def _has_capacity_buffers(ports: ProvisionPorts) -> bool:
    return CAPACITY_BUFFER in ports.settings.feature_gates and bool(ports.cluster.capacity_buffers())
