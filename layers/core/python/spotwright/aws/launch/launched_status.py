"""What the status of a NodeClaim says once its instance exists."""

from collections.abc import Sequence

import msgspec

from spotwright.aws.launch import capacity_reservations, placement
from spotwright.aws.launch.filters import NodeToLaunch
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType
from spotwright.model.karpenter.nodeclass import NetworkInterface
from spotwright.model.requirements import Requirements, from_expressions


class LaunchedStatus(msgspec.Struct, frozen=True):
    """What a NodeClaim's status and labels say of its instance. ``description``: what was bought, and why."""

    provider_id: str
    description: str
    labels: dict[str, str]
    capacity: dict[str, int]
    allocatable: dict[str, int]


def launched_status(
    *,
    instance_id: str,
    zone: str,
    capacity_type: str,
    instance_type: InstanceType,
    node: NodeToLaunch,
    reservation_id: str = "",
    partition_number: int = 0,
    network_interfaces: Sequence[NetworkInterface] = (),
) -> LaunchedStatus:
    """Labels, provider id and resources of a NodeClaim whose instance is of ``instance_type`` in ``zone``.

    Labels with a single value for the type, then those of the plan, then zone, capacity type and tenancy, then those of
    reservation and partition; later ones win. ``reservation_id``: the capacity reservation of the instance, "" = none.
    ``partition_number``: partition of its placement group, 0 = EC2 has not said it yet. ``network_interfaces``: those
    of its class. EFA devices are there only where they are among these, or where pods request them.
    """
    requirements = from_expressions(node.requirements)
    tenancy = placement.tenancy(requirements)
    offering_labels = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type, labels.TENANCY: tenancy}
    reservation_labels = capacity_reservations.reservation_labels(instance_type.offerings, reservation_id)
    reservation_labels |= placement.partition_label(instance_type.requirements, requirements, partition_number)
    type_labels = capacity_reservations.labels_without_reservation(instance_type.requirements) | _offering_labels(
        instance_type, zone, capacity_type
    )
    return LaunchedStatus(
        provider_id=f"aws:///{zone}/{instance_id}",
        description=_description(instance_type, zone, capacity_type, reservation_id, node.reason),
        labels=dict(sorted((type_labels | dict(node.labels) | offering_labels | reservation_labels).items())),
        capacity=_attached(instance_type.capacity, node, network_interfaces),
        allocatable=_attached(instance_type.allocatable, node, network_interfaces),
    )


def _description(instance_type: InstanceType, zone: str, capacity_type: str, reservation_id: str, reason: str) -> str:
    """Type, capacity type, zone and price of the instance; then why the plan wanted what it asked for."""
    price = next(
        (
            f" at ${offering.price_picousd_per_hour / PICOUSD:.4f}/h"
            for offering in instance_type.offerings
            if (offering.zone, offering.capacity_type) == (zone, capacity_type)
        ),
        "",
    )
    reservation = f" from {reservation_id}" if reservation_id else ""
    bought = f"{instance_type.name} {capacity_type} in {zone}{reservation}{price}"
    return f"{bought}. Why: {reason}" if reason else bought


def _attached(
    amounts: dict[str, int], node: NodeToLaunch, network_interfaces: Sequence[NetworkInterface]
) -> dict[str, int]:
    """Without the EFA devices that the type offers and that the instance was launched without."""
    if network_interfaces or node.requests.get(resources.EFA):
        return amounts
    return {name: size for name, size in amounts.items() if name != resources.EFA}


def _offering_labels(instance_type: InstanceType, zone: str, capacity_type: str) -> dict[str, str]:
    offerings = (
        offering
        for offering in instance_type.offerings
        if (offering.zone, offering.capacity_type) == (zone, capacity_type)
    )
    return capacity_reservations.labels_without_reservation(
        next((offering.requirements for offering in offerings), Requirements())
    )
