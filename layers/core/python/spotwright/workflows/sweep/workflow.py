"""The doorbells of the sweep: the poll, which is little, before the full sweep, as far as time goes."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.bundles import SweepPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.sweep.full import full_sweep
from spotwright.workflows.sweep.poll import SweepResult, poll


def sweep(
    ports: SweepPorts, bells: Iterable[Doorbell], *, clock: Callable[[], datetime], seconds_left: SecondsLeft = None
) -> Iterator[tuple[str, SweepResult]]:
    """Each result with the kind of its doorbell. A full sweep for which no time is left is rung for again."""
    bells = tuple(bells)
    polls = [bell for bell in bells if bell.kind == "poll"]
    if polls:
        scheduled = any(bell.epoch == 0 for bell in polls)
        yield "poll", poll(ports, now=clock(), scheduled=scheduled)
    if any(bell.kind == "full" for bell in bells):
        if polls and seconds_left is not None and seconds_left() < LAST_SECONDS:
            ports.doorbells.ring("sweep", [Doorbell(ports.cluster.name, "full")])
        else:
            yield "full", full_sweep(ports, now=clock())
