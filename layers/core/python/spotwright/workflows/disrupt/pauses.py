"""How long evaluations and commits of disruption that list the cluster pause, so that they list for a small part of the
time.

Nodes that were refused when the cluster was read live are not read live for again before the pause has ended, while
what was known of them stays the same: what a cluster state does not show, or a commit that others are always faster
with, would have a large cluster listed each minute. After a list that failed it is not listed for other nodes, either.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from spotwright.errors import ApiError
from spotwright.model.snapshot import Snapshot
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.disrupt.inputs import DisruptResult
from spotwright.workflows.planning import repeated_plan
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.rows import ClusterRow, CommitPause, epoch_ms

log: Final = logging.getLogger("spotwright.disruption")

# So many times what it took: an API server that takes long for lists writes for them a twentieth of the time. However
# long they take, ...
PAUSE_PER_SECOND: Final = 20
# ... nodes are looked at every few minutes.
LONGEST_PAUSE_SECONDS: Final = 300
# The digest of a pause for whatever nodes.
_ANY: Final = ""


def pause_seconds(began: datetime, ended: datetime) -> float:
    return min((ended - began).total_seconds() * PAUSE_PER_SECOND, LONGEST_PAUSE_SECONDS)


def milliseconds_left(until: int, now: datetime) -> int:
    return repeated_plan.milliseconds_left(until, now, LONGEST_PAUSE_SECONDS)


def digest_of_candidates(snapshot: Snapshot, names: Collection[str]) -> str:
    """What is known of these NodeClaims: what users ask for, the claims, and the pods on their nodes.

    Without the rest of the cluster, some of which changes all the time: it delays nodes by a pause at most.
    """
    claims = [claim for claim in snapshot.nodeclaims if claim.name in names]
    nodes = {claim.node_name for claim in claims}
    pods = (pod for pod in snapshot.pods if pod.node_name in nodes)
    return repeated_plan.digest_of(snapshot.nodepools, snapshot.nodeclasses, claims, pods)


def is_pausing(ports: ProvisionPorts, reason: str, digest: str, *, now: datetime) -> bool:
    """Whether the cluster was listed a moment ago to judge nodes of which the same was known, or could not be listed
    for any."""
    pause = _pause_of(ports.state.cluster(), reason, digest)
    left = milliseconds_left(pause.until, now) if pause is not None else 0
    if pause is not None and left:
        before = f"was listed for the same nodes ({reason})" if pause.digest else f"could not be listed ({reason})"
        again = f"the cluster {before}, which is done again in {left // 1000 + 1} s"
        log_line(log, log_lines.LEFT_EVALUATION, cluster=ports.cluster.name, reason=again)
    return left > 0


def _pause_of(row: ClusterRow, reason: str, digest: str) -> CommitPause | None:
    """There is one of each reason at most; None = there is none, or for other nodes."""
    pauses = (pause for pause in row.commit_pauses if pause.reason == reason and pause.digest in (_ANY, digest))
    return next(pauses, None)


def commit_after_pause(
    ports: ProvisionPorts,
    reason: str,
    digest: str,
    commit: Callable[[], DisruptResult],
    clock: Callable[[], datetime],
) -> DisruptResult:
    """What ``commit`` reads live and does; nothing while it pauses."""
    if is_pausing(ports, reason, digest, now=clock()):
        return DisruptResult()
    with pausing(ports, reason, digest, clock):
        return commit()


@contextmanager
def pausing(
    ports: ProvisionPorts, reason: str, digest: str, clock: Callable[[], datetime]
) -> Iterator[Callable[[], int]]:
    """Around a commit that lists the cluster, which is followed by a pause. What it gives says how many seconds that is
    and lets it begin there, so that what is rung for after these does not come before its end.

    The pause after it is the longest until it has ended: one that is cut off is followed by a pause, too. After one
    that is cut off or fails it is for whatever nodes, since they are others every minute in a large cluster.
    """
    began = clock()
    ended: datetime | None = None
    _note(ports, CommitPause(reason, _ANY, epoch_ms(began) + LONGEST_PAUSE_SECONDS * 1000))

    def end() -> int:
        nonlocal ended
        ended = clock()
        return math.ceil(pause_seconds(began, ended))

    def note(paused: str) -> None:
        at = ended or clock()
        _note(ports, CommitPause(reason, paused, epoch_ms(at) + int(pause_seconds(began, at) * 1000)))

    try:
        yield end
    except ApiError:
        note(_ANY)
        raise
    note(digest)


def _note(ports: ProvisionPorts, pause: CommitPause) -> None:
    # Without it the cluster is listed sooner, no more.
    with suppress(ApiError):
        others = (other for other in ports.state.cluster().commit_pauses if other.reason != pause.reason)
        ports.state.pause_commits((*others, pause))
