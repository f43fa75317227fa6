"""IAM is enforced for role sessions: actions, resources, conditions, PassRole, trust, and never for the admin."""

import itertools
import json
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import ACCOUNT, CLUSTER, REGION, Aws
from tests.local.aws.fleets import create_template, error_codes, fleet_request, instance_ids, instance_types, override

_numbers = itertools.count(1)
OWNED = f"kubernetes.io/cluster/{CLUSTER}"
NODE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/KarpenterNodeRole-{CLUSTER}"


def allow(actions: Any, resources: Any = "*", **condition: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": actions, "Resource": resources}
    return statement | ({"Condition": condition} if condition else {})


def deny(actions: Any, resources: Any = "*") -> dict[str, Any]:
    return {"Effect": "Deny", "Action": actions, "Resource": resources}


def as_role(aws: Aws, *statements: dict[str, Any]) -> dict[str, Any]:
    return aws.role(f"iam-test-{next(_numbers)}", *statements)


def error(call: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["Error"]["Code"], caught.value.response["Error"]["Message"]


def test_an_action_that_is_not_allowed_is_refused_in_the_words_of_ec2(aws: Aws) -> None:
    ec2 = aws.client("ec2", as_role(aws, allow("ec2:DescribeSubnets")))
    assert ec2.describe_subnets()["Subnets"]
    code, message = error(ec2.describe_instances)
    assert code == "UnauthorizedOperation"
    assert "not authorized to perform: ec2:DescribeInstances" in message
    assert "no identity-based policy allows" in message


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("sqs", lambda client: client.list_queues(), "AccessDeniedException"),
        ("dynamodb", lambda client: client.list_tables(), "AccessDeniedException"),
        ("iam", lambda client: client.list_roles(), "AccessDenied"),
        ("s3", lambda client: client.list_buckets(), "AccessDenied"),
        ("eks", lambda client: client.list_clusters(), "AccessDeniedException"),
    ],
)
def test_every_service_refuses_in_its_own_protocol(aws: Aws, service: str, call: Any, code: str) -> None:
    client = aws.client(service, as_role(aws))
    assert error(lambda: call(client))[0] == code


def test_an_explicit_deny_beats_an_allow(aws: Aws) -> None:
    ec2 = aws.client("ec2", as_role(aws, allow("ec2:*"), deny("ec2:Describe*")))
    assert "explicit deny" in error(ec2.describe_subnets)[1]


def test_a_queue_is_told_from_another_by_its_arn(aws: Aws) -> None:
    admin = aws.client("sqs")
    mine, other = (admin.create_queue(QueueName=name)["QueueUrl"] for name in ("iam-mine", "iam-other"))
    sqs = aws.client("sqs", as_role(aws, allow("sqs:SendMessage", f"arn:aws:sqs:{REGION}:{ACCOUNT}:iam-mine")))
    sqs.send_message(QueueUrl=mine, MessageBody="1")
    sqs.send_message_batch(QueueUrl=mine, Entries=[{"Id": "1", "MessageBody": "1"}])
    assert error(lambda: sqs.send_message(QueueUrl=other, MessageBody="1"))[0] == "AccessDeniedException"
    assert error(lambda: sqs.receive_message(QueueUrl=mine))[0] == "AccessDeniedException"


@pytest.fixture(scope="module")
def table(aws: Aws) -> str:
    aws.client("dynamodb").create_table(
        TableName="iam-table",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
    )
    return "iam-table"


def test_leading_keys_confine_a_role_to_its_own_items(aws: Aws, table: str) -> None:
    arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}"
    keys = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["forwarder#mine"]}}
    present = {"Null": {"dynamodb:LeadingKeys": "false"}}
    actions = ["dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
    client = aws.client("dynamodb", as_role(aws, allow(actions, arn, **keys, **present)))

    def item(pk: str) -> dict[str, Any]:
        return {"pk": {"S": pk}, "sk": {"S": "heartbeat"}}

    def query(pk: str) -> Any:
        return client.query(
            TableName=table,
            KeyConditionExpression="#pk = :pk",
            ExpressionAttributeNames={"#pk": "pk"},
            ExpressionAttributeValues={":pk": {"S": pk}},
        )

    client.put_item(TableName=table, Item=item("forwarder#mine"))
    client.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": item("forwarder#mine")}}])
    assert query("forwarder#mine")["Count"] == 1
    others = [
        lambda: client.put_item(TableName=table, Item=item("cluster")),
        lambda: query("cluster"),
        lambda: client.transact_write_items(TransactItems=[{"Put": {"TableName": table, "Item": item("cluster")}}]),
        lambda: client.scan(TableName=table),
    ]
    assert [error(call)[0] for call in others] == ["AccessDeniedException"] * 4


def test_an_object_is_told_from_another_by_its_key(aws: Aws) -> None:
    admin = aws.client("s3")
    admin.create_bucket(Bucket="iam-bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3 = aws.client("s3", as_role(aws, allow(["s3:PutObject", "s3:GetObject"], "arn:aws:s3:::iam-bucket/mine/*")))
    s3.put_object(Bucket="iam-bucket", Key="mine/a b", Body=b"1")
    assert s3.get_object(Bucket="iam-bucket", Key="mine/a b")["Body"].read() == b"1"
    assert error(lambda: s3.put_object(Bucket="iam-bucket", Key="other", Body=b"1"))[0] == "AccessDenied"
    assert error(lambda: s3.list_objects_v2(Bucket="iam-bucket"))[0] == "AccessDenied"


def test_public_parameters_have_no_account_in_their_arn(aws: Aws) -> None:
    name = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/arm64/standard/recommended/image_id"
    ssm = aws.client("ssm", as_role(aws, allow("ssm:GetParameter", f"arn:aws:ssm:{REGION}::parameter/aws/service/*")))
    assert ssm.get_parameter(Name=name)["Parameter"]["Value"].startswith("ami-")
    assert error(lambda: ssm.get_parameter(Name="/mine"))[0] == "AccessDeniedException"


# What the act role of a cluster needs for CreateFleet, each part removable.
TAGGED = {"StringEquals": {f"aws:RequestTag/{OWNED}": "owned"}}
LAUNCH: dict[str, dict[str, Any]] = {
    "use": allow(
        ["ec2:RunInstances", "ec2:CreateFleet"],
        [f"arn:aws:ec2:{REGION}::image/*"]
        + [f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/*" for kind in ("subnet", "security-group", "launch-template")],
    ),
    "create": allow(
        ["ec2:RunInstances", "ec2:CreateFleet"],
        [f"arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/*" for kind in ("fleet", "instance", "volume", "network-interface")],
        **TAGGED,
    ),
    "tag": allow(
        "ec2:CreateTags",
        f"arn:aws:ec2:{REGION}:{ACCOUNT}:*/*",
        **TAGGED
        | {"ForAnyValue:StringEquals": {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}},
    ),
    "pass": allow("iam:PassRole", NODE_ROLE, StringEquals={"iam:PassedToService": "ec2.amazonaws.com"}),
}


@pytest.fixture(scope="module")
def profile_template(aws: Aws) -> str:
    iam, ec2 = aws.client("iam"), aws.client("ec2")
    iam.create_instance_profile(InstanceProfileName="iam-profile")
    iam.add_role_to_instance_profile(InstanceProfileName="iam-profile", RoleName=f"KarpenterNodeRole-{CLUSTER}")
    kinds = [{"ResourceType": "network-interface", "Tags": [{"Key": OWNED, "Value": "owned"}]}]
    return create_template(ec2, IamInstanceProfile={"Name": "iam-profile"}, TagSpecifications=kinds)


def fleet(aws: Aws, credentials: dict[str, Any], template_name: str, owned: str = "owned", **more: Any) -> Any:
    tags = [
        {"ResourceType": kind, "Tags": [{"Key": OWNED, "Value": owned}]} for kind in ("fleet", "instance", "volume")
    ]
    pools = [override(aws.client("ec2"), "t3a.large", "a")]
    return aws.client("ec2", credentials).create_fleet(
        **fleet_request(aws.client("ec2"), pools, template_name=template_name, TagSpecifications=tags, **more)
    )


def test_a_launch_needs_what_ec2_asks_for(aws: Aws, profile_template: str) -> None:
    assert instance_types(fleet(aws, as_role(aws, *LAUNCH.values()), profile_template)) == ["t3a.large"]


@pytest.mark.parametrize("left_out", ["use", "create", "tag"])
def test_a_fleet_without_one_of_the_rights_is_refused(aws: Aws, profile_template: str, left_out: str) -> None:
    role = as_role(aws, *(statement for name, statement in LAUNCH.items() if name != left_out))
    assert error(lambda: fleet(aws, role, profile_template))[0] == "UnauthorizedOperation"


def test_a_launch_that_may_not_pass_the_node_role_fails_per_pool(aws: Aws, profile_template: str) -> None:
    role = as_role(aws, *(statement for name, statement in LAUNCH.items() if name != "pass"))
    answer = fleet(aws, role, profile_template)
    assert error_codes(answer) == ["UnauthorizedOperation"]
    assert f"iam:PassRole on resource: {NODE_ROLE}" in answer["Errors"][0]["ErrorMessage"]


def test_a_spot_launch_tags_its_spot_request(aws: Aws, profile_template: str) -> None:
    rights = [*LAUNCH.values(), allow("ec2:RunInstances", f"arn:aws:ec2:{REGION}:{ACCOUNT}:spot-*/*", **TAGGED)]
    untagged = fleet(aws, as_role(aws, *rights), profile_template, capacity_type="spot")
    assert error_codes(untagged) == ["UnauthorizedOperation"]
    kinds = ("network-interface", "spot-instances-request")
    tags = [{"ResourceType": kind, "Tags": [{"Key": OWNED, "Value": "owned"}]} for kind in kinds]
    tagged = create_template(aws.client("ec2"), IamInstanceProfile={"Name": "iam-profile"}, TagSpecifications=tags)
    assert instance_types(fleet(aws, as_role(aws, *rights), tagged, capacity_type="spot")) == ["t3a.large"]


def test_a_fleet_for_another_cluster_is_refused(aws: Aws, profile_template: str) -> None:
    role = as_role(aws, *LAUNCH.values())
    assert error(lambda: fleet(aws, role, profile_template, owned="shared"))[0] == "UnauthorizedOperation"


def test_only_instances_of_the_own_cluster_are_terminated(aws: Aws) -> None:
    admin = aws.client("ec2")
    pools = [override(admin, "t3a.large", "a")]
    mine, other = (instance_ids(admin.create_fleet(**fleet_request(admin, pools)))[0] for _ in range(2))
    admin.create_tags(Resources=[mine], Tags=[{"Key": OWNED, "Value": "owned"}])
    condition = {"StringEquals": {f"ec2:ResourceTag/{OWNED}": "owned"}}
    ec2 = aws.client("ec2", as_role(aws, allow("ec2:TerminateInstances", "*", **condition)))
    assert error(lambda: ec2.terminate_instances(InstanceIds=[mine, other]))[0] == "UnauthorizedOperation"
    assert ec2.terminate_instances(InstanceIds=[mine])["TerminatingInstances"]


def test_a_profile_gets_only_a_role_that_may_be_passed(aws: Aws) -> None:
    profile = f"arn:aws:iam::{ACCOUNT}:instance-profile/karpenter/*"
    actions = ["iam:CreateInstanceProfile", "iam:AddRoleToInstanceProfile"]
    iam = aws.client("iam", as_role(aws, allow(actions, profile), LAUNCH["pass"]))
    iam.create_instance_profile(InstanceProfileName="iam-made", Path="/karpenter/x/")
    refused = error(lambda: iam.create_instance_profile(InstanceProfileName="iam-not-made", Path="/other/"))
    assert refused[0] == "AccessDenied"
    add = iam.add_role_to_instance_profile
    assert error(lambda: add(InstanceProfileName="iam-made", RoleName="dev-eks-node-group-role"))[0] == "AccessDenied"
    add(InstanceProfileName="iam-made", RoleName=f"KarpenterNodeRole-{CLUSTER}")


def test_assuming_a_role_needs_permission_and_trust(aws: Aws) -> None:
    aws.role("iam-target", trust={"AWS": f"arn:aws:iam::{ACCOUNT}:root"})
    aws.role("iam-service-only", trust={"Service": "lambda.amazonaws.com"})
    target, service_only, missing = (
        f"arn:aws:iam::{ACCOUNT}:role/{name}" for name in ("iam-target", "iam-service-only", "iam-nobody")
    )
    sts = aws.client("sts", as_role(aws, allow("sts:AssumeRole", [target, service_only, missing])))
    assert sts.assume_role(RoleArn=target, RoleSessionName="session")["AssumedRoleUser"]["Arn"].endswith(
        "iam-target/session"
    )
    for arn in (service_only, missing):
        refused = error(partial(sts.assume_role, RoleArn=arn, RoleSessionName="session"))
        assert refused[0] == "AccessDenied"
    nobody = aws.client("sts", as_role(aws))
    assert error(lambda: nobody.assume_role(RoleArn=target, RoleSessionName="session"))[0] == "AccessDenied"


def test_who_am_i_is_always_answered(aws: Aws) -> None:
    sts = aws.client("sts", as_role(aws, deny("*")))
    assert ":assumed-role/iam-test-" in sts.get_caller_identity()["Arn"]


def test_a_session_policy_narrows_a_session(aws: Aws) -> None:
    aws.role("iam-narrowed", allow("ec2:*"))
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow("ec2:DescribeSubnets")]})
    session = aws.client("sts").assume_role(
        RoleArn=f"arn:aws:iam::{ACCOUNT}:role/iam-narrowed", RoleSessionName="session", Policy=policy
    )["Credentials"]
    ec2 = aws.client("ec2", session)
    assert ec2.describe_subnets()["Subnets"]
    assert error(ec2.describe_instances)[0] == "UnauthorizedOperation"


def test_a_permissions_boundary_caps_a_role(aws: Aws) -> None:
    iam = aws.client("iam")
    document = {"Version": "2012-10-17", "Statement": [allow("ec2:DescribeSubnets")]}
    boundary = iam.create_policy(PolicyName="iam-boundary", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
    session = aws.role("iam-bounded", allow("ec2:*"))
    iam.put_role_permissions_boundary(RoleName="iam-bounded", PermissionsBoundary=boundary)
    ec2 = aws.client("ec2", session)
    assert ec2.describe_subnets()["Subnets"]
    assert error(ec2.describe_instances)[0] == "UnauthorizedOperation"


def test_unknown_and_expired_keys_are_refused(aws: Aws) -> None:
    nobody = {"AccessKeyId": "ASIANOBODY", "SecretAccessKey": "x", "SessionToken": "x"}
    assert error(aws.client("ec2", nobody).describe_subnets)[0] == "AuthFailure"
    assert error(aws.client("sqs", nobody).list_queues)[0] == "UnrecognizedClientException"
