"""Whether the nodes of a NodePool join: its condition NodeRegistrationHealthy, from the outcome of its last launches.

Source: Karpenter v1.14 ``pkg/state/nodepoolhealth`` and ``pkg/controllers/nodepool/registrationhealth``. The condition
informs; a pool is Ready, and launches, whatever it says.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from spotwright.lifecycle.conditions import AWAITING
from spotwright.lifecycle.steps import ConditionChange, false_condition, true_condition, unknown_condition
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition

CONDITION: Final = "NodeRegistrationHealthy"
OUTCOMES: Final = 4
# Of so many outcomes, half make a pool unhealthy.
FAILURES: Final = 2
REGISTRATION_FAILED: Final = ("RegistrationFailed", "Failed to register node")


class Outcome(msgspec.Struct, frozen=True):
    """Whether the node of a NodeClaim joined. ``nodeclaim_uid``: "" = of an outcome that is inferred."""

    nodeclaim_uid: str
    is_registered: bool


class RegistrationHealth(msgspec.Struct, frozen=True):
    """The last outcomes of a NodePool, oldest first, OUTCOMES at most.

    ``nodeclass_generation``: of the EC2NodeClass that they are about. ``reason``, ``message``: of the last failure.
    ``changed_at_ms``: epoch milliseconds. ``version``: optimistic lock,
    0 = there is no row.
    """

    nodepool_uid: str
    outcomes: tuple[Outcome, ...] = ()
    nodeclass_generation: int = 0
    reason: str = ""
    message: str = ""
    changed_at_ms: int = 0
    version: int = 0
    schema: int = 1

    @property
    def is_unhealthy(self) -> bool:
        return sum(not outcome.is_registered for outcome in self.outcomes) >= FAILURES


class HealthUpdate(msgspec.Struct, frozen=True):
    """The condition to write, None = it stays; and what is to be stored after it."""

    change: ConditionChange | None
    health: RegistrationHealth


def owning_nodepool_uid(claim: NodeClaim) -> str:
    """The uid of the NodePool that made the claim; "" = none did. One that was made anew has another."""
    owners = (owner.uid for owner in claim.metadata.owner_references if owner.kind == "NodePool")
    return next(owners, "")


def with_registration(health: RegistrationHealth, claim: NodeClaim, *, now_ms: int) -> RegistrationHealth:
    """The health itself when nothing would change: a NodeClaim counts once, and four successes are four successes."""
    if len(health.outcomes) == OUTCOMES and all(outcome.is_registered for outcome in health.outcomes):
        return health
    return _with_outcome(health, Outcome(claim.metadata.uid, is_registered=True), now_ms)


def with_failure(health: RegistrationHealth, claim: NodeClaim, *, now_ms: int) -> RegistrationHealth:
    """The node did not join in time: for the reason of the condition Launched, if there is not even an instance."""
    after = _with_outcome(health, Outcome(claim.metadata.uid, is_registered=False), now_ms)
    if after is health:
        return health
    launched = find_condition(claim.conditions, "Launched")
    reason, message = REGISTRATION_FAILED
    if launched is None or launched.status != "True":
        reason, message = (launched.reason, launched.message) if launched and launched.reason else AWAITING
    return msgspec.structs.replace(after, reason=reason, message=message)


def _with_outcome(health: RegistrationHealth, outcome: Outcome, now_ms: int) -> RegistrationHealth:
    if any(outcome.nodeclaim_uid == known.nodeclaim_uid for known in health.outcomes):
        return health
    outcomes = (*health.outcomes, outcome)[-OUTCOMES:]
    return msgspec.structs.replace(health, outcomes=outcomes, changed_at_ms=now_ms)


def judge(
    pool: NodePool,
    nodeclass: EC2NodeClass,
    stored: RegistrationHealth | None,
    claims: Iterable[NodeClaim] = (),
    *,
    now_ms: int,
) -> HealthUpdate:
    """The condition by the stored outcomes; Unknown, and none of them, after a change of the pool or its class.

    A lone failure changes nothing. Where no outcomes are stored, they are inferred from the condition, or from
    ``claims`` that were registered since: their outcomes could not be stored.
    """
    generation = nodeclass.metadata.generation
    if _is_changed(pool, stored, generation):
        version = stored.version if stored else 0
        empty = RegistrationHealth(
            pool.metadata.uid, nodeclass_generation=generation, changed_at_ms=now_ms, version=version
        )
        return HealthUpdate(unknown_condition(CONDITION, *AWAITING), empty)
    health = stored if stored and stored.nodeclass_generation else _inferred(pool, stored, generation, now_ms)
    if not health.outcomes:
        for claim in _registered_since(pool, stored, claims):
            health = with_registration(health, claim, now_ms=now_ms)
    if health.is_unhealthy:
        reason, message = (health.reason, health.message) if health.reason else REGISTRATION_FAILED
        present = find_condition(pool.conditions, CONDITION)
        if present is not None and present.status == "False":
            # It says why it became so; later failures may have other reasons.
            return HealthUpdate(None, health)
        return HealthUpdate(false_condition(CONDITION, reason, message), health)
    if any(outcome.is_registered for outcome in health.outcomes):
        return HealthUpdate(true_condition(CONDITION), health)
    return HealthUpdate(None, health)


def _is_changed(pool: NodePool, stored: RegistrationHealth | None, generation: int) -> bool:
    """Whether the condition is about an earlier pool or class, or was never written."""
    condition = find_condition(pool.conditions, CONDITION)
    known = stored.nodeclass_generation if stored else 0
    return (
        condition is None or condition.observed_generation != pool.metadata.generation or known not in (0, generation)
    )


def _registered_since(
    pool: NodePool, stored: RegistrationHealth | None, claims: Iterable[NodeClaim]
) -> Iterator[NodeClaim]:
    """The pool's claims that were registered since outcomes were last stored or removed; without a row, since the
    condition is what it is."""
    condition = find_condition(pool.conditions, CONDITION)
    written = condition.last_transition_time if condition is not None else None
    since = datetime.fromtimestamp(stored.changed_at_ms / 1000, UTC) if stored is not None else written
    for claim in claims:
        registered = find_condition(claim.conditions, "Registered")
        at = registered.last_transition_time if registered is not None and registered.status == "True" else None
        if owning_nodepool_uid(claim) == pool.metadata.uid and at is not None and since is not None and at >= since:
            yield claim


def _inferred(pool: NodePool, stored: RegistrationHealth | None, generation: int, now_ms: int) -> RegistrationHealth:
    """The outcomes that the condition stands for, unless some were stored since the others were lost."""
    if stored is not None:
        return msgspec.structs.replace(stored, nodeclass_generation=generation)
    condition = find_condition(pool.conditions, CONDITION)
    outcomes = {"True": (Outcome("", is_registered=True),), "False": (Outcome("", is_registered=False),) * FAILURES}
    inferred = outcomes.get(condition.status, ()) if condition is not None else ()
    return RegistrationHealth(pool.metadata.uid, inferred, generation, changed_at_ms=now_ms)
