"""The Price List API: GetProducts for AmazonEC2, as JSON texts in the published shape.

Besides what a shared Linux instance costs there are the neighbours a real list has (Windows, capacity
reservations), so that a caller that forgets a filter notices. Bare metal is listed as Dedicated, in a product
family of its own. The API has endpoints in three regions only.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.emulator import Emulator

ENDPOINT_REGIONS = ("us-east-1", "eu-central-1", "ap-south-1")
ON_DEMAND_TERM, HOURLY_RATE = "JRTCKXETXF", "6YS6EN2CT7"
PUBLISHED = "2026-11-01T00:00:00Z"
WINDOWS_FACTOR = Decimal("1.8")
PER_PAGE = 100


class PriceList:
    """Every EC2 product of the region, in a fixed order."""

    def __init__(self, emulator: Emulator) -> None:
        self._region = emulator.region
        self._offerings = emulator.component(Offerings)
        self._kept: dict[str, list[dict[str, Any]]] = {}

    @cached_property
    def products(self) -> list[dict[str, Any]]:
        return [product for name in self._offerings.zones_by_type for product in self._of(name)]

    def find_products(self, filters: list[dict[str, str]]) -> list[dict[str, Any]]:
        """The products all filters let through; kept, since a caller comes back for page after page."""
        key = json.dumps(filters, sort_keys=True)
        if key not in self._kept:
            self._kept[key] = [item for item in self.products if all(_matches(item, term) for term in filters)]
        return self._kept[key]

    def _of(self, instance_type: str) -> Iterator[dict[str, Any]]:
        price = self._offerings.on_demand_price(instance_type)
        if price is None:
            return
        yield self._product(instance_type, "Linux", "Used", price)
        yield self._product(instance_type, "Linux", "AllocatedCapacityReservation", Decimal(0))
        yield self._product(instance_type, "Windows", "Used", price * WINDOWS_FACTOR)

    def _product(self, instance_type: str, system: str, capacity: str, price: Decimal) -> dict[str, Any]:
        metal = ".metal" in instance_type
        sku = hashlib.sha256(f"{self._region}{instance_type}{system}{capacity}".encode()).hexdigest()[:16].upper()
        return {
            "product": {
                "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
                "attributes": self._attributes(instance_type, system, capacity, metal=metal),
                "sku": sku,
            },
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {f"{sku}.{ON_DEMAND_TERM}": _term(sku, instance_type, system, price)}},
            "version": PUBLISHED.replace("-", "").replace(":", ""),
            "publicationDate": PUBLISHED,
        }

    def _attributes(self, instance_type: str, system: str, capacity: str, *, metal: bool) -> dict[str, str]:
        described = self._offerings.describe(instance_type)
        return {
            "instanceType": instance_type,
            "regionCode": self._region,
            "servicecode": "AmazonEC2",
            "servicename": "Amazon Elastic Compute Cloud",
            "locationType": "AWS Region",
            "operatingSystem": system,
            "preInstalledSw": "NA",
            "capacitystatus": capacity,
            "marketoption": "OnDemand",
            "tenancy": "Dedicated" if metal else "Shared",
            "licenseModel": "No License required",
            "vcpu": str(described["VCpuInfo"]["DefaultVCpus"]),
            "memory": f"{described['MemoryInfo']['SizeInMiB'] / 1024:g} GiB",
        }


def _term(sku: str, instance_type: str, system: str, price: Decimal) -> dict[str, Any]:
    rate = f"{sku}.{ON_DEMAND_TERM}.{HOURLY_RATE}"
    return {
        "priceDimensions": {
            rate: {
                "unit": "Hrs",
                "endRange": "Inf",
                "description": f"${price} per On Demand {system} {instance_type} Instance Hour",
                "appliesTo": [],
                "rateCode": rate,
                "beginRange": "0",
                "pricePerUnit": {"USD": f"{price:.10f}"},
            }
        },
        "sku": sku,
        "effectiveDate": PUBLISHED,
        "offerTermCode": ON_DEMAND_TERM,
        "termAttributes": {},
    }


def add(emulator: Emulator) -> None:
    emulator.handle("pricing", "GetProducts", lambda request: _get_products(emulator, request))


def _get_products(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params = request.params
    if request.region not in ENDPOINT_REGIONS:
        raise AwsError(
            "InvalidParameterException", f"The Price List API has endpoints in {', '.join(ENDPOINT_REGIONS)} only."
        )
    wanted = params.get("Filters") or []
    found = emulator.component(PriceList).find_products(wanted) if params.get("ServiceCode") == "AmazonEC2" else []
    some, token = page(found, params, default=PER_PAGE)
    texts = [json.dumps(product, separators=(",", ":")) for product in some]
    return request.reply({"FormatVersion": "aws_v1", "PriceList": texts} | token)


def _matches(product: Mapping[str, Any], term: Mapping[str, str]) -> bool:
    if term.get("Type", "TERM_MATCH") not in ("TERM_MATCH", "EQUALS"):
        raise AwsError("InvalidParameterException", f"Filter type {term['Type']} is not implemented here.")
    field = term["Field"]
    if field == "productFamily":
        return bool(product["product"]["productFamily"] == term["Value"])
    attributes = {name.lower(): value for name, value in product["product"]["attributes"].items()}
    return bool(attributes.get(field.lower()) == term["Value"])
