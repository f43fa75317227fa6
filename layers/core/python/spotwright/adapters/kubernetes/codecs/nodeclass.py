"""EC2NodeClasses, from JSON into the model."""

from collections.abc import Iterable
from typing import Final

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, describe_error
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    decode_conditions,
    decode_metadata,
    decode_node_selector_requirements,
    decode_time,
    validate,
)
from spotwright.adapters.kubernetes.codecs.unknown_fields import field_problems
from spotwright.model.karpenter.nodeclass import (
    AMI,
    BlockDeviceMapping,
    CapacityReservation,
    CapacityReservationSelectorTerm,
    ConnectionTracking,
    CPUOptions,
    EC2NodeClass,
    MetadataOptions,
    NetworkInterface,
    PlacementGroup,
    PlacementGroupSelector,
    SecurityGroup,
    SelectorTerm,
    Subnet,
)
from spotwright.model.kubernetes.meta import Condition


def decode_nodeclass(obj: Json) -> EC2NodeClass:
    """An EC2NodeClass; a class that cannot be read is not Ready and says why in ``read_error``."""
    try:
        return decode_nodeclass_strict(obj)
    except DECODE_ERRORS as error:
        why = describe_error(error)
        not_ready = Condition("Ready", "False", "Unreadable", f"it cannot be read: {why}")
        return EC2NodeClass(validate(decode_metadata(obj)), conditions=(not_ready,), read_error=why)


def decode_nodeclass_strict(obj: Json) -> EC2NodeClass:
    """An EC2NodeClass with the CRD's defaults; raises one of DECODE_ERRORS."""
    return validate(_nodeclass(obj))


def _nodeclass(obj: Json) -> EC2NodeClass:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    options = spec.get("metadataOptions") or {}
    return EC2NodeClass(
        metadata=decode_metadata(obj),
        subnet_selector_terms=_terms(spec.get("subnetSelectorTerms")),
        security_group_selector_terms=_terms(spec.get("securityGroupSelectorTerms")),
        ami_selector_terms=_terms(spec.get("amiSelectorTerms")),
        ami_family=spec.get("amiFamily") or "",
        role=spec.get("role") or "",
        instance_profile=spec.get("instanceProfile") or "",
        user_data=spec.get("userData") or "",
        tags=dict(spec.get("tags") or {}),
        kubelet=dict(spec.get("kubelet") or {}),
        block_device_mappings=tuple(
            _block_device(block_device_mapping) for block_device_mapping in spec.get("blockDeviceMappings") or ()
        ),
        metadata_options=MetadataOptions(
            http_endpoint=options.get("httpEndpoint") or "enabled",
            http_protocol_ipv6=options.get("httpProtocolIPv6") or "disabled",
            http_put_response_hop_limit=options.get("httpPutResponseHopLimit") or 1,
            http_tokens=options.get("httpTokens") or "required",
        ),
        detailed_monitoring=spec.get("detailedMonitoring"),
        associate_public_ip_address=spec.get("associatePublicIPAddress"),
        instance_store_policy=spec.get("instanceStorePolicy") or "",
        context=spec.get("context") or "",
        capacity_reservation_selector_terms=decode_reservation_terms(spec.get("capacityReservationSelectorTerms")),
        placement_group_selector=decode_placement_group_selector(spec.get("placementGroupSelector")),
        network_interfaces=decode_network_interfaces(spec.get("networkInterfaces")),
        ip_prefix_count=spec.get("ipPrefixCount"),
        connection_tracking=decode_connection_tracking(spec.get("connectionTracking")),
        cpu_options=decode_cpu_options(spec.get("cpuOptions")),
        explicitly_empty=explicitly_empty_fields(spec),
        problems=field_problems(obj),
        subnets=tuple(
            Subnet(subnet["id"], subnet.get("zone") or "", subnet.get("zoneID") or "")
            for subnet in status.get("subnets") or ()
        ),
        security_groups=tuple(
            SecurityGroup(security_group["id"], security_group.get("name") or "")
            for security_group in status.get("securityGroups") or ()
        ),
        amis=tuple(
            AMI(
                ami["id"],
                ami.get("name") or "",
                bool(ami.get("deprecated")),
                decode_node_selector_requirements(ami.get("requirements")),
            )
            for ami in status.get("amis") or ()
        ),
        capacity_reservations=decode_capacity_reservations(status.get("capacityReservations")),
        placement_group=decode_placement_group(status.get("placementGroup")),
        resolved_instance_profile=status.get("instanceProfile") or "",
        conditions=decode_conditions(obj),
    )


def _terms(items: Iterable[Json] | None) -> tuple[SelectorTerm, ...]:
    return tuple(
        SelectorTerm(
            tags=dict(item.get("tags") or {}),
            id=item.get("id") or "",
            name=item.get("name") or "",
            owner=str(item.get("owner") or ""),
            alias=item.get("alias") or "",
            ssm_parameter=item.get("ssmParameter") or "",
        )
        for item in items or ()
    )


def _block_device(mapping: Json) -> BlockDeviceMapping:
    ebs = mapping.get("ebs") or {}
    return BlockDeviceMapping(
        device_name=mapping.get("deviceName") or "",
        root_volume=bool(mapping.get("rootVolume")),
        volume_size=str(ebs.get("volumeSize") or ""),
        volume_type=ebs.get("volumeType") or "",
        iops=ebs.get("iops"),
        throughput=ebs.get("throughput"),
        encrypted=ebs.get("encrypted"),
        delete_on_termination=ebs.get("deleteOnTermination"),
        kms_key_id=ebs.get("kmsKeyID") or "",
        snapshot_id=ebs.get("snapshotID") or "",
        volume_initialization_rate=ebs.get("volumeInitializationRate"),
    )


# Hashed fields for which an empty value gives another hash than an absent field.
_HASHED_EMPTY: Final = ("tags", "blockDeviceMappings", "networkInterfaces", "userData", "context")


def explicitly_empty_fields(spec: Json) -> frozenset[str]:
    """The hashed fields that the manifest states as empty."""
    return frozenset(name for name in _HASHED_EMPTY if spec.get(name) in ({}, [], ""))


def decode_reservation_terms(items: Iterable[Json] | None) -> tuple[CapacityReservationSelectorTerm, ...]:
    return tuple(
        CapacityReservationSelectorTerm(
            tags=dict(item.get("tags") or {}),
            id=item.get("id") or "",
            owner_id=str(item.get("ownerID") or ""),
            instance_match_criteria=item.get("instanceMatchCriteria") or "",
        )
        for item in items or ()
    )


def decode_placement_group_selector(selector: Json | None) -> PlacementGroupSelector | None:
    return None if selector is None else PlacementGroupSelector(selector.get("name") or "", selector.get("id") or "")


def decode_network_interfaces(items: Iterable[Json] | None) -> tuple[NetworkInterface, ...]:
    return tuple(
        NetworkInterface(
            item.get("networkCardIndex") or 0, item.get("deviceIndex") or 0, item.get("interfaceType") or "interface"
        )
        for item in items or ()
    )


def decode_connection_tracking(tracking: Json | None) -> ConnectionTracking | None:
    if tracking is None:
        return None
    return ConnectionTracking(
        tracking.get("tcpEstablishedTimeout"), tracking.get("udpStreamTimeout"), tracking.get("udpTimeout")
    )


def decode_cpu_options(options: Json | None) -> CPUOptions | None:
    return None if options is None else CPUOptions(options.get("nestedVirtualization") or "")


def decode_capacity_reservations(items: Iterable[Json] | None) -> tuple[CapacityReservation, ...]:
    """The reservations of the status, which does not hold how many instances are left."""
    return tuple(
        CapacityReservation(
            id=item["id"],
            instance_type=item.get("instanceType") or "",
            zone=item.get("availabilityZone") or "",
            owner_id=item.get("ownerID") or "",
            instance_match_criteria=item.get("instanceMatchCriteria") or "",
            reservation_type=item.get("reservationType") or "default",
            interruptible=bool(item.get("interruptible")),
            state=item.get("state") or "active",
            end_time=decode_time(item.get("endTime")),
        )
        for item in items or ()
    )


def decode_placement_group(group: Json | None) -> PlacementGroup | None:
    if not group:
        return None
    return PlacementGroup(
        group["id"], group.get("name") or "", group.get("strategy") or "", group.get("partitionCount") or 0
    )
