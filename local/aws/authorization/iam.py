"""IAM itself: instance profiles and roles, and PassRole where one is put into the other.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsidentityandaccessmanagementiam.html
"""

from collections.abc import Mapping
from typing import Any

from moto.iam.models import iam_backends

from local.aws.calls.request import AwsRequest
from local.aws.emulator import Emulator
from local.aws.iam.condition_keys import request_tags, resource_tags, tags_from_pairs
from local.aws.iam.policies import ANY_RESOURCE, AccessRequest


def required_access(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    params, action = request.params, f"iam:{request.action}"
    asked = request_tags(tags_from_pairs(params.get("Tags")))
    if "InstanceProfileName" in params:
        resource, own = _profile(emulator, params)
        touched = [AccessRequest(action, resource, {**asked, **own})]
        if request.action == "CreateInstanceProfile" and params.get("Tags"):
            # Creating with tags asks for both.
            touched.append(AccessRequest("iam:TagInstanceProfile", resource, {**asked, **own}))
        if request.action == "AddRoleToInstanceProfile":
            touched.append(AccessRequest("iam:PassRole", _role(emulator, params["RoleName"]), _TO_EC2))
        return touched
    if request.action == "ListInstanceProfiles":
        path = str(params.get("PathPrefix") or "/").strip("/")
        return [AccessRequest(action, f"arn:aws:iam::{emulator.account}:instance-profile/{path}".rstrip("/") + "/")]
    if "RoleName" in params:
        return [AccessRequest(action, _role(emulator, params["RoleName"], params), asked)]
    if "PolicyArn" in params:
        return [AccessRequest(action, params["PolicyArn"], asked)]
    return [AccessRequest(action, ANY_RESOURCE, asked)]


_TO_EC2 = {"iam:passedtoservice": ("ec2.amazonaws.com",)}


def _profile(emulator: Emulator, params: Mapping[str, Any]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """(ARN, resource tags) of the named profile, which may be about to be made."""
    name = params["InstanceProfileName"]
    for profile in iam_backends[emulator.account]["aws"].instance_profiles.values():
        if profile.name == name:
            return profile.arn, resource_tags(tags_from_pairs(profile.tags), "iam")
    path = params.get("Path") or "/"
    return f"arn:aws:iam::{emulator.account}:instance-profile{path}{name}", {}


def _role(emulator: Emulator, name: str, params: Mapping[str, Any] | None = None) -> str:
    for role in iam_backends[emulator.account]["aws"].get_roles():
        if role.name == name:
            return str(role.arn)
    path = (params or {}).get("Path") or "/"
    return f"arn:aws:iam::{emulator.account}:role{path}{name}"
