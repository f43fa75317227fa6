"""AWSNodeTemplate of karpenter.k8s.aws/v1alpha1, or a Provisioner's own provider, as an EC2NodeClass."""

from typing import Final

from spotwright.conversion import Json, nodeclass_fields, selectors
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing

# EC2's defaults for fields that an AWSNodeTemplate with metadataOptions leaves out.
_METADATA_UNSET: Final = nodeclass_fields.METADATA_OPTIONS | {"httpPutResponseHopLimit": 1, "httpTokens": "optional"}
_UNCHANGED: Final = ("context", "detailedMonitoring", "userData")


def nodeclass_spec(spec: Json, path: str, remarks: ObjectRemarks) -> Json:
    """``spec`` of a v1 EC2NodeClass; raises ConversionError.

    ``spec``: validated by its schema. ``path``: its field path, for remarks.
    """
    remaining = dict(spec)
    for name in ("apiVersion", "kind"):
        remaining.pop(name, None)
    identity = _instance_profile(remaining, path, remarks)
    nodeclass = _convert_selectors(remaining, path, remarks) | identity
    nodeclass |= nodeclass_fields.tags(remaining.pop("tags", {}), f"{path}.tags", remarks)
    nodeclass |= nodeclass_fields.metadata_options(remaining.pop("metadataOptions", None), _METADATA_UNSET)
    nodeclass |= {name: remaining.pop(name) for name in _UNCHANGED if name in remaining}
    return nodeclass


def _convert_selectors(remaining: Json, path: str, remarks: ObjectRemarks) -> Json:
    """Images, disks, subnets and security groups."""
    template = remaining.pop("launchTemplate", None)
    subnets = _pop_required(remaining, "subnetSelector", path)
    nodeclass: Json = {}
    if template is None:
        selector = remaining.pop("amiSelector", None)
        terms = selectors.ami_terms(selector, f"{path}.amiSelector") if selector is not None else []
        devices = nodeclass_fields.block_devices(
            remaining.pop("blockDeviceMappings", []), f"{path}.blockDeviceMappings"
        )
        nodeclass |= nodeclass_fields.ami_fields(remaining.pop("amiFamily", "AL2"), terms, devices, path, remarks)
        groups = selectors.selector_terms(
            _pop_required(remaining, "securityGroupSelector", path), f"{path}.securityGroupSelector"
        )
    else:
        nodeclass |= _launch_template_fields(remaining, template, path, remarks)
        groups = [{"name": "${SECURITY_GROUP_NAME}"}]
    nodeclass["subnetSelectorTerms"] = selectors.selector_terms(subnets, f"{path}.subnetSelector")
    nodeclass["securityGroupSelectorTerms"] = groups
    return nodeclass


# Fields that v1alpha1 did not allow together with a launch template, which has them itself.
_TEMPLATE_FIELDS: Final = (
    "securityGroupSelector", "metadataOptions", "amiFamily", "amiSelector", "instanceProfile", "blockDeviceMappings",
    "userData",
)  # fmt: skip


def _launch_template_fields(remaining: Json, template: str, path: str, remarks: ObjectRemarks) -> Json:
    """Fields for a class with a launch template, with placeholders for what only the launch template says."""
    for name in _TEMPLATE_FIELDS:
        if name in remaining:
            refuse(f"{path}.{name}", remaining[name], f"cannot be combined with launchTemplate {template}")
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


def _instance_profile(remaining: Json, path: str, remarks: ObjectRemarks) -> Json:
    if "instanceProfile" in remaining:
        return {"instanceProfile": remaining.pop("instanceProfile")}
    owner = "the launch template" if "launchTemplate" in remaining else "a global setting"
    remarks.to_do(
        f"{path}.instanceProfile",
        f"is not set: {owner} named it. Write the nodes' role in place of KARPENTER_NODE_ROLE, or that profile as"
        " instanceProfile",
    )
    return {"role": nodeclass_fields.ROLE_PLACEHOLDER}


def _pop_required(remaining: Json, name: str, path: str) -> Json:
    if name not in remaining:
        refuse_missing(f"{path}.{name}")
    value: Json = remaining.pop(name)
    return value
