"""Whether a resource policy lets an AWS service in."""

import json
from typing import Any

import pytest

from local.aws.iam.resource_policies import policy_allows


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"Effect": "Deny"}, False),
        ({"Action": "sqs:ReceiveMessage"}, False),
        ({"Principal": {"Service": "sns.amazonaws.com"}}, False),
        ({"Condition": {"ArnEquals": {"aws:SourceArn": "other"}}}, False),
        ({"Condition": {"Bool": {"aws:SecureTransport": "false"}}}, False),
        ({"Condition": {"NumericLessThan": {"x": "1"}}}, False),
        ({"Action": "sqs:*", "Principal": "*"}, True),
    ],
)
def test_resource_policies_decide(change: dict[str, Any], allowed: bool) -> None:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "queue",
        "Condition": {"ArnLike": {"AWS:SourceArn": "rule*"}},
    }
    assert (
        policy_allows(
            json.dumps({"Statement": statement | change}),
            service="events.amazonaws.com",
            action="sqs:SendMessage",
            resource="queue",
            context={"aws:sourcearn": "rule1", "aws:securetransport": "true"},
        )
        is allowed
    )
