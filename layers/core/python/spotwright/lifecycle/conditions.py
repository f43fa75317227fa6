"""How conditions change: their transition times, and the condition ``Ready``, which follows from the others.

Source: the rules of ``awslabs/operatorpkg/status`` that Karpenter v1.14 uses.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotwright.lifecycle.steps import ConditionChange
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, fit_message

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
    """The conditions to write, by type: changes that differ, dependents that were never set, and Ready if it differs.

    A condition's transition time changes only with its status. A dependent that was never set begins as Unknown, with
    the creation time of the object.
    """
    before = {condition.type: condition for condition in existing}
    after = dict(before)
    for kind in dependents:
        after.setdefault(
            kind, Condition(kind, "Unknown", *AWAITING, metadata.creation_timestamp or now, metadata.generation)
        )
    for change in changes:
        after[change.type] = _apply(after.get(change.type), change, metadata, now)
    after[READY] = _apply(before.get(READY), _ready_condition(metadata, after, dependents), metadata, now)
    return tuple(after[kind] for kind in sorted(after) if after[kind] != before.get(kind))


def _apply(before: Condition | None, change: ConditionChange, metadata: ObjectMeta, now: datetime) -> Condition:
    is_same_status = before is not None and before.status == change.status
    since = before.last_transition_time if before is not None and is_same_status else now
    return Condition(change.type, change.status, change.reason, fit_message(change.message), since, metadata.generation)


def _ready_condition(metadata: ObjectMeta, after: dict[str, Condition], dependents: tuple[str, ...]) -> ConditionChange:
    current = {
        kind: after[kind].status if after[kind].observed_generation == metadata.generation else "Unknown"
        for kind in dependents
    }
    unhealthy = {kind: status for kind, status in current.items() if status != "True"}
    if not unhealthy:
        return ConditionChange(READY, "True", READY)
    message = ", ".join(f"{kind}={status}" for kind, status in unhealthy.items())
    if "False" in unhealthy.values():
        return ConditionChange(READY, "False", "UnhealthyDependents", message)
    return ConditionChange(READY, "Unknown", "ReconcilingDependents", message)
