"""What EC2 sells in a region: instance types, their zones and prices."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from spotwright.adapters.aws.ec2 import published_data
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.errors import Denied
from tests.contract.conftest import REGION, LocalAws
from tests.unit.aws.samples import ZONES, type_of

NOW = datetime.now(UTC)


@pytest.fixture(scope="session")
def market(local_aws: LocalAws) -> RegionFacts:
    client: Any = local_aws.client("ec2")
    return Ec2Region(client, local_aws.prices(), region=REGION).read(NOW)


def test_every_type_of_the_region_is_read_past_the_first_page(market: RegionFacts) -> None:
    assert market.notes == ()
    assert len(market.types) > 700
    assert [info.name for info in market.types] == sorted(info.name for info in market.types)
    assert next(info for info in market.types if info.name == "m5.large") == type_of("m5.large")
    assert all({"x86_64", "arm64"} & set(info.architectures) for info in market.types)


def test_zones_and_prices_are_those_of_the_region(market: RegionFacts) -> None:
    assert market.zones["m5.large"] == (*ZONES, f"{REGION}d")
    assert market.zones["t3a.large"] == (ZONES[0], ZONES[2])
    assert market.on_demand["m5.large"] == 96_000_000_000
    assert market.on_demand["m5.metal"] == 4_608_000_000_000
    assert market.spot is not None
    for zone, price in market.spot["m5.large"].items():
        assert zone in market.zones["m5.large"]
        assert 0 < price < market.on_demand["m5.large"] // 2


def test_published_prices_stand_in_for_a_price_list_that_does_not_answer(local_aws: LocalAws) -> None:
    client: Any = local_aws.client("ec2")
    wrong: Any = local_aws.client("pricing")
    region_facts = Ec2Region(client, wrong, region=REGION).read(NOW)
    assert region_facts.on_demand == published_data.on_demand_picousd(REGION)
    assert any("Price List" in note or "GetProducts" in note for note in region_facts.notes)
    silent = Ec2Region(client, None, region=REGION).read(NOW)
    assert silent.on_demand == region_facts.on_demand
    assert len(silent.notes) == 1


def test_without_spot_prices_the_region_says_so(local_aws: LocalAws, fault: Callable[..., None]) -> None:
    fault("ec2", "DescribeSpotPriceHistory", "UnauthorizedOperation")
    client: Any = local_aws.client("ec2")
    region_facts = Ec2Region(client, None, region=REGION).read(NOW)
    assert region_facts.spot is None
    assert any("UnauthorizedOperation" in note for note in region_facts.notes)


def test_spot_prices_are_asked_for_with_and_without_a_vpc(local_aws: LocalAws) -> None:
    client: Any = local_aws.client("ec2")
    requests: list[list[str]] = []
    client.meta.events.register(
        "provide-client-params.ec2.DescribeSpotPriceHistory",
        lambda params, **_: requests.append(params["ProductDescriptions"]),
    )
    Ec2Region(client, None, region=REGION).read(NOW)
    assert requests
    assert all(sorted(products) == ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"] for products in requests)


def test_types_that_cannot_be_read_are_no_types(local_aws: LocalAws, fault: Callable[..., None]) -> None:
    fault("ec2", "DescribeInstanceTypes", "UnauthorizedOperation")
    client: Any = local_aws.client("ec2")
    with pytest.raises(Denied):
        Ec2Region(client, None, region=REGION).read(NOW)


def test_prices_of_last_time_stand_where_nobody_answers(local_aws: LocalAws, fault: Any, market: RegionFacts) -> None:
    fault("pricing", "GetProducts", "AccessDeniedException")
    fault("ec2", "DescribeSpotPriceHistory", "UnauthorizedOperation")
    before = msgspec.structs.replace(
        market,
        on_demand=market.on_demand | {"m5.large": 7, "x99.large": 9},
        spot={"m5.large": {ZONES[0]: 5}},
    )
    client: Any = local_aws.client("ec2")
    region_facts = Ec2Region(client, local_aws.prices(), region=REGION).read(NOW, before)
    assert (region_facts.on_demand["m5.large"], region_facts.on_demand["x99.large"]) == (7, 9)
    assert region_facts.spot == before.spot
    assert [note.partition(":")[0] for note in region_facts.notes] == [
        "on-demand prices are the last known ones",
        "spot prices are the last known ones",
    ]


def test_a_newer_answer_replaces_only_the_prices_that_it_states(local_aws: LocalAws, market: RegionFacts) -> None:
    before = msgspec.structs.replace(market, on_demand={"m5.large": 7, "x99.large": 9}, spot={"gone": {ZONES[0]: 5}})
    client: Any = local_aws.client("ec2")
    region_facts = Ec2Region(client, local_aws.prices(), region=REGION).read(NOW, before)
    assert region_facts.on_demand["m5.large"] == market.on_demand["m5.large"]
    assert region_facts.on_demand["x99.large"] == 9
    assert region_facts.spot == market.spot
