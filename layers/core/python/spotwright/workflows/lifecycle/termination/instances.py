"""Ending instances: at the pace EC2 allows, many in a call; one that EC2 refuses does not keep the others.

EC2 refuses a whole TerminateInstances for one id that it does not know or that we may not touch; mostly it names
it. Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import batched
from typing import Final

import msgspec

from spotwright.errors import ApiError, NotFound, Throttled, Unavailable
from spotwright.lifecycle.retry import LONGEST_RETRY_SECONDS, retry_seconds
from spotwright.lifecycle.steps import true_condition
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import rate_limits
from spotwright.workflows.lifecycle.actions import log, ring_lifecycle, update_conditions
from spotwright.workflows.lifecycle.zonal_shifts import RETRY_SECONDS, shifted_zones
from spotwright.workflows.ports.bundles import LifecyclePorts

INSTANCES_PER_CALL: Final = 100


class InstanceTermination(msgspec.Struct, frozen=True):
    """An instance whose time has come. ``claim``: whose it is; None: nobody's."""

    instance: Instance
    claim: NodeClaim | None = None


class TerminationResult(msgspec.Struct, frozen=True):
    """``terminated_ids``: instances that are ending, or that EC2 says it does not know. ``wait_seconds``: when to ask
    again for the others, 0 = there are none."""

    terminated_ids: frozenset[str] = frozenset()
    wait_seconds: int = 0


def terminate_all(ports: LifecyclePorts, to_terminate: Iterable[InstanceTermination], now: datetime) -> None:
    """End what the doorbells of one invocation came to, and say it on the claims; who must wait is rung for then."""
    by_id = {termination.instance.id: termination for termination in to_terminate}
    ended = terminate_instances(ports, [termination.instance for termination in by_id.values()], now)
    for id in sorted(ended.terminated_ids):
        claim = by_id[id].claim
        if claim is not None:
            _write_condition(ports, claim, now)
    left = [by_id[id] for id in sorted(by_id) if id not in ended.terminated_ids]
    waiting = [termination.claim.name for termination in left if termination.claim is not None]
    ring_lifecycle(ports, "claim", waiting, delay_seconds=ended.wait_seconds)
    ring_lifecycle(
        ports,
        "instance",
        [termination.instance.id for termination in left if termination.claim is None],
        delay_seconds=ended.wait_seconds,
    )


def _write_condition(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> None:
    """The condition is written again at the next look if it cannot be now."""
    try:
        update_conditions(ports, claim, [true_condition("InstanceTerminating")], now=now)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="nodeclaim", object=claim.name, code=failure.code, error=str(failure))


def terminate_instances(ports: LifecyclePorts, instances: Iterable[Instance], now: datetime) -> TerminationResult:
    """Ask EC2 to end ``instances``, as far as the pace allows now; terminated ones may be among them.

    Those in a zone that is shifted away from are left until the shift is over.
    """
    by_id = {instance.id: instance for instance in instances}
    if not by_id:
        return TerminationResult()
    shifted = shifted_zones(ports)
    left = TerminationResult(
        wait_seconds=RETRY_SECONDS if any(instance.zone in shifted for instance in by_id.values()) else 0
    )
    ids = sorted(instance.id for instance in by_id.values() if instance.zone not in shifted)
    return _merge(
        [left, *(_terminate_batch(ports, some, now) for some in batched(ids, INSTANCES_PER_CALL, strict=False))]
    )


def _terminate_batch(ports: LifecyclePorts, ids: Sequence[str], now: datetime) -> TerminationResult:
    wait = _wait_seconds(ports, ids, now)
    if wait:
        return TerminationResult(wait_seconds=wait)
    try:
        ports.ec2.terminate(ids)
    except Throttled as error:
        log_line(log, log_lines.CALL_THROTTLED, call="TerminateInstances", error=str(error))
        for action in (rate_limits.TERMINATE_INSTANCES, rate_limits.TERMINATED_INSTANCES):
            rate_limits.slow_down(ports.state, action, now=now)
        return TerminationResult(wait_seconds=retry_seconds(2))
    except Unavailable as error:
        log_line(log, log_lines.CALL_UNANSWERED, call="TerminateInstances", code=error.code, error=str(error))
        return TerminationResult(wait_seconds=retry_seconds(2))
    except ApiError as refusal:
        if len(ids) == 1:
            return _single_refusal(ids[0], refusal)
        return _merge(_terminate_batch(ports, some, now) for some in _split_batch(ids, refusal))
    return TerminationResult(frozenset(ids))


def _split_batch(ids: Sequence[str], refusal: ApiError) -> tuple[Sequence[str], ...]:
    """What to ask for instead: those that the refusal names one by one and the rest, or each half."""
    named = [id_ for id_ in ids if id_ in str(refusal)]
    rest = [id_ for id_ in ids if id_ not in named]
    if named and rest:
        return (rest, *((one,) for one in named))
    return ids[: len(ids) // 2], ids[len(ids) // 2 :]


def _wait_seconds(ports: LifecyclePorts, ids: Sequence[str], now: datetime) -> int:
    """EC2 counts the calls, and the instances in them."""
    return rate_limits.acquire(
        ports.state, rate_limits.TERMINATE_INSTANCES, caller=ids[0], now=now
    ) or rate_limits.acquire(ports.state, rate_limits.TERMINATED_INSTANCES, caller=ids[0], now=now, calls=len(ids))


def _single_refusal(id: str, refusal: ApiError) -> TerminationResult:
    if isinstance(refusal, NotFound):
        return TerminationResult(frozenset({id}))
    log_line(log, log_lines.TERMINATION_REFUSED, instance=id, code=refusal.code, error=str(refusal))
    return TerminationResult(wait_seconds=LONGEST_RETRY_SECONDS)


def _merge(results: Iterable[TerminationResult]) -> TerminationResult:
    several = tuple(results)
    return TerminationResult(
        frozenset().union(*(result.terminated_ids for result in several)),
        max((result.wait_seconds for result in several), default=0),
    )
