"""What the preflight makes of answers of AWS that the local AWS does not give."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotwright.adapters.aws import preflight
from spotwright.workflows.install.preflight.facts import Addon, KmsKey, NotAsked

KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
ROOT = {"AWS": "arn:aws:iam::123456789012:root"}
SERVICES = {"Service": ["events.amazonaws.com", "logs.eu-west-1.amazonaws.com"]}
USERS = frozenset(SERVICES["Service"])
EVENTS = frozenset({"events.amazonaws.com"})
EVERYBODY = frozenset({"*"})


class Ec2:
    """Answers page by page, as EC2 may."""

    meta = SimpleNamespace(region_name="eu-west-1")

    def __init__(self, **pages: list[list[dict[str, Any]]]) -> None:
        self._pages = pages

    def get_paginator(self, operation: str) -> Any:
        field = {"describe_vpc_endpoints": "VpcEndpoints", "describe_security_groups": "SecurityGroups"}[operation]
        return SimpleNamespace(paginate=lambda **_: [{field: page} for page in self._pages[field]])


def endpoint(service: str, **more: Any) -> dict[str, Any]:
    return {"VpcEndpointType": "Interface", "State": "available", "ServiceName": service, **more}


def endpoints(*pages: list[dict[str, Any]]) -> Any:
    return preflight.endpoints(Ec2(VpcEndpoints=[*pages]), "vpc-1", {"rtb-1"})  # type: ignore[arg-type]


def test_endpoints_of_resources_and_of_service_networks_name_no_service() -> None:
    resource = {
        "VpcEndpointType": "Resource",
        "State": "Available",
        "ResourceConfigurationArn": "arn:aws:vpc-lattice:x",
    }
    network = {"VpcEndpointType": "ServiceNetwork", "State": "Available", "ServiceNetworkArn": "arn:aws:vpc-lattice:y"}
    assert endpoints([resource, network, endpoint("com.amazonaws.eu-west-1.sqs")]) == {"sqs"}


def test_endpoints_come_in_pages() -> None:
    pages: Any = [endpoint("com.amazonaws.eu-west-1.sqs")], [], [endpoint("com.amazonaws.eu-west-1.ecr.api")]
    assert endpoints(*pages) == {"sqs", "ecr.api"}


def test_an_endpoint_of_another_region_serves_nothing_here() -> None:
    there = endpoint("com.amazonaws.us-east-1.s3", ServiceRegion="us-east-1")
    assert endpoints([there, endpoint("com.amazonaws.iam", ServiceRegion="us-east-1")]) == {"iam"}


def test_an_endpoint_without_private_dns_or_that_is_not_there_yet_serves_nothing() -> None:
    pending = endpoint("com.amazonaws.eu-west-1.sqs", State="pendingAcceptance")
    assert endpoints([pending, endpoint("com.amazonaws.eu-west-1.ec2", PrivateDnsEnabled=False)]) == frozenset()


def admitted(groups: list[dict[str, Any]], *asked: str) -> Any:
    return preflight.admitted(Ec2(SecurityGroups=[[group] for group in groups]), asked)  # type: ignore[arg-type]


def test_a_rule_for_ipv6_addresses_lets_somebody_in() -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "Ipv6Ranges": [{"CidrIpv6": "fd00::/8"}]}
    assert admitted([{"GroupId": "sg-eks", "IpPermissions": [rule]}], "sg-eks") == {"fd00::/8"}


def test_of_a_security_group_that_is_not_shown_nothing_is_known() -> None:
    closed = {"GroupId": "sg-eks", "IpPermissions": []}
    assert admitted([closed], "sg-eks") == frozenset()
    found = admitted([closed], "sg-eks", "sg-of-another-account")
    assert isinstance(found, NotAsked)
    assert "sg-of-another-account" in found.reason


def allow(principal: Any, action: Any = "kms:*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": "*", **more}


def deny(principal: Any, **more: Any) -> dict[str, Any]:
    return {**allow(principal), "Effect": "Deny", **more}


def key(*statements: dict[str, Any]) -> Any:
    kms = SimpleNamespace(
        describe_key=lambda **_: {"KeyMetadata": {"KeyState": "Enabled"}},
        get_key_policy=lambda **_: {"Policy": json.dumps({"Statement": [*statements]})},
    )
    return preflight.kms_key(kms, KEY)


def without_action(statement: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {name: value for name, value in statement.items() if name != "Action"} | more


OF_ACCOUNT = {"StringEquals": {"kms:CallerAccount": "123456789012", "kms:ViaService": "s3.eu-west-1.amazonaws.com"}}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([allow(ROOT), allow(SERVICES)], KmsKey("Enabled", USERS)),
        ([allow({"AWS": "123456789012"}), allow(SERVICES, ["KMS:GenerateData*"])], KmsKey("Enabled", USERS)),
        ([allow(ROOT, "kms:Generate?ataKey"), allow(SERVICES)], KmsKey("Enabled", USERS)),
        ([without_action(allow(ROOT), NotAction="kms:ScheduleKeyDeletion")], KmsKey("Enabled")),
        ([without_action(allow(ROOT), NotAction=["kms:Gen*"])], KmsKey("Enabled", is_left_to_iam=False)),
        # A condition may be kept by nobody who asks for Spotwright.
        ([allow(ROOT), allow("*", Condition=OF_ACCOUNT)], KmsKey("Enabled", is_conditional=True)),
        ([allow({"AWS": "*"}, Condition=OF_ACCOUNT)], KmsKey("Enabled", is_left_to_iam=False, is_conditional=True)),
        ([allow(ROOT, Condition=OF_ACCOUNT)], KmsKey("Enabled", is_left_to_iam=False, is_conditional=True)),
        # The statement of docs/clusters.md may have one, since whom it is for is named.
        ([allow(ROOT), allow(SERVICES, Condition={"ArnLike": {"aws:SourceArn": "x"}})], KmsKey("Enabled", USERS)),
        ([allow(ROOT), allow(SERVICES), deny({"Service": "events.amazonaws.com"})], KmsKey("Enabled", USERS, EVENTS)),
        ([allow("*"), deny({"Service": "events.amazonaws.com"})], KmsKey("Enabled", EVERYBODY, EVENTS)),
        ([allow(ROOT), allow(SERVICES), deny("*")], KmsKey("Enabled", USERS, EVERYBODY, is_left_to_iam=False)),
        ([allow(ROOT), allow(SERVICES), deny({"AWS": "*"})], KmsKey("Enabled", USERS, EVERYBODY, is_left_to_iam=False)),
        ([allow(ROOT), allow(SERVICES), deny(ROOT)], KmsKey("Enabled", USERS, is_left_to_iam=False)),
        ([allow(ROOT), allow(SERVICES), deny("*", Condition=OF_ACCOUNT)], KmsKey("Enabled", USERS)),
        ([allow(ROOT), allow(SERVICES), deny("*", Action="kms:ScheduleKeyDeletion")], KmsKey("Enabled", USERS)),
        ([{}], KmsKey("Enabled", is_left_to_iam=False)),
    ],
)  # fmt: skip
def test_a_keys_policy_says_whom_it_lets_use_it(statements: list[dict[str, Any]], expected: KmsKey) -> None:
    assert key(*statements) == expected


class Eks:
    """Add-ons by name, as EKS describes them; a text is the code of an error."""

    def __init__(self, **addons: dict[str, Any] | str) -> None:
        self._addons = addons

    def get_paginator(self, _operation: str) -> Any:
        return SimpleNamespace(paginate=lambda **_: [{"addons": [name]} for name in self._addons])

    def describe_addon(self, **names: str) -> Any:
        found = self._addons[names["addonName"]]
        if isinstance(found, str):
            raise ClientError({"Error": {"Code": found}}, "DescribeAddon")
        return {"addon": found}


def test_an_add_on_that_goes_or_has_gone_is_not_installed() -> None:
    """One that EKS does not describe is: its name was listed."""
    eks: Any = Eks(
        coredns={"status": "DELETING", "addonVersion": "v1"},
        gone="ResourceNotFoundException",
        denied="AccessDeniedException",
        throttled="ThrottlingException",
        healthy={"status": "ACTIVE", "addonVersion": "v1", "health": {"issues": None}},
        bare={},
    )
    assert preflight.described_addons(eks, "dev") == {
        "denied": Addon(),
        "throttled": Addon(),
        "healthy": Addon("ACTIVE", "v1"),
        "bare": Addon(),
    }


def test_a_quota_without_a_value_is_left_out() -> None:
    """Service Quotas says why it could not read it instead."""
    unread = {"QuotaCode": "L-1", "ErrorReason": {"ErrorCode": "DEPENDENCY_SERVICE_ERROR", "ErrorMessage": "later"}}
    known = {"L-1": unread, "L-2": {"QuotaCode": "L-2", "Value": 0.0}, "L-3": {"QuotaCode": "L-3", "Value": 5.5}}
    quotas = SimpleNamespace(get_service_quota=lambda QuotaCode, **_: {"Quota": known[QuotaCode]})
    assert preflight.vcpu_quotas(quotas, known) == {"L-2": 0, "L-3": 5}
