"""A plan that decided nothing is followed by a pause while what it was made from stays the same. One that failed when
it had begun to list the cluster is followed by a pause of lists: what it would have been made from is not known.

Without a forwarder the sweep looks every few seconds, and each plan lists the cluster: for pods that nothing can place
a large one would be listed all the time.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, find_condition
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.inputs.provisionable import ignore_reason, is_follower
from spotwright.workflows.ports.rows import ClusterRow, epoch_ms
from spotwright.workflows.ports.state import WRONG_CLOCK_MS

# So many times what the plan took: the API server writes lists for it a fifth of the time.
PAUSE_PER_SECOND: Final = 4
# What no look of the sweep shows (a volume, a DaemonSet, a price) changes a plan after so long at most.
LONGEST_PAUSE_SECONDS: Final = 120


def pause_until(began: datetime, ended: datetime) -> int:
    """The end of the pause after a plan, epoch milliseconds."""
    seconds = min((ended - began).total_seconds() * PAUSE_PER_SECOND, LONGEST_PAUSE_SECONDS)
    return epoch_ms(ended) + int(seconds * 1000)


def is_pausing(row: ClusterRow, digest: str, *, now: datetime) -> bool:
    """Whether a plan of the same would be made again too soon. A pause of a clock that is wrong says nothing."""
    return digest == row.plans_pause_digest and milliseconds_left(row.plans_pause_until, now, LONGEST_PAUSE_SECONDS) > 0


def seconds_until_list(row: ClusterRow, *, now: datetime) -> int:
    """Until a plan may list the cluster after one that failed, rounded up; 0 = it may."""
    return -(-milliseconds_left(row.failed_plans_pause_until, now, LONGEST_PAUSE_SECONDS) // 1000)


def milliseconds_left(until: int, now: datetime, longest_seconds: int) -> int:
    """Of a pause; 0 = it is over. One that is longer than any may be is of a clock that is wrong, and is none."""
    left = until - epoch_ms(now)
    return left if 0 < left <= longest_seconds * 1000 + WRONG_CLOCK_MS else 0


def digest_of_snapshot(snapshot: Snapshot) -> str:
    """What ``digest_of`` comes to when a look of the sweep shows the same. Nominated pods are on their nodes here."""
    waiting = (pod for pod in snapshot.pods if not pod.node_name)
    pods = pending_pods(waiting, snapshot.settings, has_nodes=bool(snapshot.nodeclaims))
    return digest_of(snapshot.nodepools, snapshot.nodeclasses, snapshot.nodeclaims, pods)


def digest_of(
    pools: Iterable[NodePool], classes: Iterable[EC2NodeClass], claims: Iterable[NodeClaim], pods: Iterable[Pod]
) -> str:
    """Of what a look of the sweep shows of a plan. ``pods``: pending ones that no node was planned for.

    A claim that is being deleted counts until it is gone: then a limit may allow another.
    """
    pools = (pool for pool in pools if pool.is_managed)
    seen = (
        sorted((pool.metadata.uid, pool.metadata.generation, _is_ready(pool.conditions)) for pool in pools),
        sorted((found.metadata.uid, found.metadata.generation, _is_ready(found.conditions)) for found in classes),
        sorted((claim.metadata.uid, claim.is_condition_true("Initialized")) for claim in claims),
        sorted((pod.key, pod.metadata.uid) for pod in pods),
    )
    return hashlib.sha256(msgspec.json.encode(seen)).hexdigest()


def _is_ready(conditions: tuple[Condition, ...]) -> bool:
    ready = find_condition(conditions, "Ready")
    return ready is not None and ready.status == "True"


def pending_pods(pods: Iterable[Pod], settings: Settings, *, has_nodes: bool) -> tuple[Pod, ...]:
    """Pods to plan for, of those without a node; followers count only when there are nodes."""
    return tuple(pod for pod in pods if not ignore_reason(pod) and (has_nodes or not is_follower(pod, settings)))
