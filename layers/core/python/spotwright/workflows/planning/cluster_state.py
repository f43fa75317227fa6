"""The cluster state, where there is one that a planner may use, or why there is none."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.errors import ApiError
from spotwright.model.cluster_state import KIND_FIELDS, ClusterState, ClusterStateError
from spotwright.workflows.ports.cluster_state import ClusterStatePort, ShippedHead

# The forwarder says every 10 s that it is in sync.
FRESH: Final = timedelta(seconds=30)
# Bookmarks come once a minute: the watch of a quiet kind that missed two may be broken. The forwarder writes no
# heartbeat beside such a watch, so that only the time before the state was taken is looked at: in a quiet cluster
# nothing is written for hours.
IN_CONTACT: Final = timedelta(seconds=150)
# Kinds that a cluster need not have a definition of.
_OPTIONAL_KINDS: Final = frozenset({"NodeOverlay", "CapacityBuffer"})


class NoClusterState(msgspec.Struct, frozen=True):
    """Why a planner lists for itself.

    ``code``: Absent, NotFresh, OutOfContact, NoAnswer, or that of a BehindError or ClusterStateError;
    ``details``: a sentence.
    """

    code: str
    details: str


def read_cluster_state(port: ClusterStatePort, *, now: datetime) -> ClusterState | NoClusterState:
    """The newest state, if it is fresh and every kind was in contact. Never raises."""
    try:
        shipped = port.head(now=now)
        if shipped is None:
            return NoClusterState("Absent", "the forwarder has shipped no state")
        return _obstacle(shipped, now) or port.load(shipped.head)
    except ClusterStateError as error:
        return NoClusterState(error.code, str(error))
    except ApiError as error:
        return NoClusterState("NoAnswer", str(error))


def _obstacle(shipped: ShippedHead, now: datetime) -> NoClusterState | None:
    age = (now - shipped.in_sync).total_seconds()
    if age > FRESH.total_seconds():
        return NoClusterState(
            "NotFresh", f"the forwarder was last in sync {age:.0f} s ago, more than {FRESH.total_seconds():.0f} s"
        )
    kinds = shipped.head.kinds
    for kind in sorted(KIND_FIELDS.keys() | kinds):
        if kind not in kinds:
            if kind in _OPTIONAL_KINDS:
                continue
            return NoClusterState("OutOfContact", f"the state says nothing of {kind}")
        silence = shipped.head.taken - kinds[kind].contacted
        if silence > IN_CONTACT:
            return NoClusterState(
                "OutOfContact",
                f"the watch of {kind} was silent for {silence.total_seconds():.0f} s when the state was taken, more"
                f" than {IN_CONTACT.total_seconds():.0f} s",
            )
    return None
