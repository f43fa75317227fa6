"""The status of an EC2NodeClass: what its selectors match, and the conditions that follow.

In: the answers of EC2, SSM and IAM. Out: status and conditions. Reasons are Karpenter's where it has them. Reasons of
Spotwright's own are about what a cluster may use (its own VPC, its own node roles) and about unknown fields.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.nodeclass.validation import validate
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import (
    AMI,
    CapacityReservation,
    EC2NodeClass,
    PlacementGroup,
    SecurityGroup,
    Subnet,
)
from spotwright.model.kubernetes.meta import Condition, find_condition, fit_message

AMIS_READY: Final = "AMIsReady"
SUBNETS_READY: Final = "SubnetsReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
INSTANCE_PROFILE_READY: Final = "InstanceProfileReady"
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"
READY: Final = "Ready"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"
PLACEMENT_GROUP_READY: Final = "PlacementGroupReady"
DEPENDENTS: Final = (
    AMIS_READY,
    CAPACITY_RESERVATIONS_READY,
    PLACEMENT_GROUP_READY,
    SUBNETS_READY,
    SECURITY_GROUPS_READY,
    INSTANCE_PROFILE_READY,
)
# EC2 terminates the instances of a capacity block half an hour before it ends; nodes are drained before that.
_BLOCK_EXPIRES: Final = timedelta(minutes=40)
# Unknown fields were pruned and have no effect; the class is Ready nevertheless.
FIELDS_RECOGNIZED: Final = "FieldsRecognized"
AWAITING_RECONCILIATION: Final = "AwaitingReconciliation"


class DiscoveredSubnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str
    available_ip_address_count: int
    vpc_id: str


class DiscoveredSecurityGroup(msgspec.Struct, frozen=True):
    id: str
    name: str
    vpc_id: str


class DiscoveredResources(msgspec.Struct, frozen=True):
    """Answers about an EC2NodeClass. ``placement_group`` None: the class names no placement group."""

    subnets: tuple[DiscoveredSubnet, ...] | Unanswered
    security_groups: tuple[DiscoveredSecurityGroup, ...] | Unanswered
    amis: tuple[AMI, ...] | Refusal | Unanswered
    instance_profile: str | Refusal | Unanswered
    capacity_reservations: tuple[CapacityReservation, ...] | Unanswered = ()
    placement_group: PlacementGroup | Refusal | Unanswered | None = None


class ValidationInputs(msgspec.Struct, frozen=True):
    """What a class is validated against once its selectors are resolved.

    ``instance_types``: all instance types of the region; read only for a class with kubelet expressions.
    ``reserved_capacity``: whether the gate ReservedCapacity is on, so that there is a condition for reservations.
    ``dry_run``: why EC2 would not launch; None = it would, or was not asked.
    """

    overheads: Overheads = Overheads()
    instance_types: tuple[InstanceTypeInfo, ...] | Unanswered = ()
    dry_run: Refusal | Unanswered | None = None
    reserved_capacity: bool = True


class Resolution(msgspec.Struct, frozen=True):
    """``nodeclass`` with its new status and conditions in it."""

    nodeclass: EC2NodeClass
    ready: bool


_DEFAULT_INPUTS: Final = ValidationInputs()


def resolve(
    nodeclass: EC2NodeClass,
    resources: DiscoveredResources,
    facts: ClusterFacts,
    *,
    now: datetime,
    inputs: ValidationInputs = _DEFAULT_INPUTS,
) -> Resolution:
    """The class with its new status; what AWS did not answer stays as it was."""
    subnets, groups = _subnets(resources.subnets, facts), _groups(resources.security_groups, facts)
    amis = Refusal("AMINotFound", "AMISelector did not match any AMIs") if resources.amis == () else resources.amis
    group, reservations = resources.placement_group, resources.capacity_reservations
    outcomes = {
        AMIS_READY: amis,
        CAPACITY_RESERVATIONS_READY: reservations,
        PLACEMENT_GROUP_READY: group,
        SUBNETS_READY: subnets,
        SECURITY_GROUPS_READY: groups,
        INSTANCE_PROFILE_READY: resources.instance_profile,
    }
    resolved = msgspec.structs.replace(
        nodeclass,
        subnets=_status_value(subnets, nodeclass.subnets, ()),
        security_groups=_status_value(groups, nodeclass.security_groups, ()),
        amis=_status_value(amis, nodeclass.amis, ()),
        capacity_reservations=unexpired_reservations(
            _status_value(reservations, nodeclass.capacity_reservations, ()), now=now
        ),
        placement_group=_status_value(group, nodeclass.placement_group, None),
        resolved_instance_profile=_status_value(resources.instance_profile, nodeclass.resolved_instance_profile, ""),
    )
    conditions = tuple(_conditions(resolved, outcomes, facts, inputs))
    ready = conditions[-1].status == "True"
    return Resolution(msgspec.structs.replace(resolved, conditions=_merge_conditions(nodeclass, conditions)), ready)


def _status_value[T](outcome: T | Refusal | Unanswered, before: T, nothing: T) -> T:
    """What the status says: the answer, ``nothing`` after a refusal, without an answer the value before."""
    if isinstance(outcome, Unanswered):
        return before
    return nothing if isinstance(outcome, Refusal) else outcome


def unexpired_reservations(
    reservations: Sequence[CapacityReservation], *, now: datetime
) -> tuple[CapacityReservation, ...]:
    """Reservations that have not ended, by id; a capacity block is expiring shortly before EC2 takes its instances."""
    return tuple(
        msgspec.structs.replace(reservation, state="expiring" if _is_expiring(reservation, now) else "active")
        for reservation in sorted(reservations, key=lambda reservation: reservation.id)
        if reservation.end_time is None or reservation.end_time > now
    )


def _is_expiring(reservation: CapacityReservation, now: datetime) -> bool:
    return (
        reservation.reservation_type == labels.CAPACITY_BLOCK
        and reservation.end_time is not None
        and reservation.end_time - now <= _BLOCK_EXPIRES
    )


def _subnets(
    discovered: Sequence[DiscoveredSubnet] | Unanswered, facts: ClusterFacts
) -> tuple[Subnet, ...] | Refusal | Unanswered:
    """Subnets with most free addresses first. A subnet outside the cluster's VPC is a refusal: no node could join."""
    if isinstance(discovered, Unanswered):
        return discovered
    if not discovered:
        return Refusal("SubnetsNotFound", "SubnetSelector did not match any Subnets")
    foreign = _outside_vpc(
        "SubnetsNotInClusterVPC", "subnet", ((subnet.id, subnet.vpc_id) for subnet in discovered), facts
    )
    ordered = sorted(discovered, key=lambda subnet: (-subnet.available_ip_address_count, subnet.id))
    return foreign or tuple(
        Subnet(subnet.id, subnet.zone, subnet.zone_id, subnet.available_ip_address_count) for subnet in ordered
    )


def _groups(
    discovered: Sequence[DiscoveredSecurityGroup] | Unanswered, facts: ClusterFacts
) -> tuple[SecurityGroup, ...] | Refusal | Unanswered:
    if isinstance(discovered, Unanswered):
        return discovered
    if not discovered:
        return Refusal("SecurityGroupsNotFound", "SecurityGroupSelector did not match any SecurityGroups")
    owners = ((security_group.id, security_group.vpc_id) for security_group in discovered)
    foreign = _outside_vpc("SecurityGroupsNotInClusterVPC", "security group", owners, facts)
    return foreign or tuple(
        SecurityGroup(security_group.id, security_group.name)
        for security_group in sorted(discovered, key=lambda security_group: security_group.id)
    )


def _outside_vpc(reason: str, what: str, owners: Iterable[tuple[str, str]], facts: ClusterFacts) -> Refusal | None:
    outside = sorted(f"{id} ({vpc})" for id, vpc in owners if vpc != facts.vpc_id)
    if not outside:
        return None
    shown = ", ".join(outside[:5])
    return Refusal(reason, f"{what} {shown} is not in the cluster's VPC {facts.vpc_id}: narrow the selector")


def _conditions(
    nodeclass: EC2NodeClass, outcomes: Mapping[str, object], facts: ClusterFacts, checks: ValidationInputs
) -> Iterator[Condition]:
    """The dependents, validation, fields, and Ready last."""
    kinds = [kind for kind in DEPENDENTS if checks.reserved_capacity or kind != CAPACITY_RESERVATIONS_READY]
    dependents = [_condition(nodeclass, kind, outcomes[kind]) for kind in kinds]
    dependents.append(
        _condition(nodeclass, VALIDATION_SUCCEEDED, _validation_outcome(nodeclass, dependents, facts, checks))
    )
    yield from dependents
    problems = "; ".join(nodeclass.problems)
    yield _condition(nodeclass, FIELDS_RECOGNIZED, Refusal("UnrecognizedFields", problems) if problems else None)
    yield _dependent_condition(
        nodeclass, READY, ("UnhealthyDependents", "ReconcilingDependents"), dependents
    ) or _condition(nodeclass, READY, None)


def _validation_outcome(
    nodeclass: EC2NodeClass, dependents: Sequence[Condition], facts: ClusterFacts, checks: ValidationInputs
) -> Condition | Refusal | Unanswered | None:
    waiting = _dependent_condition(
        nodeclass, VALIDATION_SUCCEEDED, ("DependenciesNotReady", "DependenciesNotReady"), dependents
    )
    return waiting or validate(nodeclass, facts, checks.overheads, checks.instance_types) or checks.dry_run


def _dependent_condition(
    nodeclass: EC2NodeClass, kind: str, reasons: tuple[str, str], other_conditions: Sequence[Condition]
) -> Condition | None:
    """False when a condition is False, with the first reason; else Unknown when a condition is, with the second."""
    failing = [condition for condition in other_conditions if condition.status != "True"]
    if not failing:
        return None
    message = ", ".join(f"{condition.type}={condition.status}" for condition in failing)
    false = any(condition.status == "False" for condition in failing)
    status, reason = ("False", reasons[0]) if false else ("Unknown", reasons[1])
    return Condition(kind, status, reason, message, observed_generation=nodeclass.metadata.generation)


def _condition(nodeclass: EC2NodeClass, kind: str, outcome: object) -> Condition:
    """The condition for an outcome. Without an answer a True condition of this generation stays, others are Unknown."""
    generation = nodeclass.metadata.generation
    match outcome:
        case Condition():
            return outcome
        case Refusal(reason, message):
            return Condition(kind, "False", reason, fit_message(message), observed_generation=generation)
        case Unanswered(message):
            before = find_condition(nodeclass.conditions, kind)
            if before and before.status == "True" and before.observed_generation == generation:
                return before
            unknown, why = AWAITING_RECONCILIATION, fit_message(message)
            return Condition(kind, "Unknown", unknown, why, observed_generation=generation)
    return Condition(kind, "True", kind, "", observed_generation=generation)


def _merge_conditions(before: EC2NodeClass, after: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions, new ones in place of old ones; a condition keeps its transition time while its status stays."""
    old = {condition.type: condition for condition in before.conditions}
    times = {
        condition.type: old[condition.type].last_transition_time
        for condition in after
        if _same_status(old.get(condition.type), condition)
    }
    replaced = {condition.type for condition in after}
    kept = [condition for condition in before.conditions if condition.type not in replaced]
    return (
        *kept,
        *(msgspec.structs.replace(condition, last_transition_time=times.get(condition.type)) for condition in after),
    )


def _same_status(old: Condition | None, new: Condition) -> bool:
    return old is not None and old.status == new.status


def not_ready_message(nodeclass: EC2NodeClass) -> str:
    """Why a class is not ready, in a line: its conditions that are not True, with their messages."""
    failing = (
        condition
        for condition in nodeclass.conditions
        if condition.status != "True" and condition.type not in (READY, FIELDS_RECOGNIZED)
    )
    return (
        "; ".join(f"{condition.type} {condition.reason}: {condition.message}" for condition in failing)
        or "not resolved yet"
    )
