"""AWS::IAM: roles, policies, instance profiles."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, changed_tags, completing, ignoring, picked
from local.aws.cloudformation.intrinsics import Made

# IAM keeps at most five versions of a managed policy.
_POLICY_VERSIONS = 5


class Role:
    handled = frozenset(
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

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("RoleName") or call.name(64)
        role = call.client("iam").create_role(
            RoleName=name,
            AssumeRolePolicyDocument=_document(properties["AssumeRolePolicyDocument"]),
            Tags=call.tag_list(properties),
            **picked(properties, "Path", "Description", "MaxSessionDuration", "PermissionsBoundary"),
        )["Role"]
        made = Made(name, {"Arn": role["Arn"], "RoleId": role["RoleId"]})
        with completing(made):
            self._grant(call, name, properties, {})
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        iam, name = call.client("iam"), made.physical_id
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
        self._grant(call, name, properties, before)
        changed_tags(
            lambda tags: iam.tag_role(RoleName=name, Tags=[{"Key": k, "Value": v} for k, v in tags.items()]),
            lambda keys: iam.untag_role(RoleName=name, TagKeys=keys),
            call.tag_map(before),
            call.tag_map(properties),
        )
        return made

    def _grant(self, call: Call, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Managed and inline policies from `before` to `properties`."""
        iam = call.client("iam")
        new, old = _listed(properties, "ManagedPolicyArns"), _listed(before, "ManagedPolicyArns")
        for arn in sorted(new - old):
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
        for arn in sorted(old - new):
            ignoring("NoSuchEntity", iam.detach_role_policy, RoleName=name, PolicyArn=arn)
        inline = {policy["PolicyName"]: policy["PolicyDocument"] for policy in properties.get("Policies", ())}
        for policy, document in inline.items():
            iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=_document(document))
        for policy in before.get("Policies", ()):
            if policy["PolicyName"] not in inline:
                ignoring("NoSuchEntity", iam.delete_role_policy, RoleName=name, PolicyName=policy["PolicyName"])

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        try:
            self._grant(call, made.physical_id, {}, properties)
        except call.client("iam").exceptions.NoSuchEntityException:
            return
        ignoring("NoSuchEntity", call.client("iam").delete_role, RoleName=made.physical_id)


class Policy:
    """An inline policy put on roles, users and groups."""

    handled = frozenset(("Groups", "PolicyDocument", "PolicyName", "Roles", "Users"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        self._put(call, properties)
        return Made(properties["PolicyName"])

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        self._put(call, properties)
        renamed = properties["PolicyName"] != before["PolicyName"]
        left = {
            kind: [one for one in before.get(kind, ()) if renamed or one not in properties.get(kind, ())]
            for kind in ("Roles", "Users", "Groups")
        }
        self.delete(call, made, {"PolicyName": before["PolicyName"], **left})
        return Made(properties["PolicyName"])

    def _put(self, call: Call, properties: Mapping[str, Any]) -> None:
        iam, name = call.client("iam"), properties["PolicyName"]
        document = _document(properties["PolicyDocument"])
        for role in properties.get("Roles", ()):
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=document)
        for user in properties.get("Users", ()):
            iam.put_user_policy(UserName=user, PolicyName=name, PolicyDocument=document)
        for group in properties.get("Groups", ()):
            iam.put_group_policy(GroupName=group, PolicyName=name, PolicyDocument=document)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        iam, name = call.client("iam"), properties["PolicyName"]
        for role in properties.get("Roles", ()):
            ignoring("NoSuchEntity", iam.delete_role_policy, RoleName=role, PolicyName=name)
        for user in properties.get("Users", ()):
            ignoring("NoSuchEntity", iam.delete_user_policy, UserName=user, PolicyName=name)
        for group in properties.get("Groups", ()):
            ignoring("NoSuchEntity", iam.delete_group_policy, GroupName=group, PolicyName=name)


class ManagedPolicy:
    handled = frozenset(("Description", "ManagedPolicyName", "Path", "PolicyDocument", "Roles"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        iam = call.client("iam")
        policy = iam.create_policy(
            PolicyName=properties.get("ManagedPolicyName") or call.name(128),
            PolicyDocument=_document(properties["PolicyDocument"]),
            **picked(properties, "Path", "Description"),
        )["Policy"]
        made = Made(policy["Arn"], {"PolicyArn": policy["Arn"], "PolicyId": policy["PolicyId"]})
        with completing(made):
            self._attach(call, made, properties, {})
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        iam, arn = call.client("iam"), made.physical_id
        if properties["PolicyDocument"] != before["PolicyDocument"]:
            old = [v for v in iam.list_policy_versions(PolicyArn=arn)["Versions"] if not v["IsDefaultVersion"]]
            if len(old) + 1 >= _POLICY_VERSIONS:
                oldest = min(old, key=lambda version: version["CreateDate"])
                iam.delete_policy_version(PolicyArn=arn, VersionId=oldest["VersionId"])
            document = _document(properties["PolicyDocument"])
            iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
        self._attach(call, made, properties, before)
        return made

    def _attach(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        iam = call.client("iam")
        new, old = _listed(properties, "Roles"), _listed(before, "Roles")
        for role in sorted(new - old):
            iam.attach_role_policy(RoleName=role, PolicyArn=made.physical_id)
        for role in sorted(old - new):
            ignoring("NoSuchEntity", iam.detach_role_policy, RoleName=role, PolicyArn=made.physical_id)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        iam, arn = call.client("iam"), made.physical_id
        self._attach(call, made, {}, properties)
        try:
            versions = iam.list_policy_versions(PolicyArn=arn)["Versions"]
        except iam.exceptions.NoSuchEntityException:
            return
        for version in versions:
            if not version["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=arn, VersionId=version["VersionId"])
        iam.delete_policy(PolicyArn=arn)


class InstanceProfile:
    handled = frozenset(("InstanceProfileName", "Path", "Roles"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        iam, name = call.client("iam"), properties.get("InstanceProfileName") or call.name(128)
        profile = iam.create_instance_profile(InstanceProfileName=name, **picked(properties, "Path"))
        made = Made(name, {"Arn": profile["InstanceProfile"]["Arn"]})
        with completing(made):
            for role in properties.get("Roles", ()):
                iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        iam, name = call.client("iam"), made.physical_id
        for role in sorted(_listed(before, "Roles") - _listed(properties, "Roles")):
            iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
        for role in sorted(_listed(properties, "Roles") - _listed(before, "Roles")):
            iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        iam, name = call.client("iam"), made.physical_id
        for role in properties.get("Roles", ()):
            ignoring("NoSuchEntity", iam.remove_role_from_instance_profile, InstanceProfileName=name, RoleName=role)
        ignoring("NoSuchEntity", iam.delete_instance_profile, InstanceProfileName=name)


def _document(policy: Any) -> str:
    return policy if isinstance(policy, str) else json.dumps(policy)


def _listed(properties: Mapping[str, Any], name: str) -> set[str]:
    return set(properties.get(name) or ())
