"""Terminating instances within EC2's request limits, many in a call; one that EC2 refuses does not keep the others.

EC2 refuses a whole TerminateInstances for one id that it does not know or that may not be terminated; mostly it names
it. Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import batched
from typing import Final

import msgspec

from spotwright.errors import ApiError, Conflict, NotFound, Throttled, Unavailable
from spotwright.lifecycle.retry import LONGEST_RETRY_SECONDS, retry_seconds
from spotwright.lifecycle.steps import ConditionChange, true_condition
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import rate_limits
from spotwright.workflows.lifecycle.actions import (
    log,
    log_claim,
    record_transitions,
    request_disruption_of_claims,
    request_planning_of_static_pool,
    ring_lifecycle,
    update_conditions,
)
from spotwright.workflows.lifecycle.termination.expected_ends import end_notices, expect_ends
from spotwright.workflows.lifecycle.termination.removal import remove_finalizer, remove_nodes
from spotwright.workflows.lifecycle.zonal_shifts import RETRY_SECONDS, shifted_zones
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NoticeRow

INSTANCES_PER_CALL: Final = 100


class InstanceTermination(msgspec.Struct, frozen=True):
    """An instance to terminate, and its availability zone. ``claim``: its NodeClaim, None = it is an orphan;
    ``changes``: what is to be written in its conditions besides, whether the instance is terminated now or later;
    ``nodes``: its Nodes, whose pods have left.
    """

    id: str
    zone: str
    claim: NodeClaim | None = None
    changes: tuple[ConditionChange, ...] = ()
    nodes: tuple[Node, ...] = ()


class TerminationResult(msgspec.Struct, frozen=True):
    """``terminated_ids``: instances that are terminating, or that EC2 does not know; ``ended_ids``: those of them that
    EC2 says have ended. ``wait_seconds``: until the others are tried again, 0 = there are none."""

    terminated_ids: frozenset[str] = frozenset()
    ended_ids: frozenset[str] = frozenset()
    wait_seconds: int = 0


def terminate_all(ports: LifecyclePorts, to_terminate: Iterable[InstanceTermination], now: datetime) -> None:
    """Terminate the instances of an invocation and write their claims' conditions; ring for those that must wait.

    EC2 may answer that an instance has ended: then its claim goes at once, or is rung for once. Nothing tells of that
    end later, EC2 may show the instance as it was for a while, and a claim that is rung for each time would take all
    calls of the account.
    """
    terminations = tuple(to_terminate)
    by_id = {termination.id: termination for termination in terminations}
    expected = expect_ends(ports, {id: one.claim for id, one in by_id.items() if one.claim is not None}, now)
    result = terminate_instances(ports, {id: by_id[id].zone for id in by_id}, now)
    gone = _remove_ended(ports, [one for one in terminations if one.id in result.ended_ids], expected, now)
    terminating = true_condition("InstanceTerminating")
    in_parallel(
        lambda one: _write_conditions(
            ports, one.claim, (*one.changes, *((terminating,) if one.id in result.terminated_ids else ())), now
        ),
        [by_id[id] for id in sorted(by_id.keys() - gone)],
    )
    going = _claims(by_id, result.terminated_ids)
    if any(find_condition(claim.conditions, "DisruptionReason") is not None for claim in going):
        # From now on they count for no budget.
        request_disruption_of_claims(ports, now=now)
    remaining = sorted(by_id.keys() - result.terminated_ids)
    staying = [
        claim for claim in _claims(by_id, result.ended_ids - gone) if not claim.is_condition_true(terminating.type)
    ]
    ring_lifecycle(ports, "claim", [claim.name for claim in staying])
    waiting = [claim.name for claim in _claims(by_id, remaining)]
    ring_lifecycle(ports, "claim", waiting, delay_seconds=result.wait_seconds)
    orphans = [id for id in remaining if by_id[id].claim is None]
    ring_lifecycle(ports, "instance", orphans, delay_seconds=result.wait_seconds)


def _remove_ended(
    ports: LifecyclePorts, ended: Sequence[InstanceTermination], expected: Mapping[str, NoticeRow], now: datetime
) -> frozenset[str]:
    """Let go of the claims of these instances and of their Nodes; the instances of those that are gone.

    Left to their next steps are claims that somebody else's finalizer keeps, which is seen in their conditions, claims
    that share an instance, and those that name none, whose launch may have left further ones.
    """
    counts = Counter(one.id for one in ended)
    own = [
        (claim, one)
        for one in ended
        if (claim := one.claim) is not None and counts[one.id] == 1 and _goes_with(one.id, claim)
    ]
    end_notices(ports, [expected[one.id] for _, one in own if one.id in expected])
    gone = in_parallel(lambda pair: _is_removed(ports, *pair, now), own)
    return frozenset(one.id for (_, one), is_gone in zip(own, gone, strict=True) if is_gone)


def _goes_with(instance: str, claim: NodeClaim) -> bool:
    """Whether nothing but the end of this instance is waited for."""
    return instance_id(claim.provider_id) == instance and claim.metadata.finalizers == (labels.FINALIZER,)


def _is_removed(ports: LifecyclePorts, claim: NodeClaim, ended: InstanceTermination, now: datetime) -> bool:
    """Whether the claim of an instance that has ended is gone: otherwise its next step tries again."""
    with log_claim(claim):
        try:
            if not remove_nodes(ports, claim, ended.nodes):
                return False
            record_transitions(ports, claim, (*ended.changes, true_condition("InstanceTerminating")), now=now)
            request_planning_of_static_pool(ports, claim)
            return remove_finalizer(ports, claim, now)
        except (Conflict, NotFound) as lost:
            log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="nodeclaim", object=claim.name, conflict=str(lost))
            return False
        except ApiError as failure:
            error = str(failure)
            log_line(log, log_lines.STEP_FAILED, kind="nodeclaim", object=claim.name, code=failure.code, error=error)
            return False


def _claims(by_id: Mapping[str, InstanceTermination], ids: Iterable[str]) -> list[NodeClaim]:
    """The claims of these instances, of those that have one."""
    return [claim for id in sorted(ids) if (claim := by_id[id].claim) is not None]


def _write_conditions(
    ports: LifecyclePorts, claim: NodeClaim | None, changes: Collection[ConditionChange], now: datetime
) -> None:
    """If it cannot be written now, the next step writes it; another invocation may have removed the claim."""
    if claim is None:
        return
    try:
        update_conditions(ports, claim, changes, now=now)
    except (Conflict, NotFound) as lost:
        with log_claim(claim):
            log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="nodeclaim", object=claim.name, conflict=str(lost))
    except ApiError as failure:
        with log_claim(claim):
            error = str(failure)
            log_line(log, log_lines.STEP_FAILED, kind="nodeclaim", object=claim.name, code=failure.code, error=error)


def terminate_instances(ports: LifecyclePorts, zones: Mapping[str, str], now: datetime) -> TerminationResult:
    """Terminate the instances of ``zones``, which has the availability zone of each by its id, as far as the request
    limits allow now; some may be terminated already.

    Instances in a zone with shifted traffic are left until the shift ends.
    """
    if not zones:
        return TerminationResult()
    shifted = shifted_zones(ports)
    postponed = TerminationResult(wait_seconds=RETRY_SECONDS if shifted & set(zones.values()) else 0)
    ids = sorted(id for id, zone in zones.items() if zone not in shifted)
    return _merge(
        [postponed, *(_terminate_batch(ports, batch, now) for batch in batched(ids, INSTANCES_PER_CALL, strict=False))]
    )


def _terminate_batch(ports: LifecyclePorts, ids: Sequence[str], now: datetime) -> TerminationResult:
    try:
        wait = _wait_seconds(ports, ids, now)
    except Throttled as error:
        # By DynamoDB: the SDK does not repeat a transaction that was cancelled.
        log_line(log, log_lines.STEP_FAILED, kind="instance", object=ids[0], code=error.code, error=str(error))
        wait = retry_seconds(2)
    if wait:
        return TerminationResult(wait_seconds=wait)
    try:
        ended = ports.ec2.terminate(ids)
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
        return _merge(_terminate_batch(ports, batch, now) for batch in _split_batch(ids, refusal))
    return TerminationResult(frozenset(ids), ended)


def _split_batch(ids: Sequence[str], refusal: ApiError) -> tuple[Sequence[str], ...]:
    """The batches to try instead: each instance that the refusal names, and the rest; or two halves."""
    named = [id_ for id_ in ids if id_ in str(refusal)]
    rest = [id_ for id_ in ids if id_ not in named]
    if named and rest:
        return (rest, *((id_,) for id_ in named))
    return ids[: len(ids) // 2], ids[len(ids) // 2 :]


def _wait_seconds(ports: LifecyclePorts, ids: Sequence[str], now: datetime) -> int:
    """EC2 counts the calls, and the instances in them."""
    calls = {rate_limits.TERMINATE_INSTANCES: 1, rate_limits.TERMINATED_INSTANCES: len(ids)}
    return rate_limits.acquire_all(ports.state, calls, caller=ids[0], now=now)


def _single_refusal(id: str, refusal: ApiError) -> TerminationResult:
    if isinstance(refusal, NotFound):
        return TerminationResult(frozenset({id}))
    log_line(log, log_lines.TERMINATION_REFUSED, instance=id, code=refusal.code, error=str(refusal))
    return TerminationResult(wait_seconds=LONGEST_RETRY_SECONDS)


def _merge(results: Iterable[TerminationResult]) -> TerminationResult:
    merged = tuple(results)
    return TerminationResult(
        frozenset().union(*(result.terminated_ids for result in merged)),
        frozenset().union(*(result.ended_ids for result in merged)),
        max((result.wait_seconds for result in merged), default=0),
    )
