"""Kubernetes quantities as integers.

Source: ``k8s.io/apimachinery/pkg/api/resource``: a decimal number with a binary (Ki…Ei), decimal (n, u, m, k…E)
or exponent suffix. Units here: cpu in millicores, everything else in whole units (bytes, pieces).
"""

import functools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from spotwright.model.quoting import quote

_SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_PATTERN: Final = re.compile(
    r"^(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,3}))?$",
    re.ASCII,
)
# More digits are beyond any amount, and more than an int is read from.
_MOST_DIGITS: Final = 1000
_BINARY_UNITS: Final = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
# Kubernetes caps quantities at 2^63-1.
MAXIMUM: Final = 2**63 - 1


class QuantityError(ValueError):
    """A quantity that Kubernetes would refuse; the message names the value and what is allowed."""


def parse(text: str | float | int) -> Fraction:
    """The exact value of a quantity in its base unit."""
    parsed = _PATTERN.match(str(text).strip())
    if parsed is None or len(parsed["number"]) > _MOST_DIGITS:
        raise QuantityError(
            f"{quote(text)} is not a Kubernetes quantity (a number with an optional suffix: n u m k M G T P E,"
            " Ki Mi Gi Ti Pi Ei or an exponent such as 1e3)"
        )
    number = Fraction(parsed["number"])
    if parsed["exponent"] is not None:
        return number * Fraction(10) ** int(parsed["exponent"])
    return number * _SUFFIXES[parsed["suffix"] or ""]


def amount(resource: str, text: str | float | int) -> int:
    """A quantity of a resource in its integer unit, rounded away from zero as Kubernetes does.

    cpu: millicores. Everything else: whole units. Raises QuantityError beyond 2^63-1.
    """
    return _amount_of_text(resource, text) if isinstance(text, str) else _amount(resource, text)


# The objects of a cluster state few different quantities, again and again.
@functools.lru_cache(maxsize=4096)
def _amount_of_text(resource: str, text: str) -> int:
    return _amount(resource, text)


def _amount(resource: str, text: str | float | int) -> int:
    exact = parse(text) * (1000 if resource == "cpu" else 1)
    size = -(-exact.numerator // exact.denominator) if exact >= 0 else exact.numerator // exact.denominator
    if abs(size) > MAXIMUM:
        raise QuantityError(f"{quote(text)} is out of range for {resource}: at most 2^63-1")
    return size


def text(resource: str, size: int) -> str:
    """An integer amount as manifests state it: ``1500m``, ``2``, ``1536Mi``."""
    if resource == "cpu":
        return f"{size}m" if size % 1000 else str(size // 1000)
    if _is_bytes(resource):
        for suffix, unit in _BINARY_UNITS:
            if size and size % unit == 0:
                return f"{size // unit}{suffix}"
    return str(size)


def texts(resource: str, sizes: Sequence[int]) -> list[str]:
    """Integer amounts of a resource in one unit, for a sentence that compares them.

    Cores, or millicores where some amount is no whole number of cores. Bytes in the largest of Gi and Mi of which all
    amounts are whole numbers, else rounded down to Mi; different amounts that would look the same then, to Ki or bytes.
    """
    if resource == "cpu":
        return (
            [str(size // 1000) for size in sizes]
            if not any(size % 1000 for size in sizes)
            else [f"{size}m" for size in sizes]
        )
    for suffix, unit in _BINARY_UNITS if _is_bytes(resource) else ():
        rounded = [size // unit for size in sizes]
        is_exact = all(size % unit == 0 for size in sizes)
        if is_exact or (unit < 2**30 and len(set(rounded)) == len(set(sizes))):
            return [f"{number}{suffix}" if number else "0" for number in rounded]
    return [str(size) for size in sizes]


def _is_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
