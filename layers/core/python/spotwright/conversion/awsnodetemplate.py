"""AWSNodeTemplate of karpenter.k8s.aws/v1alpha1, or a Provisioner's own provider, as an EC2NodeClass."""

from typing import Final

from spotwright.conversion import Json, ami_fields, instance_fields, selectors
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing

# What EC2 takes of the metadata service where a template said something of it, but not this.
_METADATA_UNSET: Final = instance_fields.METADATA_OPTIONS | {"httpPutResponseHopLimit": 1, "httpTokens": "optional"}
_AS_IT_IS: Final = ("context", "detailedMonitoring", "userData")


def nodeclass_spec(spec: Json, path: str, remarks: ObjectRemarks) -> Json:
    """``spec`` of a v1 EC2NodeClass; raises ConversionError.

    ``spec``: as the schema has it. ``path``: where it stands.
    """
    given = dict(spec)
    for name in ("apiVersion", "kind"):
        given.pop(name, None)
    identity = _identity(given, path, remarks)
    made = _selected(given, path, remarks) | identity
    made |= instance_fields.tags(given.pop("tags", {}), f"{path}.tags", remarks)
    made |= instance_fields.metadata_options(given.pop("metadataOptions", None), _METADATA_UNSET)
    made |= {name: given.pop(name) for name in _AS_IT_IS if name in given}
    return made


def _selected(given: Json, path: str, remarks: ObjectRemarks) -> Json:
    """Images, disks, subnets and security groups."""
    template = given.pop("launchTemplate", None)
    subnets = _required(given, "subnetSelector", path)
    made: Json = {}
    if template is None:
        chosen = given.pop("amiSelector", None)
        terms = selectors.ami_terms(chosen, f"{path}.amiSelector") if chosen is not None else []
        devices = instance_fields.block_devices(given.pop("blockDeviceMappings", []), f"{path}.blockDeviceMappings")
        made |= ami_fields.ami_fields(given.pop("amiFamily", "AL2"), terms, devices, path, remarks)
        groups = selectors.selector_terms(
            _required(given, "securityGroupSelector", path), f"{path}.securityGroupSelector"
        )
    else:
        made |= _templated(given, template, path, remarks)
        groups = [{"name": "${SECURITY_GROUP_NAME}"}]
    made["subnetSelectorTerms"] = selectors.selector_terms(subnets, f"{path}.subnetSelector")
    made["securityGroupSelectorTerms"] = groups
    return made


# What v1alpha1 did not allow beside a launch template, which held all of it.
_IN_A_TEMPLATE: Final = (
    "securityGroupSelector", "metadataOptions", "amiFamily", "amiSelector", "instanceProfile", "blockDeviceMappings",
    "userData",
)  # fmt: skip


def _templated(given: Json, template: str, path: str, remarks: ObjectRemarks) -> Json:
    """A class that lacks what only the template knows."""
    for name in _IN_A_TEMPLATE:
        if name in given:
            refuse(f"{path}.{name}", given[name], f"cannot be combined with launchTemplate {template}")
    remarks.lost(
        f"{path}.launchTemplate",
        f"{template} has no equal in v1, where launch templates are made from classes: what it says of image,"
        " user data, security groups, disks, instance profile and metadata service belongs into the EC2NodeClass"
        f" (aws ec2 describe-launch-template-versions --launch-template-name {template})",
    )
    remarks.to_do(
        f"{path}.launchTemplate", "write its image in place of AMI_NAME, its groups in place of SECURITY_GROUP_NAME"
    )
    return {"amiFamily": "AL2", "amiSelectorTerms": [{"name": "${AMI_NAME}"}]}


def _identity(given: Json, path: str, remarks: ObjectRemarks) -> Json:
    if "instanceProfile" in given:
        return {"instanceProfile": given.pop("instanceProfile")}
    remarks.to_do(
        f"{path}.instanceProfile",
        f"is not set: {'the launch template' if 'launchTemplate' in given else 'a global setting'} named it. Write the"
        " nodes' role in place of KARPENTER_NODE_ROLE, or that profile as instanceProfile",
    )
    return {"role": instance_fields.ROLE_PLACEHOLDER}


def _required(given: Json, name: str, path: str) -> Json:
    if name not in given:
        refuse_missing(f"{path}.{name}")
    found: Json = given.pop(name)
    return found
