"""Kubernetes quantities, as far as nodes need them."""

import re
from decimal import ROUND_CEILING, Decimal

PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
DECIMAL = {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)}
BINARY = {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
FACTORS = {"": Decimal(1), "m": Decimal("0.001")} | DECIMAL | BINARY


def parse_bytes(text: str) -> int:
    """A quantity as a whole number, rounded up. Raises ValueError."""
    return int(_number(text).to_integral_value(ROUND_CEILING))


def parse_millicores(text: str) -> int:
    """A quantity of cpu in millicores, rounded up. Raises ValueError."""
    return int((_number(text) * 1000).to_integral_value(ROUND_CEILING))


def _number(text: str) -> Decimal:
    found = PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(found[1]) * FACTORS[found[2] or ""]
