"""NodeRegistrationHealthy of NodePools: outcomes are stored as nodes join or fail to, the condition follows them."""

from collections.abc import Callable, Collection
from datetime import datetime
from threading import RLock
from typing import Final

import msgspec

from spotwright.errors import ApiError, Conflict
from spotwright.lifecycle import registration_health
from spotwright.lifecycle.registration_health import HealthUpdate, RegistrationHealth, owning_nodepool_uid
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import epoch_ms

# Nodes of a pool that join at the same time write the same row. An outcome that is lost beside others says little.
ATTEMPTS: Final = 3
# Threads of an invocation would only lose the row to each other.
_TURN: Final = RLock()


def record_registration(ports: LifecyclePorts, claim: NodeClaim, *, now: datetime) -> None:
    """The node of the claim joined, and is registered whether or not that can be stored."""
    moment = epoch_ms(now)
    try:
        _record(ports, claim, lambda health: registration_health.with_registration(health, claim, now_ms=moment))
    except ApiError as failure:
        kind, error = "registration health", str(failure)
        log_line(log, log_lines.STEP_FAILED, kind=kind, object=claim.nodepool, code=failure.code, error=error)


def record_failure(ports: LifecyclePorts, claim: NodeClaim, *, now: datetime) -> None:
    """The claim was not launched, or its node did not join, in time."""
    moment = epoch_ms(now)
    _record(ports, claim, lambda health: registration_health.with_failure(health, claim, now_ms=moment))


def _record(
    ports: LifecyclePorts, claim: NodeClaim, change: Callable[[RegistrationHealth], RegistrationHealth]
) -> None:
    nodepool_uid = owning_nodepool_uid(claim)
    if not nodepool_uid:
        return
    with _TURN:
        lost = _change(ports, nodepool_uid, change)
    if lost is not None:
        pool, conflict = claim.nodepool, str(lost)
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="registration health", object=pool, conflict=conflict)


def _change(
    ports: LifecyclePorts, nodepool_uid: str, change: Callable[[RegistrationHealth], RegistrationHealth]
) -> Conflict | None:
    """Why the row could not be changed, if it could not."""
    lost: Conflict | None = None
    for _ in range(ATTEMPTS):
        stored = ports.state.registration_health(nodepool_uid) or RegistrationHealth(nodepool_uid)
        after = change(stored)
        if after is stored:
            return None
        try:
            ports.state.save_registration_health(after)
        except Conflict as conflict:
            lost = conflict
        else:
            return None
    return lost


class JudgedHealth(msgspec.Struct, frozen=True):
    """The condition of a pool, and what is to be stored once it is written. ``stored``: what was until now."""

    update: HealthUpdate
    stored: RegistrationHealth | None


def judge(
    ports: LifecyclePorts, pool: NodePool, node_class: EC2NodeClass, claims: Collection[NodeClaim], *, now: datetime
) -> JudgedHealth:
    """Outcomes of an earlier pool or class are removed first: once the condition is written, nothing shows that they
    are, and they would count again.

    Raises Conflict when an outcome was stored meanwhile.
    """
    stored = ports.state.registration_health(pool.metadata.uid)
    update = registration_health.judge(pool, node_class, stored, claims, now_ms=epoch_ms(now))
    if stored is not None and stored.outcomes and not update.health.outcomes:
        ports.state.save_registration_health(msgspec.structs.replace(stored, outcomes=()))
        return judge(ports, pool, node_class, claims, now=now)
    return JudgedHealth(update, stored)


def store(ports: LifecyclePorts, pool: NodePool, judged: JudgedHealth) -> None:
    """After the condition, which is judged in the same way again when nobody got here.

    Raises Conflict when an outcome was stored meanwhile.
    """
    after, stored = judged.update.health, judged.stored
    if after == stored:
        return
    if stored is None or stored.nodeclass_generation != after.nodeclass_generation:
        status = {"nodeClassObservedGeneration": after.nodeclass_generation}
        ports.cluster.patch_status("nodepools", pool.metadata.without_resource_version(), status)
    ports.state.save_registration_health(after)
