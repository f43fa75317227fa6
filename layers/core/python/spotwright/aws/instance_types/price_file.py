"""What the account really pays: discounts (EDP, private pricing), Savings Plans rates, or exact prices.

A list of rules, each naming what it is about and either a ``discountPercent`` or a ``pricePerHour``:

    rules:
    - {discountPercent: "6"}                                                # everything: an EDP of 6 %
    - {instanceTypes: ["m7g.*", "c7g.*"], capacityTypes: [on-demand], discountPercent: "28"}
    - {instanceTypes: [r7i.large], capacityTypes: [on-demand], pricePerHour: "0.0921"}

``instanceTypes``: names, where ``*`` stands for anything; ``capacityTypes``: on-demand, spot; ``zones``: of spot only,
since on-demand costs the same in all of them. What a rule does not name, it does not ask. The last ``pricePerHour``
that applies replaces the list price; then every discount that applies is taken off, one after the other. Capacity
reservations follow on-demand.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.aws.instance_types.offerings import RegionFacts
from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD

_KINDS: Final = (labels.ON_DEMAND, labels.SPOT)
_FIELDS: Final = ("instanceTypes", "capacityTypes", "zones", "discountPercent", "pricePerHour")


class PriceFileError(ValueError):
    """A price file that cannot be used; names rule, field, value and what is allowed."""


class PriceRule(msgspec.Struct, frozen=True):
    """() = whatever it is, None = unset. ``factor``: what a discount leaves of a price, as a fraction."""

    instance_types: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    factor: tuple[int, int] | None = None
    price_picousd_per_hour: int | None = None

    def applies_to(self, name: str, kind: str, zone: str) -> bool:
        """``zone`` "" = all of them, which a rule about zones is not."""
        return (
            (not self.capacity_types or kind in self.capacity_types)
            and (not self.zones or zone in self.zones)
            and (
                not self.instance_types
                or any(fnmatchcase(name, instance_type) for instance_type in self.instance_types)
            )
        )


class PriceFile(msgspec.Struct, frozen=True):
    """The rules in their order; none = list prices."""

    rules: tuple[PriceRule, ...] = ()


def parse_price_file(document: object) -> PriceFile:
    """The rules of a decoded document; raises PriceFileError."""
    rules = document.get("rules") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or isinstance(rules, str) or not isinstance(rules, Sequence):
        raise PriceFileError("expected a map with a list of rules")
    further = sorted(str(one) for one in document.keys() - {"rules"})
    if further:
        raise PriceFileError(f"{further[0]}: unknown field; allowed is rules")
    return PriceFile(tuple(_rule(f"rules[{number}]", one) for number, one in enumerate(rules)))


def _rule(where: str, given: object) -> PriceRule:
    if not isinstance(given, Mapping):
        raise PriceFileError(f"{where}: expected a map, found {given!r}")
    unknown = sorted(str(one) for one in given.keys() - set(_FIELDS))
    if unknown:
        raise PriceFileError(f"{where}.{unknown[0]}: unknown field; allowed are {', '.join(_FIELDS)}")
    if ("discountPercent" in given) == ("pricePerHour" in given):
        raise PriceFileError(f"{where}: expected either discountPercent or pricePerHour")
    kinds = _names(where, given, "capacityTypes")
    for kind in kinds:
        if kind not in _KINDS:
            raise PriceFileError(f"{where}.capacityTypes: {kind!r} is none of {', '.join(_KINDS)}")
    zones = _names(where, given, "zones")
    if zones and kinds != (labels.SPOT,):
        raise PriceFileError(f"{where}.zones: only with capacityTypes [spot]; on-demand costs the same in all zones")
    return PriceRule(_names(where, given, "instanceTypes"), kinds, zones, _factor(where, given), _price(where, given))


def _names(where: str, given: Mapping[str, object], field: str) -> tuple[str, ...]:
    found = given.get(field, ())
    if isinstance(found, str) or not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
        raise PriceFileError(f"{where}.{field}: expected a list of texts, found {found!r}")
    if field in given and not found:
        raise PriceFileError(f"{where}.{field}: an empty list is about nothing; leave the field out for everything")
    return tuple(found)


def _factor(where: str, given: Mapping[str, object]) -> tuple[int, int] | None:
    if "discountPercent" not in given:
        return None
    percent = _number(f"{where}.discountPercent", given["discountPercent"])
    if not 0 <= percent < 100:
        raise PriceFileError(f"{where}.discountPercent: {given['discountPercent']!r} is not from 0 to below 100")
    return (1 - percent / 100).as_integer_ratio()


def _price(where: str, given: Mapping[str, object]) -> int | None:
    if "pricePerHour" not in given:
        return None
    price = _number(f"{where}.pricePerHour", given["pricePerHour"])
    if not 0 < price * PICOUSD < 2**63:
        raise PriceFileError(f"{where}.pricePerHour: {given['pricePerHour']!r} is not a price per hour above 0")
    return max(1, round(price * PICOUSD))


def _number(where: str, value: object) -> Fraction:
    """A number as it is written: 0.1 is a tenth."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise PriceFileError(f"{where}: {value!r} is not a number") from None


def apply_prices(region: RegionFacts, file: PriceFile) -> RegionFacts:
    """The region at the account's prices."""
    if not file.rules:
        return region
    on_demand = {name: _paid(file, name, labels.ON_DEMAND, "", price) for name, price in region.on_demand.items()}
    spot = None
    if region.spot is not None:
        spot = {
            name: {zone: _paid(file, name, labels.SPOT, zone, price) for zone, price in zones.items()}
            for name, zones in region.spot.items()
        }
    return msgspec.structs.replace(region, on_demand=on_demand, spot=spot)


def _paid(file: PriceFile, name: str, kind: str, zone: str, price: int) -> int:
    about = [rule for rule in file.rules if rule.applies_to(name, kind, zone)]
    stated = [one.price_picousd_per_hour for one in about if one.price_picousd_per_hour is not None]
    paid = Fraction(stated[-1] if stated else price)
    for price_rule in about:
        if price_rule.factor is not None:
            paid *= Fraction(*price_rule.factor)
    return max(1, round(paid)) if price or stated else 0
