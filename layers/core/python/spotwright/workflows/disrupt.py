"""Disruption: propose, look again after fifteen seconds, commit. Lifecycle carries out what was committed.

Everything is read from the API server, at the proposal and again before the commit, so that no forwarder is needed.
Fail static: with an API that does not answer, a launch under way, no catalog, the breaker open, or while paused,
nothing is proposed and no proposal survives.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.disruption import blockers, breaker, emptiness
from spotwright.disruption.blockers import BlockedEvent
from spotwright.disruption.emptiness import Emptiness
from spotwright.failures import Conflict
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows import decisions, planning_time
from spotwright.workflows.decisions import Disruption
from spotwright.workflows.planning_time import SecondsLeft
from spotwright.workflows.ports import Doorbell
from spotwright.workflows.provision import Planning, commit_plan, decide, gather
from spotwright.workflows.rows import CommandRow

# Karpenter's validation delay: what looked empty must still be so.
VALIDATION_SECONDS: Final = 15
# A proposal that was not validated within this time is dropped, milliseconds.
PROPOSAL_MS: Final = 120_000
# So many nodes and claims are told in one look why they stay; the others have their turn in the next minutes.
TOLD_AT_ONCE: Final = 100


class Looked(msgspec.Struct, frozen=True):
    """What one look came to. ``why``: why nothing may be disrupted at all, "" = it may."""

    why: str = ""
    breaker_open: bool = False
    proposed: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    found: Emptiness = Emptiness()


def evaluate(ports: Planning, *, now: datetime, seconds_left: SecondsLeft = None) -> Looked:
    """Propose to remove empty nodes; ring for validation. One proposal at a time holds a claim."""
    _drop_stale(ports, now)
    snapshot, plan, why = _look(ports, now, seconds_left)
    _ring_for_idleness(ports, snapshot)
    stopped = ports.state.breaker()
    if breaker.is_open(stopped, _milliseconds(now)):
        _tell_stopped(ports, snapshot, stopped)
        return Looked(f"the breaker is open: {stopped.reason}", breaker_open=True)
    if why:
        return Looked(why)
    locked = _locked(ports)
    _tell(ports, snapshot, blockers.blocked_events(snapshot, plan, locked=locked, reason=emptiness.REASON))
    found = emptiness.find_empty_nodes(snapshot, plan, locked=locked)
    if not found.claims:
        return Looked(found=found)
    uids = {claim.name: claim.metadata.uid for claim in snapshot.nodeclaims if claim.name in found.claims}
    row = CommandRow(
        id=decisions.identifier(snapshot.cluster, emptiness.REASON, now.isoformat(), *sorted(uids.values())),
        cluster=snapshot.cluster,
        decision="",
        reason=emptiness.REASON,
        candidates=found.claims,
        candidate_uids=uids,
        phase="proposed",
        created=_milliseconds(now),
    )
    ports.state.create(row)
    bell = Doorbell(snapshot.cluster, "validate", row.id)
    ports.bells.ring("disrupt", [bell], delay_seconds=VALIDATION_SECONDS)
    return Looked(proposed=found.claims, found=found)


def validate(ports: Planning, id: str, *, now: datetime, seconds_left: SecondsLeft = None) -> Looked:
    """Commit what is left of a proposal after reading everything anew; drop it when nothing is.

    A faster planner means that the facts moved: the proposal is looked at again a second later.
    """
    row = ports.state.command(id)
    if row is None or row.phase != "proposed":
        return Looked()
    early = row.created + VALIDATION_SECONDS * 1000 - _milliseconds(now)
    if early > 0:
        ports.bells.ring("disrupt", [Doorbell(row.cluster, "validate", id)], delay_seconds=-(-early // 1000))
        return Looked()
    version = ports.state.cluster().version
    snapshot, plan, why = _look(ports, now, seconds_left)
    locked = _locked(ports, but=id)
    found = Emptiness() if why else emptiness.find_empty_nodes(snapshot, plan, locked=locked)
    uids = {claim.name: claim.metadata.uid for claim in snapshot.nodeclaims}
    left = tuple(name for name in row.candidates if name in found.claims and uids[name] == row.candidate_uids[name])
    try:
        left, stopped = _admitted(ports, snapshot, id, left)
    except Conflict:
        ports.bells.ring("disrupt", [Doorbell(row.cluster, "validate", id)], delay_seconds=1)
        return Looked(found=found)
    if not left:
        _drop(ports, row)
        return Looked(why, stopped, found=found)
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=snapshot,
        based_on=version,
        plan=Plan(),
        kind="disrupt",
        why=f"{len(left)} nodes are empty: {', '.join(left)}",
        disruption=Disruption(
            id, emptiness.REASON, left, {name: uids[name] for name in left}, locked=tuple(sorted(locked))
        ),
    )
    if decision is None:
        ports.bells.ring("disrupt", [Doorbell(row.cluster, "validate", id)], delay_seconds=1)
        return Looked(found=found)
    ports.bells.ring("lifecycle", [Doorbell(row.cluster, "decision", decision.id)])
    return Looked(breaker_open=stopped, committed=left, found=found)


def _look(ports: Planning, now: datetime, seconds_left: SecondsLeft) -> tuple[Snapshot, Plan, str]:
    """Everything read from the API server, where pending pods would go, and why nothing may be disrupted."""
    state = ports.state.cluster()
    snapshot = gather(ports, state, now=now)
    if state.paused:
        return snapshot, Plan(), "the cluster is paused"
    if not snapshot.catalog_key:
        return snapshot, Plan(), "there is no instance catalog yet"
    unlaunched = [
        one.name for one in snapshot.nodeclaims if not one.provider_id and one.metadata.deletion_timestamp is None
    ]
    unlaunched += [one.nodeclaim.name for one in snapshot.in_flight]
    if unlaunched:
        return snapshot, Plan(), f"launches are under way: {', '.join(sorted(unlaunched))}"
    fitted, left_out = planning_time.fitted(snapshot, seconds_left)
    if left_out:
        return snapshot, Plan(), f"there is no time to see where {left_out} of the pending pods would go"
    return fitted, decide(fitted, ports.catalogs.read(fitted.catalog_key)), ""


def _locked(ports: Planning, *, but: str = "") -> frozenset[str]:
    """Claims that a proposal, a command or a committed decision holds, and those of instances under notice."""
    held = {name for row in ports.state.commands() if row.id != but for name in row.candidates}
    for key in ports.state.cluster().unacted:
        disruption = decisions.decode(ports.blobs.get(key)).disruption
        held |= set(disruption.candidates) if disruption else set()
    noticed = {row.instance_id for row in ports.state.notices()}
    if noticed:
        held |= {one.name for one in ports.cluster.nodeclaims() if instance_id(one.provider_id) in noticed}
    return frozenset(held)


def _ring_for_idleness(ports: Planning, snapshot: Snapshot) -> None:
    """Lifecycle writes claims, not we: it is told which of them no longer say what is."""
    stale = emptiness.stale_consolidation_timers(snapshot)
    if stale:
        ports.bells.ring("lifecycle", [Doorbell(snapshot.cluster, "claim", name) for name in stale])


def _admitted(ports: Planning, snapshot: Snapshot, id: str, wanted: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Those that the breaker lets go, counted before they do; and whether it is open from now on."""
    before, now = ports.state.breaker(), _milliseconds(snapshot.now)
    total, percent = sum(claim.is_managed for claim in snapshot.nodeclaims), snapshot.settings.breaker_percent
    admission = breaker.admit(before, id, len(wanted), total=total, percent=percent, now=now)
    if wanted and admission.breaker != before:
        ports.state.save_breaker(admission.breaker)
    return wanted[: admission.nodes], breaker.is_open(admission.breaker, now)


def _tell_stopped(ports: Planning, snapshot: Snapshot, stopped: breaker.Breaker) -> None:
    until = datetime.fromtimestamp(stopped.open_until_ms / 1000, snapshot.now.tzinfo).isoformat(timespec="seconds")
    message = f"Disruption is stopped until {until}: {stopped.reason}; `spotwright resume` ends it"
    _tell(
        ports,
        snapshot,
        tuple(BlockedEvent("nodepools", pool.metadata, "DisruptionBlocked", message) for pool in snapshot.nodepools),
    )


def _tell(ports: Planning, snapshot: Snapshot, obstacles: tuple[BlockedEvent, ...]) -> None:
    """Events of what stands in the way; of many, another part every minute. An Event that fails is no obstacle."""
    turns = max(1, -(-len(obstacles) // TOLD_AT_ONCE))
    turn = int(snapshot.now.timestamp()) // 60 % turns
    for one in obstacles[turn * TOLD_AT_ONCE : (turn + 1) * TOLD_AT_ONCE]:
        ports.cluster.event(
            one.kind, one.about, type="Normal", reason=one.reason, message=one.message, now=snapshot.now
        )


def _drop_stale(ports: Planning, now: datetime) -> None:
    for row in ports.state.commands():
        if row.phase == "proposed" and _milliseconds(now) - row.created > PROPOSAL_MS:
            _drop(ports, row)


def _drop(ports: Planning, row: CommandRow) -> None:
    try:
        ports.state.save(msgspec.structs.replace(row, phase="aborted", due=0))
    except Conflict:
        # Another validation of the same proposal was faster.
        return


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
