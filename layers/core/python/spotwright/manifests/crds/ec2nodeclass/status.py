"""The status of an EC2NodeClass: what its selectors match, and its conditions."""

from spotwright.manifests.crds.openapi import Schema, array, boolean, date_time, enum, integer, object_with, string
from spotwright.manifests.crds.shared_fields import conditions


def nodeclass_status() -> Schema:
    return object_with(
        "What the selectors found.",
        {
            "subnets": _resolved_list("Most free addresses first.", _subnet(), "id", "zone"),
            "securityGroups": _resolved_list("By id.", {"id": string(""), "name": string("")}, "id"),
            "amis": _resolved_list("Newest first.", _ami(), "id", "requirements"),
            "capacityReservations": _resolved_list("By id.", _reservation(), "id"),
            "placementGroup": object_with("The group that nodes start in.", _placement_group(), required=["id"]),
            "instanceProfile": string("The instance profile of the nodes."),
            "conditions": conditions(),
        },
    )


def _resolved_list(description: str, properties: dict[str, Schema], *required: str) -> Schema:
    return array(description, object_with("", properties, required=required))


def _subnet() -> dict[str, Schema]:
    return {"id": string(""), "zone": string("Name, such as us-east-1a."), "zoneID": string("Id, such as use1-az1.")}


def _ami() -> dict[str, Schema]:
    requirement = {
        "key": string(""),
        "operator": string(""),
        "values": array("", string("")),
    }
    return {
        "id": string(""),
        "name": string(""),
        "deprecated": boolean("EC2 calls the image deprecated; used only if nothing newer is found."),
        "requirements": array(
            "Which instances can start from it.", object_with("", requirement, required=["key", "operator"])
        ),
    }


def _reservation() -> dict[str, Schema]:
    return {
        "id": string(""),
        "availabilityZone": string(""),
        "instanceType": string(""),
        "instanceMatchCriteria": enum("", "open", "targeted"),
        "ownerID": string(""),
        "reservationType": enum("", "default", "capacity-block"),
        "interruptible": boolean(""),
        "state": enum("", "active", "expiring"),
        "endTime": date_time("When the reservation ends; unset = when somebody ends it."),
    }


def _placement_group() -> dict[str, Schema]:
    return {
        "id": string(""),
        "name": string(""),
        "strategy": enum("", "cluster", "partition", "spread"),
        "partitionCount": integer("Partitions of a partition group.", 0, 7),
    }
