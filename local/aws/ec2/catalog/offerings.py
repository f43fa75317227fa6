"""What EC2 offers in the region: instance types, the zones they are in, and what they cost.

Types and zones are those of moto's data; on-demand prices are those of us-east-1 (data/), whatever the
region. A spot price is the on-demand price less a discount of 55 to 75 %, fixed for each type and zone:
55 + (first byte of sha256("<type>/<zone>") mod 21) percent.
"""

import hashlib
import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from local.aws.emulator import Emulator

DATA = Path(__file__).parent / "data"
_MICRO = Decimal("0.000001")


class Offerings:
    """The offerings of the emulator's region."""

    def __init__(self, emulator: Emulator) -> None:
        self._region = emulator.region

    @cached_property
    def zones_by_type(self) -> Mapping[str, frozenset[str]]:
        """Instance type -> the zones it is offered in; only types offered at all."""
        found: dict[str, set[str]] = {}
        for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self._region, []):
            if offering["InstanceType"] in INSTANCE_TYPES:
                found.setdefault(offering["InstanceType"], set()).add(offering["Location"])
        return {name: frozenset(zones) for name, zones in sorted(found.items())}

    @cached_property
    def _on_demand(self) -> Mapping[str, Decimal]:
        prices = json.loads((DATA / "on_demand_prices.json").read_text(), parse_float=Decimal)
        return {name: Decimal(price) for name, price in prices["usdPerHour"].items()}

    def describe(self, instance_type: str) -> Mapping[str, Any]:
        """The type as DescribeInstanceTypes shows it; KeyError when EC2 has no such type."""
        description: Mapping[str, Any] = INSTANCE_TYPES[instance_type]
        return description

    def exists(self, instance_type: str) -> bool:
        return instance_type in INSTANCE_TYPES

    def architectures(self, instance_type: str) -> tuple[str, ...]:
        return tuple(self.describe(instance_type)["ProcessorInfo"]["SupportedArchitectures"])

    def supports_spot(self, instance_type: str) -> bool:
        return "spot" in self.describe(instance_type).get("SupportedUsageClasses", ())

    def on_demand_price(self, instance_type: str) -> Decimal | None:
        """USD per hour; None where no price is published."""
        return self._on_demand.get(instance_type)

    def spot_price(self, instance_type: str, zone: str) -> Decimal | None:
        """USD per hour, whole millionths; None where there is no on-demand price or no spot market."""
        price = self.on_demand_price(instance_type)
        if price is None or not self.supports_spot(instance_type):
            return None
        discount = 55 + _byte(instance_type, zone, "") % 21
        return (price * (100 - discount) / 100).quantize(_MICRO, ROUND_HALF_UP)

    def spot_depth(self, instance_type: str, zone: str) -> int:
        """How much spare spot capacity a pool has, 1 (least) to 10, fixed for each type and zone."""
        return 1 + _byte(instance_type, zone, "depth") % 10


def _byte(instance_type: str, zone: str, salt: str) -> int:
    return hashlib.sha256(f"{instance_type}/{zone}{salt}".encode()).digest()[0]
