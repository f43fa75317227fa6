"""NodePools of manifests that the API server takes and the cluster holds not Ready."""

from collections.abc import Iterator

import msgspec

from spotwright.disruption.budgets import budget_error
from spotwright.lifecycle.nodepool_status import template_errors
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.snapshot import Snapshot


def close_invalid_nodepools(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which NodePools that the cluster would find invalid are not Ready; the planner says why."""
    nodepools = tuple(map(_checked, snapshot.nodepools))
    return msgspec.structs.replace(snapshot, nodepools=nodepools)


def _checked(pool: NodePool) -> NodePool:
    errors = "; ".join((*template_errors(pool), *_budget_errors(pool)))
    if not errors:
        return pool
    others = (condition for condition in pool.conditions if condition.type != "Ready")
    return msgspec.structs.replace(pool, conditions=(*others, Condition("Ready", "False", message=errors)))


def _budget_errors(pool: NodePool) -> Iterator[str]:
    for number, budget in enumerate(pool.budgets):
        if error := budget_error(budget):
            yield f"spec.disruption.budgets[{number}]: {error}"
