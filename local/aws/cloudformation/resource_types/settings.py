"""AWS::KMS, AWS::SSM and AWS::CDK::Metadata."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, completing, ignoring, picked
from local.aws.cloudformation.intrinsics import Made


class Metadata:
    """AWS::CDK::Metadata holds information and makes nothing."""

    handled = frozenset(("Analytics",))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        return Made(call.name())

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        """Nothing was made."""


class Key:
    handled = frozenset(
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

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        kms = call.client("kms")
        metadata = kms.create_key(
            Tags=call.tag_list(properties, "TagKey", "TagValue"),
            **picked(properties, "Description", "KeySpec", "KeyUsage"),
        )["KeyMetadata"]
        made = Made(metadata["KeyId"], {"Arn": metadata["Arn"], "KeyId": metadata["KeyId"]})
        with completing(made):
            self._settings(call, made.physical_id, properties)
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        if properties.get("Description") != before.get("Description"):
            call.client("kms").update_key_description(
                KeyId=made.physical_id, Description=properties.get("Description", "")
            )
        self._settings(call, made.physical_id, properties)
        return made

    def _settings(self, call: Call, key: str, properties: Mapping[str, Any]) -> None:
        kms = call.client("kms")
        if "KeyPolicy" in properties:
            policy = properties["KeyPolicy"]
            text = policy if isinstance(policy, str) else json.dumps(policy)
            kms.put_key_policy(KeyId=key, PolicyName="default", Policy=text)
        if properties.get("EnableKeyRotation"):
            kms.enable_key_rotation(KeyId=key)
        else:
            kms.disable_key_rotation(KeyId=key)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring(
            "NotFound",
            call.client("kms").schedule_key_deletion,
            KeyId=made.physical_id,
            PendingWindowInDays=int(properties.get("PendingWindowInDays", 30)),
        )


class KeyAlias:
    handled = frozenset(("AliasName", "TargetKeyId"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        call.client("kms").create_alias(**properties)
        return Made(properties["AliasName"])

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        call.client("kms").update_alias(**properties)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("NotFound", call.client("kms").delete_alias, AliasName=made.physical_id)


class Parameter:
    handled = frozenset(
        ("AllowedPattern", "DataType", "Description", "Name", "Policies", "Tags", "Tier", "Type", "Value")
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("Name") or f"CFN-{call.name(200)}"
        fields = {key: value for key, value in properties.items() if key != "Tags"}
        call.client("ssm").put_parameter(**(fields | {"Name": name}), Tags=call.tag_list(properties))
        return Made(name, picked(properties, "Type", "Value"))

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        fields = {key: value for key, value in properties.items() if key != "Tags"}
        call.client("ssm").put_parameter(**(fields | {"Name": made.physical_id}), Overwrite=True)
        return Made(made.physical_id, picked(properties, "Type", "Value"))

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ParameterNotFound", call.client("ssm").delete_parameter, Name=made.physical_id)
