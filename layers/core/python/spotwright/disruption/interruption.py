"""Interruption: the snapshot to plan replacements on, and when the evictions must begin."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.lifecycle import drain
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.snapshot import Snapshot

# Added to the pods' grace period: for the eviction itself and the message that starts it.
EVICTION_MARGIN: Final = timedelta(seconds=10)


def mark_deleting(snapshot: Snapshot, instances: Collection[str]) -> Snapshot:
    """The snapshot as if the managed claims of these instances were being deleted.

    Their pods need nodes, and their nodes take no pods.
    """
    claims = tuple(
        _deleting(claim, snapshot.now) if claim.is_managed and instance_id(claim.provider_id) in instances else claim
        for claim in snapshot.nodeclaims
    )
    going = {claim.provider_id for claim in claims if claim.provider_id and instance_id(claim.provider_id) in instances}
    nodes = tuple(_deleting(node, snapshot.now) if node.provider_id in going else node for node in snapshot.nodes)
    return msgspec.structs.replace(snapshot, nodeclaims=claims, nodes=nodes)


def mark_interrupted(snapshot: Snapshot, claims: Collection[NodeClaim]) -> Snapshot:
    """As ``mark_deleting`` with the instances of these claims, which are registered and were read from the API server.

    They and their Nodes are on their way out whatever the snapshot shows of them: what shows another instance of a
    claim, or no claim at all, would leave its pods where they are, and the node would go without a place for them.
    """
    names, hosts = {claim.name for claim in claims}, {claim.node_name: claim.provider_id for claim in claims}
    taken = set(hosts.values())
    others = (claim for claim in snapshot.nodeclaims if claim.name not in names and claim.provider_id not in taken)
    nodes = tuple(
        msgspec.structs.replace(node, provider_id=hosts[node.name]) if node.name in hosts else node
        for node in snapshot.nodes
    )
    laid_over = msgspec.structs.replace(snapshot, nodeclaims=(*others, *claims), nodes=nodes)
    return mark_deleting(laid_over, {instance_id(provider_id) for provider_id in taken})


def _deleting[T: (NodeClaim, Node)](going: T, now: datetime) -> T:
    if going.metadata.deletion_timestamp is not None:
        return going
    return msgspec.structs.replace(going, metadata=msgspec.structs.replace(going.metadata, deletion_timestamp=now))


def eviction_start(
    pods: Iterable[Pod], budgets: Iterable[PodDisruptionBudget], deadline: datetime, now: datetime
) -> datetime:
    """When evictions must begin so that all pods have stopped before the deadline; not before now."""
    # What PodDisruptionBudgets make of long grace periods may be more than a timedelta holds.
    needed, left = drain.seconds_needed(pods, budgets, now), (deadline - now).total_seconds()
    return now if needed >= left else max(now, deadline - timedelta(seconds=needed) - EVICTION_MARGIN)
