"""Launch templates where moto's answers fall short."""

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import Aws
from tests.local.aws.fleets import code_of


def test_templates_come_in_pages_with_their_tags(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    tag = [{"ResourceType": "launch-template", "Tags": [{"Key": "paged", "Value": "yes"}]}]
    for number in range(18):
        ec2.create_launch_template(
            LaunchTemplateName=f"spotwright/paged/{number}",
            LaunchTemplateData={"InstanceType": "t3a.large"},
            TagSpecifications=tag,
        )
    wanted = [{"Name": "tag:paged", "Values": ["yes"]}]
    pages = list(
        ec2.get_paginator("describe_launch_templates").paginate(Filters=wanted, PaginationConfig={"PageSize": 10})
    )
    assert [len(page["LaunchTemplates"]) for page in pages] == [10, 8]
    assert pages[0]["LaunchTemplates"][0]["Tags"] == [{"Key": "paged", "Value": "yes"}]
    with pytest.raises(ClientError) as caught:
        ec2.create_launch_template(LaunchTemplateName="no spaces", LaunchTemplateData={})
    assert code_of(caught.value) == "InvalidLaunchTemplateName.MalformedException"
