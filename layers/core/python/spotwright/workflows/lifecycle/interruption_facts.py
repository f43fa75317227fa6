"""What a look at interruption notices reads: the NodeClaims of their instances, and what EC2 says of those.

A message holds no fact: it may be hours old, name an instance of somebody else, or a change that EC2 has called off.
What EC2 does not answer is part of what was read, so that one instance does not keep the notices of others.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import ENDED_KINDS, REPLACED_KINDS, NoticeKind
from spotwright.errors import ApiError
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_status import ScheduledEvent
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import claims_of_instances, log, nodes_of
from spotwright.workflows.lifecycle.commands import EARLY_MS
from spotwright.workflows.lifecycle.other_provisioners import not_left_alone
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NoticeRow, epoch_ms

# EC2 takes an instance at the second that it names. A warning that is first looked at so long after that is asked
# about: the instance may run on.
EXPIRED_MS: Final = 60_000
# So long before the time of what EC2 has scheduled the node is drained, whatever the budgets say.
LAST_HOUR_MS: Final = 60 * 60 * 1000
# States of an instance that does not end.
RUNNING: Final = ("pending", "running")
# An id of another form than EC2's, of which it says so: no instance has it.
_MALFORMED: Final = "InvalidInstanceID.Malformed"
_ABOUT_AN_ID: Final = "InvalidInstanceID."

# What EC2 says of an instance: None = it does not find it; an error = it did not answer.
type Answer = Instance | ApiError | None


class Facts(msgspec.Struct, frozen=True):
    """All by the id of an instance. ``claims``: managed NodeClaims that have it, by name, of which there is one but by
    mistake. ``unassigned``: instances without a claim that may be some claim's soon. ``instances``: those that EC2 was
    asked for. ``events``: what EC2 does to an instance first; an error = EC2 did not answer; empty unless a notice is
    in its last hour.
    """

    claims: dict[str, tuple[NodeClaim, ...]]
    unassigned: frozenset[str] = frozenset()
    instances: dict[str, Answer] = {}
    events: Mapping[str, ScheduledEvent] | ApiError = {}


def read_facts(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime) -> Facts:
    """What a step of each of these notices goes by. Raises ApiError when the API server or the table does not answer.

    Claims are found by their labels; all are listed only for an instance of this cluster that no label names.
    """
    ids = [row.instance_id for row in rows]
    claims = [claim for claim in claims_of_instances(ports, ids) if claim.provider_id]
    found = _by_instance(claims)
    asked = {
        row.instance_id
        for row in rows
        if any(asks_ec2(row, claim, now) or ends_with_claim(row, claim) for claim in found.get(row.instance_id, ()))
    }
    unfound = frozenset(ids) - found.keys()
    instances = _read_instances(ports, asked | unfound)
    ours = frozenset(id for id in unfound if _may_be_of(instances[id], ports.cluster.name))
    listed = ports.cluster.nodeclaims() if ours else ()
    claims += [claim for claim in listed if instance_id(claim.provider_id) in ours]
    managed = not_left_alone(ports, (claim for claim in claims if claim.is_managed))
    names = {claim.name for claim in listed}
    unassigned = frozenset(id for id in ours if not _has_lost_claim(instances[id], names))
    return Facts(_by_instance(managed), unassigned, instances, _read_events(ports, rows, now))


def _by_instance(claims: Iterable[NodeClaim]) -> dict[str, tuple[NodeClaim, ...]]:
    found: dict[str, tuple[NodeClaim, ...]] = {}
    for claim in claims:
        id = instance_id(claim.provider_id)
        found[id] = (*found.get(id, ()), claim)
    return found


def asks_ec2(row: NoticeRow, claim: NodeClaim, now: datetime) -> bool:
    """Whether EC2 must confirm the notice before anything is done about it.

    Not where the claim is being deleted already: then EC2 tells what the termination does.
    """
    if row.kind in REPLACED_KINDS:
        return row.phase == "new" and not row.attempt and epoch_ms(now) > row.deadline + EXPIRED_MS
    return row.kind in ENDED_KINDS and claim.metadata.deletion_timestamp is None


def ends_with_claim(row: NoticeRow, claim: NodeClaim) -> bool:
    """Whether it is an end that the claim, which is being deleted, only waits for: one that nobody announced, since
    after a warning the claim is rung for.
    """
    return row.ended and not row.warning and claim.is_condition_true("InstanceTerminating")


def is_last_hour(row: NoticeRow, now: datetime) -> bool:
    """Of what EC2 has scheduled; also where EC2 did not say when. False for other notices."""
    return row.kind == NoticeKind.SCHEDULED_CHANGE and epoch_ms(now) >= row.deadline - LAST_HOUR_MS - EARLY_MS


def claim_of(ports: LifecyclePorts, claims: Collection[NodeClaim]) -> NodeClaim | None:
    """Of several NodeClaims of an instance the one that has the Node; None = none has. The others are left alone."""
    if len(claims) > 1:
        claims = [claim for claim in claims if claim.is_condition_true("Registered") and nodes_of(ports, claim)]
    return min(claims, key=lambda claim: claim.name, default=None)


def _may_be_of(answer: Answer, cluster: str) -> bool:
    """False when EC2 shows that the instance is not of this cluster; a new one may not be shown yet, and what is not
    known may be ours."""
    if isinstance(answer, ApiError):
        return answer.code != _MALFORMED
    return answer is None or answer.may_be_of(cluster)


def _has_lost_claim(answer: Answer, claims: Collection[str]) -> bool:
    """Whether an instance was that of a claim that has gone: its tags name the claim once its node has joined, those of
    Karpenter's instances from the beginning. ``claims``: the names of all claims. One that is there is given the
    instance, or is taken over from Karpenter, soon.
    """
    name = answer.tags.get(labels.NODECLAIM, "") if isinstance(answer, Instance) else ""
    return bool(name) and name not in claims


def _read_instances(ports: LifecyclePorts, ids: Collection[str]) -> dict[str, Answer]:
    """By a single call those that EC2 lists; the others by id, since absence from a list proves nothing.

    Where EC2 is in trouble it is not asked for each of them.
    """
    listed: dict[str, Instance] = {}
    try:
        if len(ids) > 1:
            listed = {instance.id: instance for instance in ports.ec2.instances_by_id(ids)}
    except ApiError as failure:
        _log_failure(ids, failure)
        if not failure.code.startswith(_ABOUT_AN_ID):
            return dict.fromkeys(ids, failure)
    unlisted = sorted(set(ids) - listed.keys())
    answers = in_parallel(lambda id: _read_instance(ports, id), unlisted)
    return {**listed, **dict(zip(unlisted, answers, strict=True))}


def _read_instance(ports: LifecyclePorts, id: str) -> Answer:
    try:
        return ports.ec2.instance(id)
    except ApiError as failure:
        _log_failure([id], failure)
        return failure


def _read_events(
    ports: LifecyclePorts, rows: Iterable[NoticeRow], now: datetime
) -> Mapping[str, ScheduledEvent] | ApiError:
    """The first event of each instance that has one, if a notice of such a change is in its last hour."""
    ending = [row.instance_id for row in rows if is_last_hour(row, now)]
    if not ending:
        return {}
    try:
        statuses = ports.ec2.unhealthy_instances()
    except ApiError as failure:
        _log_failure(ending, failure)
        return failure
    return {status.instance_id: event for status in statuses if (event := status.earliest_event) is not None}


def _log_failure(ids: Iterable[str], failure: ApiError) -> None:
    names = ", ".join(sorted(ids))
    log_line(log, log_lines.STEP_FAILED, kind="notice", object=names, code=failure.code, error=str(failure))
