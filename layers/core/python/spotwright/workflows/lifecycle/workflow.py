"""The only workflow that changes nodes and instances: a doorbell names an object, which is moved one step on."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from spotwright.errors import ApiError, Conflict, OutOfTime, Throttled, Unavailable, error_code
from spotwright.lifecycle.retry import ONCE_MORE, TERMINATION_TICKS, number_after_failure, tick_seconds
from spotwright.model.snapshot import NODE_OVERLAY
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle import commands, nodeclaims, nodes, repairs
from spotwright.workflows.lifecycle.actions import log, ring_lifecycle
from spotwright.workflows.lifecycle.ended_instances import step_expected_ends
from spotwright.workflows.lifecycle.gathering import GatheringPorts, gathering
from spotwright.workflows.lifecycle.joining import nominations
from spotwright.workflows.lifecycle.launch.decisions import act_on_decisions
from spotwright.workflows.lifecycle.launch.phases import advance, proceed
from spotwright.workflows.lifecycle.status import drift, nodepools
from spotwright.workflows.lifecycle.status.nodeoverlays import update_nodeoverlays
from spotwright.workflows.lifecycle.termination.absence import check_instance
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination, terminate_all
from spotwright.workflows.lifecycle.termination.orphans import find_orphan
from spotwright.workflows.parallel import CALLS_AT_ONCE, in_parallel
from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell

DOORBELL_KINDS: Final = (
    "decision", "launch", "claim", "claim-instance", "node", "notice", "command", "nodepools", "drift", "instance",
    "nomination", "repair",
)  # fmt: skip
# Of an error in a log line: it may quote a whole object.
_SHOWN_CHARACTERS: Final = 500
# All doorbells of such a kind are a single step.
_TOGETHER: Final = frozenset({"notice", "command"})
# Lower numbers first. Orphaned instances come last: little time passes between their check and their termination.
_URGENCY: Final = {"notice": 0, "launch": 1, "decision": 2, "command": 3, "instance": 10}
# What instances are bought by comes before anything else. Each makes up to ten calls at once itself.
_BUYING: Final = frozenset({"notice", "launch"})
_BUYING_AT_ONCE: Final = 5
# Somebody waits for these, and others find only after a minute that they failed. A step that got no answer is taken
# once more so soon; when it gets none then either, as while an API is away for long, its message comes back after the
# visibility timeout, some times.
_ONCE_MORE: Final = frozenset({"claim", "decision", "launch", "node"})
ONCE_MORE_SECONDS: Final = 10
# Steps of claims and nodes make their calls one after the other.
_STEPS_AT_ONCE: Final = CALLS_AT_ONCE


class _StepOutcome(msgspec.Struct, frozen=True):
    """What became of the doorbells of a step. ``failures``: which failed, by kind and key, and why; ``terminations``:
    instances to terminate; ``postponed``: those for which there was no time left."""

    bells: tuple[Doorbell, ...]
    failures: dict[tuple[str, str], Exception] = {}
    terminations: tuple[InstanceTermination, ...] = ()
    postponed: bool = False


def lifecycle(
    ports: LifecyclePorts, bells: Iterable[Doorbell], *, now: datetime, seconds_left: SecondsLeft = None
) -> None:
    """``step_doorbells``, which raises the first failure at the end."""
    for failure in step_doorbells(ports, bells, now=now, seconds_left=seconds_left).values():
        raise failure


def step_doorbells(
    ports: LifecyclePorts, bells: Iterable[Doorbell], *, now: datetime, seconds_left: SecondsLeft = None
) -> dict[Doorbell, Exception]:
    """Handle the doorbells of one cluster, urgent ones first, each object once; then terminate instances together.

    All notices are handled together, and all commands; other objects of a kind side by side, since their steps mostly
    wait for the API server and for EC2. Notices and launches come before anything else: no instance is bought later
    because another one is. A doorbell for which there is no time is rung again, and so is, once, one whose step may
    succeed soon and is waited for. One that fails does not keep the others: the answer is which failed, and why.
    Doorbells for further steps are sent together at the end, and then Events are recorded.
    """
    shared = gathering(ports, seconds_left)
    try:
        return _step_all(shared, tuple(bells), now=now, seconds_left=seconds_left)
    finally:
        shared.events.write()


def _step_all(
    shared: GatheringPorts, rung: tuple[Doorbell, ...], *, now: datetime, seconds_left: SecondsLeft
) -> dict[Doorbell, Exception]:
    outcomes: list[_StepOutcome] = []
    distinct = _distinct(rung)
    for kinds in _kinds_in_order(distinct):
        step = partial(_step_in_time, shared, now=now, seconds_left=seconds_left)
        at_once = _BUYING_AT_ONCE if kinds[0][0].kind in _BUYING else _STEPS_AT_ONCE
        outcomes += in_parallel(step, kinds, at_once=at_once)
    late = [bell for outcome in outcomes for bell in outcome.bells if _is_late(outcome, bell)]
    late_keys = {(bell.kind, bell.key) for bell in late}
    failures = {
        key: failure for outcome in outcomes for key, failure in outcome.failures.items() if key not in late_keys
    }
    failures = _ring_once_more(shared, distinct, failures) | _postpone(shared.ports, late)
    failures |= _terminate(shared, outcomes, now)
    try:
        shared.doorbells.send()
    except ApiError as failure:
        # Whose doorbell was lost is not known: every step is taken again, which changes nothing that is done.
        stepped = [bell for outcome in outcomes for bell in outcome.bells if bell.kind != "notice" and bell not in late]
        _log_failure("doorbells", ", ".join(bell.key for bell in stepped), failure)
        failures = {(bell.kind, bell.key): failure for bell in stepped} | failures
    # In the order in which they failed; doorbells of an object that differ in their number fail together.
    return {bell: failure for key, failure in failures.items() for bell in rung if (bell.kind, bell.key) == key}


def _is_late(outcome: _StepOutcome, bell: Doorbell) -> bool:
    """Whether the step was not begun, or was given up before Lambda would have ended it with its process. Notices ring
    for themselves.
    """
    failure = outcome.failures.get((bell.kind, bell.key))
    return outcome.postponed or (bell.kind != "notice" and isinstance(failure, OutOfTime))


def _kinds_in_order(bells: Iterable[Doorbell]) -> list[list[tuple[Doorbell, ...]]]:
    """The doorbells of each step; in a list the steps that are taken side by side, one list after the other.

    A claim and its node are two kinds: side by side they would be in each other's way.
    """

    def is_one_step(bell: Doorbell) -> object:
        return bell.kind if bell.kind in _TOGETHER else bell

    by_kind = groupby(bells, key=lambda bell: "" if bell.kind in _BUYING else bell.kind)
    return [[tuple(step) for _, step in groupby(group, key=is_one_step)] for _, group in by_kind]


def _has_time(seconds_left: SecondsLeft) -> bool:
    return seconds_left is None or seconds_left() >= LAST_SECONDS


def _step_in_time(
    ports: GatheringPorts, bells: tuple[Doorbell, ...], *, now: datetime, seconds_left: SecondsLeft
) -> _StepOutcome:
    """A step, if there is time left for it when its turn comes. Notices say themselves what they have no time for."""
    if bells[0].kind == "notice":
        return _StepOutcome(bells, _step_notices(ports.ports, bells, now=now, seconds_left=seconds_left))
    if not _has_time(seconds_left):
        return _StepOutcome(bells, postponed=True)
    to_terminate: list[InstanceTermination] = []
    failures = _step(ports, bells, to_terminate, now=now, seconds_left=seconds_left)
    return _StepOutcome(bells, failures, tuple(to_terminate))


def _terminate(
    ports: GatheringPorts, outcomes: Iterable[_StepOutcome], now: datetime
) -> dict[tuple[str, str], Exception]:
    """Terminate the instances of all steps together; which doorbells failed, and why."""
    ending = [outcome for outcome in outcomes if outcome.terminations]
    terminations = [termination for outcome in ending for termination in outcome.terminations]
    bells = [bell for outcome in ending for bell in outcome.bells]
    try:
        terminate_all(ports, terminations, now)
    except OutOfTime:
        return _postpone(ports.ports, bells)
    except ApiError as failure:
        _log_failure("termination", ", ".join(termination.id for termination in terminations), failure)
        # Where ticks go on, the next one is far.
        again = [msgspec.structs.replace(bell, epoch=0) for bell in bells if bell.epoch != ONCE_MORE]
        return _ring_once_more(ports, again, {(bell.kind, bell.key): failure for bell in bells})
    return {}


def _ring_once_more(
    ports: LifecyclePorts, bells: Iterable[Doorbell], failures: Mapping[tuple[str, str], Exception]
) -> dict[tuple[str, str], Exception]:
    """The failures but for those that are rung for once more."""
    left = dict(failures)
    for bell in bells:
        failure, number = failures.get((bell.kind, bell.key)), number_after_failure(bell.epoch)
        if bell.kind not in _ONCE_MORE or not number or not isinstance(failure, Conflict | Throttled | Unavailable):
            continue
        # Ticks grow longer.
        delay = max(ONCE_MORE_SECONDS, tick_seconds(number) if bell.epoch else 0)
        with suppress(ApiError):
            ring_lifecycle(ports, bell.kind, [bell.key], delay_seconds=delay, epoch=number)
            del left[bell.kind, bell.key]
    return left


def _step_notices(
    ports: LifecyclePorts, bells: tuple[Doorbell, ...], *, now: datetime, seconds_left: SecondsLeft
) -> dict[tuple[str, str], Exception]:
    """All notices together, which fail together."""
    try:
        left = step_expected_ends(ports, {bell.key for bell in bells}, now=now, seconds_left=seconds_left)
        if left:
            # Only these need the planner, whose modules are a fifth of what a cold start imports.
            from spotwright.workflows.lifecycle import interruptions

            interruptions.step_notices(ports, left, now=now, seconds_left=seconds_left)
    except Exception as failure:  # noqa: BLE001 notices must not keep claims and launches
        _log_failure("notice", ", ".join(bell.key for bell in bells), failure)
        return {(bell.kind, bell.key): failure for bell in bells}
    return {}


def _step(
    ports: LifecyclePorts,
    bells: tuple[Doorbell, ...],
    to_terminate: list[InstanceTermination],
    *,
    now: datetime,
    seconds_left: SecondsLeft,
) -> dict[tuple[str, str], Exception]:
    """The step of an object, or of several commands together; which failed, and why."""
    failures: dict[tuple[str, str], Exception] = {}
    try:
        if bells[0].kind == "command":
            early = {bell.key for bell in bells if bell.epoch == commands.REPLACEMENT_CHANGED}
            failed = commands.step_commands(ports, [bell.key for bell in bells], now=now, early=early)
            failures = {("command", id): failure for id, failure in failed.items()}
        else:
            handle_doorbell(ports, bells[0], to_terminate, now=now, seconds_left=seconds_left)
    except Exception as error:  # noqa: BLE001 the loop over objects: one object must not keep the others
        failures = {(bell.kind, bell.key): error for bell in bells}
    for (kind, key), failure in failures.items():
        if not isinstance(failure, OutOfTime):
            _log_failure(kind, key, failure)
    return failures


def _log_failure(kind: str, key: str, failure: Exception) -> None:
    error = str(failure)[:_SHOWN_CHARACTERS]
    log_line(log, log_lines.DOORBELL_FAILED, kind=kind, key=key, code=error_code(failure), error=error)


def _postpone(ports: LifecyclePorts, bells: Collection[Doorbell]) -> dict[tuple[str, str], Exception]:
    """Ring again for what there is no time left for; an invocation that is cut off would hold it back for minutes.

    Where the queue does not take the doorbells, they fail: their messages come back by themselves.
    """
    if not bells:
        return {}
    log_line(log, log_lines.POSTPONED_DOORBELLS, doorbells=len(bells))
    try:
        ports.doorbells.ring("lifecycle", tuple(bells))
    except ApiError as failure:
        return {(bell.kind, bell.key): failure for bell in bells}
    return {}


def handle_doorbell(
    ports: LifecyclePorts,
    bell: Doorbell,
    to_terminate: list[InstanceTermination],
    *,
    now: datetime,
    seconds_left: SecondsLeft,
) -> None:
    """One step for the object that a doorbell names, of any kind that is not stepped together with others.

    Adds instances to ``to_terminate``. ValueError: unknown kind.
    """
    match bell.kind:
        case "decision":
            act_on_decisions(ports, now=now, buy=partial(proceed, ports, now=now), seconds_left=seconds_left)
        case "launch":
            advance(ports, bell.key, now=now)
        case "claim":
            nodeclaims.step_nodeclaim(ports, bell.key, to_terminate, now=now, ticks=bell.epoch)
        case "claim-instance":
            check_instance(ports, bell.key, now=now)
        case "node":
            nodes.step_node(ports, bell.key, to_terminate, now=now)
        case "nomination":
            if nominations.expire_nomination(ports, bell.key, now):
                # Whether its node is Consolidatable was left to what comes of its pods.
                ring_lifecycle(ports, "claim", [bell.key])
        case "nodepools":
            nodepools.update_nodepools(ports, now=now)
            if NODE_OVERLAY in ports.settings.feature_gates:
                update_nodeoverlays(ports, now=now)
        case "drift":
            drift.update_drift(ports, bell.key, now=now)
        case "repair":
            repairs.repair_nodes(ports, now=now)
        case "instance":
            orphan = find_orphan(ports, bell.key, now)
            to_terminate += [InstanceTermination(orphan.id, orphan.zone)] if orphan else []
        case kind:
            raise ValueError(f"doorbell kind {kind!r} is not one of {', '.join(DOORBELL_KINDS)}")


def _distinct(bells: Iterable[Doorbell]) -> list[Doorbell]:
    """Each (kind, key) once, with its lowest tick, so that two chains of ticks go on as one: that of a deletion. What
    rings for the first time comes before what is taken once more: when it fails, it is taken once more itself.
    """

    def order(bell: Doorbell) -> tuple[bool, bool, int]:
        return bell.epoch in (0, ONCE_MORE), bell.epoch <= TERMINATION_TICKS, bell.epoch

    lowest: dict[tuple[str, str], Doorbell] = {}
    for bell in sorted(bells, key=order):
        lowest.setdefault((bell.kind, bell.key), bell)
    return sorted(lowest.values(), key=lambda doorbell: (_URGENCY.get(doorbell.kind, 9), doorbell.kind, doorbell.key))
