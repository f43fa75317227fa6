"""AWS::KMS, AWS::SSM and AWS::CDK::Metadata."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ignore_error, partial_creation, pick


class Metadata:
    """AWS::CDK::Metadata holds information and makes nothing."""

    supported_properties = frozenset(("Analytics",))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        return PhysicalResource(request.physical_name())

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        """Nothing was made."""


class Key:
    supported_properties = frozenset(
        (
            "Description",
            "EnableKeyRotation",
            "Enabled",
            "KeyPolicy",
            "KeySpec",
            "KeyUsage",
            "PendingWindowInDays",
            "Tags",
        )
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        kms = request.client("kms")
        metadata = kms.create_key(
            Tags=request.tag_list(properties, "TagKey", "TagValue"),
            **pick(properties, "Description", "KeySpec", "KeyUsage"),
        )["KeyMetadata"]
        resource = PhysicalResource(metadata["KeyId"], {"Arn": metadata["Arn"], "KeyId": metadata["KeyId"]})
        with partial_creation(resource):
            self._settings(request, resource.physical_id, properties)
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        if properties.get("Description") != before.get("Description"):
            request.client("kms").update_key_description(
                KeyId=resource.physical_id, Description=properties.get("Description", "")
            )
        self._settings(request, resource.physical_id, properties)
        return resource

    def _settings(self, request: HandlerRequest, key: str, properties: Mapping[str, Any]) -> None:
        kms = request.client("kms")
        if "KeyPolicy" in properties:
            policy = properties["KeyPolicy"]
            text = policy if isinstance(policy, str) else json.dumps(policy)
            kms.put_key_policy(KeyId=key, PolicyName="default", Policy=text)
        if properties.get("EnableKeyRotation"):
            kms.enable_key_rotation(KeyId=key)
        else:
            kms.disable_key_rotation(KeyId=key)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "NotFound",
            request.client("kms").schedule_key_deletion,
            KeyId=resource.physical_id,
            PendingWindowInDays=int(properties.get("PendingWindowInDays", 30)),
        )


class KeyAlias:
    supported_properties = frozenset(("AliasName", "TargetKeyId"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        request.client("kms").create_alias(**properties)
        return PhysicalResource(properties["AliasName"])

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        request.client("kms").update_alias(**properties)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("NotFound", request.client("kms").delete_alias, AliasName=resource.physical_id)


class Parameter:
    supported_properties = frozenset(
        ("AllowedPattern", "DataType", "Description", "Name", "Policies", "Tags", "Tier", "Type", "Value")
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("Name") or f"CFN-{request.physical_name(200)}"
        fields = {key: value for key, value in properties.items() if key != "Tags"}
        request.client("ssm").put_parameter(**(fields | {"Name": name}), Tags=request.tag_list(properties))
        return PhysicalResource(name, pick(properties, "Type", "Value"))

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        fields = {key: value for key, value in properties.items() if key != "Tags"}
        request.client("ssm").put_parameter(**(fields | {"Name": resource.physical_id}), Overwrite=True)
        return PhysicalResource(resource.physical_id, pick(properties, "Type", "Value"))

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ParameterNotFound", request.client("ssm").delete_parameter, Name=resource.physical_id)
