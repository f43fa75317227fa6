"""AWS::SQS, AWS::SNS, AWS::Events and AWS::Scheduler."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.calls import Call, changed_tags, ignoring, picked
from local.aws.cloudformation.intrinsics import Made

_QUEUE_DEFAULTS = {
    "DelaySeconds": "0",
    "MaximumMessageSize": "262144",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "RedrivePolicy": "",
    "VisibilityTimeout": "30",
    "KmsMasterKeyId": "",
}


class Queue:
    handled = frozenset(
        (
            "ContentBasedDeduplication",
            "DeduplicationScope",
            "DelaySeconds",
            "FifoQueue",
            "FifoThroughputLimit",
            "KmsDataKeyReusePeriodSeconds",
            "KmsMasterKeyId",
            "MaximumMessageSize",
            "MessageRetentionPeriod",
            "QueueName",
            "ReceiveMessageWaitTimeSeconds",
            "RedriveAllowPolicy",
            "RedrivePolicy",
            "SqsManagedSseEnabled",
            "Tags",
            "VisibilityTimeout",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        suffix = ".fifo" if properties.get("FifoQueue") else ""
        name = properties.get("QueueName") or call.name(80 - len(suffix)) + suffix
        url = call.client("sqs").create_queue(
            QueueName=name, Attributes=_queue_attributes(properties), tags=call.tag_map(properties)
        )["QueueUrl"]
        arn = f"arn:aws:sqs:{call.world.region}:{call.world.account}:{name}"
        return Made(url, {"Arn": arn, "QueueName": name, "QueueUrl": url})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        sqs, url = call.client("sqs"), made.physical_id
        defaults = {name: text for name, text in _QUEUE_DEFAULTS.items() if name in before}
        attributes = defaults | _queue_attributes(properties)
        attributes.pop("FifoQueue", None)
        if attributes:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        changed_tags(
            lambda tags: sqs.tag_queue(QueueUrl=url, Tags=tags),
            lambda keys: sqs.untag_queue(QueueUrl=url, TagKeys=keys),
            call.tag_map(before),
            call.tag_map(properties),
        )
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("AWS.SimpleQueueService.NonExistentQueue", call.client("sqs").delete_queue, QueueUrl=made.physical_id)


def _queue_attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    """Attribute values are texts. RedriveAllowPolicy is left out: the local SQS lets every source redrive."""
    return {
        name: json.dumps(value) if isinstance(value, Mapping | bool) else str(value)
        for name, value in properties.items()
        if name not in ("QueueName", "Tags", "RedriveAllowPolicy")
    }


class QueuePolicy:
    handled = frozenset(("PolicyDocument", "Queues"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        policy = properties["PolicyDocument"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        for url in properties["Queues"]:
            call.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": text})
        return Made(call.name(80))

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        left = [url for url in before["Queues"] if url not in properties["Queues"]]
        self.delete(call, made, {"Queues": left})
        self.create(call, properties)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        for url in properties["Queues"]:
            ignoring(
                "AWS.SimpleQueueService.NonExistentQueue",
                call.client("sqs").set_queue_attributes,
                QueueUrl=url,
                Attributes={"Policy": ""},
            )


class Topic:
    handled = frozenset(("DisplayName", "KmsMasterKeyId", "Subscription", "Tags", "TopicName"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        sns, name = call.client("sns"), properties.get("TopicName") or call.name(256)
        arn = sns.create_topic(
            Name=name,
            Attributes=picked(properties, "DisplayName", "KmsMasterKeyId"),
            Tags=call.tag_list(properties),
        )["TopicArn"]
        for subscription in properties.get("Subscription", ()):
            sns.subscribe(TopicArn=arn, Protocol=subscription["Protocol"], Endpoint=subscription["Endpoint"])
        return Made(arn, {"TopicArn": arn, "TopicName": name})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        for name in ("DisplayName", "KmsMasterKeyId"):
            if properties.get(name) != before.get(name):
                call.client("sns").set_topic_attributes(
                    TopicArn=made.physical_id, AttributeName=name, AttributeValue=properties.get(name, "")
                )
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("NotFound", call.client("sns").delete_topic, TopicArn=made.physical_id)


class TopicPolicy:
    handled = frozenset(("PolicyDocument", "Topics"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        for arn in properties["Topics"]:
            call.client("sns").set_topic_attributes(
                TopicArn=arn, AttributeName="Policy", AttributeValue=json.dumps(properties["PolicyDocument"])
            )
        return Made(call.name())

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        self.create(call, properties)
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        """The policy goes with its topic."""


class Rule:
    handled = frozenset(
        (
            "Description",
            "EventBusName",
            "EventPattern",
            "Name",
            "RoleArn",
            "ScheduleExpression",
            "State",
            "Tags",
            "Targets",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("Name") or call.name(64)
        arn = self._put(call, name, properties)
        bus = properties.get("EventBusName", "default")
        return Made(name if bus == "default" else f"{bus}|{name}", {"Arn": arn, "RuleName": name})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        name = made.attributes["RuleName"]
        self._put(call, name, properties)
        kept = {target["Id"] for target in properties.get("Targets", ())}
        gone = [target["Id"] for target in before.get("Targets", ()) if target["Id"] not in kept]
        if gone:
            call.client("events").remove_targets(Rule=name, Ids=gone, **picked(properties, "EventBusName"))
        return made

    def _put(self, call: Call, name: str, properties: Mapping[str, Any]) -> str:
        events = call.client("events")
        fields = picked(properties, "Description", "EventBusName", "RoleArn", "ScheduleExpression", "State")
        if "EventPattern" in properties:
            pattern = properties["EventPattern"]
            fields["EventPattern"] = pattern if isinstance(pattern, str) else json.dumps(pattern)
        arn = events.put_rule(Name=name, Tags=call.tag_list(properties), **fields)["RuleArn"]
        if properties.get("Targets"):
            answer = events.put_targets(Rule=name, Targets=properties["Targets"], **picked(properties, "EventBusName"))
            assert not answer.get("FailedEntryCount"), answer
        return str(arn)

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        events, bus = call.client("events"), picked(properties, "EventBusName")
        name = made.attributes["RuleName"]
        ids = [target["Id"] for target in properties.get("Targets", ())]
        if ids:
            ignoring("ResourceNotFound", events.remove_targets, Rule=name, Ids=ids, **bus)
        ignoring("ResourceNotFound", events.delete_rule, Name=name, **bus)


class Schedule:
    handled = frozenset(
        (
            "Description",
            "EndDate",
            "FlexibleTimeWindow",
            "GroupName",
            "KmsKeyArn",
            "Name",
            "ScheduleExpression",
            "ScheduleExpressionTimezone",
            "StartDate",
            "State",
            "Target",
        )
    )

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        fields = dict(properties) | {"Name": properties.get("Name") or call.name(64)}
        arn = call.client("scheduler").create_schedule(**fields)["ScheduleArn"]
        return Made(fields["Name"], {"Arn": arn})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        call.client("scheduler").update_schedule(
            **({"State": "ENABLED"} | dict(properties) | {"Name": made.physical_id})
        )
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring(
            "ResourceNotFound",
            call.client("scheduler").delete_schedule,
            Name=made.physical_id,
            **picked(properties, "GroupName"),
        )


class ScheduleGroup:
    handled = frozenset(("Name", "Tags"))

    def create(self, call: Call, properties: Mapping[str, Any]) -> Made:
        name = properties.get("Name") or call.name(64)
        arn = call.client("scheduler").create_schedule_group(Name=name, Tags=call.tag_list(properties))
        return Made(name, {"Arn": arn["ScheduleGroupArn"]})

    def update(self, call: Call, made: Made, properties: Mapping[str, Any], before: Mapping[str, Any]) -> Made:
        call.client("scheduler").tag_resource(ResourceArn=made.attributes["Arn"], Tags=call.tag_list(properties))
        return made

    def delete(self, call: Call, made: Made, properties: Mapping[str, Any]) -> None:
        ignoring("ResourceNotFound", call.client("scheduler").delete_schedule_group, Name=made.physical_id)
