"""Instance profiles: one for each EC2NodeClass and role, under a path of the class (InstanceProfilePort)."""

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
        instance_profile = self._get(name)
        if instance_profile is None:
            return None
        return next((role["RoleName"] for role in instance_profile["Roles"]), "")

    def ensure(self, *, name: str, path: str, role: str, tags: Mapping[str, str]) -> None:
        instance_profile = self._get(name)
        current_role = (
            ""
            if instance_profile is None
            else next((role_object["RoleName"] for role_object in instance_profile["Roles"]), "")
        )
        if instance_profile is None:
            self._create(name, path, tags)
        if current_role == role:
            return
        if current_role:
            with translate_errors(f"RemoveRoleFromInstanceProfile {name}"):
                self._client.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=current_role)
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
        return tuple(instance_profile.name for instance_profile in self.profiles_under(path))

    def profiles_under(self, path: str) -> tuple[InstanceProfile, ...]:
        with translate_errors(f"ListInstanceProfiles {path}"):
            pages = self._client.get_paginator("list_instance_profiles").paginate(PathPrefix=path)
            instance_profiles = [
                _profile(instance_profile) for page in pages for instance_profile in page["InstanceProfiles"]
            ]
        # Callers delete what is listed here, so that the path in the answer is checked too.
        return tuple(
            sorted(
                (instance_profile for instance_profile in instance_profiles if instance_profile.path.startswith(path)),
                key=lambda instance_profile: instance_profile.name,
            )
        )

    def read(self, name: str) -> InstanceProfile | None:
        instance_profile = self._get(name)
        return None if instance_profile is None else _profile(instance_profile)

    def delete(self, name: str) -> None:
        instance_profile = self._get(name)
        if instance_profile is None:
            return
        try:
            for role in instance_profile["Roles"]:
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


def _profile(instance_profile: "InstanceProfileTypeDef") -> InstanceProfile:
    tags = {tag["Key"]: tag["Value"] for tag in instance_profile.get("Tags") or ()}
    return InstanceProfile(
        instance_profile["InstanceProfileName"], instance_profile["Path"], instance_profile["CreateDate"], tags
    )
