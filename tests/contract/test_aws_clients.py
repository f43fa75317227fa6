"""Clients as ourselves and as a cluster's role, against the local AWS."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spotwright.adapters.aws import clients
from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import Denied, Unavailable
from tests.contract.conftest import REGION, LocalAws

SEES = {"Effect": "Allow", "Action": ["ec2:DescribeSubnets"], "Resource": "*"}


@pytest.fixture
def role(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A role that may see subnets, and an environment as a function's."""
    _forget()
    for name, value in {
        "AWS_ENDPOINT_URL": local_aws.endpoint, "AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local-admin", "AWS_SECRET_ACCESS_KEY": "local-admin",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    iam: Any = local_aws.client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    arn = iam.create_role(RoleName="sees", AssumeRolePolicyDocument=_document(trust))["Role"]["Arn"]
    iam.put_role_policy(RoleName="sees", PolicyName="sees", PolicyDocument=_document(SEES))
    yield arn
    iam.delete_role_policy(RoleName="sees", PolicyName="sees")
    iam.delete_role(RoleName="sees")
    _forget()


def _document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _forget() -> None:
    for cached in (clients.own_session, clients.role_session, clients.client):
        cached.cache_clear()


def test_a_role_is_assumed_and_its_rights_are_all_there_is(role: str) -> None:
    assert clients.sts(role).get_caller_identity()["Arn"].split("/")[1] == "sees"
    assert "assumed-role" not in clients.sts().get_caller_identity()["Arn"]
    assert clients.ec2(role).describe_subnets()["Subnets"]
    with pytest.raises(Denied) as refused, translate_errors("DescribeVpcs"):
        clients.ec2(role).describe_vpcs()
    assert refused.value.code == "UnauthorizedOperation"
    assert clients.ec2().describe_vpcs()["Vpcs"]


def test_a_client_is_made_once(role: str) -> None:
    assert clients.ec2(role) is clients.ec2(role)
    assert clients.ec2(role) is not clients.ec2()
    assert clients.pricing(role, region="us-east-1") is not clients.pricing(role, region="eu-central-1")


def test_every_client_gives_up_in_bounded_time(role: str) -> None:
    for client in (clients.ec2(role), clients.iam(), clients.ssm(role), clients.eks(role)):
        config: Any = client.meta.config
        assert (config.connect_timeout, config.read_timeout) == (2, 10)
        assert config.retries == {"mode": "standard", "total_max_attempts": 3}


def test_nobody_there_is_unavailable(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    _forget()
    with pytest.raises(Unavailable), translate_errors("DescribeSubnets"):
        clients.ec2().describe_subnets()


def test_service_models_are_read_once_for_all_roles(role: str) -> None:
    own, assumed = clients.own_session(), clients.role_session(role)
    assert own is not assumed
    assert own.get_component("data_loader") is assumed.get_component("data_loader")


def test_a_session_that_ends_soon_is_renewed_before_it_does(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of an hour is the shortest session that STS gives."""
    monkeypatch.setattr(clients, "ROLE_SECONDS", 900)
    client = clients.ec2(role)
    keys = set()
    client.meta.events.register("before-send", lambda request, **_: keys.add(request.headers["Authorization"][:60]))
    for _ in range(2):
        assert client.describe_subnets()["Subnets"]
    assert len(keys) == 2
