"""The status of an EC2NodeClass: what its selectors found, and the conditions that follow.

Pure: the answers of EC2, SSM and IAM come in, status and conditions go out. Reasons are Karpenter's where it has them;
ours are the ones about what a cluster may use (its own VPC, its own node roles) and about fields not handled yet.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from spotwright.aws import families, kubelet, kubelet_fields, kubelet_sizing, userdata
from spotwright.aws.boot import Boot
from spotwright.aws.refusal import Refusal
from spotwright.model import labels, quantity
from spotwright.model.fleet import ClusterFacts
from spotwright.model.nodeclass import Ami, CapacityReservation, EC2NodeClass, PlacementGroup, SecurityGroup, Subnet
from spotwright.model.objects import Condition

AMIS: Final = "AMIsReady"
SUBNETS: Final = "SubnetsReady"
GROUPS: Final = "SecurityGroupsReady"
PROFILE: Final = "InstanceProfileReady"
VALIDATION: Final = "ValidationSucceeded"
READY: Final = "Ready"
RESERVATIONS: Final = "CapacityReservationsReady"
PLACEMENT: Final = "PlacementGroupReady"
DEPENDENTS: Final = (AMIS, RESERVATIONS, PLACEMENT, SUBNETS, GROUPS, PROFILE)
# A capacity block takes its instances back half an hour before it ends; nodes are gone by then.
_BLOCK_EXPIRES: Final = timedelta(minutes=40)
# Does not stop the class: fields that mean nothing were pruned, and somebody should know.
FIELDS: Final = "FieldsRecognized"

RESTRICTED_TAGS: Final = frozenset(
    {labels.CLUSTER_NAME_TAG, labels.NODEPOOL, labels.NODECLAIM, labels.EC2NODECLASS, labels.LAUNCH_TAG}
)
_RESTRICTED_TAG_PREFIX: Final = "kubernetes.io/cluster"
_PROFILE_HASH_DIGITS: Final = 20


class FoundSubnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str
    free_addresses: int
    vpc_id: str


class FoundGroup(msgspec.Struct, frozen=True):
    id: str
    name: str
    vpc_id: str


class Found(msgspec.Struct, frozen=True):
    """Answers about one class; some may be refusals. ``placement_group`` None: the class names none."""

    subnets: tuple[FoundSubnet, ...]
    groups: tuple[FoundGroup, ...]
    amis: tuple[Ami, ...] | Refusal
    profile: str | Refusal
    reservations: tuple[CapacityReservation, ...] = ()
    placement_group: PlacementGroup | Refusal | None = None


class Resolution(msgspec.Struct, frozen=True):
    """``node_class`` with its new status and conditions in it."""

    node_class: EC2NodeClass
    ready: bool


def resolve(
    node_class: EC2NodeClass, found: Found, facts: ClusterFacts, *, now: datetime, expressions: bool = False
) -> Resolution:
    """The class as its status should say it is. ``expressions``: whether kubelet amounts may be expressions."""
    subnets, groups = _subnets(found.subnets, facts), _groups(found.groups, facts)
    amis = Refusal("AMINotFound", "AMISelector did not match any AMIs") if found.amis == () else found.amis
    group = found.placement_group
    outcomes = {AMIS: amis, SUBNETS: subnets, GROUPS: groups, PROFILE: found.profile, PLACEMENT: group}
    refused = {kind: one for kind, one in outcomes.items() if isinstance(one, Refusal)}
    resolved = msgspec.structs.replace(
        node_class,
        subnets=() if isinstance(subnets, Refusal) else subnets,
        security_groups=() if isinstance(groups, Refusal) else groups,
        amis=() if isinstance(amis, Refusal) else amis,
        capacity_reservations=reservations(found.reservations, now=now),
        placement_group=None if isinstance(group, Refusal) else group,
        resolved_profile="" if isinstance(found.profile, Refusal) else found.profile,
    )
    conditions = tuple(_conditions(resolved, refused, facts, expressions))
    ready = conditions[-1].status == "True"
    return Resolution(msgspec.structs.replace(resolved, conditions=_merged(node_class, conditions)), ready)


def reservations(found: Sequence[CapacityReservation], *, now: datetime) -> tuple[CapacityReservation, ...]:
    """Those that have not ended, by id; a capacity block is expiring while its instances are about to be taken."""
    return tuple(
        msgspec.structs.replace(one, state="expiring" if _expires(one, now) else "active")
        for one in sorted(found, key=lambda one: one.id)
        if one.end is None or one.end > now
    )


def _expires(one: CapacityReservation, now: datetime) -> bool:
    return one.reservation_type == "capacity-block" and one.end is not None and one.end - now <= _BLOCK_EXPIRES


def _subnets(found: Sequence[FoundSubnet], facts: ClusterFacts) -> tuple[Subnet, ...] | Refusal:
    """Those with most free addresses first; a foreign one spoils all: nodes there could never join."""
    if not found:
        return Refusal("SubnetsNotFound", "SubnetSelector did not match any Subnets")
    foreign = _foreign("SubnetsNotInClusterVPC", "subnet", ((one.id, one.vpc_id) for one in found), facts)
    ordered = sorted(found, key=lambda one: (-one.free_addresses, one.id))
    return foreign or tuple(Subnet(one.id, one.zone, one.zone_id, one.free_addresses) for one in ordered)


def _groups(found: Sequence[FoundGroup], facts: ClusterFacts) -> tuple[SecurityGroup, ...] | Refusal:
    if not found:
        return Refusal("SecurityGroupsNotFound", "SecurityGroupSelector did not match any SecurityGroups")
    owners = ((one.id, one.vpc_id) for one in found)
    foreign = _foreign("SecurityGroupsNotInClusterVPC", "security group", owners, facts)
    return foreign or tuple(SecurityGroup(one.id, one.name) for one in sorted(found, key=lambda one: one.id))


def _foreign(reason: str, what: str, owners: Iterable[tuple[str, str]], facts: ClusterFacts) -> Refusal | None:
    others = sorted(f"{id} ({vpc})" for id, vpc in owners if vpc != facts.vpc_id)
    if not others:
        return None
    named = ", ".join(others[:5])
    return Refusal(reason, f"{what} {named} is not in the cluster's VPC {facts.vpc_id}: narrow the selector")


def _conditions(
    node_class: EC2NodeClass, refused: dict[str, Refusal], facts: ClusterFacts, expressions: bool
) -> Iterator[Condition]:
    """The dependents, validation, fields, and Ready last."""
    dependents = [_condition(node_class, kind, refused.get(kind)) for kind in DEPENDENTS]
    dependents.append(_condition(node_class, VALIDATION, _validated(node_class, refused, facts, expressions)))
    yield from dependents
    unknown = "; ".join(node_class.problems)
    yield _condition(node_class, FIELDS, Refusal("UnrecognizedFields", unknown) if unknown else None)
    failing = ", ".join(f"{one.type}={one.status}" for one in dependents if one.status != "True")
    yield _condition(node_class, READY, Refusal("UnhealthyDependents", failing) if failing else None)


def _validated(
    node_class: EC2NodeClass, refused: dict[str, Refusal], facts: ClusterFacts, expressions: bool
) -> Refusal | None:
    if refused:
        return Refusal("DependenciesNotReady", ", ".join(f"{kind}=False" for kind in sorted(refused)))
    return validation(node_class, facts, expressions=expressions)


def validation(node_class: EC2NodeClass, facts: ClusterFacts, *, expressions: bool = False) -> Refusal | None:
    """The first thing about the class itself that stops it; None = fine."""
    tags = [key for key in sorted(node_class.tags) if _is_restricted(key)]
    if tags:
        return Refusal("TagValidationFailed", f"spec.tags: {', '.join(tags)} are set by Spotwright, not by a class")
    return _kubelet(node_class, expressions) or _devices(node_class) or _boots(node_class, facts)


def _kubelet(node_class: EC2NodeClass, expressions: bool) -> Refusal | None:
    formulas, plain = kubelet.expressions(node_class.kubelet), node_class.kubelet
    if formulas and not expressions:
        why = "; ".join(formulas)
        return Refusal("KubeletExpressionsDisabled", f"{why}: give an amount, expressions are not enabled")
    if formulas:
        plain, faults = kubelet_sizing.plain(node_class.kubelet)
        if faults:
            return Refusal("KubeletExpressionInvalid", "; ".join(faults))
    wrong = kubelet.problems(plain)
    if wrong:
        return Refusal("InvalidKubeletConfiguration", "; ".join(wrong))
    family = families.of(node_class)
    if isinstance(family, Refusal) or family.free_kubelet:
        return None
    left = kubelet_fields.unsupported(node_class.kubelet, family.name, pods_per_core=family.pods_per_core)
    return Refusal("UnsupportedKubeletConfiguration", "; ".join(left)) if left else None


def _is_restricted(key: str) -> bool:
    return key in RESTRICTED_TAGS or key.startswith(_RESTRICTED_TAG_PREFIX)


def _devices(node_class: EC2NodeClass) -> Refusal | None:
    for index, device in enumerate(node_class.block_devices):
        try:
            quantity.parse(device.volume_size or "1Gi")
        except quantity.QuantityError as error:
            field = f"spec.blockDeviceMappings[{index}].ebs.volumeSize"
            return Refusal("InvalidBlockDeviceMapping", f"{field}: {error}")
    return None


def _boots(node_class: EC2NodeClass, facts: ClusterFacts) -> Refusal | None:
    """Whether user data can be made for the smallest boot of this class; launches check theirs again."""
    family = families.of(node_class)
    if isinstance(family, Refusal):
        return family
    text = userdata.render(family.name, node_class, facts, Boot({}, (), 110))
    return text if isinstance(text, Refusal) else None


def _condition(node_class: EC2NodeClass, kind: str, refusal: Refusal | None) -> Condition:
    generation = node_class.metadata.generation
    if refusal is None:
        return Condition(kind, "True", kind, "", observed_generation=generation)
    return Condition(kind, "False", refusal.reason, refusal.message, observed_generation=generation)


def _merged(before: EC2NodeClass, after: Sequence[Condition]) -> tuple[Condition, ...]:
    """New conditions in place of the old of their type; a condition keeps its time while its status stays."""
    old = {one.type: one for one in before.conditions}
    times = {one.type: old[one.type].since for one in after if _same_status(old.get(one.type), one)}
    named = {one.type for one in after}
    kept = [one for one in before.conditions if one.type not in named]
    return (*kept, *(msgspec.structs.replace(one, since=times.get(one.type)) for one in after))


def _same_status(old: Condition | None, new: Condition) -> bool:
    return old is not None and old.status == new.status


def complaint(node_class: EC2NodeClass) -> str:
    """Why a class is not ready, in one line: its False conditions with their messages."""
    failing = (one for one in node_class.conditions if one.status != "True" and one.type not in (READY, FIELDS))
    return "; ".join(f"{one.type} {one.reason}: {one.message}" for one in failing) or "not resolved yet"


def status(node_class: EC2NodeClass) -> dict[str, Any]:
    """The status fields of a class for a merge patch; conditions are written on their own."""
    return {
        "subnets": [{"id": one.id, "zone": one.zone} | _given("zoneID", one.zone_id) for one in node_class.subnets],
        "securityGroups": [{"id": one.id} | _given("name", one.name) for one in node_class.security_groups],
        "amis": [_ami(one) for one in node_class.amis],
        "capacityReservations": [_reservation(one) for one in node_class.capacity_reservations] or None,
        "placementGroup": _placement_group(node_class.placement_group),
        "instanceProfile": node_class.resolved_profile or None,
    }


def _ami(ami: Ami) -> dict[str, Any]:
    requirements = [
        {"key": one.key, "operator": str(one.operator)} | ({"values": list(one.values)} if one.values else {})
        for one in ami.requirements
    ]
    shown = {"id": ami.id, "requirements": requirements} | _given("name", ami.name)
    return shown | ({"deprecated": True} if ami.deprecated else {})


def _reservation(one: CapacityReservation) -> dict[str, Any]:
    return {
        "availabilityZone": one.zone,
        "id": one.id,
        "instanceMatchCriteria": one.instance_match_criteria,
        "instanceType": one.instance_type,
        "interruptible": one.interruptible,
        "ownerID": one.owner_id,
        "reservationType": one.reservation_type,
        "state": one.state,
    } | ({"endTime": one.end.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")} if one.end else {})


def _placement_group(group: PlacementGroup | None) -> dict[str, Any] | None:
    if group is None:
        return None
    shown = {"id": group.id, "name": group.name, "strategy": group.strategy}
    return shown | ({"partitionCount": group.partitions} if group.partitions else {})


def _given(key: str, text: str) -> dict[str, Any]:
    return {key: text} if text else {}


class Profile(msgspec.Struct, frozen=True):
    """The instance profile of a class that names a role."""

    name: str
    path: str
    role: str
    tags: dict[str, str]


def profile_path(*, region: str, cluster: str, uid: str) -> str:
    return f"/karpenter/{region}/{cluster}/{uid}/"


def profile(node_class: EC2NodeClass, *, region: str, cluster: str, node_roles: Sequence[str]) -> Profile | Refusal:
    """The profile to ensure for ``spec.role``: another role makes another profile. A role may be given with a path."""
    role = bare(node_class.role)
    refusal = role_refusal(role, node_roles, "spec.role")
    if refusal:
        return refusal
    content = "\0".join((region, node_class.name, node_class.metadata.uid, role))
    digest = hashlib.sha256(content.encode()).hexdigest()[:_PROFILE_HASH_DIGITS]
    tags = dict(node_class.tags) | {
        labels.cluster_tag(cluster): "owned",
        labels.CLUSTER_NAME_TAG: cluster,
        labels.EC2NODECLASS: node_class.name,
        labels.REGION: region,
    }
    path = profile_path(region=region, cluster=cluster, uid=node_class.metadata.uid)
    return Profile(f"{cluster}_{digest}", path, role, tags)


def role_refusal(role: str, node_roles: Sequence[str], field: str) -> Refusal | None:
    """Why nodes may not have this role; None = they may. Only the roles named at deployment can be passed."""
    allowed = sorted(bare(one) for one in node_roles)
    if role in allowed:
        return None
    return Refusal(
        "RoleNotAllowed",
        f"{field}: {role} is not one of this cluster's nodeRoles ({', '.join(allowed) or 'none'});"
        " add it to the cluster in cdk.json and deploy",
    )


def bare(role: str) -> str:
    """A role's name without path or ARN."""
    return role.rpartition("/")[2]
