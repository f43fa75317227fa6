"""Network, reservations and placement of a class, read and written back."""

from datetime import UTC, datetime

from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
from spotwright.aws.nodeclass import status_patch
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    CapacityReservationSelectorTerm,
    ConnectionTracking,
    CPUOptions,
    EC2NodeClass,
    NetworkInterface,
    PlacementGroup,
    PlacementGroupSelector,
)
from spotwright.model.kubernetes.meta import ObjectMeta


def test_a_class_states_network_reservations_and_placement() -> None:
    spec = {
        "capacityReservationSelectorTerms": [{"id": "cr-1"}, {"tags": {"a": "*"}, "ownerID": "123456789012"}],
        "placementGroupSelector": {"name": "near"},
        "networkInterfaces": [{"networkCardIndex": 1, "deviceIndex": 2, "interfaceType": "efa-only"}],
        "ipPrefixCount": 0,
        "connectionTracking": {"udpTimeout": 45},
        "cpuOptions": {"nestedVirtualization": "enabled"},
        "userData": "",
    }
    nodeclass = decode_nodeclass_strict({"kind": "EC2NodeClass", "metadata": {"name": "x"}, "spec": spec})
    assert nodeclass.capacity_reservation_selector_terms == (
        CapacityReservationSelectorTerm(id="cr-1"),
        CapacityReservationSelectorTerm(tags={"a": "*"}, owner_id="123456789012"),
    )
    assert nodeclass.placement_group_selector == PlacementGroupSelector(name="near")
    assert nodeclass.network_interfaces == (NetworkInterface(1, 2, "efa-only"),)
    assert (nodeclass.ip_prefix_count, nodeclass.connection_tracking) == (0, ConnectionTracking(udp_timeout=45))
    assert (nodeclass.cpu_options, nodeclass.explicitly_empty) == (CPUOptions("enabled"), frozenset({"userData"}))


def test_the_status_of_a_class_is_read_as_it_is_written() -> None:
    end = datetime(2026, 3, 1, 11, 30, tzinfo=UTC)
    block = CapacityReservation(
        "cr-1", "p5.48xlarge", "us-east-1a", "123456789012", "targeted", "capacity-block", False, "expiring", end
    )
    written = EC2NodeClass(
        ObjectMeta("x"),
        capacity_reservations=(block, CapacityReservation("cr-2", "m5.large", "us-east-1b", interruptible=True)),
        placement_group=PlacementGroup("pg-1", "near", "partition", 3),
    )
    obj = {"kind": "EC2NodeClass", "metadata": {"name": "x"}, "spec": {}, "status": status_patch.status_patch(written)}
    read = decode_nodeclass_strict(obj)
    assert read.capacity_reservations == written.capacity_reservations
    assert read.placement_group == written.placement_group
