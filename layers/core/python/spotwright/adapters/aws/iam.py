"""Instance profiles: one per class and role, made once, under a path that belongs to the class."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import Conflict, NotFound
from spotwright.model.ec2.fleet import InstanceProfile

if TYPE_CHECKING:
    from mypy_boto3_iam.client import IAMClient
    from mypy_boto3_iam.type_defs import InstanceProfileTypeDef


class InstanceProfiles:
    """See InstanceProfilePort."""

    def __init__(self, client: "IAMClient") -> None:
        self._client = client

    def role_of(self, name: str) -> str | None:
        found = self._get(name)
        if found is None:
            return None
        return next((role["RoleName"] for role in found["Roles"]), "")

    def ensure(self, *, name: str, path: str, role: str, tags: Mapping[str, str]) -> None:
        found = self._get(name)
        attached = "" if found is None else next((one["RoleName"] for one in found["Roles"]), "")
        if found is None:
            self._create(name, path, tags)
        if attached == role:
            return
        if attached:
            with translate_errors(f"RemoveRoleFromInstanceProfile {name}"):
                self._client.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=attached)
        try:
            with translate_errors(f"AddRoleToInstanceProfile {name}"):
                self._client.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        except NotFound:
            self.delete(name)
            raise

    def _create(self, name: str, path: str, tags: Mapping[str, str]) -> None:
        try:
            with translate_errors(f"CreateInstanceProfile {name}"):
                self._client.create_instance_profile(
                    InstanceProfileName=name,
                    Path=path,
                    Tags=[{"Key": key, "Value": tags[key]} for key in sorted(tags)],
                )
        except Conflict:
            return

    def names_under(self, path: str) -> tuple[str, ...]:
        return tuple(one.name for one in self.profiles_under(path))

    def profiles_under(self, path: str) -> tuple[InstanceProfile, ...]:
        with translate_errors(f"ListInstanceProfiles {path}"):
            pages = self._client.get_paginator("list_instance_profiles").paginate(PathPrefix=path)
            found = [_profile(one) for page in pages for one in page["InstanceProfiles"]]
        # What is listed here gets deleted: the path is believed only when it stands in the answer.
        return tuple(sorted((one for one in found if one.path.startswith(path)), key=lambda one: one.name))

    def read(self, name: str) -> InstanceProfile | None:
        found = self._get(name)
        return None if found is None else _profile(found)

    def delete(self, name: str) -> None:
        found = self._get(name)
        if found is None:
            return
        try:
            for role in found["Roles"]:
                with translate_errors(f"RemoveRoleFromInstanceProfile {name}"):
                    self._client.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role["RoleName"])
            with translate_errors(f"DeleteInstanceProfile {name}"):
                self._client.delete_instance_profile(InstanceProfileName=name)
        except NotFound:
            return

    def _get(self, name: str) -> "InstanceProfileTypeDef | None":
        try:
            with translate_errors(f"GetInstanceProfile {name}"):
                return self._client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        except NotFound:
            return None


def _profile(one: "InstanceProfileTypeDef") -> InstanceProfile:
    tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags") or ()}
    return InstanceProfile(one["InstanceProfileName"], one["Path"], one["CreateDate"], tags)
