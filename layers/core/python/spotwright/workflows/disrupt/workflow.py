"""The doorbells of disruption: proposals are validated, then nodes are evaluated, as far as time goes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from spotwright.workflows.disrupt.evaluate import evaluate
from spotwright.workflows.disrupt.inputs import DisruptResult
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.planning import planner_at_work
from spotwright.workflows.planning.heartbeat import is_forwarder_alive
from spotwright.workflows.planning.snapshot import gather, gather_with_claims
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import READ_NODECLAIMS, Doorbell

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
            if waiting[0].kind == "evaluate" and _keeps_pods_waiting(ports, clock()):
                break
            bell, *waiting = waiting
            yield bell.kind, _step(ports, bell, clock(), seconds_left)
    _ring_again(ports, waiting)


def _keeps_pods_waiting(ports: ProvisionPorts, now: datetime) -> bool:
    """Whether an evaluation would list the cluster beside a planner that lists it: both take twice as long."""
    return not is_forwarder_alive(ports.state, now=now) and planner_at_work.is_noted(ports.state.cluster(), now=now)


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


def _step(ports: ProvisionPorts, bell: Doorbell, now: datetime, seconds_left: SecondsLeft) -> DisruptResult:
    if bell.kind == "validate":
        return validate(ports, bell.key, now=now, seconds_left=seconds_left)
    read = gather_with_claims if bell.key == READ_NODECLAIMS else gather
    return evaluate(ports, now=now, gather=read, seconds_left=seconds_left)


def _ring_again(ports: ProvisionPorts, bells: Sequence[Doorbell]) -> None:
    """Once for an evaluation, since the schedule rings for the next."""
    proposals = [bell for bell in bells if bell.kind == "validate"]
    if proposals:
        ports.doorbells.ring("disrupt", proposals, delay_seconds=VALIDATE_AGAIN_SECONDS)
    for bell in bells:
        if bell.kind == "evaluate" and not bell.epoch:
            again = Doorbell(ports.cluster.name, "evaluate", bell.key, epoch=1)
            ports.doorbells.ring("disrupt", [again], delay_seconds=EVALUATE_AGAIN_SECONDS)
