"""Whether a node has drifted from its EC2NodeClass.

Source: Karpenter v1.14's AWS provider ``pkg/cloudprovider/drift.go``, its order included. Two differences: a placement
group that is selected but not resolved is no drift, since it may come back; whether an instance has drifted that is not
running is unknown, since the finalizer of its NodeClaim ends it.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from spotwright.aws.images import amis
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.drift import Drift, DriftReason, DriftUnknown, static_fields_drift
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.snapshot import RESERVED_CAPACITY

_ALIVE: Final = ("pending", "running")
_MAX_IDS: Final = 5


def instance_drift(
    claim: NodeClaim,
    nodeclass: EC2NodeClass,
    instance_type: InstanceType | None,
    instance: Instance | None,
    *,
    feature_gates: Collection[str],
) -> Drift | DriftUnknown | None:
    """Why the claim's node differs from a node that its class would give now; None = no drift.

    ``instance_type``: the claim's in the catalog of the class; ``instance``: as EC2 describes it now; None = not known.
    ``feature_gates``: feature gates that are on; without ReservedCapacity reservations are not compared.
    """
    drift = _static_drift(claim, nodeclass) or _image_drift(claim, nodeclass, instance_type)
    if drift is not None:
        return drift
    if instance is None or instance.state not in _ALIVE:
        return DriftUnknown(f"EC2 shows no running instance of {claim.provider_id or 'the claim'}")
    return next((drift for drift in _live_drifts(claim, nodeclass, instance, feature_gates) if drift is not None), None)


def _static_drift(claim: NodeClaim, nodeclass: EC2NodeClass) -> Drift | None:
    keys = (labels.EC2NODECLASS_HASH, labels.EC2NODECLASS_HASH_VERSION)
    claim_annotations, class_annotations = claim.metadata.annotations, nodeclass.metadata.annotations
    return static_fields_drift(
        DriftReason.NODECLASS, f"EC2NodeClass {nodeclass.name}", claim_annotations, class_annotations, keys
    )


def _image_drift(
    claim: NodeClaim, nodeclass: EC2NodeClass, instance_type: InstanceType | None
) -> Drift | DriftUnknown | None:
    if instance_type is None:
        return DriftUnknown(f"instance type {claim.metadata.labels.get(labels.INSTANCE_TYPE)} is not in the catalog")
    if not nodeclass.amis or not claim.image_id:
        owner = f"EC2NodeClass {nodeclass.name}" if claim.image_id else "status.imageID of the claim"
        return DriftUnknown(f"{owner} names no image")
    wanted = amis.ami_for_type(amis.amis_with_requirements(nodeclass.amis), instance_type)
    if wanted is not None and wanted.id == claim.image_id:
        return None
    wanted_image = wanted.id if wanted else f"another: none of the class is for {instance_type.name}"
    return Drift(DriftReason.AMI, f"image: found {claim.image_id}, wanted {wanted_image}")


def _live_drifts(
    claim: NodeClaim, nodeclass: EC2NodeClass, instance: Instance, gates: Collection[str]
) -> Iterator[Drift | DriftUnknown | None]:
    yield _security_group_drift(nodeclass, instance)
    yield _subnet_drift(nodeclass, instance)
    if RESERVED_CAPACITY in gates:
        yield _reservation_drift(nodeclass, instance)
    yield _placement_group_drift(claim, nodeclass)


def _security_group_drift(nodeclass: EC2NodeClass, instance: Instance) -> Drift | DriftUnknown | None:
    wanted = {security_group.id for security_group in nodeclass.security_groups}
    if not wanted or not instance.security_groups:
        return DriftUnknown(f"{'EC2' if wanted else f'EC2NodeClass {nodeclass.name}'} names no security groups")
    return _set_drift(DriftReason.SECURITY_GROUP, "security groups", instance.security_groups, wanted)


def _subnet_drift(nodeclass: EC2NodeClass, instance: Instance) -> Drift | DriftUnknown | None:
    wanted = {subnet.id for subnet in nodeclass.subnets}
    if not wanted or not instance.subnet_id:
        return DriftUnknown(f"{'EC2' if wanted else f'EC2NodeClass {nodeclass.name}'} names no subnet")
    return _member_drift(DriftReason.SUBNET, "subnet", instance.subnet_id, wanted)


def _reservation_drift(nodeclass: EC2NodeClass, instance: Instance) -> Drift | None:
    """Only an instance that runs in a reservation can drift from it, not one that fell back to on-demand."""
    wanted = {reservation.id for reservation in nodeclass.capacity_reservations}
    reservation_id = instance.reservation_id
    return (
        _member_drift(DriftReason.CAPACITY_RESERVATION, "capacity reservation", reservation_id, wanted)
        if reservation_id
        else None
    )


def _placement_group_drift(claim: NodeClaim, nodeclass: EC2NodeClass) -> Drift | DriftUnknown | None:
    group = nodeclass.placement_group
    if group is None and nodeclass.placement_group_selector is not None:
        return DriftUnknown(f"the placement group of EC2NodeClass {nodeclass.name} is not resolved")
    group_id = claim.metadata.labels.get(labels.PLACEMENT_GROUP_ID, "")
    wanted = {group.id} if group else set[str]()
    return _set_drift(DriftReason.PLACEMENT_GROUP, "placement group", [group_id] if group_id else [], wanted)


def _set_drift(reason: DriftReason, what: str, actual: Iterable[str], wanted: Collection[str]) -> Drift | None:
    if set(actual) == set(wanted):
        return None
    return Drift(reason, f"{what}: found {_join_ids(actual)}, wanted {_join_ids(wanted)}")


def _member_drift(reason: DriftReason, what: str, actual: str, wanted: Collection[str]) -> Drift | None:
    if actual in wanted:
        return None
    return Drift(reason, f"{what}: found {actual}, wanted {'one of ' if len(wanted) > 1 else ''}{_join_ids(wanted)}")


def _join_ids(ids: Iterable[str]) -> str:
    names = sorted(ids)
    more = f" and {len(names) - _MAX_IDS} more" if len(names) > _MAX_IDS else ""
    return (", ".join(names[:_MAX_IDS]) or "none") + more
