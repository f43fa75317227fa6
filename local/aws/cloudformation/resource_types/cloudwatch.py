"""AWS::Logs and AWS::CloudWatch: log groups, alarms, dashboards."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ResourceFailed, ignore_error, partial_creation


class LogGroup:
    supported_properties = frozenset(("KmsKeyId", "LogGroupClass", "LogGroupName", "RetentionInDays", "Tags"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("LogGroupName") or request.physical_name(200)
        fields = {"kmsKeyId": properties["KmsKeyId"]} if "KmsKeyId" in properties else {}
        tags = request.tag_map(properties)
        request.client("logs").create_log_group(logGroupName=name, **fields, **({"tags": tags} if tags else {}))
        resource = PhysicalResource(
            name, {"Arn": f"arn:aws:logs:{request.emulator.region}:{request.emulator.account}:log-group:{name}:*"}
        )
        with partial_creation(resource):
            return self.update(request, resource, properties, {})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        logs, name = request.client("logs"), resource.physical_id
        if "RetentionInDays" in properties:
            logs.put_retention_policy(logGroupName=name, retentionInDays=properties["RetentionInDays"])
        elif "RetentionInDays" in before:
            logs.delete_retention_policy(logGroupName=name)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ResourceNotFound", request.client("logs").delete_log_group, logGroupName=resource.physical_id)


class Alarm:
    supported_properties = frozenset(
        (
            "ActionsEnabled",
            "AlarmActions",
            "AlarmDescription",
            "AlarmName",
            "ComparisonOperator",
            "DatapointsToAlarm",
            "Dimensions",
            "EvaluateLowSampleCountPercentile",
            "EvaluationPeriods",
            "ExtendedStatistic",
            "InsufficientDataActions",
            "MetricName",
            "Metrics",
            "Namespace",
            "OKActions",
            "Period",
            "Statistic",
            "Tags",
            "Threshold",
            "TreatMissingData",
            "Unit",
        )
    )

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("AlarmName") or request.physical_name(255)
        fields = {key: value for key, value in properties.items() if key != "Tags"} | {"AlarmName": name}
        request.client("cloudwatch").put_metric_alarm(**fields, Tags=request.tag_list(properties))
        return PhysicalResource(
            name, {"Arn": f"arn:aws:cloudwatch:{request.emulator.region}:{request.emulator.account}:alarm:{name}"}
        )

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        self.create(request, {**properties, "AlarmName": resource.physical_id})
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ResourceNotFound", request.client("cloudwatch").delete_alarms, AlarmNames=[resource.physical_id])


class Dashboard:
    supported_properties = frozenset(("DashboardBody", "DashboardName", "Tags"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("DashboardName") or request.physical_name(255)
        try:
            json.loads(properties["DashboardBody"])
        except ValueError as error:
            raise ResourceFailed(f"The dashboard body is not JSON: {error}") from None
        request.client("cloudwatch").put_dashboard(
            DashboardName=name, DashboardBody=properties["DashboardBody"], Tags=request.tag_list(properties)
        )
        return PhysicalResource(name)

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        return self.create(request, {**properties, "DashboardName": resource.physical_id})

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "ResourceNotFound", request.client("cloudwatch").delete_dashboards, DashboardNames=[resource.physical_id]
        )
