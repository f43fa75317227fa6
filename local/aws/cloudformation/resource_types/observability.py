"""AWS::Logs and AWS::CloudWatch: log groups, alarms, dashboards."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, Failed, completing, ignoring
from local.aws.cloudformation.intrinsics import Made


class LogGroup:
    handled = frozenset(("KmsKeyId", "LogGroupClass", "LogGroupName", "RetentionInDays", "Tags"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("LogGroupName") or call.name(200)
        fields = {"kmsKeyId": properties["KmsKeyId"]} if "KmsKeyId" in properties else {}
        tags = call.tag_map(properties)
        call.client("logs").create_log_group(logGroupName=name, **fields, **({"tags": tags} if tags else {}))
        made = Made(name, {"Arn": f"arn:aws:logs:{call.world.region}:{call.world.account}:log-group:{name}:*"})
        with completing(made):
            return self.update(call, made, properties, {})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        logs, name = call.client("logs"), made.physical_id
        if "RetentionInDays" in properties:
            logs.put_retention_policy(logGroupName=name, retentionInDays=properties["RetentionInDays"])
        elif "RetentionInDays" in before:
            logs.delete_retention_policy(logGroupName=name)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("logs").delete_log_group, logGroupName=made.physical_id)


class Alarm:
    handled = frozenset(
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

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("AlarmName") or call.name(255)
        fields = {key: value for key, value in properties.items() if key != "Tags"} | {"AlarmName": name}
        call.client("cloudwatch").put_metric_alarm(**fields, Tags=call.tag_list(properties))
        return Made(name, {"Arn": f"arn:aws:cloudwatch:{call.world.region}:{call.world.account}:alarm:{name}"})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        self.create(call, {**properties, "AlarmName": made.physical_id})
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("cloudwatch").delete_alarms, AlarmNames=[made.physical_id])


class Dashboard:
    handled = frozenset(("DashboardBody", "DashboardName", "Tags"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("DashboardName") or call.name(255)
        try:
            json.loads(properties["DashboardBody"])
        except ValueError as error:
            raise Failed(f"The dashboard body is not JSON: {error}") from None
        call.client("cloudwatch").put_dashboard(
            DashboardName=name, DashboardBody=properties["DashboardBody"], Tags=call.tag_list(properties)
        )
        return Made(name)

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        return self.create(call, {**properties, "DashboardName": made.physical_id})

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("cloudwatch").delete_dashboards, DashboardNames=[made.physical_id])
