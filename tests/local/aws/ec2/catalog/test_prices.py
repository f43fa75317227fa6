"""On-demand prices by the price list, spot prices by EC2: complete and consistent."""

import json
from decimal import Decimal

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import REGION, Aws
from tests.local.aws.fleets import code_of


def prices(aws: Aws, **more: str) -> dict[str, Decimal]:
    fields = {
        "regionCode": REGION,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Shared",
        "productFamily": "Compute Instance",
    } | more
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    pages = aws.client("pricing", region="ap-south-1").get_paginator("get_products")
    found: dict[str, Decimal] = {}
    for page in pages.paginate(ServiceCode="AmazonEC2", Filters=filters):
        for product in map(json.loads, page["PriceList"]):
            (term,) = product["terms"]["OnDemand"].values()
            (dimension,) = term["priceDimensions"].values()
            name = product["product"]["attributes"]["instanceType"]
            assert name not in found
            found[name] = Decimal(dimension["pricePerUnit"]["USD"])
    return found


def test_on_demand_prices_are_those_of_us_east_1(aws: Aws) -> None:
    found = prices(aws)
    assert found["t3a.large"] == Decimal("0.0752")
    assert found["m6i.large"] == Decimal("0.096")
    assert min(found.values()) > 0
    metal = prices(aws, tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    assert all(".metal" in name for name in metal)
    assert not set(metal) & set(found)


def test_the_price_list_has_three_endpoints(aws: Aws) -> None:
    with pytest.raises(ClientError) as caught:
        aws.client("pricing").get_products(ServiceCode="AmazonEC2")
    assert code_of(caught.value) == "InvalidParameterException"


def test_spot_prices_are_below_on_demand_and_stay(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    pages = ec2.get_paginator("describe_spot_price_history").paginate(ProductDescriptions=["Linux/UNIX"])
    spot = {
        (item["InstanceType"], item["AvailabilityZone"]): Decimal(item["SpotPrice"])
        for page in pages
        for item in page["SpotPriceHistory"]
    }
    on_demand = prices(aws)
    ratios = [price / on_demand[name] for (name, _), price in spot.items() if name in on_demand]
    assert len(ratios) > 1000
    assert min(ratios) > Decimal("0.249")
    assert max(ratios) < Decimal("0.451")
    (again,) = ec2.describe_spot_price_history(InstanceTypes=["t3a.large"], AvailabilityZone=f"{REGION}a")[
        "SpotPriceHistory"
    ]
    assert Decimal(again["SpotPrice"]) == spot["t3a.large", f"{REGION}a"]
