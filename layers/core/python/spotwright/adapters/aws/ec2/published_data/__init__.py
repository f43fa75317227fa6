"""Published figures that no API has, shipped with the code: bandwidths, branch interfaces, fallback prices.

Each file names the source of its figures in ``about``. Files have family → size → figure, functions give type → figure.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

from spotwright.model.ec2.instance_type import PICOUSD

# Regions whose prices are shipped; any other falls back to the first.
PRICED_REGIONS: Final = ("us-east-1", "us-gov-east-1", "us-gov-west-1", "cn-north-1")


@cache
def network_mbps() -> Mapping[str, int]:
    """Network bandwidth by instance type, Mbit/s."""
    return _flat(_read("network_bandwidth.json")["megabits"])


@cache
def branch_interfaces() -> Mapping[str, int]:
    """Branch network interfaces by instance type; types that cannot trunk are missing."""
    return _flat(_read("branch_interfaces.json")["interfaces"])


@cache
def on_demand_picousd(region: str) -> Mapping[str, int]:
    """On-demand price by instance type, picodollars per hour, of ``region`` or else of us-east-1.

    The figures of cn-north-1 are yuan, as AWS charges them there.
    """
    chosen = region if region in PRICED_REGIONS else PRICED_REGIONS[0]
    prices: Mapping[str, Decimal] = _flat(_read(f"on_demand_{chosen}.json")["prices"])
    return {name: int(price * PICOUSD) for name, price in prices.items()}


def _read(name: str) -> Mapping[str, Any]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    content: Mapping[str, Any] = json.loads(text, parse_float=Decimal, parse_constant=Decimal)
    return content


def _flat[Figure](table: Mapping[str, Mapping[str, Figure]]) -> dict[str, Figure]:
    return {f"{family}.{size}": figure for family, sizes in table.items() for size, figure in sizes.items()}
