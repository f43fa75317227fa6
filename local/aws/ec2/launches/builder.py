"""From launch template data, an override and request tags to one Launch, refused where EC2 refuses it."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from local.aws.calls.request import AwsError
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.ec2.instances import LaunchSpecification
from local.aws.ec2.launches import parameter_checks, placement_groups, reservation_matching
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

# Raw bytes; https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
USER_DATA_LIMIT = 16_384
TAG_LIMIT = 50


def build_specification(
    emulator: Emulator,
    data: Mapping[str, Any],
    *,
    capacity_type: str,
    request_tags: Sequence[Mapping[str, Any]] = (),
    identifiers: Mapping[str, str],
) -> LaunchSpecification:
    """The launch `data` asks for; `identifiers` holds fleet_id, template_id, template_version, client_token."""
    instance_type, image = _instance_type(emulator, data), _image(emulator, data)
    _check_architecture(emulator, instance_type, image)
    parameter_checks.check_parameters(emulator, emulator.component(Offerings).describe(instance_type), data)
    subnet = _subnet(emulator, data)
    _check_offered(emulator, instance_type, subnet.availability_zone, capacity_type)
    reservation_matching.check_reservation(
        emulator, data, instance_type=instance_type, zone=subnet.availability_zone, capacity_type=capacity_type
    )
    arn, profile_id, role = _profile(emulator, data.get("IamInstanceProfile"))
    return LaunchSpecification(
        instance_type=instance_type,
        image_id=image.id,
        architecture=image.architecture,
        subnet_id=subnet.id,
        zone=subnet.availability_zone,
        capacity_type=capacity_type,
        security_groups=_security_groups(emulator, data, subnet),
        user_data=_user_data(data.get("UserData")),
        profile_arn=arn,
        profile_id=profile_id,
        role_arn=role,
        metadata_options=_metadata_options(data.get("MetadataOptions") or {}),
        block_devices=_block_devices(data, image),
        tags=_tags(data, request_tags, identifiers),
        detailed_monitoring=bool((data.get("Monitoring") or {}).get("Enabled")),
        fleet_id=identifiers.get("fleet_id"),
        key_name=data.get("KeyName"),
        client_token=identifiers.get("client_token", ""),
        capacity_reservation_id=reservation_matching.target_reservation(data),
        capacity_reservation_target=reservation_matching.target_reservation(data),
        capacity_reservation_preference=reservation_matching.reservation_preference(data),
        tenancy=str((data.get("Placement") or {}).get("Tenancy") or "default"),
        placement_group_id=placement_groups.requested_group(emulator, data.get("Placement") or {}),
        partition_number=int((data.get("Placement") or {}).get("PartitionNumber") or 0),
    )


def _instance_type(emulator: Emulator, data: Mapping[str, Any]) -> str:
    instance_type = str(data.get("InstanceType") or "")
    if not emulator.component(Offerings).exists(instance_type):
        raise AwsError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    return instance_type


def _image(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    image_id = str(data.get("ImageId") or "")
    if not image_id:
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    if not image_id.startswith("ami-"):
        raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image_id}" (expecting "ami-...")')
    image = ec2_backends[emulator.account][emulator.region].amis.get(image_id)
    if image is None:
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    return image


def _check_architecture(emulator: Emulator, instance_type: str, image: Any) -> None:
    supported = emulator.component(Offerings).architectures(instance_type)
    if image.architecture not in supported:
        raise AwsError(
            "InvalidParameterValue",
            f"The architecture '{','.join(supported)}' of the specified instance type does not match the"
            f" architecture '{image.architecture}' of the specified AMI. Specify an instance type and an AMI"
            " that have matching architectures, and try again.",
        )


def _subnet(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """The subnet named by the override, by the interface, or the default subnet of the named zone."""
    backend: Any = ec2_backends[emulator.account][emulator.region]
    zone = (data.get("Placement") or {}).get("AvailabilityZone")
    interfaces = data.get("NetworkInterfaces") or []
    subnet_id = data.get("SubnetId") or next((i["SubnetId"] for i in interfaces if i.get("SubnetId")), None)
    if subnet_id is None:
        subnet = backend.get_default_subnets().get(zone)
        if subnet is None:
            raise AwsError("MissingInput", f"No default subnet for availability zone: '{zone}'.")
        return subnet
    subnet = next((zones[subnet_id] for zones in backend.subnets.values() if subnet_id in zones), None)
    if subnet is None:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    if zone and zone != subnet.availability_zone:
        raise AwsError(
            "InvalidParameterValue",
            f"The Availability Zone '{zone}' does not match the Availability Zone"
            f" '{subnet.availability_zone}' of subnet '{subnet_id}'.",
        )
    return subnet


def _check_offered(emulator: Emulator, instance_type: str, zone: str, capacity_type: str) -> None:
    offerings = emulator.component(Offerings)
    if zone not in offerings.zones_by_type.get(instance_type, ()):
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({instance_type}) is not supported in your requested Availability"
            f" Zone ({zone}). Please retry your request by not specifying an Availability Zone or choosing"
            f" {', '.join(sorted(offerings.zones_by_type.get(instance_type, ())))}.",
        )
    if capacity_type == "spot" and not offerings.supports_spot(instance_type):
        raise AwsError("UnsupportedOperation", f"The instance type '{instance_type}' is not supported for Spot.")


def _profile(emulator: Emulator, wanted: Mapping[str, str] | None) -> tuple[str | None, str | None, str | None]:
    """(profile ARN, profile id, role ARN) of the instance profile named in the template."""
    if not wanted:
        return None, None, None
    name = wanted.get("Name") or wanted.get("Arn", "").rsplit("/", 1)[-1]
    profiles = iam_backends[emulator.account]["aws"].instance_profiles.values()
    profile = next((instance_profile for instance_profile in profiles if instance_profile.name == name), None)
    if not emulator.strictness.is_seen(Rule.INSTANCE_PROFILE_PROPAGATION, name):
        profile = None
    if profile is None or (wanted.get("Arn") and wanted["Arn"] != profile.arn):
        parameter = "iamInstanceProfile.name" if wanted.get("Name") else "iamInstanceProfile.arn"
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({wanted.get('Name') or wanted.get('Arn')}) for parameter {parameter} is invalid."
            " Invalid IAM Instance Profile name",
        )
    if not profile.roles:
        raise AwsError("InvalidParameterValue", f"IAM Instance Profile '{profile.arn}' has no associated IAM Roles")
    return profile.arn, profile.id, profile.roles[0].arn


def _security_groups(emulator: Emulator, data: Mapping[str, Any], subnet: Any) -> tuple[str, ...]:
    interfaces, named = data.get("NetworkInterfaces") or [], data.get("SecurityGroupIds") or []
    if interfaces and named:
        raise AwsError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        )
    ids = list(dict.fromkeys(named or [group for item in interfaces for group in item.get("Groups") or []]))
    backend: Any = ec2_backends[emulator.account][emulator.region]
    for group_id in ids:
        group = backend.get_security_group_from_id(group_id)
        if group is None:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        if group.vpc_id != subnet.vpc_id:
            raise AwsError(
                "InvalidParameter",
                f"Security group {group_id} and subnet {subnet.id} belong to different networks.",
            )
    if not ids:
        ids = [backend.get_default_security_group(subnet.vpc_id).id]
    return tuple(ids)


def _user_data(encoded: Any) -> str | None:
    if not encoded:
        return None
    try:
        raw = base64.b64decode(str(encoded), validate=True)
    except ValueError as error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from error
    if len(raw) > USER_DATA_LIMIT:
        raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")
    return str(encoded)


def _metadata_options(options: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        "HttpTokens": "optional",
        "HttpPutResponseHopLimit": 1,
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "disabled",
        "InstanceMetadataTags": "disabled",
    }
    return {"State": "applied"} | defaults | {key: options[key] for key in defaults if key in options}


def _block_devices(data: Mapping[str, Any], image: Any) -> tuple[dict[str, Any], ...]:
    """The image's own root volume, overlaid with the mappings of the template."""
    devices = {image.root_device_name: {"VolumeSize": 20, "VolumeType": "gp3", "DeleteOnTermination": True}}
    for mapping in data.get("BlockDeviceMappings") or []:
        asked = {key: value for key, value in (mapping.get("Ebs") or {}).items() if value is not None}
        devices[mapping["DeviceName"]] = devices.get(mapping["DeviceName"], {}) | asked
    return tuple({"DeviceName": name, "Ebs": {"DeleteOnTermination": True} | ebs} for name, ebs in devices.items())


def _tags(
    data: Mapping[str, Any], request_tags: Sequence[Mapping[str, Any]], identity: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Tags by resource type: the template's, the request's on top, and EC2's own on the instance."""
    tags: dict[str, dict[str, str]] = {}
    for specification in [*(data.get("TagSpecifications") or []), *request_tags]:
        pairs = {tag["Key"]: tag.get("Value") or "" for tag in specification.get("Tags") or []}
        tags.setdefault(specification["ResourceType"], {}).update(pairs)
    _check_tags(tags)
    own = {
        "aws:ec2:fleet-id": identity.get("fleet_id"),
        "aws:ec2launchtemplate:id": identity.get("template_id"),
        "aws:ec2launchtemplate:version": identity.get("template_version"),
    }
    instance = tags.setdefault("instance", {})
    instance.update({key: value for key, value in own.items() if value})
    return tags


def _check_tags(tags: Mapping[str, Mapping[str, str]]) -> None:
    for pairs in tags.values():
        if len(pairs) > TAG_LIMIT:
            raise AwsError("TagLimitExceeded", "More than 50 tags specified")
        for key in pairs:
            if key.lower().startswith("aws:"):
                raise AwsError(
                    "InvalidParameterValue",
                    f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved"
                    " for internal use",
                )
            if not 1 <= len(key) <= 128:
                raise AwsError("InvalidParameterValue", "Tag keys must be 1 to 128 characters long.")
        if any(len(value) > 256 for value in pairs.values()):
            raise AwsError("InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters")
