"""The policy language by itself: wildcards, NotAction, variables, condition operators."""

from typing import Any

import pytest

from local.aws.iam.conditions import UnknownOperator, holds
from local.aws.iam.policies import AccessRequest, EvaluationResult, evaluate


def judge(statement: dict[str, Any], access: AccessRequest) -> EvaluationResult:
    return evaluate([{"Statement": statement}], access)


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ({"Action": "ec2:Describe*", "Resource": "*"}, True),
        ({"Action": "EC2:describeimages", "Resource": "*"}, True),
        ({"Action": "ec2:DescribeInstances", "Resource": "*"}, False),
        ({"NotAction": "iam:*", "Resource": "*"}, True),
        ({"NotAction": "ec2:*", "Resource": "*"}, False),
        ({"Action": "*", "Resource": "arn:aws:ec2:*::image/ami-?"}, True),
        ({"Action": "*", "Resource": "arn:aws:ec2:*::image/ami-??"}, False),
        ({"Action": "*", "NotResource": "arn:aws:ec2:*"}, False),
        ({"Action": "*", "Resource": "arn:aws:ec2:${aws:RequestedRegion}::image/*"}, True),
        ({"Action": "*", "Resource": "arn:aws:ec2:${aws:Nothing}::image/*"}, False),
    ],
)
def test_elements(statement: dict[str, Any], allowed: bool) -> None:
    access = AccessRequest("ec2:DescribeImages", "arn:aws:ec2:seoul::image/ami-1", {"aws:requestedregion": ("seoul",)})
    expected = EvaluationResult.ALLOWED if allowed else EvaluationResult.IMPLICIT_DENY
    assert judge({"Effect": "Allow"} | statement, access) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"StringEquals": {"one": "a"}}, True),
        ({"StringEquals": {"one": ["b", "a"]}}, True),
        ({"StringEquals": {"One": "b"}}, False),
        ({"StringEquals": {"absent": "a"}}, False),
        ({"StringEqualsIfExists": {"absent": "a"}}, True),
        ({"StringNotEquals": {"one": "b"}}, True),
        ({"StringNotEquals": {"absent": "b"}}, True),
        ({"StringLike": {"one": "?"}}, True),
        ({"ArnLike": {"arn": "arn:aws:iam::*:role/x"}}, True),
        ({"Null": {"absent": "true"}}, True),
        ({"Null": {"one": "true"}}, False),
        ({"Bool": {"secure": "true"}}, True),
        ({"Bool": {"secure": False}}, False),
        ({"NumericLessThan": {"number": "11"}}, True),
        ({"ForAllValues:StringEquals": {"many": ["x", "y", "z"]}}, True),
        ({"ForAllValues:StringEquals": {"many": ["x"]}}, False),
        ({"ForAllValues:StringEquals": {"absent": ["x"]}}, True),
        ({"ForAnyValue:StringEquals": {"many": ["x"]}}, True),
        ({"ForAnyValue:StringEquals": {"absent": ["x"]}}, False),
        ({"StringEquals": {"one": "a"}, "Bool": {"secure": "false"}}, False),
    ],
)
def test_conditions(condition: dict[str, Any], expected: bool) -> None:
    context = {
        "one": ("a",),
        "many": ("x", "y"),
        "secure": ("true",),
        "number": ("10",),
        "arn": ("arn:aws:iam::1:role/x",),
    }
    assert holds(condition, context) is expected


def test_a_condition_that_is_not_understood_does_not_pass() -> None:
    with pytest.raises(UnknownOperator):
        holds({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, {})
