"""On-demand prices from the AWS Price List.

Source: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import Unavailable
from spotwright.model.ec2.instance_type import PICOUSD

if TYPE_CHECKING:
    from mypy_boto3_pricing.client import PricingClient
    from mypy_boto3_pricing.type_defs import FilterTypeDef

PAGE_SIZE: Final = 100
# Regions from which no Price List endpoint can be reached.
REGIONS_WITHOUT_PRICE_LIST: Final = ("us-gov-", "us-iso", "eu-isoe")
_SERVICE: Final = "AmazonEC2"
# Bare metal is listed as dedicated, in a product family of its own.
_PRODUCTS: Final = (("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)"))


def endpoint_region(region: str) -> str | None:
    """The region whose Price List endpoint serves ``region``; None = there is none."""
    if region.startswith(REGIONS_WITHOUT_PRICE_LIST):
        return None
    by_prefix = {"ap-": "ap-south-1", "cn-": "cn-northwest-1", "eu-": "eu-central-1"}
    return by_prefix.get(region[:3], "us-east-1")


def on_demand_prices(client: "PricingClient", region: str) -> dict[str, int]:
    """Picodollars per hour by instance type (yuan in China); raises Unavailable when a product family has no price."""
    currency = "CNY" if region.startswith("cn-") else "USD"
    prices: dict[str, int] = {}
    for tenancy, family in _PRODUCTS:
        family_prices = dict(_prices(client, region, tenancy, family, currency))
        if not family_prices:
            raise Unavailable(f"GetProducts: no prices for {family} in {region}", code="EmptyPriceList")
        prices |= family_prices
    return prices


def _prices(
    client: "PricingClient", region: str, tenancy: str, family: str, currency: str
) -> Iterator[tuple[str, int]]:
    terms = {
        "regionCode": region,
        "servicecode": _SERVICE,
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": tenancy,
        "productFamily": family,
    }
    filters: list[FilterTypeDef] = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()
    ]
    with translate_errors("GetProducts"):
        pages = client.get_paginator("get_products").paginate(
            ServiceCode=_SERVICE, Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
        )
        for page in pages:
            for text in page["PriceList"]:
                yield from _price(json.loads(text), currency)


def _price(product: Mapping[str, Any], currency: str) -> Iterator[tuple[str, int]]:
    """(type, price) of a product, without prices that are zero or cannot be read."""
    name = product["product"]["attributes"].get("instanceType", "")
    for term in (product.get("terms") or {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            try:
                price = int(Decimal(dimension["pricePerUnit"][currency]) * PICOUSD)
            except (KeyError, InvalidOperation):
                continue
            if name and price > 0:
                yield name, price
