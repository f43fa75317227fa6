"""An instance as DescribeInstances and as the control API show it."""

from typing import Any

from local.aws.ec2.instances import STATE_CODES, Instance, Instances
from local.aws.ec2.launches import placement_groups, reservation_matching
from local.aws.emulator import Emulator


def instance_shape(emulator: Emulator, instance: Instance) -> dict[str, Any]:
    """The Instance shape of EC2's API. A terminated instance has neither address nor interfaces."""
    launch, alive = instance.launch, instance.state != "terminated"
    code, message = instance.state_reason
    shape: dict[str, Any] = {
        "InstanceId": instance.id,
        "ImageId": launch.image_id,
        "InstanceType": launch.instance_type,
        "State": {"Name": instance.state, "Code": STATE_CODES[instance.state]},
        "StateTransitionReason": message and f"User initiated ({instance.state_changed_at:%Y-%m-%d %H:%M:%S} GMT)",
        "LaunchTime": instance.launch_time,
        "AmiLaunchIndex": instance.moto_instance.ami_launch_index,
        "Architecture": launch.architecture,
        "ClientToken": launch.client_token,
        "EbsOptimized": False,
        "EnaSupport": True,
        "Hypervisor": "xen",
        "VirtualizationType": "hvm",
        "Platform": None,
        "PlatformDetails": "Linux/UNIX",
        "Monitoring": {"State": "enabled" if launch.detailed_monitoring else "disabled"},
        "Placement": {"AvailabilityZone": launch.zone, "Tenancy": launch.tenancy}
        | placement_groups.placement_shape(emulator, instance),
        "MetadataOptions": dict(launch.metadata_options),
        "PrivateDnsName": private_dns_name(emulator, instance) if alive else "",
        "PublicDnsName": "",
        "RootDeviceName": instance.moto_instance.root_device_name,
        "RootDeviceType": "ebs",
        "SecurityGroups": _security_groups(instance) if alive else [],
        "Tags": [{"Key": k, "Value": v} for k, v in emulator.component(Instances).tags(instance.id).items()],
        "BlockDeviceMappings": _devices(instance) if alive else [],
        "NetworkInterfaces": _interfaces(emulator, instance) if alive else [],
    }
    if alive:
        shape |= {
            "PrivateIpAddress": instance.moto_instance.private_ip,
            "SubnetId": launch.subnet_id,
            "VpcId": instance.moto_instance.vpc_id,
        }
    if code:
        shape["StateReason"] = {"Code": code, "Message": message}
    if instance.spot_request_id:
        shape |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": instance.spot_request_id}
    shape |= reservation_matching.reservation_shape(emulator, instance)
    if launch.profile_arn:
        shape["IamInstanceProfile"] = {"Arn": launch.profile_arn, "Id": launch.profile_id}
    if launch.key_name:
        shape["KeyName"] = launch.key_name
    return shape


def private_dns_name(emulator: Emulator, instance: Instance) -> str:
    """IP-based name, which is also the node's name with the default subnet settings."""
    dashed = str(instance.moto_instance.private_ip).replace(".", "-")
    domain = "ec2.internal" if emulator.region == "us-east-1" else f"{emulator.region}.compute.internal"
    return f"ip-{dashed}.{domain}"


def _security_groups(instance: Instance) -> list[dict[str, str]]:
    return [{"GroupId": group.id, "GroupName": group.name} for group in instance.moto_instance.security_groups]


def _devices(instance: Instance) -> list[dict[str, Any]]:
    return [
        {
            "DeviceName": name,
            "Ebs": {
                "VolumeId": device.volume_id,
                "Status": "attached",
                "AttachTime": instance.launch_time,
                "DeleteOnTermination": bool(device.delete_on_termination),
            },
        }
        for name, device in instance.moto_instance.get_block_device_mapping
    ]


def _interfaces(emulator: Emulator, instance: Instance) -> list[dict[str, Any]]:
    return [
        {
            "NetworkInterfaceId": interface.id,
            "SubnetId": instance.launch.subnet_id,
            "VpcId": instance.moto_instance.vpc_id,
            "OwnerId": emulator.account,
            "Status": "in-use",
            "PrivateIpAddress": interface.private_ip_address,
            "PrivateDnsName": private_dns_name(emulator, instance),
            "Groups": _security_groups(instance),
            "SourceDestCheck": True,
            "InterfaceType": "interface",
            "PrivateIpAddresses": [{"Primary": True, "PrivateIpAddress": interface.private_ip_address}],
            "Attachment": {
                "AttachmentId": interface.attachment_id,
                "DeviceIndex": index,
                "Status": "attached",
                "DeleteOnTermination": True,
                "NetworkCardIndex": 0,
            },
        }
        for index, interface in instance.moto_instance.nics.items()
    ]


def control_view(emulator: Emulator, instance: Instance) -> dict[str, Any]:
    """The instance as `GET /_local/instances` shows it, with what it was launched with."""
    launch = instance.launch
    return {
        "id": instance.id,
        "state": instance.state,
        "reason": instance.state_reason[0],
        "changed": instance.state_changed_at.isoformat(),
        "instanceType": launch.instance_type,
        "architecture": launch.architecture,
        "zone": launch.zone,
        "subnetId": launch.subnet_id,
        "vpcId": instance.moto_instance.vpc_id,
        "privateIp": instance.moto_instance.private_ip,
        "privateDnsName": private_dns_name(emulator, instance),
        "capacityType": launch.capacity_type,
        "tags": emulator.component(Instances).tags(instance.id),
        "imageId": launch.image_id,
        "userData": launch.user_data,
        "instanceProfileArn": launch.profile_arn,
        "role": launch.role_arn,
        "securityGroups": list(launch.security_groups),
        "launchTime": instance.launch_time.isoformat(),
        "metadataOptions": dict(launch.metadata_options),
        "blockDevices": [dict(device) for device in launch.block_devices],
        "fleetId": launch.fleet_id,
        "capacityReservation": launch.capacity_reservation_id,
    }
