"""A step of interruption notices that fails is taken once more."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from spotwright.errors import ApiError, Conflict, NotFound
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log, ring_notices
from spotwright.workflows.ports.bundles import LifecyclePorts

# Until a notice is tried again whose step an API did not answer.
RETRY_SECONDS: Final = 2


@contextmanager
def trying_again(ports: LifecyclePorts, instances: Iterable[str], names: str) -> Iterator[None]:
    """Ring for these notices once more when their step fails."""
    try:
        yield
    except (Conflict, NotFound) as lost:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="notice", object=names, conflict=str(lost))
        ring_notices(ports, instances, delay_seconds=1)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="notice", object=names, code=failure.code, error=str(failure))
        ring_notices(ports, instances, delay_seconds=RETRY_SECONDS)
