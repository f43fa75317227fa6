"""An instance as DescribeInstances and as the control API show it."""

from typing import Any

from local.aws import placement_groups, reserved_launches
from local.aws.ec2_instances import STATE_CODES, Instance, Instances
from local.aws.world import World


def described(world: World, instance: Instance) -> dict[str, Any]:
    """The Instance shape of EC2's API. A terminated instance has neither address nor interfaces."""
    launch, alive = instance.launch, instance.state != "terminated"
    code, message = instance.reason
    shape: dict[str, Any] = {
        "InstanceId": instance.id,
        "ImageId": launch.image_id,
        "InstanceType": launch.instance_type,
        "State": {"Name": instance.state, "Code": STATE_CODES[instance.state]},
        "StateTransitionReason": message and f"User initiated ({instance.changed:%Y-%m-%d %H:%M:%S} GMT)",
        "LaunchTime": instance.launched,
        "AmiLaunchIndex": instance.machine.ami_launch_index,
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
        | placement_groups.shown(world, instance),
        "MetadataOptions": dict(launch.metadata_options),
        "PrivateDnsName": private_dns_name(world, instance) if alive else "",
        "PublicDnsName": "",
        "RootDeviceName": instance.machine.root_device_name,
        "RootDeviceType": "ebs",
        "SecurityGroups": _security_groups(instance) if alive else [],
        "Tags": [{"Key": k, "Value": v} for k, v in world.part(Instances).tags(instance.id).items()],
        "BlockDeviceMappings": _devices(instance) if alive else [],
        "NetworkInterfaces": _interfaces(world, instance) if alive else [],
    }
    if alive:
        shape |= {
            "PrivateIpAddress": instance.machine.private_ip,
            "SubnetId": launch.subnet_id,
            "VpcId": instance.machine.vpc_id,
        }
    if code:
        shape["StateReason"] = {"Code": code, "Message": message}
    if instance.spot_request_id:
        shape |= {"InstanceLifecycle": "spot", "SpotInstanceRequestId": instance.spot_request_id}
    shape |= reserved_launches.shown(world, instance)
    if launch.profile_arn:
        shape["IamInstanceProfile"] = {"Arn": launch.profile_arn, "Id": launch.profile_id}
    if launch.key_name:
        shape["KeyName"] = launch.key_name
    return shape


def private_dns_name(world: World, instance: Instance) -> str:
    """IP-based name, which is also the node's name with the default subnet settings."""
    dashed = str(instance.machine.private_ip).replace(".", "-")
    domain = "ec2.internal" if world.region == "us-east-1" else f"{world.region}.compute.internal"
    return f"ip-{dashed}.{domain}"


def _security_groups(instance: Instance) -> list[dict[str, str]]:
    return [{"GroupId": group.id, "GroupName": group.name} for group in instance.machine.security_groups]


def _devices(instance: Instance) -> list[dict[str, Any]]:
    return [
        {
            "DeviceName": name,
            "Ebs": {
                "VolumeId": device.volume_id,
                "Status": "attached",
                "AttachTime": instance.launched,
                "DeleteOnTermination": bool(device.delete_on_termination),
            },
        }
        for name, device in instance.machine.get_block_device_mapping
    ]


def _interfaces(world: World, instance: Instance) -> list[dict[str, Any]]:
    return [
        {
            "NetworkInterfaceId": interface.id,
            "SubnetId": instance.launch.subnet_id,
            "VpcId": instance.machine.vpc_id,
            "OwnerId": world.account,
            "Status": "in-use",
            "PrivateIpAddress": interface.private_ip_address,
            "PrivateDnsName": private_dns_name(world, instance),
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
        for index, interface in instance.machine.nics.items()
    ]


def shown(world: World, instance: Instance) -> dict[str, Any]:
    """The instance as `GET /_local/instances` shows it, with what it was launched with."""
    launch = instance.launch
    return {
        "id": instance.id,
        "state": instance.state,
        "reason": instance.reason[0],
        "changed": instance.changed.isoformat(),
        "instanceType": launch.instance_type,
        "architecture": launch.architecture,
        "zone": launch.zone,
        "subnetId": launch.subnet_id,
        "vpcId": instance.machine.vpc_id,
        "privateIp": instance.machine.private_ip,
        "privateDnsName": private_dns_name(world, instance),
        "capacityType": launch.capacity_type,
        "tags": world.part(Instances).tags(instance.id),
        "imageId": launch.image_id,
        "userData": launch.user_data,
        "instanceProfileArn": launch.profile_arn,
        "role": launch.role,
        "securityGroups": list(launch.security_groups),
        "launchTime": instance.launched.isoformat(),
        "metadataOptions": dict(launch.metadata_options),
        "blockDevices": [dict(device) for device in launch.block_devices],
        "fleetId": launch.fleet_id,
        "capacityReservation": launch.reservation,
    }
