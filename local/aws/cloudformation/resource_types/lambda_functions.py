"""AWS::Lambda: functions, layers, permissions, event source mappings, versions and aliases."""

import io
import time
import zipfile
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from local.aws.authorization.propagation import IamPropagation
from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import (
    HandlerRequest,
    ResourceFailed,
    ignore_error,
    partial_creation,
    pick,
    update_tags,
)

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

    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("FunctionName") or request.physical_name(64)
        arn = request.client("lambda").create_function(
            FunctionName=name,
            Code=_code(properties["Code"]),
            Tags=request.tag_map(properties),
            **pick(properties, *_CONFIGURATION, "Architectures", "PackageType"),
        )["FunctionArn"]
        resource = PhysicalResource(name, {"Arn": arn})
        with partial_creation(resource):
            self._limits(request, name, properties, {})
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        client, name = request.client("lambda"), resource.physical_id
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
        self._limits(request, name, properties, before)
        arn = resource.attributes["Arn"]
        update_tags(
            lambda tags: client.tag_resource(Resource=arn, Tags=tags),
            lambda keys: client.untag_resource(Resource=arn, TagKeys=keys),
            request.tag_map(before),
            request.tag_map(properties),
        )
        return resource

    def _limits(
        self, request: HandlerRequest, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Reserved concurrency and the recursion guard have calls of their own."""
        client = request.client("lambda")
        reserved = properties.get("ReservedConcurrentExecutions")
        if reserved != before.get("ReservedConcurrentExecutions"):
            if reserved is None:
                client.delete_function_concurrency(FunctionName=name)
            else:
                client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)
        recursion = properties.get("RecursiveLoop", "Terminate")
        if recursion != before.get("RecursiveLoop", "Terminate"):
            client.put_function_recursion_config(FunctionName=name, RecursiveLoop=recursion)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ResourceNotFound", request.client("lambda").delete_function, FunctionName=resource.physical_id)


def _code(code: Mapping[str, Any]) -> dict[str, Any]:
    """A template's ZipFile is the text of one module, `index.py`."""
    if "ZipFile" in code:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("index.py", code["ZipFile"])
        return {"ZipFile": content.getvalue()}
    return pick(code, "S3Bucket", "S3Key", "S3ObjectVersion")


class LayerVersion:
    supported_properties = frozenset(
        ("CompatibleArchitectures", "CompatibleRuntimes", "Content", "Description", "LayerName", "LicenseInfo")
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("LayerName") or request.physical_name(140)
        arn = request.client("lambda").publish_layer_version(**(dict(properties) | {"LayerName": name}))
        return PhysicalResource(arn["LayerVersionArn"], {"LayerVersionArn": arn["LayerVersionArn"]})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        raise ResourceFailed("a layer version cannot change", resource)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        name, version = resource.physical_id.split(":")[-2:]
        ignore_error(
            "ResourceNotFound",
            request.client("lambda").delete_layer_version,
            LayerName=name,
            VersionNumber=int(version),
        )


class Permission:
    supported_properties = frozenset(
        ("Action", "EventSourceToken", "FunctionName", "Principal", "SourceAccount", "SourceArn")
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        statement = request.physical_name(100)
        request.client("lambda").add_permission(StatementId=statement, **properties)
        return PhysicalResource(statement, {"Id": statement})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        raise ResourceFailed("a permission cannot change", resource)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "ResourceNotFound",
            request.client("lambda").remove_permission,
            FunctionName=properties["FunctionName"],
            StatementId=resource.physical_id,
        )


class EventSourceMapping:
    """SQS sources."""

    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        fields = {key: value for key, value in properties.items() if key != "Tags"}
        answer = _create_mapping(request, fields | {"Tags": request.tag_map(properties)})
        attributes = {"Id": answer["UUID"], "EventSourceMappingArn": answer.get("EventSourceMappingArn", "")}
        return PhysicalResource(answer["UUID"], attributes)

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        defaults = {"BatchSize": 10, "Enabled": True, "MaximumBatchingWindowInSeconds": 0, "FunctionResponseTypes": []}
        fields = {name: value for name, value in defaults.items() if name in before}
        fields |= {key: value for key, value in properties.items() if key not in ("Tags", "EventSourceArn")}
        request.client("lambda").update_event_source_mapping(UUID=resource.physical_id, **fields)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "ResourceNotFound", request.client("lambda").delete_event_source_mapping, UUID=resource.physical_id
        )


def _create_mapping(request: HandlerRequest, fields: Mapping[str, Any]) -> Any:
    """Lambda asks what the function's role may; CloudFormation tries again when a right was not seen yet."""
    client = request.client("lambda")
    try:
        return client.create_event_source_mapping(**fields)
    except ClientError:
        seconds = request.emulator.component(IamPropagation).seconds_left()
        if not seconds:
            raise
    time.sleep(seconds)
    return client.create_event_source_mapping(**fields)


class Version:
    supported_properties = frozenset(("CodeSha256", "Description", "FunctionName"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        answer = request.client("lambda").publish_version(**pick(properties, "FunctionName", "Description"))
        arn = answer["FunctionArn"]
        return PhysicalResource(arn, {"Version": answer["Version"], "FunctionArn": arn})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        raise ResourceFailed("a version cannot change", resource)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        function, version = resource.physical_id.rsplit(":", 1)
        ignore_error(
            "ResourceNotFound",
            request.client("lambda").delete_function,
            FunctionName=function,
            Qualifier=version,
        )


class Alias:
    supported_properties = frozenset(("Description", "FunctionName", "FunctionVersion", "Name"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        arn = request.client("lambda").create_alias(**properties)["AliasArn"]
        return PhysicalResource(arn, {"AliasArn": arn})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        request.client("lambda").update_alias(**properties)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        fields = pick(properties, "FunctionName", "Name")
        ignore_error("ResourceNotFound", request.client("lambda").delete_alias, **fields)


class EventInvokeConfig:
    supported_properties = frozenset(
        ("DestinationConfig", "FunctionName", "MaximumEventAgeInSeconds", "MaximumRetryAttempts", "Qualifier")
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        request.client("lambda").put_function_event_invoke_config(**properties)
        return PhysicalResource(request.physical_name())

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        self.delete(request, resource, before)
        request.client("lambda").put_function_event_invoke_config(**properties)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        fields = pick(properties, "FunctionName", "Qualifier")
        ignore_error("ResourceNotFound", request.client("lambda").delete_function_event_invoke_config, **fields)
