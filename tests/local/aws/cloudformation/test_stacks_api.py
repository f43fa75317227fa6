"""Stacks: made in order, changed, replaced, rolled back, deleted; wrong templates are refused."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.cloudformation.stack_driver import BROKEN_QUEUE, QUEUE, StackDriver
from tests.local.aws.serverless import TRUST_LAMBDA, Aws, zip_files


def queues(aws: Aws) -> list[str]:
    return list(aws.client("sqs").list_queues().get("QueueUrls", ()))


def test_a_function_with_a_layer_is_deployed_and_answers(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="assets", CreateBucketConfiguration={"LocationConstraint": "ap-northeast-2"})
    s3.put_object(Bucket="assets", Key="layer.zip", Body=zip_files({"python/shared.py": "GREETING = 'hello'"}))
    code = "import os, shared\ndef handler(e, c):\n    return [shared.GREETING, os.environ['QUEUE']]"
    s3.put_object(Bucket="assets", Key="code.zip", Body=zip_files({"handler.py": code}))
    stack = StackDriver(aws, "greeter")
    status = stack.create(
        {
            "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": TRUST_LAMBDA}},
            "Layer": {
                "Type": "AWS::Lambda::LayerVersion",
                "Properties": {"Content": {"S3Bucket": "assets", "S3Key": "layer.zip"}},
            },
            "Queue": QUEUE,
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "Runtime": "python3.13",
                    "Handler": "handler.handler",
                    "Timeout": 60,
                    "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                    "Layers": [{"Ref": "Layer"}],
                    "Code": {"S3Bucket": "assets", "S3Key": "code.zip"},
                    "Environment": {"Variables": {"QUEUE": {"Fn::Sub": "${Queue.QueueName}!"}}},
                    "RecursiveLoop": "Allow",
                },
            },
        },
        Outputs={"Name": {"Value": {"Ref": "Function"}}, "Arn": {"Value": {"Fn::GetAtt": "Function.Arn"}}},
    )
    assert status == "CREATE_COMPLETE", stack.reasons()
    name = stack.outputs()["Name"]
    answer, response = aws.invoke(name)
    assert "FunctionError" not in response, answer
    assert answer == ["hello", stack.ids()["Queue"].rsplit("/", 1)[-1] + "!"]
    recursion = aws.client("lambda").get_function_recursion_config(FunctionName=name)
    assert recursion["RecursiveLoop"] == "Allow"
    assert stack.delete() == "DELETE_COMPLETE"


def test_an_unknown_type_is_refused_by_name(aws: Aws) -> None:
    stack = StackDriver(aws, "unknown")
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::Nothing::Here\]"):
        stack.create({"Thing": {"Type": "AWS::Nothing::Here"}})


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            {"A": {"Type": "AWS::SQS::Queue", "DependsOn": "B"}, "B": {"Type": "AWS::SQS::Queue", "DependsOn": "A"}},
            "Circular",
        ),
        ({"A": {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": {"Ref": "Nobody"}}}}, r"\[Nobody\]"),
        ({"A": {"Properties": {}}}, "must contain a Type"),
        ({}, "At least one Resources member"),
    ],
)
def test_wrong_templates_are_refused(aws: Aws, resources: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        StackDriver(aws, "wrong").create(resources)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"Colour": "blue"}, "unsupported property Colour"),
        ({"VisibilityTimeout": "soon"}, "VisibilityTimeout: expected type: integer"),
        ({"Arn": "mine"}, "read-only property Arn"),
    ],
)
def test_properties_must_fit_the_schema(aws: Aws, properties: dict[str, Any], message: str) -> None:
    stack = StackDriver(aws, f"unfit-{next(iter(properties))}")
    assert stack.create({"Queue": {"Type": "AWS::SQS::Queue", "Properties": properties}}) == "ROLLBACK_COMPLETE"
    assert message in stack.reasons()


def test_a_failed_creation_is_rolled_back(aws: Aws) -> None:
    stack = StackDriver(aws, "doomed")
    before = queues(aws)
    assert stack.create({"Good": QUEUE, "Bad": BROKEN_QUEUE | {"DependsOn": "Good"}}) == "ROLLBACK_COMPLETE"
    assert queues(aws) == before
    story = stack.event_history()
    assert story.index(("Bad", "CREATE_FAILED")) < story.index(("Good", "DELETE_COMPLETE"))
    with pytest.raises(ClientError, match="ROLLBACK_COMPLETE state and can not be updated"):
        stack.update({"Good": QUEUE})
    assert stack.delete() == "DELETE_COMPLETE"


def test_updates_change_replace_add_and_remove(aws: Aws) -> None:
    stack = StackDriver(aws, "living")
    named = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "first-name"}}
    reader = {
        "Type": "AWS::SSM::Parameter",
        "Properties": {"Name": "/living", "Type": "String", "Value": {"Fn::GetAtt": ["Named", "Arn"]}},
    }
    assert stack.create({"Kept": QUEUE, "Named": named, "Reader": reader, "Gone": QUEUE}) == "CREATE_COMPLETE"
    before = stack.ids()
    changed = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 99}}
    renamed = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "second-name"}}
    assert stack.update({"Kept": changed, "Named": renamed, "Reader": reader, "New": QUEUE}) == "UPDATE_COMPLETE"
    after = stack.ids()
    assert after["Kept"] == before["Kept"]
    attributes = aws.client("sqs").get_queue_attributes(QueueUrl=after["Kept"], AttributeNames=["All"])
    assert attributes["Attributes"]["VisibilityTimeout"] == "99"
    assert after["Named"].endswith("second-name")
    assert set(queues(aws)) >= {after["New"], after["Named"]}
    assert not {before["Gone"], before["Named"]} & set(queues(aws))
    value = aws.client("ssm").get_parameter(Name="/living")["Parameter"]["Value"]
    assert value.endswith("second-name")
    with pytest.raises(ClientError, match="No updates are to be performed"):
        stack.update({"Kept": changed, "Named": renamed, "Reader": reader, "New": QUEUE})
    assert stack.delete() == "DELETE_COMPLETE"
    assert not set(after.values()) & set(queues(aws))


def test_a_failed_update_goes_back(aws: Aws) -> None:
    stack = StackDriver(aws, "hopeful")
    assert stack.create({"Queue": QUEUE, "Old": QUEUE}, Outputs={"N": {"Value": "1"}}) == "CREATE_COMPLETE"
    before, existing = stack.ids(), sorted(queues(aws))
    changed = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 99}}
    status = stack.update(
        {"Queue": changed, "New": QUEUE, "Bad": BROKEN_QUEUE | {"DependsOn": ["New", "Queue"]}},
        Outputs={"N": {"Value": "2"}},
    )
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert stack.ids() == before
    assert sorted(queues(aws)) == existing
    attributes = aws.client("sqs").get_queue_attributes(QueueUrl=before["Queue"], AttributeNames=["All"])
    assert attributes["Attributes"]["VisibilityTimeout"] == "30"
    assert stack.outputs() == {"N": "1"}
    assert stack.delete() == "DELETE_COMPLETE"


def test_deletion_goes_backwards_and_keeps_what_is_retained(aws: Aws) -> None:
    stack = StackDriver(aws, "leaving")
    second = QUEUE | {"DependsOn": "First"}
    kept = QUEUE | {"DeletionPolicy": "Retain", "DependsOn": "Second"}
    assert stack.create({"First": QUEUE, "Second": second, "Kept": kept}) == "CREATE_COMPLETE"
    url = stack.ids()["Kept"]
    identity = stack.describe()["StackId"]
    assert stack.delete() == "DELETE_COMPLETE"
    assert url in queues(aws)
    stack.name = identity
    deleted = [name for name, status in stack.event_history() if status in ("DELETE_COMPLETE", "DELETE_SKIPPED")]
    assert deleted[:3] == ["Kept", "Second", "First"]


def test_a_bucket_with_objects_stops_the_deletion(aws: Aws) -> None:
    stack = StackDriver(aws, "full")
    assert stack.create({"Bucket": {"Type": "AWS::S3::Bucket"}, "Queue": QUEUE}) == "CREATE_COMPLETE"
    bucket = stack.ids()["Bucket"]
    aws.client("s3").put_object(Bucket=bucket, Key="x", Body=b"y")
    assert stack.delete() == "DELETE_FAILED"
    assert list(stack.ids()) == ["Bucket"]
    aws.client("s3").delete_object(Bucket=bucket, Key="x")
    assert stack.delete() == "DELETE_COMPLETE"


def test_what_cannot_be_deleted_keeps_what_it_needs(aws: Aws) -> None:
    stack = StackDriver(aws, "needed")
    second = QUEUE | {"DependsOn": "First"}
    bucket = {"Type": "AWS::S3::Bucket", "DependsOn": "Second"}
    assert stack.create({"First": QUEUE, "Second": second, "Bucket": bucket, "Other": QUEUE}) == "CREATE_COMPLETE"
    name = stack.ids()["Bucket"]
    aws.client("s3").put_object(Bucket=name, Key="x", Body=b"y")
    assert stack.delete() == "DELETE_FAILED"
    assert set(stack.ids()) == {"Bucket", "First", "Second"}
    aws.client("s3").delete_object(Bucket=name, Key="x")
    assert stack.delete() == "DELETE_COMPLETE"


def test_what_a_failed_step_left_behind_is_removed(aws: Aws) -> None:
    """The role is made before its policy turns out not to exist."""
    stack = StackDriver(aws, "half")
    role = {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": "half-made",
            "AssumeRolePolicyDocument": TRUST_LAMBDA,
            "ManagedPolicyArns": ["arn:aws:iam::123456789012:policy/missing"],
        },
    }
    assert stack.create({"Role": role}) == "ROLLBACK_COMPLETE"
    with pytest.raises(aws.client("iam").exceptions.NoSuchEntityException):
        aws.client("iam").get_role(RoleName="half-made")


def test_parameters_conditions_exports_and_functions(aws: Aws) -> None:
    aws.client("ssm").put_parameter(Name="/wanted/name", Type="String", Value="from-ssm")
    exporting = StackDriver(aws, "exporting")
    exporting.create({"Queue": QUEUE}, Outputs={"Q": {"Value": "shared", "Export": {"Name": "the-export"}}})
    stack = StackDriver(aws, "functional")
    text = {
        "Fn::Join": [
            "|",
            [
                {"Ref": "Stored"},
                {"Fn::Select": [1, {"Fn::Split": [",", "a,b,c"]}]},
                {"Fn::If": ["Big", "big", "small"]},
                {"Fn::FindInMap": ["Sizes", {"Ref": "AWS::Region"}, "Size"]},
                {"Fn::ImportValue": "the-export"},
                {"Fn::Sub": ["${x}-${AWS::AccountId}-${!kept}", {"x": "y"}]},
                {"Fn::Select": [0, {"Fn::GetAZs": ""}]},
            ],
        ]
    }
    status = stack.create(
        {
            "Parameter": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": text}},
            "Skipped": QUEUE | {"Condition": "Big"},
        },
        Parameters={
            "Stored": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/wanted/name"},
            "Size": {"Type": "Number", "Default": 3},
        },
        Conditions={"Big": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Size"}, "3"]}]}},
        Mappings={"Sizes": {"ap-northeast-2": {"Size": "XL"}}},
        Outputs={"Value": {"Value": {"Fn::GetAtt": ["Parameter", "Value"]}}},
    )
    assert status == "CREATE_COMPLETE", stack.reasons()
    assert stack.outputs()["Value"] == "from-ssm|b|small|XL|shared|y-123456789012-${kept}|ap-northeast-2a"
    assert "Skipped" not in stack.ids()
