"""The status of an EC2NodeClass: what its selectors match, and its conditions."""

from spotwright.manifests.crds.openapi import Schema, array, boolean, date_time, enum, integer, object_with, string
from spotwright.manifests.crds.shared_fields import conditions


def nodeclass_status() -> Schema:
    return object_with(
        "What the selectors match, and whether nodes can be launched.",
        {
            "subnets": _resolved_list("Subnets, with most free addresses first.", _subnet(), "id", "zone"),
            "securityGroups": _resolved_list("Security groups, by id.", _security_group(), "id"),
            "amis": _resolved_list("Images, newest first.", _ami(), "id", "requirements"),
            "capacityReservations": _resolved_list("Capacity reservations, by id.", _reservation(), "id"),
            "placementGroup": object_with("The placement group of the nodes.", _placement_group(), required=["id"]),
            "instanceProfile": string("The instance profile of the nodes."),
            "conditions": conditions(),
        },
    )


def _resolved_list(description: str, properties: dict[str, Schema], *required: str) -> Schema:
    return array(description, object_with("", properties, required=required))


def _subnet() -> dict[str, Schema]:
    return {
        "id": string("The subnet's id."),
        "zone": string("The name of its zone, such as us-east-1a."),
        "zoneID": string("The id of its zone, such as use1-az1."),
    }


def _security_group() -> dict[str, Schema]:
    return {"id": string("The group's id."), "name": string("The group's name.")}


def _ami() -> dict[str, Schema]:
    requirement = {
        "key": string("The label that is constrained."),
        "operator": string("How the values constrain the label."),
        "values": array("The values that the operator applies to.", string("")),
    }
    return {
        "id": string("The image's id."),
        "name": string("The image's name."),
        "deprecated": boolean("Whether the image is deprecated in EC2; it is used only if no other image matches."),
        "requirements": array(
            "Requirements on the instance types that use the image.",
            object_with("", requirement, required=["key", "operator"]),
        ),
    }


def _reservation() -> dict[str, Schema]:
    return {
        "id": string("The reservation's id."),
        "availabilityZone": string("The zone of its instances."),
        "instanceType": string("The type of its instances."),
        "instanceMatchCriteria": enum("Which instances use it.", "open", "targeted"),
        "ownerID": string("The account that owns it."),
        "reservationType": enum("An On-Demand Capacity Reservation or a Capacity Block.", "default", "capacity-block"),
        "interruptible": boolean("Whether EC2 may take its instances back."),
        "state": enum("Expiring shortly before a Capacity Block ends.", "active", "expiring"),
        "endTime": date_time("When the reservation ends; unset = it has no end."),
    }


def _placement_group() -> dict[str, Schema]:
    return {
        "id": string("The group's id."),
        "name": string("The group's name."),
        "strategy": enum("How EC2 places instances of the group.", "cluster", "partition", "spread"),
        "partitionCount": integer("How many partitions a partition placement group has.", 0, 7),
    }
