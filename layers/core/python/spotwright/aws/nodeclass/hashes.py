"""The hashes for drift: of the static fields of an EC2NodeClass, and of the template of a NodePool.

Both equal what Karpenter writes under the same annotations, so that nodes taken over from it do not drift. The hash of
a class leaves out ``ipPrefixCount`` and fields that drift compares with the instance (images, subnets, security groups,
reservations). The hash of a pool leaves out its requirements.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.aws.images import families
from spotwright.aws.nodeclass.hashstructure import GoDuration, GoInt32, GoPointer, GoStruct, GoValue, hash_value
from spotwright.model.karpenter.nodeclass import BlockDeviceMapping, EC2NodeClass, NetworkInterface
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.taints import Taint

NODECLASS_VERSION: Final = "v6"
NODEPOOL_VERSION: Final = "v3"
_NANOSECONDS: Final = 10**9

# Integers that Karpenter declares with 32 bits; the others have 64.
_FOUR_BYTES: Final = frozenset(
    {
        "volumeInitializationRate", "tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout", "networkCardIndex",
        "deviceIndex",
    }
)  # fmt: skip

# The empty value of a field, for fields that the manifest states as empty.
_EMPTY: Final[Mapping[str, Any]] = {
    "tags": {}, "blockDeviceMappings": [], "networkInterfaces": [], "userData": "", "context": "",
}  # fmt: skip

type _Fields = Sequence[tuple[str, str]]

_EBS: Final[_Fields] = (
    ("DeleteOnTermination", "deleteOnTermination"),
    ("Encrypted", "encrypted"),
    ("IOPS", "iops"),
    ("KMSKeyID", "kmsKeyID"),
    ("SnapshotID", "snapshotID"),
    ("Throughput", "throughput"),
    ("VolumeInitializationRate", "volumeInitializationRate"),
    ("VolumeSize", "volumeSize"),
    ("VolumeType", "volumeType"),
)
_METADATA_OPTIONS: Final[_Fields] = (
    ("HTTPEndpoint", "httpEndpoint"),
    ("HTTPProtocolIPv6", "httpProtocolIPv6"),
    ("HTTPPutResponseHopLimit", "httpPutResponseHopLimit"),
    ("HTTPTokens", "httpTokens"),
)
_PLACEMENT_GROUP: Final[_Fields] = (("Name", "name"), ("ID", "id"))
_NETWORK_INTERFACE: Final[_Fields] = (
    ("NetworkCardIndex", "networkCardIndex"),
    ("DeviceIndex", "deviceIndex"),
    ("InterfaceType", "interfaceType"),
)
_CPU_OPTIONS: Final[_Fields] = (("NestedVirtualization", "nestedVirtualization"),)
_CONNECTION_TRACKING: Final[_Fields] = (
    ("TCPEstablishedTimeout", "tcpEstablishedTimeout"),
    ("UDPStreamTimeout", "udpStreamTimeout"),
    ("UDPTimeout", "udpTimeout"),
)


def nodeclass_hash(nodeclass: EC2NodeClass, certificate_authority: str) -> str:
    """The hash of a class; ``certificate_authority`` is the cluster's, base64."""
    return nodeclass_spec_hash(
        hashed_fields(nodeclass),
        ami_family=families.ami_family_name(nodeclass),
        certificate_authority=certificate_authority,
        kubelet=nodeclass.kubelet,
    )


def nodeclass_spec_hash(
    spec: Mapping[str, Any], *, ami_family: str, certificate_authority: str, kubelet: Mapping[str, object]
) -> str:
    """The hash of ``spec`` as the API server states it."""
    raw_kubelet = msgspec.json.encode(kubelet, order="deterministic").decode() if kubelet else "null"
    return str(hash_value((_class_record(spec), ami_family, certificate_authority, raw_kubelet)))


def hashed_fields(nodeclass: EC2NodeClass) -> dict[str, Any]:
    """The hashed fields of a class under their names in the API; None = not set."""
    options = nodeclass.metadata_options
    fields = {
        "associatePublicIPAddress": nodeclass.associate_public_ip_address,
        "userData": nodeclass.user_data or None,
        "role": nodeclass.role,
        "instanceProfile": nodeclass.instance_profile or None,
        "tags": nodeclass.tags or None,
        "blockDeviceMappings": [_device(mapping) for mapping in nodeclass.block_device_mappings] or None,
        "instanceStorePolicy": nodeclass.instance_store_policy or None,
        "detailedMonitoring": nodeclass.detailed_monitoring,
        "metadataOptions": {
            "httpEndpoint": options.http_endpoint,
            "httpProtocolIPv6": options.http_protocol_ipv6,
            "httpPutResponseHopLimit": options.http_put_response_hop_limit,
            "httpTokens": options.http_tokens,
        },
        "context": nodeclass.context or None,
    }
    return fields | _network(nodeclass) | {name: _EMPTY[name] for name in nodeclass.explicitly_empty}


def _network(nodeclass: EC2NodeClass) -> dict[str, Any]:
    group, tracking, cpu = nodeclass.placement_group_selector, nodeclass.connection_tracking, nodeclass.cpu_options
    return {
        "placementGroupSelector": None if group is None else {"name": group.name or None, "id": group.id or None},
        "networkInterfaces": [_interface(network_interface) for network_interface in nodeclass.network_interfaces]
        or None,
        "connectionTracking": None
        if tracking is None
        else {
            "tcpEstablishedTimeout": tracking.tcp_established_timeout,
            "udpStreamTimeout": tracking.udp_stream_timeout,
            "udpTimeout": tracking.udp_timeout,
        },
        "cpuOptions": None if cpu is None else {"nestedVirtualization": cpu.nested_virtualization or None},
    }


def _interface(interface: NetworkInterface) -> dict[str, Any]:
    return {
        "networkCardIndex": interface.network_card_index or None,
        "deviceIndex": interface.device_index or None,
        "interfaceType": interface.interface_type,
    }


def _device(device: BlockDeviceMapping) -> dict[str, Any]:
    ebs = {
        "deleteOnTermination": device.delete_on_termination,
        "encrypted": device.encrypted,
        "iops": device.iops,
        "kmsKeyID": device.kms_key_id or None,
        "snapshotID": device.snapshot_id or None,
        "throughput": device.throughput,
        "volumeInitializationRate": device.volume_initialization_rate,
        "volumeSize": device.volume_size or None,
        "volumeType": device.volume_type or None,
    }
    has_ebs = any(value is not None for value in ebs.values())
    return {
        "deviceName": device.device_name or None,
        "rootVolume": device.root_volume,
        "ebs": ebs if has_ebs else None,
    }


def _class_record(spec: Mapping[str, Any]) -> GoStruct:
    options, tracking, cpu = spec.get("metadataOptions"), spec.get("connectionTracking"), spec.get("cpuOptions")
    group = spec.get("placementGroupSelector")
    devices, interfaces = spec.get("blockDeviceMappings"), spec.get("networkInterfaces")
    return GoStruct(
        "EC2NodeClassSpec",
        (
            ("PlacementGroupSelector", _record("PlacementGroupSelector", _PLACEMENT_GROUP, group)),
            ("AssociatePublicIPAddress", spec.get("associatePublicIPAddress")),
            ("UserData", _pointer(spec.get("userData"))),
            ("Role", spec.get("role") or None),
            ("InstanceProfile", spec.get("instanceProfile")),
            ("Tags", spec.get("tags")),
            (
                "BlockDeviceMappings",
                tuple(_device_record(device) for device in devices) if devices is not None else None,
            ),
            ("InstanceStorePolicy", spec.get("instanceStorePolicy")),
            (
                "NetworkInterfaces",
                None if interfaces is None else tuple(_interface_record(interface) for interface in interfaces),
            ),
            ("DetailedMonitoring", spec.get("detailedMonitoring")),
            ("MetadataOptions", _record("MetadataOptions", _METADATA_OPTIONS, options)),
            ("ConnectionTracking", _record("ConnectionTracking", _CONNECTION_TRACKING, tracking)),
            ("Context", _pointer(spec.get("context"))),
            ("CPUOptions", _record("CPUOptions", _CPU_OPTIONS, cpu)),
        ),
    )


def _device_record(device: Mapping[str, Any]) -> GoStruct:
    return GoStruct(
        "BlockDeviceMapping",
        (
            ("DeviceName", device.get("deviceName")),
            ("EBS", _record("BlockDevice", _EBS, device.get("ebs"))),
            ("RootVolume", device.get("rootVolume") or None),
        ),
    )


def _interface_record(interface: Mapping[str, Any]) -> GoStruct:
    """In this Go struct numbers are no pointers, so that a zero is left out."""
    fields = {key: value or None for key, value in interface.items()}
    return GoStruct(
        "NetworkInterface", tuple((field, _scalar(key, fields.get(key))) for field, key in _NETWORK_INTERFACE)
    )


def _record(name: str, fields: _Fields, values: Mapping[str, Any] | None) -> GoValue:
    if values is None:
        return None
    return GoPointer(GoStruct(name, tuple((field, _scalar(key, values.get(key))) for field, key in fields)))


def _pointer(value: GoValue) -> GoValue:
    return None if value is None else GoPointer(value)


def _scalar(key: str, value: GoValue) -> GoValue:
    return GoInt32(value) if key in _FOUR_BYTES and isinstance(value, int) else value


def nodepool_hash(pool: NodePool) -> str:
    """The hash of a pool's template without its requirements."""
    spec = GoStruct(
        "NodeClaimTemplateSpec",
        (
            ("Taints", _value_if_set(pool, "taints", _taints(pool.taints))),
            ("StartupTaints", _value_if_set(pool, "startupTaints", _taints(pool.startup_taints))),
            ("NodeClassRef", _class_reference(pool)),
            ("TerminationGracePeriod", _duration("Duration", pool.termination_grace_period_seconds)),
            ("ExpireAfter", _duration("NillableDuration", pool.expire_after_seconds)),
        ),
    )
    metadata = GoStruct(
        "ObjectMeta",
        (
            ("Labels", _value_if_set(pool, "labels", pool.labels)),
            ("Annotations", _value_if_set(pool, "annotations", pool.annotations)),
        ),
    )
    return str(hash_value(GoStruct("NodeClaimTemplate", (("ObjectMeta", metadata), ("Spec", spec)))))


def _value_if_set(pool: NodePool, name: str, value: GoValue) -> GoValue:
    """A list or map that the manifest states as empty is hashed; an absent one is not."""
    return value if value or name in pool.explicitly_empty else None


def _class_reference(pool: NodePool) -> GoStruct:
    ref = pool.node_class_ref
    return GoStruct("NodeClassReference", (("Kind", ref.kind), ("Name", ref.name), ("Group", ref.group)))


def _taints(taints: tuple[Taint, ...]) -> GoValue:
    return tuple(
        GoStruct("Taint", (("Key", taint.key), ("Value", taint.value), ("Effect", str(taint.effect))))
        for taint in taints
    )


def _duration(name: str, seconds: int | None) -> GoValue:
    return None if seconds is None else GoStruct(name, (("Duration", GoDuration(seconds * _NANOSECONDS)),))
