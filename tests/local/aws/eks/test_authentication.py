"""`k8s-aws-v1` tokens: made as an EKS client makes them, and every way in which one can be wrong."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pytest

from tests.local.aws.conftest import ACCOUNT, ADMINISTRATOR, REGION, Aws
from tests.local.aws.eks_tokens import CLUSTER, identify, presigned, token

ROLE = f"arn:aws:iam::{ACCOUNT}:role/identity-reader"


@pytest.fixture(scope="module")
def session(aws: Aws) -> dict[str, Any]:
    """Credentials of a role with an access entry in the group spotwright:read."""
    cluster = {"name": CLUSTER, "endpoint": "https://127.0.0.1:1", "certificateAuthority": "Q0E="}
    aws.control("POST", "/_local/clusters", cluster)
    aws.control("POST", "/_local/clusters", cluster | {"name": "identity-other"})
    credentials = aws.role("identity-reader")
    aws.client("eks").create_access_entry(clusterName=CLUSTER, principalArn=ROLE, kubernetesGroups=["spotwright:read"])
    return credentials


def test_a_token_is_its_role_and_the_groups_of_its_entry(aws: Aws, session: dict[str, Any]) -> None:
    answer = identify(aws, token(presigned(session, aws.endpoint)))
    name = f"arn:aws:sts::{ACCOUNT}:assumed-role/identity-reader/test"
    assert answer == {
        "authenticated": True,
        "username": name,
        "groups": ["spotwright:read"],
        "arn": name,
        "principal": ROLE,
    }


def test_a_token_for_the_public_endpoint_of_sts_is_as_good(aws: Aws, session: dict[str, Any]) -> None:
    assert identify(aws, token(presigned(session, f"https://sts.{REGION}.amazonaws.com")))["authenticated"]
    assert identify(aws, token(presigned(session, aws.endpoint.replace("http:", "https:"))))["authenticated"]


def test_the_cluster_admin_policy_is_the_group_of_masters(aws: Aws, session: dict[str, Any]) -> None:
    credentials = aws.role("identity-admin")
    entry = {"clusterName": CLUSTER, "principalArn": f"arn:aws:iam::{ACCOUNT}:role/identity-admin"}
    eks = aws.client("eks")
    eks.create_access_entry(**entry)
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    eks.associate_access_policy(**entry, policyArn=policy, accessScope={"type": "cluster"})
    assert identify(aws, token(presigned(credentials, aws.endpoint)))["groups"] == ["system:masters"]
    eks.delete_access_entry(**entry)
    assert not identify(aws, token(presigned(credentials, aws.endpoint)))["authenticated"]


def test_a_role_without_entry_is_nobody(aws: Aws, session: dict[str, Any]) -> None:
    assert not identify(aws, token(presigned(aws.role("identity-nobody"), aws.endpoint)))["authenticated"]
    other = token(presigned(session, aws.endpoint, cluster="identity-other"))
    assert not identify(aws, other, "identity-other")["authenticated"]


def altered(url: str, **changes: str) -> str:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | {name.replace("_", "-"): value for name, value in changes.items()}
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))


def test_wrong_tokens_are_refused_with_the_reason(aws: Aws, session: dict[str, Any]) -> None:
    good = presigned(session, aws.endpoint)
    old = (datetime.now(UTC) - timedelta(minutes=20)).strftime("%Y%m%dT%H%M%SZ")
    wrong = {
        "does not start with": "sha256." + token(good),
        "is padded": token(good) + "=",
        "is not URL-safe base64": "k8s-aws-v1.!!!",
        "is not this STS": token(presigned(session, "https://sts.evil.example")),
        "not GetCallerIdentity": token(presigned(session, aws.endpoint, action="AssumeRole")),
        "is not signed": token(presigned(session, aws.endpoint, cluster=None)),
        "the signature does not match": token(presigned(session, aws.endpoint, cluster="identity-other")),
        "signature does not match": token(presigned(session, aws.endpoint, secret="wrong")),
        "has expired": token(altered(good, X_Amz_Date=old)),
        "must be between": token(presigned(session, aws.endpoint, expires=3600)),
        "unexpected query parameters": token(altered(good, extra="1")),
        "session token does not belong": token(altered(good, X_Amz_Security_Token="other")),
        "knows no such credentials": token(presigned(session | {"AccessKeyId": "ASIANOBODY"}, aws.endpoint)),
    }
    reasons = {reason: identify(aws, text) for reason, text in wrong.items()}
    assert [reason for reason, answer in reasons.items() if answer["authenticated"]] == []
    assert [reason for reason, answer in reasons.items() if reason not in answer["reason"]] == []


def test_the_administrator_needs_an_entry_too(aws: Aws, session: dict[str, Any]) -> None:
    assert not identify(aws, token(presigned(ADMINISTRATOR, aws.endpoint)))["authenticated"]
