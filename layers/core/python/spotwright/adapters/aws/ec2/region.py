"""What EC2 sells in a region: instance types, their zones, their prices (RegionPort).

A list that cannot be read to its end raises; for prices a published table replaces it.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from spotwright.adapters.aws import pricing
from spotwright.adapters.aws.ec2 import published_data
from spotwright.adapters.aws.ec2.codecs.instance_type import decode_instance_type
from spotwright.adapters.aws.errors import translate_errors
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.errors import ApiError
from spotwright.model.ec2.instance_type import PICOUSD

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_pricing.client import PricingClient

TYPES_PAGE: Final = 100
OFFERINGS_PAGE: Final = 1000
SPOT_PAGE: Final = 1000
SPOT_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


class Ec2Region:
    """See RegionPort. ``prices`` None: the Price List cannot be reached (isolated network, GovCloud)."""

    def __init__(self, client: "EC2Client", prices: "PricingClient | None", *, region: str) -> None:
        self._client, self._prices, self._region = client, prices, region

    def read(self, now: datetime, before: RegionFacts | None = None) -> RegionFacts:
        """Reads four lists in parallel; together they have about thirty pages."""
        with ThreadPoolExecutor(max_workers=4) as threads:
            prices, spot = (
                threads.submit(self._on_demand, before),
                threads.submit(self._spot, now, before),
            )
            types, zones = threads.submit(self._types), threads.submit(self._zones)
        (on_demand, on_demand_notes), (spot_prices, spot_notes) = prices.result(), spot.result()
        return RegionFacts(
            self._region, types.result(), zones.result(), on_demand, spot_prices, (*on_demand_notes, *spot_notes)
        )

    def _types(self) -> tuple[InstanceTypeInfo, ...]:
        tables = {
            "network_mbps": published_data.network_mbps(),
            "branch_interfaces": published_data.branch_interfaces(),
        }
        return tuple(
            sorted(
                (decode_instance_type(described, **tables) for described in self._describe_types()),
                key=lambda info: info.name,
            )
        )

    def _describe_types(self) -> Iterator[Mapping[str, Any]]:
        with translate_errors("DescribeInstanceTypes"):
            pages = self._client.get_paginator("describe_instance_types").paginate(
                Filters=[
                    {"Name": "supported-virtualization-type", "Values": ["hvm"]},
                    {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
                ],
                PaginationConfig={"PageSize": TYPES_PAGE},
            )
            for page in pages:
                yield from page["InstanceTypes"]

    def _zones(self) -> dict[str, tuple[str, ...]]:
        zones: dict[str, set[str]] = {}
        with translate_errors("DescribeInstanceTypeOfferings"):
            pages = self._client.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone", PaginationConfig={"PageSize": OFFERINGS_PAGE}
            )
            for page in pages:
                for instance_type_offering in page["InstanceTypeOfferings"]:
                    zones.setdefault(instance_type_offering["InstanceType"], set()).add(
                        instance_type_offering["Location"]
                    )
        return {name: tuple(sorted(zones[name])) for name in sorted(zones)}

    def _on_demand(self, before: RegionFacts | None) -> tuple[dict[str, int], tuple[str, ...]]:
        """Published prices, over them the last known ones, and over them what the Price List says today."""
        shipped = dict(published_data.on_demand_picousd(self._region))
        if self._prices is None:
            return shipped, ("on-demand prices are the shipped table: the Price List is not asked here",)
        fallback = dict(sorted((shipped | (before.on_demand if before else {})).items()))
        try:
            return dict(sorted((fallback | pricing.on_demand_prices(self._prices, self._region)).items())), ()
        except ApiError as error:
            source = "the last known ones" if before else "the shipped table"
            return fallback, (f"on-demand prices are {source}: {error}",)

    def _spot(
        self, now: datetime, before: RegionFacts | None
    ) -> tuple[dict[str, dict[str, int]] | None, tuple[str, ...]]:
        """Prices of the spot price history, in which a missing zone has no price; on an error those of ``before``."""
        prices: dict[str, dict[str, int]] = {}
        try:
            with translate_errors("DescribeSpotPriceHistory"):
                pages = self._client.get_paginator("describe_spot_price_history").paginate(
                    ProductDescriptions=list(SPOT_PRODUCTS), StartTime=now, PaginationConfig={"PageSize": SPOT_PAGE}
                )
                for page in pages:
                    for spot_price in page["SpotPriceHistory"]:
                        price = int(Decimal(spot_price["SpotPrice"]) * PICOUSD)
                        prices.setdefault(spot_price["InstanceType"], {})[spot_price["AvailabilityZone"]] = price
        except ApiError as error:
            if before is not None and before.spot is not None:
                return before.spot, (f"spot prices are the last known ones: {error}",)
            return None, (f"spot prices are the on-demand ones: {error}",)
        return {name: dict(sorted(prices[name].items())) for name in sorted(prices)}, ()
