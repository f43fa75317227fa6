"""What the account really pays: discounts (EDP, private pricing), Savings Plans rates, or exact prices.

A list of rules, each naming what it is about and either a ``discountPercent`` or a ``pricePerHour``:

    rules:
    - {discountPercent: "6"}                                                # everything: an EDP of 6 %
    - {instanceTypes: ["m7g.*", "c7g.*"], capacityTypes: [on-demand], discountPercent: "28"}
    - {instanceTypes: [r7i.large], capacityTypes: [on-demand], pricePerHour: "0.0921"}

``instanceTypes``: names, where ``*`` stands for anything; ``capacityTypes``: on-demand, spot; ``zones``: of spot only,
since on-demand costs the same in all of them. A rule applies to everything that the fields it leaves out could name.
The last ``pricePerHour`` that applies replaces the list price; then every discount that applies is taken off in turn.
The price of a capacity reservation follows the on-demand price.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.quoting import quote

_KINDS: Final = (labels.ON_DEMAND, labels.SPOT)
_FIELDS: Final = ("instanceTypes", "capacityTypes", "zones", "discountPercent", "pricePerHour")


class PriceFileError(ValueError):
    """A price file that cannot be used; names rule, field, value and what is allowed."""


class PriceRule(msgspec.Struct, frozen=True):
    """() = all of them, None = unset. ``factor``: what a discount leaves of a price, as a fraction."""

    instance_types: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    factor: tuple[int, int] | None = None
    price_picousd_per_hour: int | None = None

    def applies_to(self, name: str, kind: str, zone: str) -> bool:
        """``zone`` "" = a price that is the same in all zones; no rule about zones applies to it."""
        return (
            (not self.capacity_types or kind in self.capacity_types)
            and (not self.zones or zone in self.zones)
            and (
                not self.instance_types
                or any(fnmatchcase(name, instance_type) for instance_type in self.instance_types)
            )
        )


class PriceFile(msgspec.Struct, frozen=True):
    """The rules in their order; without rules the list prices hold."""

    rules: tuple[PriceRule, ...] = ()


def parse_price_file(document: object) -> PriceFile:
    """The rules of a decoded document; raises PriceFileError."""
    rules = document.get("rules") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or isinstance(rules, str) or not isinstance(rules, Sequence):
        raise PriceFileError("expected a map with a list of rules")
    further = sorted(str(key) for key in document.keys() - {"rules"})
    if further:
        raise PriceFileError(f"{further[0]}: unknown field; allowed is rules")
    return PriceFile(tuple(_rule(f"rules[{number}]", key) for number, key in enumerate(rules)))


def _rule(where: str, rule: object) -> PriceRule:
    if not isinstance(rule, Mapping):
        raise PriceFileError(f"{where}: expected a map, found {quote(rule)}")
    unknown = sorted(str(key) for key in rule.keys() - set(_FIELDS))
    if unknown:
        raise PriceFileError(f"{where}.{unknown[0]}: unknown field; allowed are {', '.join(_FIELDS)}")
    if ("discountPercent" in rule) == ("pricePerHour" in rule):
        raise PriceFileError(f"{where}: expected either discountPercent or pricePerHour")
    kinds = _names(where, rule, "capacityTypes")
    for kind in kinds:
        if kind not in _KINDS:
            raise PriceFileError(f"{where}.capacityTypes: {quote(kind)} is none of {', '.join(_KINDS)}")
    zones = _names(where, rule, "zones")
    if zones and kinds != (labels.SPOT,):
        raise PriceFileError(f"{where}.zones: only with capacityTypes [spot]; on-demand costs the same in all zones")
    return PriceRule(_names(where, rule, "instanceTypes"), kinds, zones, _factor(where, rule), _price(where, rule))


def _names(where: str, rule: Mapping[str, object], field: str) -> tuple[str, ...]:
    names = rule.get(field, ())
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise PriceFileError(f"{where}.{field}: expected a list of texts, found {quote(names)}")
    if field in rule and not names:
        raise PriceFileError(f"{where}.{field}: an empty list is about nothing; leave the field out for everything")
    return tuple(names)


def _factor(where: str, rule: Mapping[str, object]) -> tuple[int, int] | None:
    if "discountPercent" not in rule:
        return None
    percent = _number(f"{where}.discountPercent", rule["discountPercent"])
    if not 0 <= percent < 100:
        raise PriceFileError(f"{where}.discountPercent: {quote(rule['discountPercent'])} is not from 0 to below 100")
    return (1 - percent / 100).as_integer_ratio()


def _price(where: str, rule: Mapping[str, object]) -> int | None:
    if "pricePerHour" not in rule:
        return None
    price = _number(f"{where}.pricePerHour", rule["pricePerHour"])
    if not 0 < price * PICOUSD < 2**63:
        raise PriceFileError(f"{where}.pricePerHour: {quote(rule['pricePerHour'])} is not a price per hour above 0")
    return max(1, round(price * PICOUSD))


def _number(where: str, value: object) -> Fraction:
    """A number as it is written: 0.1 is a tenth."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise PriceFileError(f"{where}: {quote(value)} is not a number") from None


def apply_prices(region: RegionFacts, file: PriceFile) -> RegionFacts:
    """The region at the account's prices."""
    if not file.rules:
        return region
    on_demand = {
        name: _effective_price(file, name, labels.ON_DEMAND, "", price) for name, price in region.on_demand.items()
    }
    spot = None
    if region.spot is not None:
        spot = {
            name: {zone: _effective_price(file, name, labels.SPOT, zone, price) for zone, price in zones.items()}
            for name, zones in region.spot.items()
        }
    return msgspec.structs.replace(region, on_demand=on_demand, spot=spot)


def _effective_price(file: PriceFile, name: str, kind: str, zone: str, price: int) -> int:
    rules = [rule for rule in file.rules if rule.applies_to(name, kind, zone)]
    stated = [rule.price_picousd_per_hour for rule in rules if rule.price_picousd_per_hour is not None]
    paid = Fraction(stated[-1] if stated else price)
    for rule in rules:
        if rule.factor is not None:
            paid *= Fraction(*rule.factor)
    return max(1, round(paid)) if price or stated else 0
