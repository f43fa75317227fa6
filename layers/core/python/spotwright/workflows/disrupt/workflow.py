"""The doorbells of disruption: proposals are validated, then nodes are evaluated, as far as time goes."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Final

from spotwright.errors import ApiError
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.disrupt.evaluate import evaluate
from spotwright.workflows.disrupt.inputs import DisruptResult
from spotwright.workflows.disrupt.pauses import LONGEST_PAUSE_SECONDS, milliseconds_left, pause_seconds
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.planning import planner_at_work
from spotwright.workflows.planning.snapshot import BeforeList, NotListedError, gather, gather_with_claims
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import READ_NODECLAIMS, Doorbell
from spotwright.workflows.ports.rows import epoch_ms
from spotwright.workflows.ports.state import LISTED_EVALUATIONS

log: Final = logging.getLogger("spotwright.disruption")

WORK: Final = "disrupt"
# A further step is begun only with so much time left: each reads the cluster and plans.
STEP_SECONDS: Final = 20
# Until a proposal is tried again beside another planner. It is dropped two minutes after it was made.
VALIDATE_AGAIN_SECONDS: Final = 2
# Until nodes are evaluated again. Evaluation is rung for every minute besides.
EVALUATE_AGAIN_SECONDS: Final = 15


def disrupt(
    ports: ProvisionPorts,
    bells: Iterable[Doorbell],
    *,
    clock: Callable[[], datetime],
    seconds_left: SecondsLeft = None,
) -> Iterator[tuple[str, DisruptResult]]:
    """Each result with the kind of its doorbell; what another planner or the time keeps back is rung for again."""
    waiting = _in_order(bells)
    number = len(waiting)
    with planner_at_work.noted(ports.state, WORK, now=clock(), seconds_left=seconds_left) as is_alone:
        while is_alone and waiting and not (len(waiting) < number and _is_short(seconds_left)):
            bell = waiting[0]
            try:
                result = _step(ports, bell, clock, seconds_left)
            except NotListedError as left:
                log_line(log, log_lines.LEFT_EVALUATION, cluster=ports.cluster.name, reason=str(left))
                break
            waiting = waiting[1:]
            yield bell.kind, result
    _ring_again(ports, waiting)


def _reason_not_to_list(ports: ProvisionPorts, now: datetime) -> str:
    """A list of the cluster beside a planner's takes twice as long, and so does that. "" = there is no reason."""
    row = ports.state.cluster()
    if planner_at_work.is_noted(row, now=now):
        return "pods are planned for just now, of lists of the cluster"
    if pause_ms := milliseconds_left(row.evaluations_pause_until, now):
        return f"an evaluation that lists the cluster takes long; the next one begins in {pause_ms // 1000 + 1} s"
    return ""


@contextmanager
def _pausing(ports: ProvisionPorts, clock: Callable[[], datetime]) -> Iterator[BeforeList]:
    """Around an evaluation, which is followed by a pause if it lists the cluster; what it calls before that.

    The pause after it is the longest until it has ended, so that one that is cut off, since a very large cluster takes
    longer to list than a function may run, is followed by a pause.
    """
    began: datetime | None = None

    def begin() -> None:
        nonlocal began
        now = clock()
        if reason := _reason_not_to_list(ports, now):
            raise NotListedError(reason)
        began = now
        _pause(ports, now, _longest_pause(now))

    try:
        yield begin
    except ApiError:
        _shorten_pause(ports, began, clock())
        raise
    _shorten_pause(ports, began, clock())


def _longest_pause(began: datetime) -> int:
    return epoch_ms(began) + LONGEST_PAUSE_SECONDS * 1000


def _shorten_pause(ports: ProvisionPorts, began: datetime | None, ended: datetime) -> None:
    """``began``: when it began to list; None = it did not."""
    if began is None:
        return
    with suppress(ApiError):
        ports.state.end_planning(LISTED_EVALUATIONS, until=_longest_pause(began))
    _pause(ports, ended, epoch_ms(ended) + int(pause_seconds(began, ended) * 1000))


def _pause(ports: ProvisionPorts, now: datetime, until: int) -> None:
    # Without it the next evaluation is sooner, no more.
    with suppress(ApiError):
        ports.state.begin_planning(LISTED_EVALUATIONS, now=epoch_ms(now), until=until)


def _in_order(bells: Iterable[Doorbell]) -> list[Doorbell]:
    """Each proposal once, and one evaluation after them: the one that reads most, if any does."""
    bells = tuple(bells)
    proposals = {bell.key: bell for bell in bells if bell.kind == "validate"}
    evaluations = sorted(
        (bell for bell in bells if bell.kind == "evaluate"), key=lambda bell: (bell.key != READ_NODECLAIMS, bell.epoch)
    )
    return [*(proposals[key] for key in sorted(proposals)), *evaluations[:1]]


def _is_short(seconds_left: SecondsLeft) -> bool:
    return seconds_left is not None and seconds_left() < STEP_SECONDS


def _step(
    ports: ProvisionPorts, bell: Doorbell, clock: Callable[[], datetime], seconds_left: SecondsLeft
) -> DisruptResult:
    """Raises NotListedError for an evaluation that would list the cluster, which is to wait."""
    if bell.kind == "validate":
        return validate(ports, bell.key, clock=clock, seconds_left=seconds_left)
    read = gather_with_claims if bell.key == READ_NODECLAIMS else gather
    with _pausing(ports, clock) as before_list:
        return evaluate(ports, clock=clock, gather=partial(read, before_list=before_list), seconds_left=seconds_left)


def _ring_again(ports: ProvisionPorts, bells: Sequence[Doorbell]) -> None:
    """Once for an evaluation, since the schedule rings for the next."""
    proposals = [bell for bell in bells if bell.kind == "validate"]
    if proposals:
        ports.doorbells.ring("disrupt", proposals, delay_seconds=VALIDATE_AGAIN_SECONDS)
    for bell in bells:
        if bell.kind == "evaluate" and not bell.epoch:
            again = Doorbell(ports.cluster.name, "evaluate", bell.key, epoch=1)
            ports.doorbells.ring("disrupt", [again], delay_seconds=EVALUATE_AGAIN_SECONDS)
