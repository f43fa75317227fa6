"""What EC2 refuses in a launch besides missing things: interfaces, disks, placement, processor and metadata options.

Source: the EC2 API reference of RunInstances and CreateLaunchTemplate, and EC2's user guide on EFA, EBS volume
types (ranges of IOPS and throughput) and the metadata service.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from local.aws.calls.request import AwsError
from local.aws.ec2.launches.capacity_reservations import CapacityReservations
from local.aws.emulator import Emulator

# Volume type -> (least, most) IOPS that may be asked for.
IOPS = {"gp3": (3000, 80_000), "io1": (100, 64_000), "io2": (100, 256_000)}
THROUGHPUT = (125, 2000)
INITIALIZATION = (100, 300)
TIMEOUTS = {"TcpEstablishedTimeout": (60, 432_000), "UdpStreamTimeout": (60, 180), "UdpTimeout": (30, 60)}
EFA = ("efa", "efa-only")


def check_parameters(emulator: Emulator, description: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """`description` of the instance type, `data` of the template; raises AwsError."""
    _check_interfaces(description, data.get("NetworkInterfaces") or [])
    for mapping in data.get("BlockDeviceMappings") or []:
        _check_volume(str(mapping.get("DeviceName")), mapping.get("Ebs") or {})
    _check_placement(emulator, description, data.get("Placement") or {})
    _check_processor(description, data.get("CpuOptions") or {})
    hops = (data.get("MetadataOptions") or {}).get("HttpPutResponseHopLimit")
    if hops is not None and not 1 <= int(hops) <= 64:
        raise _invalid(hops, "MetadataOptions.HttpPutResponseHopLimit")


def _check_interfaces(description: Mapping[str, Any], interfaces: Sequence[Mapping[str, Any]]) -> None:
    network = description.get("NetworkInfo") or {}
    places = [
        (int(interface.get("NetworkCardIndex") or 0), int(interface.get("DeviceIndex") or 0))
        for interface in interfaces
    ]
    if interfaces and (0, 0) not in places:
        raise AwsError("InvalidParameterCombination", "A primary network interface (device index 0) is required")
    if len(set(places)) != len(places):
        raise AwsError("InvalidParameterValue", "Each network interface requires a unique device index.")
    cards = network.get("NetworkCards") or [{"MaximumNetworkInterfaces": network.get("MaximumNetworkInterfaces", 1)}]
    for card, device in places:
        if card >= len(cards) or device >= int(cards[card].get("MaximumNetworkInterfaces", 1)):
            raise AwsError(
                "AttachmentLimitExceeded",
                f"Interface count exceeds the limit for {description['InstanceType']} at card {card}, device {device}",
            )
    _check_efa(description, network, [interface for interface in interfaces if interface.get("InterfaceType") in EFA])
    public = [interface for interface in interfaces if interface.get("AssociatePublicIpAddress")]
    if public and len(interfaces) > 1:
        raise AwsError(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network"
            " interfaces.",
        )
    for interface in interfaces:
        _check_addresses(interface)


def _check_efa(description: Mapping[str, Any], network: Mapping[str, Any], asked: Sequence[Mapping[str, Any]]) -> None:
    most = int((network.get("EfaInfo") or {}).get("MaximumEfaInterfaces") or 0) if network.get("EfaSupported") else 0
    if len(asked) > most:
        raise AwsError(
            "InvalidParameterCombination",
            f"{description['InstanceType']} supports {most} Elastic Fabric Adapters, {len(asked)} were asked for",
        )


def _check_addresses(interface: Mapping[str, Any]) -> None:
    stated = [key for key in interface if key.startswith(("Ipv4Prefix", "Ipv6", "PrimaryIpv6", "AssociatePublic"))]
    if interface.get("InterfaceType") == "efa-only" and stated:
        raise AwsError("InvalidParameterCombination", f"An EFA-only interface cannot have {stated[0]}")
    if interface.get("Ipv4PrefixCount") and interface.get("SecondaryPrivateIpAddressCount"):
        raise AwsError("InvalidParameterCombination", "Prefixes and secondary addresses cannot be asked for together")
    for key, value in (interface.get("ConnectionTrackingSpecification") or {}).items():
        least, most = TIMEOUTS[key]
        if not least <= int(value) <= most:
            raise _invalid(value, key)


def _check_volume(device: str, ebs: Mapping[str, Any]) -> None:
    kind = str(ebs.get("VolumeType") or "gp2")
    iops, throughput, rate = (ebs.get(key) for key in ("Iops", "Throughput", "VolumeInitializationRate"))
    if kind in ("io1", "io2") and not iops:
        raise AwsError("MissingParameter", f"The parameter iops must be specified for {kind} volumes.")
    if iops:
        if kind not in IOPS:
            raise AwsError("InvalidParameterCombination", f"The parameter iops is not supported for {kind} volumes.")
        _within(iops, IOPS[kind], f"iops of {device}")
    if throughput:
        if kind != "gp3":
            raise AwsError(
                "InvalidParameterCombination", f"The parameter throughput is not supported for {kind} volumes."
            )
        _within(throughput, THROUGHPUT, f"throughput of {device}")
    if rate:
        if not ebs.get("SnapshotId"):
            raise AwsError("InvalidParameterCombination", "volumeInitializationRate needs a snapshot")
        _within(rate, INITIALIZATION, f"volumeInitializationRate of {device}")
    if ebs.get("KmsKeyId") and not ebs.get("Encrypted"):
        raise AwsError(
            "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set."
        )


def _check_placement(emulator: Emulator, description: Mapping[str, Any], placement: Mapping[str, Any]) -> None:
    wanted = placement.get("GroupId") or placement.get("GroupName")
    if not wanted:
        return
    groups = emulator.component(CapacityReservations).placement_groups.values()
    group = next(
        (placement_group for placement_group in groups if wanted in (placement_group.id, placement_group.name)), None
    )
    if group is None:
        raise AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{wanted}' is unknown.")
    if group.strategy not in (description.get("PlacementGroupInfo") or {}).get("SupportedStrategies", ()):
        raise AwsError(
            "InvalidParameterCombination",
            f"{group.strategy.capitalize()} placement groups are not supported by the '{description['InstanceType']}'"
            " instance type. Specify a supported instance type or change the placement group strategy, and try again.",
        )
    number = int(placement.get("PartitionNumber") or 0)
    if number and number > group.partitions:
        raise _invalid(number, "PartitionNumber")


def _check_processor(description: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    if options.get("NestedVirtualization") != "enabled":
        return
    features = (description.get("ProcessorInfo") or {}).get("SupportedFeatures") or []
    if "nested-virtualization" not in features:
        raise AwsError(
            "InvalidParameterCombination", f"{description['InstanceType']} does not support nested virtualization"
        )


def _within(value: Any, limits: tuple[int, int], what: str) -> None:
    if not limits[0] <= int(value) <= limits[1]:
        raise _invalid(value, what)


def _invalid(value: Any, what: str) -> AwsError:
    return AwsError("InvalidParameterValue", f"Value ({value}) for parameter {what} is invalid.")
