"""The status of a class as Kubernetes stores it."""

from typing import Any

from spotwright.model.karpenter.nodeclass import AMI, CapacityReservation, EC2NodeClass, PlacementGroup
from spotwright.model.kubernetes.meta import format_time


def status_patch(nodeclass: EC2NodeClass) -> dict[str, Any]:
    """The status fields of a class for a merge patch; conditions are written on their own."""
    return {
        "subnets": [
            {"id": subnet.id, "zone": subnet.zone} | _if_set("zoneID", subnet.zone_id) for subnet in nodeclass.subnets
        ],
        "securityGroups": [
            {"id": security_group.id} | _if_set("name", security_group.name)
            for security_group in nodeclass.security_groups
        ],
        "amis": [_ami(ami) for ami in nodeclass.amis],
        "capacityReservations": [_reservation(reservation) for reservation in nodeclass.capacity_reservations] or None,
        "placementGroup": _placement_group(nodeclass.placement_group),
        "instanceProfile": nodeclass.resolved_instance_profile or None,
    }


def _ami(ami: AMI) -> dict[str, Any]:
    requirements = [
        {"key": expression.key, "operator": str(expression.operator)}
        | ({"values": list(expression.values)} if expression.values else {})
        for expression in ami.requirements
    ]
    fields = {"id": ami.id, "requirements": requirements} | _if_set("name", ami.name)
    return fields | ({"deprecated": True} if ami.deprecated else {})


def _reservation(reservation: CapacityReservation) -> dict[str, Any]:
    return {
        "availabilityZone": reservation.zone,
        "id": reservation.id,
        "instanceMatchCriteria": reservation.instance_match_criteria,
        "instanceType": reservation.instance_type,
        "interruptible": reservation.interruptible,
        "ownerID": reservation.owner_id,
        "reservationType": reservation.reservation_type,
        "state": reservation.state,
    } | ({"endTime": format_time(reservation.end_time)} if reservation.end_time else {})


def _placement_group(group: PlacementGroup | None) -> dict[str, Any] | None:
    if group is None:
        return None
    fields = {"id": group.id, "name": group.name, "strategy": group.strategy}
    return fields | ({"partitionCount": group.partition_count} if group.partition_count else {})


def _if_set(key: str, text: str) -> dict[str, Any]:
    return {key: text} if text else {}
