"""The status of a class as Kubernetes stores it."""

from datetime import UTC
from typing import Any

from spotwright.model.karpenter.nodeclass import AMI, CapacityReservation, EC2NodeClass, PlacementGroup


def status_patch(node_class: EC2NodeClass) -> dict[str, Any]:
    """The status fields of a class for a merge patch; conditions are written on their own."""
    return {
        "subnets": [{"id": one.id, "zone": one.zone} | _given("zoneID", one.zone_id) for one in node_class.subnets],
        "securityGroups": [{"id": one.id} | _given("name", one.name) for one in node_class.security_groups],
        "amis": [_ami(one) for one in node_class.amis],
        "capacityReservations": [_reservation(one) for one in node_class.capacity_reservations] or None,
        "placementGroup": _placement_group(node_class.placement_group),
        "instanceProfile": node_class.resolved_instance_profile or None,
    }


def _ami(ami: AMI) -> dict[str, Any]:
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
    } | ({"endTime": one.end_time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")} if one.end_time else {})


def _placement_group(group: PlacementGroup | None) -> dict[str, Any] | None:
    if group is None:
        return None
    shown = {"id": group.id, "name": group.name, "strategy": group.strategy}
    return shown | ({"partitionCount": group.partition_count} if group.partition_count else {})


def _given(key: str, text: str) -> dict[str, Any]:
    return {key: text} if text else {}
