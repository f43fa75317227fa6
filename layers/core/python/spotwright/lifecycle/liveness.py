"""When a NodeClaim is deleted: not launched in time, not registered in time, or expired.

Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/lifecycle/liveness.go`` and ``nodeclaim/expiration``.
"""

from datetime import datetime, timedelta
from typing import Final

from spotwright.lifecycle.steps import Deletion
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition, format_time

LAUNCH_TIMEOUT: Final = timedelta(minutes=5)
REGISTRATION_TIMEOUT: Final = timedelta(minutes=15)


def timeout(claim: NodeClaim, now: datetime) -> Deletion | None:
    """A timer starts with the last transition of the condition that is missing, normally the claim's creation."""
    if not claim.is_condition_true("Launched"):
        return _deletion_after(claim, "Launched", LAUNCH_TIMEOUT, "launch_timeout", now)
    if not claim.is_condition_true("Registered"):
        return _deletion_after(claim, "Registered", REGISTRATION_TIMEOUT, "registration_timeout", now)
    return None


def _deletion_after(claim: NodeClaim, kind: str, timeout: timedelta, reason: str, now: datetime) -> Deletion | None:
    waiting = find_condition(claim.conditions, kind)
    since = (waiting.last_transition_time if waiting else None) or claim.metadata.creation_timestamp
    if since is None or now - since < timeout:
        return None
    minutes = int(timeout.total_seconds() // 60)
    why = f": {waiting.message}" if waiting is not None and waiting.message else ""
    return Deletion(reason, f"not {kind} {minutes} minutes after {format_time(since)}{why}")


def expiration(claim: NodeClaim, now: datetime) -> Deletion | None:
    expires = expiration_time(claim)
    if expires is None or now < expires:
        return None
    return Deletion("expired", f"older than expireAfter since {format_time(expires)}")


def expiration_time(claim: NodeClaim) -> datetime | None:
    """Creation plus the claim's own expireAfter; None = Never."""
    if claim.expire_after_seconds is None or claim.metadata.creation_timestamp is None:
        return None
    return claim.metadata.creation_timestamp + timedelta(seconds=claim.expire_after_seconds)
