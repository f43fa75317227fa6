"""Ending instances: at the pace EC2 allows, many in a call; one that EC2 refuses does not keep the others.

EC2 refuses a whole TerminateInstances for one id that it does not know or that we may not touch; mostly it names
it. Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import batched
from typing import Final, Protocol

import msgspec

from spotwright.failures import Failure, NotFound, Throttled, Unavailable
from spotwright.lifecycle.retry import LONGEST_RETRY_SECONDS, retry_seconds
from spotwright.lifecycle.steps import true_condition
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.workflows import pacing, shifts
from spotwright.workflows.lifecycle_acting import Acting, log, record, ring
from spotwright.workflows.ports import Ec2Port
from spotwright.workflows.shifts import Shifting

AT_ONCE: Final = 100


class Ending(msgspec.Struct, frozen=True):
    """An instance whose time has come. ``claim``: whose it is; None: nobody's."""

    instance: Instance
    claim: NodeClaim | None = None


class Ended(msgspec.Struct, frozen=True):
    """``ids``: instances that are ending, or that EC2 says it does not know. ``wait_seconds``: when to ask again for
    the others, 0 = there are none."""

    ids: frozenset[str] = frozenset()
    wait_seconds: int = 0


class Terminating(Shifting, Protocol):
    """What ending instances needs."""

    @property
    def ec2(self) -> Ec2Port: ...


def end(ports: Acting, endings: Iterable[Ending], now: datetime) -> None:
    """End what the doorbells of one invocation came to, and say it on the claims; who must wait is rung for then."""
    by_id = {one.instance.id: one for one in endings}
    ended = terminate(ports, [one.instance for one in by_id.values()], now)
    for id in sorted(ended.ids):
        claim = by_id[id].claim
        if claim is not None:
            _say(ports, claim, now)
    left = [by_id[id] for id in sorted(by_id) if id not in ended.ids]
    waiting = [one.claim.name for one in left if one.claim is not None]
    ring(ports, "claim", waiting, delay_seconds=ended.wait_seconds)
    ring(ports, "instance", [one.instance.id for one in left if one.claim is None], delay_seconds=ended.wait_seconds)


def _say(ports: Acting, claim: NodeClaim, now: datetime) -> None:
    """The condition is written again at the next look if it cannot be now."""
    try:
        record(ports, claim, [true_condition("InstanceTerminating")], now=now)
    except Failure as failure:
        log.warning("step interrupted", extra={"NodeClaim": claim.name, "code": failure.code, "error": str(failure)})


def terminate(ports: Terminating, instances: Iterable[Instance], now: datetime) -> Ended:
    """Ask EC2 to end ``instances``, as far as the pace allows now; terminated ones may be among them.

    Those in a zone that is shifted away from are left until the shift is over.
    """
    by_id = {one.id: one for one in instances}
    if not by_id:
        return Ended()
    shifted = shifts.zones(ports)
    left = Ended(wait_seconds=shifts.AGAIN_SECONDS if any(one.zone in shifted for one in by_id.values()) else 0)
    ids = sorted(one.id for one in by_id.values() if one.zone not in shifted)
    return _all([left, *(_together(ports, some, now) for some in batched(ids, AT_ONCE, strict=False))])


def _together(ports: Terminating, ids: Sequence[str], now: datetime) -> Ended:
    wait = _wait_seconds(ports, ids, now)
    if wait:
        return Ended(wait_seconds=wait)
    try:
        ports.ec2.terminate(ids)
    except Throttled:
        log.warning("TerminateInstances was throttled", extra={"instances": len(ids)})
        for action in (pacing.TERMINATE, pacing.TERMINATED):
            pacing.slow_down(ports.state, action, now=now)
        return Ended(wait_seconds=retry_seconds(2))
    except Unavailable as error:
        log.warning("TerminateInstances had no answer", extra={"code": error.code, "error": str(error)})
        return Ended(wait_seconds=retry_seconds(2))
    except Failure as refusal:
        if len(ids) == 1:
            return _alone(ids[0], refusal)
        return _all(_together(ports, some, now) for some in _apart(ids, refusal))
    return Ended(frozenset(ids))


def _apart(ids: Sequence[str], refusal: Failure) -> tuple[Sequence[str], ...]:
    """What to ask for instead: those that the refusal names one by one and the rest, or each half."""
    named = [one for one in ids if one in str(refusal)]
    rest = [one for one in ids if one not in named]
    if named and rest:
        return (rest, *((one,) for one in named))
    return ids[: len(ids) // 2], ids[len(ids) // 2 :]


def _wait_seconds(ports: Terminating, ids: Sequence[str], now: datetime) -> int:
    """EC2 counts the calls, and the instances in them."""
    return pacing.wait_seconds(ports.state, pacing.TERMINATE, key=ids[0], now=now) or pacing.wait_seconds(
        ports.state, pacing.TERMINATED, key=ids[0], now=now, calls=len(ids)
    )


def _alone(id: str, refusal: Failure) -> Ended:
    if isinstance(refusal, NotFound):
        return Ended(frozenset({id}))
    log.error("instance not terminated", extra={"instance": id, "code": refusal.code, "error": str(refusal)})
    return Ended(wait_seconds=LONGEST_RETRY_SECONDS)


def _all(made: Iterable[Ended]) -> Ended:
    several = tuple(made)
    return Ended(
        frozenset().union(*(one.ids for one in several)), max((one.wait_seconds for one in several), default=0)
    )
