"""AWS::DynamoDB: tables, and global tables with the one replica this region has."""

import time
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, Failed, changed_tags, completing, ignoring, picked
from local.aws.cloudformation.intrinsics import Made

_CREATE = (
    "AttributeDefinitions",
    "BillingMode",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
)
_ACTIVE_SECONDS = 30.0


class Table:
    handled = frozenset(
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

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("TableName") or call.name(255)
        fields = picked(properties, *_CREATE)
        fields.setdefault("BillingMode", "PROVISIONED")
        if properties.get("GlobalSecondaryIndexes"):
            fields["GlobalSecondaryIndexes"] = [_index(i) for i in properties["GlobalSecondaryIndexes"]]
        if "StreamSpecification" in properties:
            fields["StreamSpecification"] = _stream(properties["StreamSpecification"])
        if "SSESpecification" in properties:
            fields["SSESpecification"] = _encryption(properties["SSESpecification"])
        table = call.client("dynamodb").create_table(
            TableName=name,
            Tags=call.tag_list(properties),
            DeletionProtectionEnabled=bool(properties.get("DeletionProtectionEnabled")),
            **fields,
        )["TableDescription"]
        attributes = {"Arn": table["TableArn"], "TableId": table.get("TableId", "")}
        made = Made(name, attributes | {"StreamArn": table.get("LatestStreamArn", "")})
        with completing(made):
            self._settings(call, name, properties, {})
        return made

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        dynamodb, name = call.client("dynamodb"), made.physical_id
        fields = {
            key: properties[key]
            for key in ("BillingMode", "ProvisionedThroughput", "DeletionProtectionEnabled")
            if key in properties and properties[key] != before.get(key)
        }
        if fields:
            dynamodb.update_table(TableName=name, **fields)
        self._indexes(call, name, properties, before)
        self._settings(call, name, properties, before)
        arn = made.attributes["Arn"]
        changed_tags(
            lambda tags: dynamodb.tag_resource(ResourceArn=arn, Tags=[{"Key": k, "Value": v} for k, v in tags.items()]),
            lambda keys: dynamodb.untag_resource(ResourceArn=arn, TagKeys=keys),
            call.tag_map(before),
            call.tag_map(properties),
        )
        return made

    def _indexes(self, call: Call, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Indexes come and go one at a time; one that changes is made anew."""
        new = {i["IndexName"]: _index(i) for i in properties.get("GlobalSecondaryIndexes", ())}
        old = {i["IndexName"]: _index(i) for i in before.get("GlobalSecondaryIndexes", ())}
        changes = [{"Delete": {"IndexName": key}} for key, index in old.items() if new.get(key) != index]
        changes += [{"Create": index} for key, index in new.items() if old.get(key) != index]
        for change in changes:
            call.client("dynamodb").update_table(
                TableName=name,
                AttributeDefinitions=properties["AttributeDefinitions"],
                GlobalSecondaryIndexUpdates=[change],
            )
            _wait_active(call, name)

    def _settings(self, call: Call, name: str, properties: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        dynamodb = call.client("dynamodb")
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

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("dynamodb").delete_table, TableName=made.physical_id)


class GlobalTable:
    """A table whose per-region settings stand under `Replicas`; only this region can be had."""

    handled = frozenset(
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

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        return Table().create(call, self._as_table(call, properties))

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        return Table().update(call, made, self._as_table(call, properties), self._as_table(call, before))

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        Table().delete(call, made, properties)

    def _as_table(self, call: Call, properties: Mapping[str, Any]) -> dict[str, Any]:
        replicas = properties["Replicas"]
        if [replica["Region"] for replica in replicas] != [call.world.region]:
            raise Failed(f"the only region here is {call.world.region}")
        (replica,) = replicas
        table = {key: value for key, value in properties.items() if key != "Replicas"}
        table |= picked(replica, "DeletionProtectionEnabled", "PointInTimeRecoverySpecification", "Tags", "TableClass")
        if "KMSMasterKeyId" in replica.get("SSESpecification", {}):
            key = {"KMSMasterKeyId": replica["SSESpecification"]["KMSMasterKeyId"]}
            table["SSESpecification"] = {**properties.get("SSESpecification", {}), **key}
        return table


def _index(index: Mapping[str, Any]) -> dict[str, Any]:
    return picked(index, "IndexName", "KeySchema", "Projection", "ProvisionedThroughput")


def _stream(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {"StreamEnabled": True, "StreamViewType": stream["StreamViewType"]}


def _encryption(encryption: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"Enabled": bool(encryption.get("SSEEnabled"))}
    return fields | picked(encryption, "SSEType", "KMSMasterKeyId")


def _wait_active(call: Call, name: str) -> None:
    until = time.monotonic() + _ACTIVE_SECONDS
    while time.monotonic() < until:
        table = call.client("dynamodb").describe_table(TableName=name)["Table"]
        if all(i.get("IndexStatus", "ACTIVE") == "ACTIVE" for i in table.get("GlobalSecondaryIndexes", ())):
            return
        time.sleep(0.1)
    raise Failed(f"an index of {name} did not become active")
