"""Where the Price List is asked, and what half of it is worth."""

import pytest

from spotwright.adapters.aws import pricing
from spotwright.errors import InvalidRequest, Unavailable
from tests.contract.conftest import LocalAws


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("ap-northeast-2", "ap-south-1"),
        ("eu-west-1", "eu-central-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("us-west-2", "us-east-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_the_price_list_is_asked_where_it_answers(region: str, endpoint: str) -> None:
    assert pricing.endpoint_region(region) == endpoint


def test_half_a_price_list_is_none(local_aws: LocalAws) -> None:
    with pytest.raises((Unavailable, InvalidRequest)):
        pricing.on_demand_prices(local_aws.prices(), "mars-north-1")
