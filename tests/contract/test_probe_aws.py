"""The probe of AWS, asked of the local AWS: its checks work, cost what they say, and leave nothing behind."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.contract.conftest import REGION, LocalAws
from tools import probe_aws
from tools.probe_aws import CHECKS, TAG, Probe

FACTS = (Path(__file__).parents[2] / "docs" / "aws-facts.md").read_text()


@pytest.fixture
def probe(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Probe:
    monkeypatch.setenv("AWS_ENDPOINT_URL", local_aws.endpoint)
    session = boto3.Session("local-admin", "local-admin", region_name=REGION)
    ec2: Any = local_aws.client("ec2")
    subnet = ec2.describe_subnets(Filters=[{"Name": "tag-key", "Values": ["karpenter.sh/discovery"]}])["Subnets"][0]
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["amazon-eks-node-al2023-x86_64-standard-*"]}])
    return Probe(session, subnet["SubnetId"], image["Images"][0]["ImageId"])


def test_what_we_believe_holds_where_we_test(probe: Probe) -> None:
    assert probe_aws.ask(probe, CHECKS) == dict.fromkeys([check.fact for check in CHECKS], "")


def test_nothing_is_left(probe: Probe, local_aws: LocalAws) -> None:
    fleet = next(check for check in CHECKS if check.fact == "fleet-token")
    probe_aws.ask(probe, [fleet])
    ec2: Any = local_aws.client("ec2")
    filters = [{"Name": "tag-key", "Values": [TAG]}]
    groups = ec2.describe_instances(Filters=filters)["Reservations"]
    assert {instance["State"]["Name"] for group in groups for instance in group["Instances"]} <= {
        "shutting-down",
        "terminated",
    }
    assert ec2.describe_launch_templates(Filters=filters)["LaunchTemplates"] == []


def test_without_confirmation_nothing_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.probe_aws.boto3.Session", lambda: pytest.fail("an account was asked"))
    assert probe_aws.main([]) == 0
    said = capsys.readouterr().out
    assert all(check.fact in said for check in CHECKS)
    assert "nothing was called" in said


def test_the_price_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.probe_aws.boto3.Session", lambda: pytest.fail("an account was asked"))
    assert probe_aws.main(["--confirm", "--budget", "0.0001"]) == 2
    assert sum(check.cost for check in CHECKS) < Decimal(1)


@pytest.mark.parametrize("fact", [check.fact for check in CHECKS])
def test_every_check_is_about_a_fact_that_is_written_down(fact: str) -> None:
    assert f"`{fact}`" in FACTS
