"""AWS::IAM: roles, policies, instance profiles."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ignore_error, partial_creation, pick, update_tags

# IAM keeps at most five versions of a managed policy.
_POLICY_VERSIONS = 5


class Role:
    supported_properties = frozenset(
        (
            "AssumeRolePolicyDocument",
            "Description",
            "ManagedPolicyArns",
            "MaxSessionDuration",
            "Path",
            "PermissionsBoundary",
            "Policies",
            "RoleName",
            "Tags",
        )
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("RoleName") or request.physical_name(64)
        role = request.client("iam").create_role(
            RoleName=name,
            AssumeRolePolicyDocument=_document(properties["AssumeRolePolicyDocument"]),
            Tags=request.tag_list(properties),
            **pick(properties, "Path", "Description", "MaxSessionDuration", "PermissionsBoundary"),
        )["Role"]
        resource = PhysicalResource(name, {"Arn": role["Arn"], "RoleId": role["RoleId"]})
        with partial_creation(resource):
            self._grant(request, name, properties, {})
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        iam, name = request.client("iam"), resource.physical_id
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=_document(properties["AssumeRolePolicyDocument"]))
        iam.update_role(
            RoleName=name,
            Description=properties.get("Description", ""),
            MaxSessionDuration=int(properties.get("MaxSessionDuration", 3600)),
        )
        if properties.get("PermissionsBoundary"):
            iam.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=properties["PermissionsBoundary"])
        elif before.get("PermissionsBoundary"):
            iam.delete_role_permissions_boundary(RoleName=name)
        self._grant(request, name, properties, before)
        update_tags(
            lambda tags: iam.tag_role(RoleName=name, Tags=[{"Key": k, "Value": v} for k, v in tags.items()]),
            lambda keys: iam.untag_role(RoleName=name, TagKeys=keys),
            request.tag_map(before),
            request.tag_map(properties),
        )
        return resource

    def _grant(
        self, request: HandlerRequest, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Managed and inline policies from `before` to `properties`."""
        iam = request.client("iam")
        new, old = _listed(properties, "ManagedPolicyArns"), _listed(before, "ManagedPolicyArns")
        for arn in sorted(new - old):
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
        for arn in sorted(old - new):
            ignore_error("NoSuchEntity", iam.detach_role_policy, RoleName=name, PolicyArn=arn)
        inline = {policy["PolicyName"]: policy["PolicyDocument"] for policy in properties.get("Policies", ())}
        for policy, document in inline.items():
            iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=_document(document))
        for policy in before.get("Policies", ()):
            if policy["PolicyName"] not in inline:
                ignore_error("NoSuchEntity", iam.delete_role_policy, RoleName=name, PolicyName=policy["PolicyName"])

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        try:
            self._grant(request, resource.physical_id, {}, properties)
        except request.client("iam").exceptions.NoSuchEntityException:
            return
        ignore_error("NoSuchEntity", request.client("iam").delete_role, RoleName=resource.physical_id)


class Policy:
    """An inline policy put on roles, users and groups."""

    supported_properties = frozenset(("Groups", "PolicyDocument", "PolicyName", "Roles", "Users"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        self._put(request, properties)
        return PhysicalResource(properties["PolicyName"])

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        self._put(request, properties)
        renamed = properties["PolicyName"] != before["PolicyName"]
        left = {
            kind: [policy for policy in before.get(kind, ()) if renamed or policy not in properties.get(kind, ())]
            for kind in ("Roles", "Users", "Groups")
        }
        self.delete(request, resource, {"PolicyName": before["PolicyName"], **left})
        return PhysicalResource(properties["PolicyName"])

    def _put(self, request: HandlerRequest, properties: Mapping[str, Any]) -> None:
        iam, name = request.client("iam"), properties["PolicyName"]
        document = _document(properties["PolicyDocument"])
        for role in properties.get("Roles", ()):
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=document)
        for user in properties.get("Users", ()):
            iam.put_user_policy(UserName=user, PolicyName=name, PolicyDocument=document)
        for group in properties.get("Groups", ()):
            iam.put_group_policy(GroupName=group, PolicyName=name, PolicyDocument=document)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        iam, name = request.client("iam"), properties["PolicyName"]
        for role in properties.get("Roles", ()):
            ignore_error("NoSuchEntity", iam.delete_role_policy, RoleName=role, PolicyName=name)
        for user in properties.get("Users", ()):
            ignore_error("NoSuchEntity", iam.delete_user_policy, UserName=user, PolicyName=name)
        for group in properties.get("Groups", ()):
            ignore_error("NoSuchEntity", iam.delete_group_policy, GroupName=group, PolicyName=name)


class ManagedPolicy:
    supported_properties = frozenset(("Description", "ManagedPolicyName", "Path", "PolicyDocument", "Roles"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        iam = request.client("iam")
        policy = iam.create_policy(
            PolicyName=properties.get("ManagedPolicyName") or request.physical_name(128),
            PolicyDocument=_document(properties["PolicyDocument"]),
            **pick(properties, "Path", "Description"),
        )["Policy"]
        resource = PhysicalResource(policy["Arn"], {"PolicyArn": policy["Arn"], "PolicyId": policy["PolicyId"]})
        with partial_creation(resource):
            self._attach(request, resource, properties, {})
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        iam, arn = request.client("iam"), resource.physical_id
        if properties["PolicyDocument"] != before["PolicyDocument"]:
            old = [v for v in iam.list_policy_versions(PolicyArn=arn)["Versions"] if not v["IsDefaultVersion"]]
            if len(old) + 1 >= _POLICY_VERSIONS:
                oldest = min(old, key=lambda version: version["CreateDate"])
                iam.delete_policy_version(PolicyArn=arn, VersionId=oldest["VersionId"])
            document = _document(properties["PolicyDocument"])
            iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
        self._attach(request, resource, properties, before)
        return resource

    def _attach(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> None:
        iam = request.client("iam")
        new, old = _listed(properties, "Roles"), _listed(before, "Roles")
        for role in sorted(new - old):
            iam.attach_role_policy(RoleName=role, PolicyArn=resource.physical_id)
        for role in sorted(old - new):
            ignore_error("NoSuchEntity", iam.detach_role_policy, RoleName=role, PolicyArn=resource.physical_id)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        iam, arn = request.client("iam"), resource.physical_id
        self._attach(request, resource, {}, properties)
        try:
            versions = iam.list_policy_versions(PolicyArn=arn)["Versions"]
        except iam.exceptions.NoSuchEntityException:
            return
        for version in versions:
            if not version["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=arn, VersionId=version["VersionId"])
        iam.delete_policy(PolicyArn=arn)


class InstanceProfile:
    supported_properties = frozenset(("InstanceProfileName", "Path", "Roles"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        iam, name = request.client("iam"), properties.get("InstanceProfileName") or request.physical_name(128)
        profile = iam.create_instance_profile(InstanceProfileName=name, **pick(properties, "Path"))
        resource = PhysicalResource(name, {"Arn": profile["InstanceProfile"]["Arn"]})
        with partial_creation(resource):
            for role in properties.get("Roles", ()):
                iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        iam, name = request.client("iam"), resource.physical_id
        for role in sorted(_listed(before, "Roles") - _listed(properties, "Roles")):
            iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
        for role in sorted(_listed(properties, "Roles") - _listed(before, "Roles")):
            iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        iam, name = request.client("iam"), resource.physical_id
        for role in properties.get("Roles", ()):
            ignore_error("NoSuchEntity", iam.remove_role_from_instance_profile, InstanceProfileName=name, RoleName=role)
        ignore_error("NoSuchEntity", iam.delete_instance_profile, InstanceProfileName=name)


def _document(policy: Any) -> str:
    return policy if isinstance(policy, str) else json.dumps(policy)


def _listed(properties: Mapping[str, Any], name: str) -> set[str]:
    return set(properties.get(name) or ())
