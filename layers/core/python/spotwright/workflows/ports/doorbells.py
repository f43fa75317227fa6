"""Doorbells, and the queues that they are rung in."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

# The epoch of the sweep's doorbells for EC2NodeClasses that are not Ready: it rings again, so that catalog need not.
RUNG_ANYWAY: Final = 1_000
# The key of an evaluation of nodes that reads all NodeClaims, since their conditions changed a moment ago.
READ_NODECLAIMS: Final = "nodeclaims"


class Doorbell(msgspec.Struct, frozen=True):
    """A hint that something may have changed. ``cluster`` "*" = every cluster of the cell."""

    cluster: str
    kind: str
    key: str = ""
    epoch: int = 0
    schema: int = 1


class DoorbellPort(Protocol):
    """The queues, by name: provision, lifecycle, notices, catalog, disrupt, sweep.

    ``lifecycle`` and ``notices`` wake the same function; what EC2 gave two minutes for waits behind nothing else.
    """

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None: ...
