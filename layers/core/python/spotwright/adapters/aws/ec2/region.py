"""What EC2 sells in a region: instance types, the zones that have them, prices (RegionPort).

Every list is read to its end; a part that cannot be read raises, except prices, where a published table stands in.
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
    """See RegionPort. ``prices`` None: the Price List is not asked (isolated network, GovCloud)."""

    def __init__(self, client: "EC2Client", prices: "PricingClient | None", *, region: str) -> None:
        self._client, self._prices, self._region = client, prices, region

    def read(self, now: datetime, before: RegionFacts | None = None) -> RegionFacts:
        """The four lists at once: together they are about thirty pages."""
        with ThreadPoolExecutor(max_workers=4) as thread_pool_executor:
            prices, spot = (
                thread_pool_executor.submit(self._on_demand, before),
                thread_pool_executor.submit(self._spot, now, before),
            )
            types, zones = thread_pool_executor.submit(self._types), thread_pool_executor.submit(self._zones)
        (on_demand, priced), (bids, bid) = prices.result(), spot.result()
        return RegionFacts(self._region, types.result(), zones.result(), on_demand, bids, (*priced, *bid))

    def _types(self) -> tuple[InstanceTypeInfo, ...]:
        tables = {
            "network_mbps": published_data.network_mbps(),
            "branch_interfaces": published_data.branch_interfaces(),
        }
        return tuple(
            sorted((decode_instance_type(one, **tables) for one in self._described()), key=lambda info: info.name)
        )

    def _described(self) -> Iterator[Mapping[str, Any]]:
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
        found: dict[str, set[str]] = {}
        with translate_errors("DescribeInstanceTypeOfferings"):
            pages = self._client.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone", PaginationConfig={"PageSize": OFFERINGS_PAGE}
            )
            for page in pages:
                for instance_type_offering in page["InstanceTypeOfferings"]:
                    found.setdefault(instance_type_offering["InstanceType"], set()).add(
                        instance_type_offering["Location"]
                    )
        return {name: tuple(sorted(found[name])) for name in sorted(found)}

    def _on_demand(self, before: RegionFacts | None) -> tuple[dict[str, int], tuple[str, ...]]:
        """Published prices, over them those of last time, and over them what the Price List says today."""
        shipped = dict(published_data.on_demand_picousd(self._region))
        if self._prices is None:
            return shipped, ("on-demand prices are the shipped table: the Price List is not asked here",)
        known = dict(sorted((shipped | (before.on_demand if before else {})).items()))
        try:
            return dict(sorted((known | pricing.on_demand_prices(self._prices, self._region)).items())), ()
        except ApiError as error:
            which = "those of last time" if before else "the shipped table"
            return known, (f"on-demand prices are {which}: {error}",)

    def _spot(
        self, now: datetime, before: RegionFacts | None
    ) -> tuple[dict[str, dict[str, int]] | None, tuple[str, ...]]:
        """A list that was read is whole: a zone that it lacks has no price. One that was not leaves the old one."""
        found: dict[str, dict[str, int]] = {}
        try:
            with translate_errors("DescribeSpotPriceHistory"):
                pages = self._client.get_paginator("describe_spot_price_history").paginate(
                    ProductDescriptions=list(SPOT_PRODUCTS), StartTime=now, PaginationConfig={"PageSize": SPOT_PAGE}
                )
                for page in pages:
                    for spot_price in page["SpotPriceHistory"]:
                        price = int(Decimal(spot_price["SpotPrice"]) * PICOUSD)
                        found.setdefault(spot_price["InstanceType"], {})[spot_price["AvailabilityZone"]] = price
        except ApiError as error:
            if before is not None and before.spot is not None:
                return before.spot, (f"spot prices are those of last time: {error}",)
            return None, (f"spot prices are the on-demand ones: {error}",)
        return {name: dict(sorted(found[name].items())) for name in sorted(found)}, ()
