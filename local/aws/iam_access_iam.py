"""IAM itself: instance profiles and roles, and PassRole where one is put into the other.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsidentityandaccessmanagementiam.html
"""

from collections.abc import Mapping
from typing import Any

from moto.iam.models import iam_backends

from local.aws.iam_policy import ANY_RESOURCE, Access
from local.aws.iam_tags import from_pairs, request_tags, resource_tags
from local.aws.request import AwsRequest
from local.aws.world import World


def of(world: World, request: AwsRequest) -> list[Access]:
    params, action = request.params, f"iam:{request.action}"
    asked = request_tags(from_pairs(params.get("Tags")))
    if "InstanceProfileName" in params:
        resource, own = _profile(world, params)
        touched = [Access(action, resource, {**asked, **own})]
        if request.action == "CreateInstanceProfile" and params.get("Tags"):
            # Creating with tags asks for both.
            touched.append(Access("iam:TagInstanceProfile", resource, {**asked, **own}))
        if request.action == "AddRoleToInstanceProfile":
            touched.append(Access("iam:PassRole", _role(world, params["RoleName"]), _TO_EC2))
        return touched
    if request.action == "ListInstanceProfiles":
        path = str(params.get("PathPrefix") or "/").strip("/")
        return [Access(action, f"arn:aws:iam::{world.account}:instance-profile/{path}".rstrip("/") + "/")]
    if "RoleName" in params:
        return [Access(action, _role(world, params["RoleName"], params), asked)]
    if "PolicyArn" in params:
        return [Access(action, params["PolicyArn"], asked)]
    return [Access(action, ANY_RESOURCE, asked)]


_TO_EC2 = {"iam:passedtoservice": ("ec2.amazonaws.com",)}


def _profile(world: World, params: Mapping[str, Any]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """(ARN, resource tags) of the named profile, which may be about to be made."""
    name = params["InstanceProfileName"]
    for profile in iam_backends[world.account]["aws"].instance_profiles.values():
        if profile.name == name:
            return profile.arn, resource_tags(from_pairs(profile.tags), "iam")
    path = params.get("Path") or "/"
    return f"arn:aws:iam::{world.account}:instance-profile{path}{name}", {}


def _role(world: World, name: str, params: Mapping[str, Any] | None = None) -> str:
    for role in iam_backends[world.account]["aws"].get_roles():
        if role.name == name:
            return str(role.arn)
    path = (params or {}).get("Path") or "/"
    return f"arn:aws:iam::{world.account}:role{path}{name}"
