"""The one hand: whatever doorbell rings, read the facts and move what it names one step closer."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotwright.failures import Failure
from spotwright.workflows import (
    launching,
    lifecycle_claims,
    lifecycle_commands,
    lifecycle_drift,
    lifecycle_nodepools,
    lifecycle_nominations,
    lifecycle_overlays,
    orphans,
    terminations,
)
from spotwright.workflows.lifecycle_acting import Acting, log, ring
from spotwright.workflows.planning_time import SecondsLeft
from spotwright.workflows.ports import Doorbell
from spotwright.workflows.terminations import Ending

KINDS: Final = (
    "decision", "launch", "claim", "node", "notice", "command", "nodepools", "drift", "instance", "nomination",
)  # fmt: skip
# Launches of a decision beyond the first go to other invocations: they buy at the same time. Instances that nobody
# seems to know come last: little time passes between the look at them and their end.
_URGENCY: Final = {"notice": 0, "decision": 1, "launch": 2, "command": 3, "instance": 10}


def lifecycle(ports: Acting, bells: Iterable[Doorbell], *, now: datetime, seconds_left: SecondsLeft = None) -> None:
    """Answer several doorbells of one cluster, the urgent ones first, each thing once.

    Instances whose time has come end together, last.
    One that fails does not keep the others; the first failure is raised at the end, so that its messages return.
    """
    failures: list[Failure] = []
    endings: list[Ending] = []
    for bell in _distinct(bells):
        try:
            answer(ports, bell, endings, now=now, seconds_left=seconds_left)
        except Failure as failure:
            log.warning("doorbell failed", extra={"kind": bell.kind, "key": bell.key, "code": failure.code})
            failures.append(failure)
    try:
        terminations.end(ports, endings, now)
    except Failure as failure:
        log.warning("doorbell failed", extra={"kind": "ending", "key": len(endings), "code": failure.code})
        failures.append(failure)
    if failures:
        raise failures[0]


def answer(ports: Acting, bell: Doorbell, endings: list[Ending], *, now: datetime, seconds_left: SecondsLeft) -> None:
    """One step for what one doorbell names, instances to end put on ``endings``; a kind that is none of KINDS raises
    ValueError."""
    match bell.kind:
        case "decision":
            _decision(ports, now)
        case "launch":
            launching.advance(ports, bell.key, now=now)
        case "claim":
            lifecycle_claims.step(ports, bell.key, endings, now=now, ticks=bell.epoch)
        case "node":
            lifecycle_claims.step_of_node(ports, bell.key, endings, now=now)
        case "notice":
            # Only a notice needs the planner, whose modules are a fifth of ours at a cold start.
            from spotwright.workflows import lifecycle_notices

            lifecycle_notices.step(ports, bell.key, now=now, seconds_left=seconds_left)
        case "command":
            lifecycle_commands.step(ports, bell.key, now=now)
        case "nomination":
            lifecycle_nominations.expire(ports, bell.key, now)
        case "nodepools":
            lifecycle_nodepools.step(ports, now=now)
            if "NodeOverlay" in ports.settings.feature_gates:
                lifecycle_overlays.step(ports, now=now)
        case "drift":
            lifecycle_drift.step(ports, bell.key, now=now)
        case "instance":
            orphan = orphans.verified(ports, bell.key, now)
            endings += [Ending(orphan)] if orphan else []
        case other:
            raise ValueError(f"doorbell kind {other!r} is not one of {', '.join(KINDS)}")


def _decision(ports: Acting, now: datetime) -> None:
    launches = launching.act(ports, now=now)
    ring(ports, "launch", [one.id for one in launches[1:]])
    for launch in launches[:1]:
        launching.proceed(ports, launch, now=now)


def _distinct(bells: Iterable[Doorbell]) -> list[Doorbell]:
    """Each (kind, key) once, with its lowest tick: two chains that met go on as one."""
    lowest: dict[tuple[str, str], Doorbell] = {}
    for bell in sorted(bells, key=lambda one: (one.epoch == 0, one.epoch)):
        lowest.setdefault((bell.kind, bell.key), bell)
    return sorted(lowest.values(), key=lambda one: (_URGENCY.get(one.kind, 9), one.kind, one.key))
