"""The status of an EC2NodeClass: what its selectors found, and the conditions that follow.

Pure: the answers of EC2, SSM and IAM come in, status and conditions go out. Reasons are Karpenter's where it has them;
ours are the ones about what a cluster may use (its own VPC, its own node roles) and about fields not handled yet.
"""

import hashlib
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
from spotwright.model.kubernetes.meta import Condition, find_condition

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
# A capacity block takes its instances back half an hour before it ends; nodes are gone by then.
_BLOCK_EXPIRES: Final = timedelta(minutes=40)
# Does not stop the class: fields that mean nothing were pruned, and somebody should know.
FIELDS_RECOGNIZED: Final = "FieldsRecognized"
AWAITING_RECONCILIATION: Final = "AwaitingReconciliation"

_PROFILE_HASH_DIGITS: Final = 20


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
    """Answers about one class; some may be refusals, or missing. ``placement_group`` None: the class names none."""

    subnets: tuple[DiscoveredSubnet, ...] | Unanswered
    security_groups: tuple[DiscoveredSecurityGroup, ...] | Unanswered
    amis: tuple[AMI, ...] | Refusal | Unanswered
    instance_profile: str | Refusal | Unanswered
    capacity_reservations: tuple[CapacityReservation, ...] | Unanswered = ()
    placement_group: PlacementGroup | Refusal | Unanswered | None = None


class ValidationInputs(msgspec.Struct, frozen=True):
    """What a class that found everything is held against.

    ``instance_types``: every instance type of the region, asked for only where the class states expressions.
    ``reserved_capacity``: whether reserved capacity counts, so that readiness speaks of it.
    ``dry_run``: what came of asking EC2 whether it would launch, None = it would, or nobody asked.
    """

    overheads: Overheads = Overheads()
    instance_types: tuple[InstanceTypeInfo, ...] | Unanswered = ()
    dry_run: Refusal | Unanswered | None = None
    reserved_capacity: bool = True


class Resolution(msgspec.Struct, frozen=True):
    """``nodeclass`` with its new status and conditions in it."""

    nodeclass: EC2NodeClass
    ready: bool


_PLAIN: Final = ValidationInputs()


def resolve(
    nodeclass: EC2NodeClass,
    resources: DiscoveredResources,
    facts: ClusterFacts,
    *,
    now: datetime,
    inputs: ValidationInputs = _PLAIN,
) -> Resolution:
    """The class as its status should say it is; what nobody answered stays as it was."""
    subnets, groups = _subnets(resources.subnets, facts), _groups(resources.security_groups, facts)
    amis = Refusal("AMINotFound", "AMISelector did not match any AMIs") if resources.amis == () else resources.amis
    group, held = resources.placement_group, resources.capacity_reservations
    outcomes = {
        AMIS_READY: amis,
        CAPACITY_RESERVATIONS_READY: held,
        PLACEMENT_GROUP_READY: group,
        SUBNETS_READY: subnets,
        SECURITY_GROUPS_READY: groups,
        INSTANCE_PROFILE_READY: resources.instance_profile,
    }
    resolved = msgspec.structs.replace(
        nodeclass,
        subnets=_value(subnets, nodeclass.subnets, ()),
        security_groups=_value(groups, nodeclass.security_groups, ()),
        amis=_value(amis, nodeclass.amis, ()),
        capacity_reservations=unexpired_reservations(_value(held, nodeclass.capacity_reservations, ()), now=now),
        placement_group=_value(group, nodeclass.placement_group, None),
        resolved_instance_profile=_value(resources.instance_profile, nodeclass.resolved_instance_profile, ""),
    )
    conditions = tuple(_conditions(resolved, outcomes, facts, inputs))
    ready = conditions[-1].status == "True"
    return Resolution(msgspec.structs.replace(resolved, conditions=_merged(nodeclass, conditions)), ready)


def _value[T](found: T | Refusal | Unanswered, before: T, nothing: T) -> T:
    """What the status says: the answer, nothing after a refusal, without an answer what it said before."""
    if isinstance(found, Unanswered):
        return before
    return nothing if isinstance(found, Refusal) else found


def unexpired_reservations(
    reservations: Sequence[CapacityReservation], *, now: datetime
) -> tuple[CapacityReservation, ...]:
    """Those that have not ended, by id; a capacity block is expiring while its instances are about to be taken."""
    return tuple(
        msgspec.structs.replace(reservation, state="expiring" if _expires(reservation, now) else "active")
        for reservation in sorted(reservations, key=lambda reservation: reservation.id)
        if reservation.end_time is None or reservation.end_time > now
    )


def _expires(reservation: CapacityReservation, now: datetime) -> bool:
    return (
        reservation.reservation_type == labels.CAPACITY_BLOCK
        and reservation.end_time is not None
        and reservation.end_time - now <= _BLOCK_EXPIRES
    )


def _subnets(
    found: Sequence[DiscoveredSubnet] | Unanswered, facts: ClusterFacts
) -> tuple[Subnet, ...] | Refusal | Unanswered:
    """Those with most free addresses first; a foreign one spoils all: nodes there could never join."""
    if isinstance(found, Unanswered):
        return found
    if not found:
        return Refusal("SubnetsNotFound", "SubnetSelector did not match any Subnets")
    foreign = _foreign("SubnetsNotInClusterVPC", "subnet", ((subnet.id, subnet.vpc_id) for subnet in found), facts)
    ordered = sorted(found, key=lambda subnet: (-subnet.available_ip_address_count, subnet.id))
    return foreign or tuple(
        Subnet(subnet.id, subnet.zone, subnet.zone_id, subnet.available_ip_address_count) for subnet in ordered
    )


def _groups(
    found: Sequence[DiscoveredSecurityGroup] | Unanswered, facts: ClusterFacts
) -> tuple[SecurityGroup, ...] | Refusal | Unanswered:
    if isinstance(found, Unanswered):
        return found
    if not found:
        return Refusal("SecurityGroupsNotFound", "SecurityGroupSelector did not match any SecurityGroups")
    owners = ((security_group.id, security_group.vpc_id) for security_group in found)
    foreign = _foreign("SecurityGroupsNotInClusterVPC", "security group", owners, facts)
    return foreign or tuple(
        SecurityGroup(security_group.id, security_group.name)
        for security_group in sorted(found, key=lambda security_group: security_group.id)
    )


def _foreign(reason: str, what: str, owners: Iterable[tuple[str, str]], facts: ClusterFacts) -> Refusal | None:
    others = sorted(f"{id} ({vpc})" for id, vpc in owners if vpc != facts.vpc_id)
    if not others:
        return None
    named = ", ".join(others[:5])
    return Refusal(reason, f"{what} {named} is not in the cluster's VPC {facts.vpc_id}: narrow the selector")


def _conditions(
    nodeclass: EC2NodeClass, outcomes: Mapping[str, object], facts: ClusterFacts, checks: ValidationInputs
) -> Iterator[Condition]:
    """The dependents, validation, fields, and Ready last."""
    kinds = [kind for kind in DEPENDENTS if checks.reserved_capacity or kind != CAPACITY_RESERVATIONS_READY]
    dependents = [_condition(nodeclass, kind, outcomes[kind]) for kind in kinds]
    dependents.append(_condition(nodeclass, VALIDATION_SUCCEEDED, _validated(nodeclass, dependents, facts, checks)))
    yield from dependents
    unknown = "; ".join(nodeclass.problems)
    yield _condition(nodeclass, FIELDS_RECOGNIZED, Refusal("UnrecognizedFields", unknown) if unknown else None)
    yield _dependent_on(nodeclass, READY, ("UnhealthyDependents", "ReconcilingDependents"), dependents) or _condition(
        nodeclass, READY, None
    )


def _validated(
    nodeclass: EC2NodeClass, dependents: Sequence[Condition], facts: ClusterFacts, checks: ValidationInputs
) -> Condition | Refusal | Unanswered | None:
    waits = _dependent_on(nodeclass, VALIDATION_SUCCEEDED, ("DependenciesNotReady", "DependenciesNotReady"), dependents)
    return waits or validate(nodeclass, facts, checks.overheads, checks.instance_types) or checks.dry_run


def _dependent_on(
    nodeclass: EC2NodeClass, kind: str, reasons: tuple[str, str], other_conditions: Sequence[Condition]
) -> Condition | None:
    """False when any other is, with the first reason, else Unknown when any other is, with the second; else None."""
    failing = [condition for condition in other_conditions if condition.status != "True"]
    if not failing:
        return None
    message = ", ".join(f"{condition.type}={condition.status}" for condition in failing)
    false = any(condition.status == "False" for condition in failing)
    status, reason = ("False", reasons[0]) if false else ("Unknown", reasons[1])
    return Condition(kind, status, reason, message, observed_generation=nodeclass.metadata.generation)


def _condition(nodeclass: EC2NodeClass, kind: str, outcome: object) -> Condition:
    """A condition from what came out. Without an answer a True one about this generation stays; any other is open."""
    generation = nodeclass.metadata.generation
    match outcome:
        case Condition():
            return outcome
        case Refusal(reason, message):
            return Condition(kind, "False", reason, message, observed_generation=generation)
        case Unanswered(message):
            before = find_condition(nodeclass.conditions, kind)
            if before and before.status == "True" and before.observed_generation == generation:
                return before
            return Condition(kind, "Unknown", AWAITING_RECONCILIATION, message, observed_generation=generation)
    return Condition(kind, "True", kind, "", observed_generation=generation)


def _merged(before: EC2NodeClass, after: Sequence[Condition]) -> tuple[Condition, ...]:
    """New conditions in place of the old of their type; a condition keeps its time while its status stays."""
    old = {condition.type: condition for condition in before.conditions}
    times = {
        condition.type: old[condition.type].last_transition_time
        for condition in after
        if _same_status(old.get(condition.type), condition)
    }
    named = {condition.type for condition in after}
    kept = [condition for condition in before.conditions if condition.type not in named]
    return (
        *kept,
        *(msgspec.structs.replace(condition, last_transition_time=times.get(condition.type)) for condition in after),
    )


def _same_status(old: Condition | None, new: Condition) -> bool:
    return old is not None and old.status == new.status


def not_ready_message(nodeclass: EC2NodeClass) -> str:
    """Why a class is not ready, in one line: its False conditions with their messages."""
    failing = (
        condition
        for condition in nodeclass.conditions
        if condition.status != "True" and condition.type not in (READY, FIELDS_RECOGNIZED)
    )
    return (
        "; ".join(f"{condition.type} {condition.reason}: {condition.message}" for condition in failing)
        or "not resolved yet"
    )


class DesiredProfile(msgspec.Struct, frozen=True):
    """The instance profile of a class that names a role."""

    name: str
    path: str
    role: str
    tags: dict[str, str]


def profile_path(*, region: str, cluster: str, uid: str) -> str:
    return f"/karpenter/{region}/{cluster}/{uid}/"


def desired_profile(
    nodeclass: EC2NodeClass, *, region: str, cluster: str, node_roles: Sequence[str]
) -> DesiredProfile | Refusal:
    """The profile to ensure for ``spec.role``: another role makes another profile. A role may be given with a path."""
    role = role_name(nodeclass.role)
    refusal = role_refusal(role, node_roles, "spec.role")
    if refusal:
        return refusal
    content = "\0".join((region, nodeclass.name, nodeclass.metadata.uid, role))
    digest = hashlib.sha256(content.encode()).hexdigest()[:_PROFILE_HASH_DIGITS]
    tags = dict(nodeclass.tags) | {
        labels.cluster_tag(cluster): "owned",
        labels.CLUSTER_NAME_TAG: cluster,
        labels.EC2NODECLASS: nodeclass.name,
        labels.REGION: region,
    }
    path = profile_path(region=region, cluster=cluster, uid=nodeclass.metadata.uid)
    return DesiredProfile(f"{cluster}_{digest}", path, role, tags)


def role_refusal(role: str, node_roles: Sequence[str], field: str) -> Refusal | None:
    """Why nodes may not have this role; None = they may. Only the roles named at deployment can be passed."""
    allowed = sorted(role_name(node_role) for node_role in node_roles)
    if role in allowed:
        return None
    return Refusal(
        "RoleNotAllowed",
        f"{field}: {role} is not one of this cluster's nodeRoles ({', '.join(allowed) or 'none'});"
        " add it to the cluster in cdk.json and deploy",
    )


def role_name(role: str) -> str:
    """A role's name without path or ARN."""
    return role.rpartition("/")[2]
