"""The cluster state that the forwarder ships, as planners need it."""

from datetime import datetime
from typing import Protocol

import msgspec

from spotwright.model.cluster_state import ClusterState, ClusterStateHead


class ShippedHead(msgspec.Struct, frozen=True):
    """The newest head. ``in_sync``: until when the forwarder is known to have nothing newer, aware UTC."""

    head: ClusterStateHead
    in_sync: datetime


class ClusterStatePort(Protocol):
    """The newest cluster state of one cluster.

    Both raise ClusterStateError for what must not be used, and the exceptions of ``spotwright.errors``.
    """

    def head(self, *, now: datetime) -> ShippedHead | None:
        """None where no state was shipped. ``now``: a state from the future is refused."""
        ...

    def load(self, head: ClusterStateHead) -> ClusterState:
        """The state of a head."""
        ...
