"""AWS::Lambda: functions, layers, permissions, event source mappings, versions and aliases."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, Failed, changed_tags, completing, ignoring, picked
from local.aws.cloudformation.intrinsics import Made

_CONFIGURATION = (
    "Description",
    "Environment",
    "EphemeralStorage",
    "Handler",
    "Layers",
    "MemorySize",
    "Role",
    "Runtime",
    "Timeout",
    "TracingConfig",
    "VpcConfig",
)
# What an update that no longer names a property goes back to.
_DEFAULTS = {"Description": "", "Environment": {"Variables": {}}, "Layers": [], "MemorySize": 128, "Timeout": 3}


class Function:
    """`LoggingConfig`, `DeadLetterConfig`, `SnapStart` and `KmsKeyArn` are accepted; locally they change nothing."""

    handled = frozenset(
        (
            *_CONFIGURATION,
            "Architectures",
            "Code",
            "DeadLetterConfig",
            "FunctionName",
            "KmsKeyArn",
            "LoggingConfig",
            "PackageType",
            "RecursiveLoop",
            "ReservedConcurrentExecutions",
            "SnapStart",
            "Tags",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("FunctionName") or call.name(64)
        arn = call.client("lambda").create_function(
            FunctionName=name,
            Code=_code(properties["Code"]),
            Tags=call.tag_map(properties),
            **picked(properties, *_CONFIGURATION, "Architectures", "PackageType"),
        )["FunctionArn"]
        made = Made(name, {"Arn": arn})
        with completing(made):
            self._limits(call, name, properties, {})
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        client, name = call.client("lambda"), made.physical_id
        configuration = {
            key: properties.get(key, _DEFAULTS.get(key))
            for key in _CONFIGURATION
            if properties.get(key) != before.get(key)
        }
        configuration = {key: value for key, value in configuration.items() if value is not None}
        if configuration:
            client.update_function_configuration(FunctionName=name, **configuration)
        if properties["Code"] != before["Code"]:
            client.update_function_code(FunctionName=name, **_code(properties["Code"]))
        self._limits(call, name, properties, before)
        arn = made.attributes["Arn"]
        changed_tags(
            lambda tags: client.tag_resource(Resource=arn, Tags=tags),
            lambda keys: client.untag_resource(Resource=arn, TagKeys=keys),
            call.tag_map(before),
            call.tag_map(properties),
        )
        return made

    def _limits(self, call: Call, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Reserved concurrency and the recursion guard have calls of their own."""
        client = call.client("lambda")
        reserved = properties.get("ReservedConcurrentExecutions")
        if reserved != before.get("ReservedConcurrentExecutions"):
            if reserved is None:
                client.delete_function_concurrency(FunctionName=name)
            else:
                client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)
        recursion = properties.get("RecursiveLoop", "Terminate")
        if recursion != before.get("RecursiveLoop", "Terminate"):
            client.put_function_recursion_config(FunctionName=name, RecursiveLoop=recursion)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("lambda").delete_function, FunctionName=made.physical_id)


def _code(code: Mapping[str, Any]) -> dict[str, Any]:
    """A template's ZipFile is the text of one module, `index.py`."""
    if "ZipFile" in code:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("index.py", code["ZipFile"])
        return {"ZipFile": content.getvalue()}
    return picked(code, "S3Bucket", "S3Key", "S3ObjectVersion")


class LayerVersion:
    handled = frozenset(
        ("CompatibleArchitectures", "CompatibleRuntimes", "Content", "Description", "LayerName", "LicenseInfo")
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("LayerName") or call.name(140)
        arn = call.client("lambda").publish_layer_version(**(dict(properties) | {"LayerName": name}))
        return Made(arn["LayerVersionArn"], {"LayerVersionArn": arn["LayerVersionArn"]})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        raise Failed("a layer version cannot change", made)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        name, version = made.physical_id.split(":")[-2:]
        ignoring(
            "ResourceNotFound",
            call.client("lambda").delete_layer_version,
            LayerName=name,
            VersionNumber=int(version),
        )


class Permission:
    handled = frozenset(("Action", "EventSourceToken", "FunctionName", "Principal", "SourceAccount", "SourceArn"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        statement = call.name(100)
        call.client("lambda").add_permission(StatementId=statement, **properties)
        return Made(statement, {"Id": statement})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        raise Failed("a permission cannot change", made)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring(
            "ResourceNotFound",
            call.client("lambda").remove_permission,
            FunctionName=properties["FunctionName"],
            StatementId=made.physical_id,
        )


class EventSourceMapping:
    """SQS sources."""

    handled = frozenset(
        (
            "BatchSize",
            "Enabled",
            "EventSourceArn",
            "FilterCriteria",
            "FunctionName",
            "FunctionResponseTypes",
            "MaximumBatchingWindowInSeconds",
            "ScalingConfig",
            "Tags",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        fields = {key: value for key, value in properties.items() if key != "Tags"}
        answer = call.client("lambda").create_event_source_mapping(**fields, Tags=call.tag_map(properties))
        attributes = {"Id": answer["UUID"], "EventSourceMappingArn": answer.get("EventSourceMappingArn", "")}
        return Made(answer["UUID"], attributes)

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        defaults = {"BatchSize": 10, "Enabled": True, "MaximumBatchingWindowInSeconds": 0, "FunctionResponseTypes": []}
        fields = {name: value for name, value in defaults.items() if name in before}
        fields |= {key: value for key, value in properties.items() if key not in ("Tags", "EventSourceArn")}
        call.client("lambda").update_event_source_mapping(UUID=made.physical_id, **fields)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("lambda").delete_event_source_mapping, UUID=made.physical_id)


class Version:
    handled = frozenset(("CodeSha256", "Description", "FunctionName"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        answer = call.client("lambda").publish_version(**picked(properties, "FunctionName", "Description"))
        arn = answer["FunctionArn"]
        return Made(arn, {"Version": answer["Version"], "FunctionArn": arn})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        raise Failed("a version cannot change", made)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        function, version = made.physical_id.rsplit(":", 1)
        ignoring(
            "ResourceNotFound",
            call.client("lambda").delete_function,
            FunctionName=function,
            Qualifier=version,
        )


class Alias:
    handled = frozenset(("Description", "FunctionName", "FunctionVersion", "Name"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        arn = call.client("lambda").create_alias(**properties)["AliasArn"]
        return Made(arn, {"AliasArn": arn})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        call.client("lambda").update_alias(**properties)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        fields = picked(properties, "FunctionName", "Name")
        ignoring("ResourceNotFound", call.client("lambda").delete_alias, **fields)


class EventInvokeConfig:
    handled = frozenset(
        ("DestinationConfig", "FunctionName", "MaximumEventAgeInSeconds", "MaximumRetryAttempts", "Qualifier")
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        call.client("lambda").put_function_event_invoke_config(**properties)
        return Made(call.name())

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        self.delete(call, made, before)
        call.client("lambda").put_function_event_invoke_config(**properties)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        fields = picked(properties, "FunctionName", "Qualifier")
        ignoring("ResourceNotFound", call.client("lambda").delete_function_event_invoke_config, **fields)
