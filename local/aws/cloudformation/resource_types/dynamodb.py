"""AWS::DynamoDB: tables, and global tables with the one replica this region has."""

import time
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import (
    HandlerRequest,
    ResourceFailed,
    ignore_error,
    partial_creation,
    pick,
    update_tags,
)

_CREATE = (
    "AttributeDefinitions",
    "BillingMode",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
)
_ACTIVE_SECONDS = 30.0


class Table:
    supported_properties = frozenset(
        (
            *_CREATE,
            "ContributorInsightsSpecification",
            "DeletionProtectionEnabled",
            "GlobalSecondaryIndexes",
            "PointInTimeRecoverySpecification",
            "SSESpecification",
            "StreamSpecification",
            "TableClass",
            "TableName",
            "Tags",
            "TimeToLiveSpecification",
        )
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("TableName") or request.physical_name(255)
        fields = pick(properties, *_CREATE)
        fields.setdefault("BillingMode", "PROVISIONED")
        if properties.get("GlobalSecondaryIndexes"):
            fields["GlobalSecondaryIndexes"] = [_index(i) for i in properties["GlobalSecondaryIndexes"]]
        if "StreamSpecification" in properties:
            fields["StreamSpecification"] = _stream(properties["StreamSpecification"])
        if "SSESpecification" in properties:
            fields["SSESpecification"] = _encryption(properties["SSESpecification"])
        table = request.client("dynamodb").create_table(
            TableName=name,
            Tags=request.tag_list(properties),
            DeletionProtectionEnabled=bool(properties.get("DeletionProtectionEnabled")),
            **fields,
        )["TableDescription"]
        attributes = {"Arn": table["TableArn"], "TableId": table.get("TableId", "")}
        resource = PhysicalResource(name, attributes | {"StreamArn": table.get("LatestStreamArn", "")})
        with partial_creation(resource):
            self._settings(request, name, properties, {})
        return resource

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        dynamodb, name = request.client("dynamodb"), resource.physical_id
        fields = {
            key: properties[key]
            for key in ("BillingMode", "ProvisionedThroughput", "DeletionProtectionEnabled")
            if key in properties and properties[key] != before.get(key)
        }
        if fields:
            dynamodb.update_table(TableName=name, **fields)
        self._indexes(request, name, properties, before)
        self._settings(request, name, properties, before)
        arn = resource.attributes["Arn"]
        update_tags(
            lambda tags: dynamodb.tag_resource(ResourceArn=arn, Tags=[{"Key": k, "Value": v} for k, v in tags.items()]),
            lambda keys: dynamodb.untag_resource(ResourceArn=arn, TagKeys=keys),
            request.tag_map(before),
            request.tag_map(properties),
        )
        return resource

    def _indexes(
        self, request: HandlerRequest, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Indexes come and go one at a time; one that changes is made anew."""
        new = {i["IndexName"]: _index(i) for i in properties.get("GlobalSecondaryIndexes", ())}
        old = {i["IndexName"]: _index(i) for i in before.get("GlobalSecondaryIndexes", ())}
        changes = [{"Delete": {"IndexName": key}} for key, index in old.items() if new.get(key) != index]
        changes += [{"Create": index} for key, index in new.items() if old.get(key) != index]
        for change in changes:
            request.client("dynamodb").update_table(
                TableName=name,
                AttributeDefinitions=properties["AttributeDefinitions"],
                GlobalSecondaryIndexUpdates=[change],
            )
            _wait_active(request, name)

    def _settings(
        self, request: HandlerRequest, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        dynamodb = request.client("dynamodb")
        ttl = properties.get("TimeToLiveSpecification")
        if ttl != before.get("TimeToLiveSpecification"):
            old = before.get("TimeToLiveSpecification") or {}
            ttl = ttl or {"Enabled": False, "AttributeName": old["AttributeName"]}
            dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
        recovery = properties.get("PointInTimeRecoverySpecification")
        if recovery != before.get("PointInTimeRecoverySpecification"):
            dynamodb.update_continuous_backups(
                TableName=name,
                PointInTimeRecoverySpecification=recovery or {"PointInTimeRecoveryEnabled": False},
            )

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ResourceNotFound", request.client("dynamodb").delete_table, TableName=resource.physical_id)


class GlobalTable:
    """A table whose per-region settings stand under `Replicas`; only this region can be had."""

    supported_properties = frozenset(
        (
            "AttributeDefinitions",
            "BillingMode",
            "GlobalSecondaryIndexes",
            "KeySchema",
            "LocalSecondaryIndexes",
            "Replicas",
            "SSESpecification",
            "StreamSpecification",
            "TableName",
            "TimeToLiveSpecification",
        )
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        return Table().create(request, self._as_table(request, properties))

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        return Table().update(request, resource, self._as_table(request, properties), self._as_table(request, before))

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        Table().delete(request, resource, properties)

    def _as_table(self, request: HandlerRequest, properties: Mapping[str, Any]) -> dict[str, Any]:
        replicas = properties["Replicas"]
        if [replica["Region"] for replica in replicas] != [request.emulator.region]:
            raise ResourceFailed(f"the only region here is {request.emulator.region}")
        (replica,) = replicas
        table = {key: value for key, value in properties.items() if key != "Replicas"}
        table |= pick(replica, "DeletionProtectionEnabled", "PointInTimeRecoverySpecification", "Tags", "TableClass")
        if "KMSMasterKeyId" in replica.get("SSESpecification", {}):
            key = {"KMSMasterKeyId": replica["SSESpecification"]["KMSMasterKeyId"]}
            table["SSESpecification"] = {**properties.get("SSESpecification", {}), **key}
        return table


def _index(index: Mapping[str, Any]) -> dict[str, Any]:
    return pick(index, "IndexName", "KeySchema", "Projection", "ProvisionedThroughput")


def _stream(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {"StreamEnabled": True, "StreamViewType": stream["StreamViewType"]}


def _encryption(encryption: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"Enabled": bool(encryption.get("SSEEnabled"))}
    return fields | pick(encryption, "SSEType", "KMSMasterKeyId")


def _wait_active(request: HandlerRequest, name: str) -> None:
    until = time.monotonic() + _ACTIVE_SECONDS
    while time.monotonic() < until:
        table = request.client("dynamodb").describe_table(TableName=name)["Table"]
        if all(i.get("IndexStatus", "ACTIVE") == "ACTIVE" for i in table.get("GlobalSecondaryIndexes", ())):
            return
        time.sleep(0.1)
    raise ResourceFailed(f"an index of {name} did not become active")
