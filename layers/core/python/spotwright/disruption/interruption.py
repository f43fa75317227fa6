"""Interruption: the snapshot to plan replacements on, and when the evictions must begin."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot

# Added to the pods' grace period: for the eviction itself and the message that starts it.
EVICTION_MARGIN: Final = timedelta(seconds=10)


def mark_deleting(snapshot: Snapshot, claim: NodeClaim) -> Snapshot:
    """The snapshot as if the claim were being deleted: its pods need nodes, and its node takes no pods."""
    deleting_claim = msgspec.structs.replace(
        claim, metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=snapshot.now)
    )
    claims = tuple(deleting_claim if nodeclaim.name == claim.name else nodeclaim for nodeclaim in snapshot.nodeclaims)
    nodes = tuple(
        msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, deletion_timestamp=snapshot.now))
        if node.provider_id == claim.provider_id
        else node
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodeclaims=claims, nodes=nodes)


def eviction_start(pods: Iterable[Pod], deadline: datetime, now: datetime) -> datetime:
    """When evictions must begin so that the longest grace period ends before the deadline; not before now."""
    grace = max(
        (pod.termination_grace_period_seconds for pod in pods if eviction.is_waiting_eviction(pod, now)), default=0
    )
    return max(now, deadline - timedelta(seconds=grace) - EVICTION_MARGIN)
