"""The full sweep, every ten minutes: every NodeClaim, every NodePool and class, every instance of the cluster."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from spotwright.lifecycle.orphans import Orphans, find_orphans
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.workflows.ports.bundles import SweepPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import LaunchRow
from spotwright.workflows.sweep.poll import SweepResult

# So many refused orphans are named in the log line.
_NAMED_ORPHANS: Final = 20
# Drift is looked for twice between two full sweeps, as often as Karpenter does.
DRIFT_SECONDS: Final = 300


def full_sweep(ports: SweepPorts, *, now: datetime) -> SweepResult:
    """Ring for every claim, pool and class, and for instances that no launch and no claim uses (orphans)."""
    name = ports.cluster.name
    instances = ports.ec2.instances_of_cluster()
    rows = ports.state.launches()
    claims = ports.cluster.nodeclaims()
    ports.doorbells.ring(
        "lifecycle", [*(Doorbell(name, "claim", claim.name) for claim in claims), Doorbell(name, "nodepools")]
    )
    for delay in (0, DRIFT_SECONDS) if claims else ():
        ports.doorbells.ring("lifecycle", [Doorbell(name, "drift")], delay_seconds=delay)
    ports.doorbells.ring("catalog", [Doorbell(name, "nodeclasses")])
    _ring_nodes(ports, claims)
    if not claims and not instances:
        return SweepResult()
    if ports.state.cluster().other_provisioner:
        # The others may be of claims that do not name them yet.
        instances = tuple(instance for instance in instances if labels.LAUNCH_TAG in instance.tags)
    orphans = orphans_of(instances, rows, claims, now=now)
    if orphans.to_terminate:
        ports.doorbells.ring("lifecycle", [Doorbell(name, "instance", orphan.id) for orphan in orphans.to_terminate])
    refused = tuple(orphan.id for orphan in orphans.refused)
    return SweepResult(
        nodeclaims=len(claims),
        orphans=-1 if refused else len(orphans.to_terminate),
        refused_orphans=refused[:_NAMED_ORPHANS],
    )


def orphans_of(
    instances: Collection[Instance], rows: Iterable[LaunchRow], claims: Iterable[NodeClaim], *, now: datetime
) -> Orphans:
    """The orphans among ``instances``, which were read before rows and claims: what is assigned meanwhile is seen."""
    open_rows = tuple(rows)
    assigned = {instance_id(claim.provider_id) for claim in claims} | {
        id for row in open_rows for id in row.instances.values()
    }
    return find_orphans(instances, assigned=assigned, launching={row.id for row in open_rows}, now=now)


def _ring_nodes(ports: SweepPorts, claims: Iterable[NodeClaim]) -> None:
    """Ring for Nodes that wait for Spotwright and whose doorbell was lost: deleted ones, and those without their claim.

    They were listed after the claims. A Node that shares its instance with another one is reported.
    """
    nodes = ports.cluster.nodes()
    claimed = {claim.provider_id for claim in claims} - {""}
    shared = Counter(node.provider_id for node in nodes)
    waiting = [
        Doorbell(ports.cluster.name, "node", node.name)
        for node in nodes
        if (node.provider_id in claimed and shared[node.provider_id] > 1)
        or (
            labels.FINALIZER in node.metadata.finalizers
            and (node.metadata.deletion_timestamp is not None or node.provider_id not in claimed)
        )
    ]
    if waiting:
        ports.doorbells.ring("lifecycle", waiting)
