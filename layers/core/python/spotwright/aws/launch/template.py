"""The launch template of a launch: image, disks, profile, security groups, metadata service, user data, tags.

A launch template's name holds the hash of its content: equal launches share a launch template, and a change makes a new
one.
Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from spotwright.aws.images.families import AMIFamily
from spotwright.aws.launch.network_interfaces import network_interfaces
from spotwright.aws.launch.placement import enclave_options, placement_fields
from spotwright.model import labels, quantity
from spotwright.model.karpenter.nodeclass import AMI, BlockDeviceMapping, EC2NodeClass
from spotwright.model.requirements import Requirements

_GIB: Final = 2**30
# "spotwright/" (11), a cluster's name (at most 100), "/" and these are the 128 characters that a name may have.
_HASH_DIGITS: Final = 16


class TemplateOptions(msgspec.Struct, frozen=True):
    """What of a launch template follows from the pods and the cluster rather than from the EC2NodeClass.

    ``efa``: number of EFA interfaces that pods request. ``ipv6``: the cluster's services have IPv6 addresses.
    ``reservation_fields``: the fields that name the capacity reservation of the instances, or forbid reservations.
    ``partition``: the partition of AWS, such as aws-iso.
    """

    requirements: Requirements = Requirements()
    requests: dict[str, int] = {}
    efa: int = 0
    ipv6: bool = False
    reservation_fields: dict[str, Any] = {}
    partition: str = "aws"


_DEFAULT_OPTIONS: Final = TemplateOptions()


class LaunchTemplateRequest(msgspec.Struct, frozen=True):
    """A launch template to ensure. ``data``: RequestLaunchTemplateData; ``tags``: of the launch template itself."""

    name: str
    data: dict[str, Any]
    tags: dict[str, str]


def launch_template_request(
    *,
    cluster: str,
    nodepool: str,
    nodeclass: EC2NodeClass,
    family: AMIFamily,
    ami: AMI,
    user_data: str,
    capacity_type: str,
    options: TemplateOptions = _DEFAULT_OPTIONS,
) -> LaunchTemplateRequest:
    """The template by which instances of a pool and class start from ``ami``."""
    tags = launch_tags(cluster=cluster, nodepool=nodepool, nodeclass=nodeclass)
    data = template_data(
        nodeclass=nodeclass,
        family=family,
        ami=ami,
        user_data=user_data,
        capacity_type=capacity_type,
        tags=tags,
        options=options,
    )
    return LaunchTemplateRequest(template_name(cluster, data, tags), data, tags)


def template_name(cluster: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """``spotwright/<cluster>/<hash>``."""
    content = msgspec.json.encode([data, tags], order="deterministic")
    return f"spotwright/{cluster}/{hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]}"


def launch_tags(*, cluster: str, nodepool: str, nodeclass: EC2NodeClass) -> dict[str, str]:
    """The tags of every resource of a launch: those of the EC2NodeClass, and Spotwright's, which win."""
    return dict(nodeclass.tags) | {
        labels.cluster_tag(cluster): "owned",
        labels.CLUSTER_NAME_TAG: cluster,
        labels.NODEPOOL: nodepool,
        labels.EC2NODECLASS: nodeclass.name,
    }


def template_data(
    *,
    nodeclass: EC2NodeClass,
    family: AMIFamily,
    ami: AMI,
    user_data: str,
    capacity_type: str,
    tags: Mapping[str, str],
    options: TemplateOptions = _DEFAULT_OPTIONS,
) -> dict[str, Any]:
    """RequestLaunchTemplateData without the fields that the class leaves out: EC2 or the image decides them."""
    tagged_resources = ["network-interface"] + (["spot-instances-request"] if capacity_type == labels.SPOT else [])
    data: dict[str, Any] = {
        "IamInstanceProfile": {"Name": nodeclass.resolved_instance_profile},
        "ImageId": ami.id,
        "MetadataOptions": _metadata_options(nodeclass, options.partition),
        "Monitoring": {"Enabled": bool(nodeclass.detailed_monitoring)},
        "NetworkInterfaces": network_interfaces(nodeclass, efa_count=options.efa, ipv6=options.ipv6),
        "Placement": placement_fields(nodeclass, options.requirements),
        "TagSpecifications": tag_specifications(tagged_resources, tags),
    }
    data |= enclave_options(options.requests) | options.reservation_fields
    if nodeclass.cpu_options and nodeclass.cpu_options.nested_virtualization:
        data["CpuOptions"] = {"NestedVirtualization": nodeclass.cpu_options.nested_virtualization}
    devices = nodeclass.block_device_mappings or family.block_device_mappings
    if devices:
        data["BlockDeviceMappings"] = [_block_device_mapping(device) for device in devices]
    if user_data:
        data["UserData"] = base64.b64encode(user_data.encode()).decode()
    return data


def _metadata_options(nodeclass: EC2NodeClass, partition: str) -> dict[str, Any]:
    options = nodeclass.metadata_options
    # EC2 of the isolated partitions refuses this field.
    ipv6 = {} if partition.startswith("aws-iso") else {"HttpProtocolIpv6": options.http_protocol_ipv6}
    return ipv6 | {
        "HttpEndpoint": options.http_endpoint,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": "disabled",
    }


def _block_device_mapping(device: BlockDeviceMapping) -> dict[str, Any]:
    fields = {
        "DeleteOnTermination": device.delete_on_termination,
        "Encrypted": device.encrypted,
        "Iops": device.iops,
        "KmsKeyId": device.kms_key_id or None,
        "SnapshotId": device.snapshot_id or None,
        "Throughput": device.throughput,
        "VolumeInitializationRate": device.volume_initialization_rate,
        "VolumeSize": gibibytes(device.volume_size) if device.volume_size else None,
        "VolumeType": device.volume_type or None,
    }
    return {"DeviceName": device.device_name, "Ebs": {key: value for key, value in fields.items() if value is not None}}


def gibibytes(size: str) -> int:
    """A volume's size in whole GiB, rounded up, which is the unit EC2 takes."""
    return -(-quantity.amount("ephemeral-storage", size) // _GIB)


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 lists them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def tag_specifications(kinds: Iterable[str], tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]
