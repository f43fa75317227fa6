"""How conditions move: when their time changes, and the root condition ``Ready`` over the others.

Source: the rules of ``awslabs/operatorpkg/status`` that Karpenter v1.14 uses.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotwright.lifecycle.steps import ConditionChange
from spotwright.model.kubernetes.meta import Condition, ObjectMeta

READY: Final = "Ready"
NODECLAIM_CONDITIONS: Final = ("Launched", "Registered", "Initialized")
NODEPOOL_CONDITIONS: Final = ("ValidationSucceeded", "NodeClassReady")
NODEOVERLAY_CONDITIONS: Final = ("ValidationSucceeded",)
AWAITING: Final = ("AwaitingReconciliation", "object is awaiting reconciliation")


def conditions_to_write(
    metadata: ObjectMeta,
    existing: Iterable[Condition],
    changes: Iterable[ConditionChange],
    *,
    dependents: tuple[str, ...],
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions to write: those of ``changes`` that differ, dependents never set, and the root; by type.

    A condition's time changes only with its status. One that was never set begins Unknown at the object's creation.
    """
    before = {condition.type: condition for condition in existing}
    after = dict(before)
    for kind in dependents:
        after.setdefault(
            kind, Condition(kind, "Unknown", *AWAITING, metadata.creation_timestamp or now, metadata.generation)
        )
    for change in changes:
        after[change.type] = _changed(after.get(change.type), change, metadata, now)
    after[READY] = _changed(before.get(READY), _root(metadata, after, dependents), metadata, now)
    return tuple(after[kind] for kind in sorted(after) if after[kind] != before.get(kind))


def _changed(before: Condition | None, change: ConditionChange, about: ObjectMeta, now: datetime) -> Condition:
    same = before is not None and before.status == change.status
    since = before.last_transition_time if before is not None and same else now
    return Condition(change.type, change.status, change.reason, change.message, since, about.generation)


def _root(about: ObjectMeta, after: dict[str, Condition], dependents: tuple[str, ...]) -> ConditionChange:
    current = {
        kind: after[kind].status if after[kind].observed_generation == about.generation else "Unknown"
        for kind in dependents
    }
    unhealthy = {kind: status for kind, status in current.items() if status != "True"}
    if not unhealthy:
        return ConditionChange(READY, "True", READY)
    message = ", ".join(f"{kind}={status}" for kind, status in unhealthy.items())
    if "False" in unhealthy.values():
        return ConditionChange(READY, "False", "UnhealthyDependents", message)
    return ConditionChange(READY, "Unknown", "ReconcilingDependents", message)
