"""EC2NodeClasses, as the API server or a manifest states them, into the model."""

from collections.abc import Iterable

from spotwright.adapters import decode, fields
from spotwright.adapters import decode_nodeclass_network as network
from spotwright.adapters.decode import Json
from spotwright.model.karpenter.nodeclass import (
    AMI,
    BlockDeviceMapping,
    EC2NodeClass,
    MetadataOptions,
    SecurityGroup,
    SelectorTerm,
    Subnet,
)
from spotwright.model.kubernetes.meta import Condition


def readable_nodeclass(obj: Json) -> EC2NodeClass:
    """A class that the API server let pass; one that cannot be read counts as not Ready, and stops no other."""
    try:
        return nodeclass(obj)
    except decode.MALFORMED as error:
        why = decode.unread(error)
        broken = Condition("Ready", "False", "Unreadable", f"it cannot be read: {why}")
        return EC2NodeClass(decode.sound(decode.metadata(obj)), conditions=(broken,), read_error=why)


def nodeclass(obj: Json) -> EC2NodeClass:
    """An EC2NodeClass with the CRD's defaults; raises one of ``decode.MALFORMED``."""
    return decode.sound(_nodeclass(obj))


def _nodeclass(obj: Json) -> EC2NodeClass:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    options = spec.get("metadataOptions") or {}
    return EC2NodeClass(
        metadata=decode.metadata(obj),
        subnet_selector_terms=_terms(spec.get("subnetSelectorTerms")),
        security_group_selector_terms=_terms(spec.get("securityGroupSelectorTerms")),
        ami_selector_terms=_terms(spec.get("amiSelectorTerms")),
        ami_family=spec.get("amiFamily") or "",
        role=spec.get("role") or "",
        instance_profile=spec.get("instanceProfile") or "",
        user_data=spec.get("userData") or "",
        tags=dict(spec.get("tags") or {}),
        kubelet=dict(spec.get("kubelet") or {}),
        block_device_mappings=tuple(_block_device(one) for one in spec.get("blockDeviceMappings") or ()),
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
        capacity_reservation_selector_terms=network.reservation_terms(spec.get("capacityReservationSelectorTerms")),
        placement_group_selector=network.placement_group_selector(spec.get("placementGroupSelector")),
        network_interfaces=network.network_interfaces(spec.get("networkInterfaces")),
        ip_prefix_count=spec.get("ipPrefixCount"),
        connection_tracking=network.connection_tracking(spec.get("connectionTracking")),
        cpu_options=network.cpu_options(spec.get("cpuOptions")),
        explicitly_empty=network.stated_empty(spec),
        problems=fields.problems(obj),
        subnets=tuple(
            Subnet(one["id"], one.get("zone") or "", one.get("zoneID") or "") for one in status.get("subnets") or ()
        ),
        security_groups=tuple(
            SecurityGroup(one["id"], one.get("name") or "") for one in status.get("securityGroups") or ()
        ),
        amis=tuple(
            AMI(
                one["id"], one.get("name") or "", bool(one.get("deprecated")), decode.selectors(one.get("requirements"))
            )
            for one in status.get("amis") or ()
        ),
        capacity_reservations=network.capacity_reservations(status.get("capacityReservations")),
        placement_group=network.placement_group(status.get("placementGroup")),
        resolved_instance_profile=status.get("instanceProfile") or "",
        conditions=decode.conditions(obj),
    )


def _terms(items: Iterable[Json] | None) -> tuple[SelectorTerm, ...]:
    return tuple(
        SelectorTerm(
            tags=dict(one.get("tags") or {}),
            id=one.get("id") or "",
            name=one.get("name") or "",
            owner=str(one.get("owner") or ""),
            alias=one.get("alias") or "",
            ssm_parameter=one.get("ssmParameter") or "",
        )
        for one in items or ()
    )


def _block_device(one: Json) -> BlockDeviceMapping:
    ebs = one.get("ebs") or {}
    return BlockDeviceMapping(
        device_name=one.get("deviceName") or "",
        root_volume=bool(one.get("rootVolume")),
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
