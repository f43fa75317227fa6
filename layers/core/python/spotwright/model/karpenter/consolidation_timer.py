"""The timer of ``consolidateAfter``: the time since the last pod event on a node.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/disruption/consolidation.go`` and ``podevents``. A pod event shows
as a difference from the annotation ``spotwright.dev/pods-seen``, since no process watches pods all the time.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.pod import Pod

# Pod events closer together than this count once.
POD_EVENT_DEDUPLICATION: Final = timedelta(seconds=10)


def idle_since(claim: NodeClaim) -> datetime | None:
    """The last pod event, else when the claim was initialized; None = it is not initialized."""
    initialized = find_condition(claim.conditions, "Initialized")
    if initialized is None or initialized.status != "True":
        return None
    return claim.last_pod_event_time or initialized.last_transition_time or claim.metadata.creation_timestamp


def consolidatable_at(claim: NodeClaim, pool: NodePool | None) -> datetime | None:
    """When the claim becomes Consolidatable; None = it does not (Never, static pool, not initialized)."""
    since = idle_since(claim)
    if pool is None or pool.replicas is not None or pool.consolidate_after_seconds is None or since is None:
        return None
    return since + timedelta(seconds=pool.consolidate_after_seconds)


def pods_digest(pods: Iterable[Pod]) -> str:
    """A digest of a node's pods that changes when a pod is bound, finishes, or begins to terminate.

    As in Karpenter it is no event when one that was terminating is gone.
    """
    # The form is that of earlier versions, so that a new one finds no event where there is none.
    facts = sorted(
        f"{pod.metadata.uid}/False/False"
        for pod in pods
        if pod.is_active and not eviction.is_owned_by_daemonset(pod) and not pod.is_mirror
    )
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16] if facts else "none"


def has_other_pods(claim: NodeClaim, pods: Iterable[Pod]) -> bool:
    """Whether the pods of the node differ from those in the annotation."""
    return claim.metadata.annotations.get(labels.PODS_SEEN, "none") != pods_digest(pods)


def begins_anew(claim: NodeClaim, now: datetime) -> bool:
    """Whether other pods are a pod event of their own: the last one is not too recent. A time of the future says
    nothing.
    """
    last = claim.last_pod_event_time
    return last is None or abs(now - last) >= POD_EVENT_DEDUPLICATION
