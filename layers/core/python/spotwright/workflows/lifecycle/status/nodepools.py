"""Status of every NodePool: its resources, whether it is valid, whether its class is ready; and its hash."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

from spotwright.aws.nodeclass import hashes
from spotwright.disruption import budgets, nodeclaim_drift
from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle import conditions, nodepool_status
from spotwright.lifecycle.steps import ConditionChange, transition_events
from spotwright.model import labels, resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    STATUS_SECONDS,
    for_each,
    log,
    record_events,
    request_disruption_soon,
    request_pool_status,
    ring_lifecycle,
)
from spotwright.workflows.lifecycle.status import node_capacities, registration_health
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.state import WRONG_CLOCK_MS

# Listing the claims of a large cluster, and its nodes where many are new, takes about a tenth of this.
PAUSE_MS_PER_CLAIM: Final = 10

# By cluster: the resources of NodePools as this process last wrote or found them, by name.
_counted: Final[WeakKeyDictionary[ClusterPort, dict[str, dict[str, int]]]] = WeakKeyDictionary()


def update_nodepools(ports: LifecyclePorts, *, now: datetime) -> None:
    """Bring the status of every pool up to date; a pool that is changed concurrently is left to the next time.

    Pools of another provider's class are left alone, as Karpenter does.
    """
    classes = {nodeclass.name: nodeclass for nodeclass in ports.cluster.nodeclasses()}
    claims = ports.cluster.nodeclaims()
    pools, usages = _count(ports, claims, now)
    before = _counted.setdefault(ports.cluster, {})
    changed, edited, counted = set(), set(), set()

    def update(pool: NodePool) -> None:
        try:
            counted.add(_write_resources(ports, pool, usages[pool.name]))
            before[pool.name] = usages[pool.name]
            node_class = classes.get(pool.node_class_ref.name)
            health = registration_health.judge(ports, pool, node_class, claims, now=now) if node_class else None
            judged = _write_conditions(ports, pool, node_class, health.update.change if health else None, now)
            if health is not None:
                registration_health.store(ports, pool, health)
            edited.add(judged and _is_edited(pool))
            changed.update({judged, _write_hash(ports, pool, claims)})
        except (Conflict, NotFound) as lost:
            log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="nodepool", object=pool.name, conflict=str(lost))

    try:
        for_each("nodepool", pools, update)
    finally:
        if True in changed:
            ring_lifecycle(ports, "drift", [""])
        if True in edited:
            # Budgets, consolidateAfter or the policy may be others.
            request_disruption_soon(ports, now=now)
        if True in counted:
            _count_again(ports, len(claims), now)


def _count(
    ports: LifecyclePorts, claims: Iterable[NodeClaim], now: datetime
) -> tuple[tuple[NodePool, ...], dict[str, dict[str, int]]]:
    """The NodePools, and the resources of each.

    Where one shows others than this process counts now and counted before, another worker counted them. What the two
    remember of a Node is not the same, and they would write in turns: all Nodes are read again.
    """

    def usages(capacities: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        return {pool.name: nodepool_status.usage(pool, claims, capacities) for pool in pools}

    capacities = node_capacities.capacities(ports, claims, now=now)
    pools = tuple(pool for pool in ports.cluster.nodepools() if pool.is_managed)
    before, found = _counted.get(ports.cluster, {}), usages(capacities)
    if any(_differs(pool, found[pool.name]) and before.get(pool.name) == found[pool.name] for pool in pools):
        node_capacities.forget(ports)
        found = usages(node_capacities.capacities(ports, claims, now=now))
    return pools, found


def _differs(pool: NodePool, usage: Mapping[str, int]) -> bool:
    return (dict(pool.resources), pool.node_count) != (usage, usage[resources.NODES])


def _count_again(ports: LifecyclePorts, claims: int, now: datetime) -> None:
    """Count once more, after what was just written: another worker that listed later may have written before.

    In a large cluster, whose claims and nodes are long to list, claims that move wait longer for the next time.
    """
    # A longer one would look like the note of a clock that is wrong.
    seconds = min(claims * PAUSE_MS_PER_CLAIM, WRONG_CLOCK_MS) // 1000
    request_pool_status(ports, now=now, seconds=max(STATUS_SECONDS, seconds))


def _write_resources(ports: LifecyclePorts, pool: NodePool, usage: dict[str, int]) -> bool:
    """Whether they were others before."""
    if _differs(pool, usage):
        # A merge patch leaves what it does not name.
        gone = dict.fromkeys(pool.resources.keys() - usage.keys())
        status = {"resources": {**gone, **resources.text(usage)}, "nodes": usage[resources.NODES]}
        ports.cluster.patch_status("nodepools", pool.metadata.without_resource_version(), status)
        return True
    return False


def _write_conditions(
    ports: LifecyclePorts,
    pool: NodePool,
    node_class: EC2NodeClass | None,
    registration: ConditionChange | None,
    now: datetime,
) -> bool:
    """Whether a condition changed; each has the generation of the pool that it is about."""
    faults = ((index, budgets.budget_error(budget)) for index, budget in enumerate(pool.budgets))
    named = tuple(f"spec.disruption.budgets[{index}]: {fault}" for index, fault in faults if fault)
    changes = nodepool_status.nodepool_conditions(pool, node_class, named, feature_gates=ports.settings.feature_gates)
    if registration is not None:
        changes = (*changes, registration)
    written = conditions.conditions_to_write(
        pool.metadata, pool.conditions, changes, dependents=conditions.NODEPOOL_CONDITIONS, now=now
    )
    if written:
        ports.cluster.set_conditions("nodepools", pool.metadata, written)
        record_events(ports, "nodepools", pool.metadata, transition_events(pool.conditions, written), now=now)
        record_events(ports, "nodepools", pool.metadata, nodepool_status.validation_events(changes), now=now)
    return bool(written)


def _is_edited(pool: NodePool) -> bool:
    """Whether its spec is another than the one that its conditions are about."""
    return any(condition.observed_generation != pool.metadata.generation for condition in pool.conditions)


def _write_hash(ports: LifecyclePorts, pool: NodePool, claims: Iterable[NodeClaim]) -> bool:
    """Whether the pool's hash changed; claims with another hash version receive the new hash first."""
    annotations = {
        labels.NODEPOOL_HASH: hashes.nodepool_hash(pool),
        labels.NODEPOOL_HASH_VERSION: hashes.NODEPOOL_VERSION,
    }
    present = pool.metadata.annotations
    if present.get(labels.NODEPOOL_HASH_VERSION) != hashes.NODEPOOL_VERSION:
        for claim in claims:
            if claim.is_managed and claim.nodepool == pool.name:
                _migrate_hash(ports, claim, annotations)
    if annotations.items() <= present.items():
        return False
    ports.cluster.patch_metadata("nodepools", pool.metadata, {"annotations": annotations})
    return True


def _migrate_hash(ports: LifecyclePorts, claim: NodeClaim, annotations: Mapping[str, str]) -> None:
    if change := nodeclaim_drift.hash_migration(claim, annotations, labels.NODEPOOL_HASH_VERSION):
        ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": dict(change)})
