"""What was found for an EC2NodeClass, as others read it in its status."""

from spotwright.manifests.schema import Schema, choice, fields, flag, moment, several, text, whole
from spotwright.manifests.shapes import conditions


def node_class_status() -> Schema:
    return fields(
        "What the selectors found.",
        {
            "subnets": _found("Most free addresses first.", _subnet(), "id", "zone"),
            "securityGroups": _found("By id.", {"id": text(""), "name": text("")}, "id"),
            "amis": _found("Newest first.", _ami(), "id", "requirements"),
            "capacityReservations": _found("By id.", _reservation(), "id"),
            "placementGroup": fields("The group that nodes start in.", _placement_group(), required=["id"]),
            "instanceProfile": text("The instance profile of the nodes."),
            "conditions": conditions(),
        },
    )


def _found(description: str, properties: dict[str, Schema], *required: str) -> Schema:
    return several(description, fields("", properties, required=required))


def _subnet() -> dict[str, Schema]:
    return {"id": text(""), "zone": text("Name, such as us-east-1a."), "zoneID": text("Id, such as use1-az1.")}


def _ami() -> dict[str, Schema]:
    requirement = {
        "key": text(""),
        "operator": text(""),
        "values": several("", text("")),
    }
    return {
        "id": text(""),
        "name": text(""),
        "deprecated": flag("EC2 calls the image deprecated; used only if nothing newer is found."),
        "requirements": several(
            "Which instances can start from it.", fields("", requirement, required=["key", "operator"])
        ),
    }


def _reservation() -> dict[str, Schema]:
    return {
        "id": text(""),
        "availabilityZone": text(""),
        "instanceType": text(""),
        "instanceMatchCriteria": choice("", "open", "targeted"),
        "ownerID": text(""),
        "reservationType": choice("", "default", "capacity-block"),
        "interruptible": flag(""),
        "state": choice("", "active", "expiring"),
        "endTime": moment("When the reservation ends; unset = when somebody ends it."),
    }


def _placement_group() -> dict[str, Schema]:
    return {
        "id": text(""),
        "name": text(""),
        "strategy": choice("", "cluster", "partition", "spread"),
        "partitionCount": whole("Partitions of a partition group.", 0, 7),
    }
