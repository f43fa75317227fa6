"""Committed decisions become launch rows, nominations and commands.

Rows are created side by side, and each once, so that an invocation goes on where another one ended. A row that the
state table refuses would be refused again: it is set aside, its pods are planned again, and later decisions go on.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from spotwright.decisions.decision import Decision, Disruption, Launch, decode_decision
from spotwright.disruption.rollouts import REPLACEMENT_TIMEOUT
from spotwright.errors import ApiError, InvalidRequest, NotFound
from spotwright.model.plurals import counted
from spotwright.scheduling.plan import NewNode
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log, request_planning, ring_lifecycle
from spotwright.workflows.lifecycle.commands import BOOTING_LOOK_SECONDS, COMMANDS_TOLD
from spotwright.workflows.lifecycle.joining import nominations
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import CommandRow, LaunchRow, Row, epoch_ms, sort_key
from spotwright.workflows.rows_together import write_rows

# The row's timer while an invocation works on a phase.
PHASE_TIMEOUT: Final = timedelta(seconds=60)
# Until a launch is rung for that another invocation may have begun a moment ago.
BEGUN_SECONDS: Final = 5
# The next plan may well be the same, and be set aside again.
SET_ASIDE_SECONDS: Final = 60
# DynamoDB's 400 KB, less than a KB of which are keys and timers.
TOO_LARGE_BYTES: Final = 399 * 1024


def act_on_decisions(
    ports: LifecyclePorts,
    *,
    now: datetime,
    buy: Callable[[LaunchRow], None] | None,
    seconds_left: SecondsLeft = None,
    queue: str = "lifecycle",
) -> bool:
    """Write the rows of every committed decision, oldest first; whether a launch was begun.

    As soon as the rows of its launches are there, the first launch of all is handed to ``buy``, and the others are rung
    for, so that they run at the same time; without ``buy`` all are rung for. Commands and nominations come after that:
    nobody needs them before a node joins, and while they are missing the decision stays committed, so that they are
    written later if this ends here. What ``buy`` raises is raised last: its launch has a row with a timer, and no
    decision waits for it. Without time the rest is left to the next invocation. ``queue``: where launches are rung for,
    lifecycle or notices.

    Launches that have a row already are being begun by another invocation, or that one has ended: they are rung for
    some seconds later, and those that nobody has begun come first.
    """
    is_begun, failures = False, list[Exception]()
    for key in ports.state.cluster().pending_decisions:
        decision = _read(ports, key)
        if decision is not None:
            created, existing = _create_launches(ports, decision, now)
            failures += _begin_launches(ports, created, None if is_begun else buy, queue)
            is_begun |= bool(created)
            unbegun = [row.id for row in existing if row.phase == "planned"]
            ring_lifecycle(ports, "launch", unbegun, delay_seconds=BEGUN_SECONDS, queue=queue)
            _create_commands(ports, decision, now)
            if not _create_nominations(ports, decision, {row.id for row in (*created, *existing)}, seconds_left):
                ring_lifecycle(ports, "decision", [decision.id])
                break
        ports.state.mark_acted(key)
    if failures:
        raise failures[0]
    return is_begun


def _begin_launches(
    ports: LifecyclePorts, launches: Sequence[LaunchRow], buy: Callable[[LaunchRow], None] | None, queue: str
) -> list[Exception]:
    """Ring for these launches, but for the first where it can be handed to ``buy``; what that raised."""
    ring_lifecycle(ports, "launch", [row.id for row in launches[0 if buy is None else 1 :]], queue=queue)
    if buy is None or not launches:
        return []
    try:
        buy(launches[0])
    except Exception as failure:  # noqa: BLE001 one launch must not keep other decisions
        return [failure]
    return []


def _create_launches(
    ports: LifecyclePorts, decision: Decision, now: datetime
) -> tuple[list[LaunchRow], list[LaunchRow]]:
    """The rows that were created now, and those that another invocation has created."""

    def create_launch(launch: Launch) -> tuple[LaunchRow | None, bool]:
        row = _launch_row(decision, launch, now)
        is_created = _create_row(ports, row)
        if is_created is None:
            _say_not_stored(ports, launch, row, now)
        return row if is_created else ports.state.launch(row.id) if is_created is False else None, bool(is_created)

    made = in_parallel(create_launch, decision.launches)
    created = [row for row, is_created in made if row is not None and is_created]
    return created, [row for row, is_created in made if row is not None and not is_created]


def _say_not_stored(ports: LifecyclePorts, launch: Launch, row: LaunchRow, now: datetime) -> None:
    """On the NodePool, whose requirements are what may be so large; not of a row that is refused for something else."""
    size = len(msgspec.json.encode(row))
    if size < TOO_LARGE_BYTES:
        return
    event = events.LAUNCH_NOT_STORED(nodes=counted(len(launch.claims), "node"), kilobytes=-(-size // 1024))
    # The log line says it, too.
    with suppress(ApiError):
        pool = ports.cluster.nodepool(launch.node.nodepool)
        if pool is not None:
            ports.cluster.record_event("nodepools", pool.metadata, event, now=now)


def _create_commands(ports: LifecyclePorts, decision: Decision, now: datetime) -> None:
    rows = [_command_row(decision, disruption, now) for disruption in decision.disruptions]
    write_rows(ports.state.create_together, lambda row: _create_command(ports, row), rows)
    waiting = {disruption.id for disruption in decision.disruptions if _waits_for_boots(disruption, now)}
    ring_lifecycle(ports, "command", [row.id for row in decision.disruptions if row.id not in waiting])
    ring_lifecycle(ports, "command", sorted(waiting), delay_seconds=BOOTING_LOOK_SECONDS)


def _waits_for_boots(disruption: Disruption, now: datetime) -> bool:
    """Whether the command has nothing to do while its launches are begun: who planned for its nodes taints them."""
    has_time = disruption.deadline > epoch_ms(now + PHASE_TIMEOUT)
    return has_time and bool(disruption.replacements)


def _create_nominations(
    ports: LifecyclePorts, decision: Decision, launches: Collection[str], seconds_left: SecondsLeft
) -> bool:
    """The nominations of these launches, launch after launch; False when the time ends before.

    The last one of a launch is written after all others, so that an invocation that goes on finds where to begin.
    """
    rows = [row for row in nominations.nominations_of(ports, decision) if row.launch in launches]
    for _, group in groupby(rows, key=attrgetter("launch")):
        if seconds_left is not None and seconds_left() < LAST_SECONDS:
            return False
        *others, last = group
        if ports.state.nomination(last.claim) is None:
            write_rows(ports.state.create_together, lambda row: _create_row(ports, row), others)
            _create_row(ports, last)
    return True


def _create_row(ports: LifecyclePorts, row: Row) -> bool | None:
    """Whether the row was created now, and not before; None when the state table refuses it."""
    try:
        return ports.state.create(row)
    except InvalidRequest as refusal:
        log_line(log, log_lines.SET_ASIDE_ROW, row=sort_key(row), code=refusal.code, error=str(refusal))
        request_planning(ports, delay_seconds=SET_ASIDE_SECONDS)
        return None


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
        node=msgspec.json.encode(_to_launch(launch.node), order="deterministic").decode(),
        requests=launch.requests,
        commands=_waiting_commands(decision, launch),
        replaces=launch.replaces,
        reason=_launch_reason(decision, launch),
        created=epoch_ms(decision.now),
        due=epoch_ms(now + PHASE_TIMEOUT),
    )


def _waiting_commands(decision: Decision, launch: Launch) -> dict[str, tuple[str, ...]]:
    """Of claims that disruptions of the decision wait for, the ids of these: their commands'."""
    waiting: dict[str, list[str]] = {}
    for disruption in decision.disruptions:
        for name in disruption.replacements:
            waiting.setdefault(name, []).append(disruption.id)
    return {name: tuple(waiting[name][:COMMANDS_TOLD]) for name in launch.claims if name in waiting}


def _launch_reason(decision: Decision, launch: Launch) -> str:
    """The reason of the disruptions that wait for claims of the launch: they have the same in a decision."""
    waiting = {
        disruption.reason
        for disruption in decision.disruptions
        if not set(launch.claims).isdisjoint(disruption.replacements)
    }
    return ", ".join(sorted(waiting)) or launch.reason


def _to_launch(node: NewNode) -> NewNode:
    """The node without what grows with its pods and only explains it, which the decision has."""
    return msgspec.structs.replace(node, pods=(), alternatives=(), relaxed_preferences=(), usage=())


def _command_row(decision: Decision, disruption: Disruption, now: datetime) -> CommandRow:
    own_claims = {name for launch in decision.launches for name in launch.claims}
    return CommandRow(
        id=disruption.id,
        cluster=decision.cluster,
        decision=decision.id,
        reason=disruption.reason,
        candidates=disruption.candidates,
        candidate_uids=disruption.candidate_uids,
        replacements=disruption.replacements,
        own_replacements=sum(name in own_claims for name in disruption.replacements),
        forced=disruption.deadline > 0,
        rollout=disruption.rollout,
        evictions=disruption.evictions,
        deadline=disruption.deadline or epoch_ms(now + REPLACEMENT_TIMEOUT),
        created=epoch_ms(now),
        due=epoch_ms(now + PHASE_TIMEOUT),
    )


def _create_command(ports: LifecyclePorts, row: CommandRow) -> None:
    """Write the command of a disruption; what was proposed becomes planned.

    A proposal is of no decision. One that was given up while it was committed counts as committed: its replacements are
    being bought.
    """
    if _create_row(ports, row) is False:
        existing = ports.state.command(row.id)
        if existing is not None and not existing.decision:
            ports.state.save(msgspec.structs.replace(row, version=existing.version, created=existing.created))
