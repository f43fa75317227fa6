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

# The row's timer while an invocation works on a phase.
PHASE_TIMEOUT: Final = timedelta(seconds=60)
# A replacement must be Initialized within this time, or the disruption is aborted (Karpenter's ten minutes).
REPLACEMENT_TIMEOUT: Final = timedelta(minutes=10)


def act_on_decisions(ports: LifecyclePorts, *, now: datetime) -> tuple[LaunchRow, ...]:
    """Write the rows of every committed decision, oldest first; returns its launch rows as they are now."""
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
    """The row, or the one that another invocation created for the launch."""
    return row if ports.state.create(row) else ports.state.launch(row.id)


def _read(ports: LifecyclePorts, key: str) -> Decision | None:
    """A committed decision; None when its body is missing or unreadable: it is dropped and planned again."""
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
    """Write the command of a disruption; one that was proposed becomes planned."""
    disruption = decision.disruption
    assert disruption is not None
    deadline = disruption.deadline or epoch_ms(now + REPLACEMENT_TIMEOUT)
    row = CommandRow(
        id=disruption.id,
        cluster=decision.cluster,
        decision=decision.id,
        reason=disruption.reason,
        candidates=disruption.candidates,
        candidate_uids=disruption.candidate_uids,
        replacements=disruption.replacements + (_claims_in_flight(ports, decision) if disruption.deadline else ()),
        own_replacements=len(disruption.replacements),
        forced=disruption.deadline > 0,
        deadline=deadline,
        created=epoch_ms(now),
        due=epoch_ms(now + PHASE_TIMEOUT),
    )
    if not ports.state.create(row):
        existing = ports.state.command(disruption.id)
        if existing is not None and existing.phase == "proposed":
            ports.state.save(msgspec.structs.replace(row, version=existing.version, created=existing.created))


def _claims_in_flight(ports: LifecyclePorts, decision: Decision) -> tuple[str, ...]:
    """Claims of earlier launches that are not Initialized yet and that the plan gives pods to; by name."""
    hosts = {node.name for node in decision.plan.existing_nodes}
    starting = {
        claim.name
        for claim in ports.cluster.nodeclaims()
        if not claim.is_condition_true("Initialized") and not hosts.isdisjoint((claim.name, claim.node_name))
    }
    without_claim = {name for row in ports.state.launches() for name in row.claims if name not in row.uids}
    own_claims = {name for launch in decision.launches for name in launch.claims}
    return tuple(sorted((starting | without_claim & hosts) - own_claims))
