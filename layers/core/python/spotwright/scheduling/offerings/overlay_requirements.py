"""What a NodeOverlay asks for, or why it cannot be applied.

Source: Karpenter v1.14 ``pkg/apis/v1alpha1/nodeoverlay.go``.
"""

import re
from collections.abc import Iterator
from typing import Final

from spotwright.model import resources
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.quoting import quote
from spotwright.model.requirements import RequirementError, Requirements, conjunction

PRICE_ADJUSTMENT: Final = re.compile(r"^(?P<number>[+-](\d+\.?\d*|\.\d+))(?P<percent>%?)$", re.ASCII)
_PRICE: Final = re.compile(r"^(\d+\.?\d*|\.\d+)$", re.ASCII)
# What EC2 says about these is measured; an overlay may only add what devices and kernels offer besides.
_MEASURED: Final = frozenset((resources.CPU, resources.MEMORY, resources.EPHEMERAL_STORAGE, resources.PODS))


def read_requirements(overlay: NodeOverlay) -> Requirements | str:
    """What an overlay asks for; or what is wrong with it."""
    if error := next(_errors(overlay), ""):
        return error
    try:
        requirements = conjunction(expression.requirement() for expression in overlay.requirements)
    except RequirementError as invalid:
        return f"spec.requirements: {invalid}"
    if requirements is None:
        return "spec.requirements contradict each other: no offering meets them"
    return requirements


def _errors(overlay: NodeOverlay) -> Iterator[str]:
    if overlay.read_error:
        yield overlay.read_error
    if overlay.price and overlay.price_adjustment:
        yield "spec.price and spec.priceAdjustment exclude each other: state one of them"
    if overlay.price and not _PRICE.match(overlay.price):
        yield f"spec.price: {quote(overlay.price)} is not a price in USD per hour such as 0.25"
    if overlay.price_adjustment and not PRICE_ADJUSTMENT.match(overlay.price_adjustment):
        yield (
            f"spec.priceAdjustment: {quote(overlay.price_adjustment)} is not a signed amount of USD per hour or"
            " percentage such as +0.05, -0.05, +10% or -10%"
        )
    for name, amount in sorted(overlay.capacity.items()):
        if name in _MEASURED:
            yield f"spec.capacity: {name} is what the instance type has; only other resources can be stated"
        elif amount < 0:
            yield f"spec.capacity: {name} {amount} is negative"
