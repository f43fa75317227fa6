"""Whether a node is still what its EC2NodeClass asks for.

Source: Karpenter v1.14's AWS provider ``pkg/cloudprovider/drift.go``, its order included. Two differences: a placement
group that the class asks for and that is not resolved is no drift, since it may come back; an instance that is not
there or not running says nothing, since somebody else sees to its end.
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
_NAMED: Final = 5


def instance_drift(
    claim: NodeClaim,
    nodeclass: EC2NodeClass,
    instance_type: InstanceType | None,
    instance: Instance | None,
    *,
    feature_gates: Collection[str],
) -> Drift | DriftUnknown | None:
    """Why the claim's node is not what its class would make now; None = it is.

    ``instance_type``: the claim's in the catalog of the class; ``instance``: as EC2 describes it now; both None = not
    known. ``feature_gates``: feature gates that are on; without ReservedCapacity reservations say nothing.
    """
    stated = _static(claim, nodeclass) or _image(claim, nodeclass, instance_type)
    if stated is not None:
        return stated
    if instance is None or instance.state not in _ALIVE:
        return DriftUnknown(f"EC2 shows no running instance of {claim.provider_id or 'the claim'}")
    return next((one for one in _live(claim, nodeclass, instance, feature_gates) if one is not None), None)


def _static(claim: NodeClaim, nodeclass: EC2NodeClass) -> Drift | None:
    keys = (labels.EC2NODECLASS_HASH, labels.EC2NODECLASS_HASH_VERSION)
    mine, own = claim.metadata.annotations, nodeclass.metadata.annotations
    return static_fields_drift(DriftReason.NODECLASS, f"EC2NodeClass {nodeclass.name}", mine, own, keys)


def _image(
    claim: NodeClaim, nodeclass: EC2NodeClass, instance_type: InstanceType | None
) -> Drift | DriftUnknown | None:
    if instance_type is None:
        return DriftUnknown(f"instance type {claim.metadata.labels.get(labels.INSTANCE_TYPE)} is not in the catalog")
    if not nodeclass.amis or not claim.image_id:
        nothing = f"EC2NodeClass {nodeclass.name}" if claim.image_id else "status.imageID of the claim"
        return DriftUnknown(f"{nothing} names no image")
    wanted = amis.ami_for_type(amis.amis_with_requirements(nodeclass.amis), instance_type)
    if wanted is not None and wanted.id == claim.image_id:
        return None
    said = wanted.id if wanted else f"another: none of the class is for {instance_type.name}"
    return Drift(DriftReason.AMI, f"image: found {claim.image_id}, wanted {said}")


def _live(
    claim: NodeClaim, nodeclass: EC2NodeClass, instance: Instance, gates: Collection[str]
) -> Iterator[Drift | DriftUnknown | None]:
    yield _security_groups(nodeclass, instance)
    yield _subnet(nodeclass, instance)
    if RESERVED_CAPACITY in gates:
        yield _reservation(nodeclass, instance)
    yield _placement_group(claim, nodeclass)


def _security_groups(nodeclass: EC2NodeClass, instance: Instance) -> Drift | DriftUnknown | None:
    wanted = {security_group.id for security_group in nodeclass.security_groups}
    if not wanted or not instance.security_groups:
        return DriftUnknown(f"{'EC2' if wanted else f'EC2NodeClass {nodeclass.name}'} names no security groups")
    return _differs(DriftReason.SECURITY_GROUP, "security groups", instance.security_groups, wanted)


def _subnet(nodeclass: EC2NodeClass, instance: Instance) -> Drift | DriftUnknown | None:
    wanted = {subnet.id for subnet in nodeclass.subnets}
    if not wanted or not instance.subnet_id:
        return DriftUnknown(f"{'EC2' if wanted else f'EC2NodeClass {nodeclass.name}'} names no subnet")
    return _missing(DriftReason.SUBNET, "subnet", instance.subnet_id, wanted)


def _reservation(nodeclass: EC2NodeClass, instance: Instance) -> Drift | None:
    """Only of an instance that EC2 shows in a reservation: one that fell back to on-demand is none."""
    wanted = {reservation.id for reservation in nodeclass.capacity_reservations}
    found = instance.reservation_id
    return _missing(DriftReason.CAPACITY_RESERVATION, "capacity reservation", found, wanted) if found else None


def _placement_group(claim: NodeClaim, nodeclass: EC2NodeClass) -> Drift | DriftUnknown | None:
    group = nodeclass.placement_group
    if group is None and nodeclass.placement_group_selector is not None:
        return DriftUnknown(f"the placement group of EC2NodeClass {nodeclass.name} is not resolved")
    found = claim.metadata.labels.get(labels.PLACEMENT_GROUP_ID, "")
    wanted = {group.id} if group else set[str]()
    return _differs(DriftReason.PLACEMENT_GROUP, "placement group", [found] if found else [], wanted)


def _differs(reason: DriftReason, what: str, found: Iterable[str], wanted: Collection[str]) -> Drift | None:
    if set(found) == set(wanted):
        return None
    return Drift(reason, f"{what}: found {_listed(found)}, wanted {_listed(wanted)}")


def _missing(reason: DriftReason, what: str, found: str, wanted: Collection[str]) -> Drift | None:
    if found in wanted:
        return None
    return Drift(reason, f"{what}: found {found}, wanted {'one of ' if len(wanted) > 1 else ''}{_listed(wanted)}")


def _listed(ids: Iterable[str]) -> str:
    names = sorted(ids)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "none") + more
