"""Change sets: what the CDK deploys and diffs by."""

from typing import Any

import pytest

from tests.local.aws.cloudformation.stack_driver import QUEUE, StackDriver, template
from tests.local.aws.serverless import Aws


def test_change_sets_tell_what_would_happen(aws: Aws) -> None:
    stack, client = StackDriver(aws, "planned"), aws.client("cloudformation")
    before = {"Queue": QUEUE, "Named": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "one"}}}

    def plan(resources: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
        arguments = {"StackName": "planned", "ChangeSetName": name}
        client.create_change_set(**arguments, ChangeSetType=kind, TemplateBody=template(resources))
        return dict(client.describe_change_set(**arguments))

    assert len(plan(before, "CREATE", "begin")["Changes"]) == 2
    assert stack.describe()["StackStatus"] == "REVIEW_IN_PROGRESS"
    client.execute_change_set(StackName="planned", ChangeSetName="begin")
    assert stack.wait_until_settled() == "CREATE_COMPLETE"
    nothing = plan(before, "UPDATE", "nothing")
    assert nothing["Status"] == "FAILED"
    assert nothing["StatusReason"].startswith("The submitted information didn't contain changes.")
    after = {
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 31}},
        "Named": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "two"}},
        "Reader": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": {"Ref": "Named"}}},
    }
    changes = {
        change["ResourceChange"]["LogicalResourceId"]: (
            change["ResourceChange"]["Action"],
            change["ResourceChange"].get("Replacement"),
        )
        for change in plan(after, "UPDATE", "more")["Changes"]
    }
    assert changes == {"Queue": ("Modify", "False"), "Named": ("Modify", "True"), "Reader": ("Add", None)}
    client.delete_change_set(StackName="planned", ChangeSetName="more")
    with pytest.raises(client.exceptions.ChangeSetNotFoundException):
        client.describe_change_set(StackName="planned", ChangeSetName="more")
    assert stack.delete() == "DELETE_COMPLETE"


def test_a_name_means_the_change_set_of_the_stack_that_exists(aws: Aws) -> None:
    """A first deployment failed and its stack was deleted; the CDK calls every change set of a stack the same."""
    stack, client = StackDriver(aws, "again"), aws.client("cloudformation")
    arguments = {"StackName": "again", "ChangeSetName": "cdk-deploy-change-set"}

    def begun() -> str:
        body = template({"Queue": QUEUE})
        return str(client.create_change_set(**arguments, ChangeSetType="CREATE", TemplateBody=body)["Id"])

    old = begun()
    assert stack.delete() == "DELETE_COMPLETE"
    new = begun()
    assert new != old
    assert client.describe_change_set(**arguments)["ChangeSetId"] == new
    client.execute_change_set(**arguments)
    assert stack.wait_until_settled() == "CREATE_COMPLETE"
    assert stack.delete() == "DELETE_COMPLETE"
