"""What is answered where nobody answers."""

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import Aws


def test_an_action_nobody_implements_says_so(aws: Aws) -> None:
    with pytest.raises(ClientError) as caught:
        aws.client("ec2").describe_capacity_block_offerings(CapacityDurationHours=24)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501
