"""DescribeSpotPriceHistory: one price per type and zone, the same for as long as the process runs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from local.aws.calls.paging import page
from local.aws.ec2.catalog.instance_types import CachedAnswers
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.ec2.filters import apply_filters
from local.aws.emulator import Emulator

PRODUCT = "Linux/UNIX"
# EC2 answers with the price in force at StartTime; this one has been in force since then.
IN_FORCE_SINCE = datetime(2026, 11, 1, tzinfo=UTC)


def add(emulator: Emulator) -> None:
    emulator.handle(
        "ec2",
        "DescribeSpotPriceHistory",
        CachedAnswers(lambda params: _history(emulator, params), ignored_parameters=("StartTime", "EndTime")),
    )


def _history(emulator: Emulator, params: Mapping[str, Any]) -> dict[str, Any]:
    found = apply_filters(
        _prices(emulator),
        [*_as_filters(params), *(params.get("Filters") or [])],
        values={
            "instance-type": lambda price: price["InstanceType"],
            "availability-zone": lambda price: price["AvailabilityZone"],
            "product-description": lambda price: price["ProductDescription"],
            "spot-price": lambda price: price["SpotPrice"],
        },
    )
    some, token = page(found, params, default=1000)
    return {"SpotPriceHistory": some, "NextToken": ""} | token


def _as_filters(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The call's own selecting parameters, as filters."""
    asked = {
        "instance-type": params.get("InstanceTypes"),
        "product-description": params.get("ProductDescriptions"),
        "availability-zone": [params["AvailabilityZone"]] if params.get("AvailabilityZone") else None,
    }
    return [{"Name": name, "Values": values} for name, values in asked.items() if values]


def _prices(emulator: Emulator) -> list[dict[str, Any]]:
    offerings = emulator.component(Offerings)
    return [
        {
            "InstanceType": instance_type,
            "AvailabilityZone": zone,
            "ProductDescription": PRODUCT,
            "SpotPrice": f"{price:.6f}",
            "Timestamp": IN_FORCE_SINCE,
        }
        for instance_type, zones in offerings.zones_by_type.items()
        for zone in sorted(zones)
        if (price := offerings.spot_price(instance_type, zone)) is not None
    ]
