"""Committed decisions become launch rows, nominations and commands."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decision import Decision, Launch, decode_decision
from spotwright.errors import NotFound
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle import nominations
from spotwright.workflows.lifecycle.actions import log, request_planning, ring_lifecycle
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import CommandRow, LaunchRow, epoch_ms

# Until a worker is done with a phase, the row's own timer is set this far ahead.
PHASE_TIMEOUT: Final = timedelta(seconds=60)
# A replacement must be Initialized within this time, or the disruption is given up (Karpenter's ten minutes).
REPLACEMENT_TIMEOUT: Final = timedelta(minutes=10)


def act_on_decisions(ports: LifecyclePorts, *, now: datetime) -> tuple[LaunchRow, ...]:
    """Turn every committed decision into rows, oldest first; those of its launches as they are now."""
    rows: list[LaunchRow] = []
    for key in ports.state.cluster().pending_decisions:
        decision = _read(ports, key)
        if decision is not None:
            rows += _create_rows(ports, decision, now)
        ports.state.mark_acted(key)
    return tuple(rows)


def _create_rows(ports: LifecyclePorts, decision: Decision, now: datetime) -> list[LaunchRow]:
    launch_rows = [_create_launch_row(ports, _launch_row(decision, launch, now)) for launch in decision.launches]
    nominations.create_nominations(ports, decision)
    if decision.disruption is not None:
        _create_command(ports, decision, now)
        ring_lifecycle(ports, "command", [decision.disruption.id])
    return [row for row in launch_rows if row is not None]


def _create_launch_row(ports: LifecyclePorts, row: LaunchRow) -> LaunchRow | None:
    """The row, or the one that an earlier worker made of the same launch."""
    return row if ports.state.create(row) else ports.state.launch(row.id)


def _read(ports: LifecyclePorts, key: str) -> Decision | None:
    """A committed decision's body; None when it is gone or unreadable: then it is dropped, and planned anew."""
    try:
        return decode_decision(ports.blobs.get(key))
    except (NotFound, msgspec.DecodeError) as error:
        log_line(log, log_lines.DROPPED_DECISION, decision=key, error=str(error))
        request_planning(ports)
        return None


def _launch_row(decision: Decision, launch: Launch, now: datetime) -> LaunchRow:
    return LaunchRow(
        id=launch.id,
        cluster=decision.cluster,
        decision=decision.id,
        claims=launch.claims,
        node=msgspec.json.encode(launch.node, order="deterministic").decode(),
        replaces=launch.replaces,
        reason=launch.reason,
        created=epoch_ms(decision.now),
        due=epoch_ms(now + PHASE_TIMEOUT),
    )


def _create_command(ports: LifecyclePorts, decision: Decision, now: datetime) -> None:
    """The command of a disruption; one that was proposed before becomes planned."""
    wanted = decision.disruption
    assert wanted is not None
    deadline = wanted.deadline or epoch_ms(now + REPLACEMENT_TIMEOUT)
    row = CommandRow(
        id=wanted.id,
        cluster=decision.cluster,
        decision=decision.id,
        reason=wanted.reason,
        candidates=wanted.candidates,
        candidate_uids=wanted.candidate_uids,
        replacements=wanted.replacements + (_claims_in_flight(ports, decision) if wanted.deadline else ()),
        forced=wanted.deadline > 0,
        deadline=deadline,
        created=epoch_ms(now),
        due=epoch_ms(now + PHASE_TIMEOUT),
    )
    if not ports.state.create(row):
        existing = ports.state.command(wanted.id)
        if existing is not None and existing.phase == "proposed":
            ports.state.save(msgspec.structs.replace(row, version=existing.version, created=existing.created))


def _claims_in_flight(ports: LifecyclePorts, decision: Decision) -> tuple[str, ...]:
    """Claims that were bought before, are not ready yet, and that the plan gives pods to; by name."""
    hosts = {node.name for node in decision.plan.existing_nodes}
    coming = {
        claim.name
        for claim in ports.cluster.nodeclaims()
        if not claim.is_condition_true("Initialized") and not hosts.isdisjoint((claim.name, claim.node_name))
    }
    promised = {name for row in ports.state.launches() for name in row.claims if name not in row.uids}
    mine = {name for launch in decision.launches for name in launch.claims}
    return tuple(sorted((coming | promised & hosts) - mine))
