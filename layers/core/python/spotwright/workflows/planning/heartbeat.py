"""Whether the forwarder of a cluster lives, and so rings for what changes there."""

from datetime import datetime
from typing import Final

from spotwright.workflows.ports.rows import epoch_ms
from spotwright.workflows.ports.state import StatePort

# The forwarder writes a heartbeat every 10 s, and when it stops; after two missed ones it counts as stopped.
HEARTBEAT_SECONDS: Final = 25


def is_forwarder_alive(state: StatePort, *, now: datetime) -> bool:
    """A heartbeat of the future says nothing of now."""
    return abs(epoch_ms(now) - state.heartbeat()) <= HEARTBEAT_SECONDS * 1000
