"""AWS::SQS, AWS::SNS, AWS::Events and AWS::Scheduler."""

import json
from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.cloudformation.resource_handlers import HandlerRequest, ignore_error, pick, update_tags

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
    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        suffix = ".fifo" if properties.get("FifoQueue") else ""
        name = properties.get("QueueName") or request.physical_name(80 - len(suffix)) + suffix
        url = request.client("sqs").create_queue(
            QueueName=name, Attributes=_queue_attributes(properties), tags=request.tag_map(properties)
        )["QueueUrl"]
        arn = f"arn:aws:sqs:{request.emulator.region}:{request.emulator.account}:{name}"
        return PhysicalResource(url, {"Arn": arn, "QueueName": name, "QueueUrl": url})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        sqs, url = request.client("sqs"), resource.physical_id
        defaults = {name: text for name, text in _QUEUE_DEFAULTS.items() if name in before}
        attributes = defaults | _queue_attributes(properties)
        attributes.pop("FifoQueue", None)
        if attributes:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        update_tags(
            lambda tags: sqs.tag_queue(QueueUrl=url, Tags=tags),
            lambda keys: sqs.untag_queue(QueueUrl=url, TagKeys=keys),
            request.tag_map(before),
            request.tag_map(properties),
        )
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "AWS.SimpleQueueService.NonExistentQueue", request.client("sqs").delete_queue, QueueUrl=resource.physical_id
        )


def _queue_attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    """Attribute values are texts. RedriveAllowPolicy is left out: the local SQS lets every source redrive."""
    return {
        name: json.dumps(value) if isinstance(value, Mapping | bool) else str(value)
        for name, value in properties.items()
        if name not in ("QueueName", "Tags", "RedriveAllowPolicy")
    }


class QueuePolicy:
    supported_properties = frozenset(("PolicyDocument", "Queues"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        policy = properties["PolicyDocument"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        for url in properties["Queues"]:
            request.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": text})
        return PhysicalResource(request.physical_name(80))

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        left = [url for url in before["Queues"] if url not in properties["Queues"]]
        self.delete(request, resource, {"Queues": left})
        self.create(request, properties)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        for url in properties["Queues"]:
            ignore_error(
                "AWS.SimpleQueueService.NonExistentQueue",
                request.client("sqs").set_queue_attributes,
                QueueUrl=url,
                Attributes={"Policy": ""},
            )


class Topic:
    supported_properties = frozenset(("DisplayName", "KmsMasterKeyId", "Subscription", "Tags", "TopicName"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        sns, name = request.client("sns"), properties.get("TopicName") or request.physical_name(256)
        arn = sns.create_topic(
            Name=name,
            Attributes=pick(properties, "DisplayName", "KmsMasterKeyId"),
            Tags=request.tag_list(properties),
        )["TopicArn"]
        for subscription in properties.get("Subscription", ()):
            sns.subscribe(TopicArn=arn, Protocol=subscription["Protocol"], Endpoint=subscription["Endpoint"])
        return PhysicalResource(arn, {"TopicArn": arn, "TopicName": name})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        for name in ("DisplayName", "KmsMasterKeyId"):
            if properties.get(name) != before.get(name):
                request.client("sns").set_topic_attributes(
                    TopicArn=resource.physical_id, AttributeName=name, AttributeValue=properties.get(name, "")
                )
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("NotFound", request.client("sns").delete_topic, TopicArn=resource.physical_id)


class Subscription:
    supported_properties = frozenset(("Endpoint", "Protocol", "TopicArn"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        made = request.client("sns").subscribe(**properties, ReturnSubscriptionArn=True)
        return PhysicalResource(made["SubscriptionArn"])

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        """Topic, protocol and address are what it is: another one takes its place."""
        return resource if properties == before else self.create(request, properties)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("NotFound", request.client("sns").unsubscribe, SubscriptionArn=resource.physical_id)


class TopicPolicy:
    supported_properties = frozenset(("PolicyDocument", "Topics"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        for arn in properties["Topics"]:
            request.client("sns").set_topic_attributes(
                TopicArn=arn, AttributeName="Policy", AttributeValue=json.dumps(properties["PolicyDocument"])
            )
        return PhysicalResource(request.physical_name())

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        self.create(request, properties)
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        """The policy goes with its topic."""


class Rule:
    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("Name") or request.physical_name(64)
        arn = self._put(request, name, properties)
        bus = properties.get("EventBusName", "default")
        return PhysicalResource(name if bus == "default" else f"{bus}|{name}", {"Arn": arn, "RuleName": name})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        name = resource.attributes["RuleName"]
        self._put(request, name, properties)
        kept = {target["Id"] for target in properties.get("Targets", ())}
        gone = [target["Id"] for target in before.get("Targets", ()) if target["Id"] not in kept]
        if gone:
            request.client("events").remove_targets(Rule=name, Ids=gone, **pick(properties, "EventBusName"))
        return resource

    def _put(self, request: HandlerRequest, name: str, properties: Mapping[str, Any]) -> str:
        events = request.client("events")
        fields = pick(properties, "Description", "EventBusName", "RoleArn", "ScheduleExpression", "State")
        if "EventPattern" in properties:
            pattern = properties["EventPattern"]
            fields["EventPattern"] = pattern if isinstance(pattern, str) else json.dumps(pattern)
        arn = events.put_rule(Name=name, Tags=request.tag_list(properties), **fields)["RuleArn"]
        if properties.get("Targets"):
            answer = events.put_targets(Rule=name, Targets=properties["Targets"], **pick(properties, "EventBusName"))
            assert not answer.get("FailedEntryCount"), answer
        return str(arn)

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        events, bus = request.client("events"), pick(properties, "EventBusName")
        name = resource.attributes["RuleName"]
        ids = [target["Id"] for target in properties.get("Targets", ())]
        if ids:
            ignore_error("ResourceNotFound", events.remove_targets, Rule=name, Ids=ids, **bus)
        ignore_error("ResourceNotFound", events.delete_rule, Name=name, **bus)


class Schedule:
    supported_properties = frozenset(
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

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        fields = dict(properties) | {"Name": properties.get("Name") or request.physical_name(64)}
        arn = request.client("scheduler").create_schedule(**fields)["ScheduleArn"]
        return PhysicalResource(fields["Name"], {"Arn": arn})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        request.client("scheduler").update_schedule(
            **({"State": "ENABLED"} | dict(properties) | {"Name": resource.physical_id})
        )
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error(
            "ResourceNotFound",
            request.client("scheduler").delete_schedule,
            Name=resource.physical_id,
            **pick(properties, "GroupName"),
        )


class ScheduleGroup:
    supported_properties = frozenset(("Name", "Tags"))

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource:
        name = properties.get("Name") or request.physical_name(64)
        arn = request.client("scheduler").create_schedule_group(Name=name, Tags=request.tag_list(properties))
        return PhysicalResource(name, {"Arn": arn["ScheduleGroupArn"]})

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource:
        request.client("scheduler").tag_resource(
            ResourceArn=resource.attributes["Arn"], Tags=request.tag_list(properties)
        )
        return resource

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None:
        ignore_error("ResourceNotFound", request.client("scheduler").delete_schedule_group, Name=resource.physical_id)
