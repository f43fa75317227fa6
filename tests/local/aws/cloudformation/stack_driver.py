"""One CloudFormation stack, driven through the API."""

import json
from typing import Any

from tests.local.aws.serverless import Aws, eventually

QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}}
# A queue that cannot be made: its dead-letter queue does not exist.
BROKEN_QUEUE = {
    "Type": "AWS::SQS::Queue",
    "Properties": {
        "RedrivePolicy": {"maxReceiveCount": 1, "deadLetterTargetArn": "arn:aws:sqs:ap-northeast-2:123456789012:no"}
    },
}


def template(resources: dict[str, Any], **sections: Any) -> str:
    return json.dumps({"Resources": resources, **sections})


class StackDriver:
    """One stack, driven through the API."""

    def __init__(self, aws: Aws, name: str) -> None:
        self.aws, self.name, self.client = aws, name, aws.client("cloudformation")

    def create(self, resources: dict[str, Any], **sections: Any) -> str:
        self.client.create_stack(
            StackName=self.name,
            TemplateBody=template(resources, **sections),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        return self.wait_until_settled()

    def update(self, resources: dict[str, Any], **sections: Any) -> str:
        self.client.update_stack(
            StackName=self.name,
            TemplateBody=template(resources, **sections),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        return self.wait_until_settled()

    def delete(self) -> str:
        identity = self.describe()["StackId"]
        self.client.delete_stack(StackName=self.name)
        return self.wait_until_settled(identity)

    def describe(self, name: str = "") -> dict[str, Any]:
        return dict(self.client.describe_stacks(StackName=name or self.name)["Stacks"][0])

    def wait_until_settled(self, name: str = "") -> str:
        def status() -> str:
            now = str(self.describe(name)["StackStatus"])
            return "" if now.endswith("IN_PROGRESS") else now

        return eventually(status, what="the end of the operation")

    def outputs(self) -> dict[str, str]:
        return {o["OutputKey"]: o["OutputValue"] for o in self.describe().get("Outputs", ())}

    def ids(self) -> dict[str, str]:
        resources = self.client.list_stack_resources(StackName=self.name)["StackResourceSummaries"]
        return {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in resources}

    def event_history(self) -> list[tuple[str, str]]:
        """(logical id, status) of every event, oldest first."""
        events = self.client.describe_stack_events(StackName=self.name)["StackEvents"]
        return [(e["LogicalResourceId"], e["ResourceStatus"]) for e in reversed(events)]

    def reasons(self) -> str:
        events = self.client.describe_stack_events(StackName=self.name)["StackEvents"]
        return " ".join(e.get("ResourceStatusReason", "") for e in events)
