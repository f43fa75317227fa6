"""NodeOverlays into the model. One that cannot be read says so in ``unreadable`` and stops nothing else."""

from collections.abc import Mapping
from typing import Any

from spotwright.adapters import decode
from spotwright.model import quantity, resources
from spotwright.model.karpenter.nodeoverlay import NodeOverlay

type Json = Mapping[str, Any]


def overlay(obj: Json) -> NodeOverlay:
    about, spec = decode.metadata(obj), obj.get("spec") or {}
    try:
        made = NodeOverlay(
            metadata=about,
            requirements=decode.selectors(spec.get("requirements")),
            price=_text(spec.get("price")),
            price_adjustment=_text(spec.get("priceAdjustment")),
            capacity=resources.parse(spec.get("capacity") or {}),
            weight=_weight(spec.get("weight")),
            conditions=decode.conditions(obj),
        )
        return decode.sound(made)
    except quantity.QuantityError as error:
        return NodeOverlay(about, read_error=f"spec.capacity: {error}")
    except decode.MALFORMED as error:
        return NodeOverlay(about, read_error=f"spec: {error}")


def _text(given: Any) -> str:
    return "" if given is None else str(given).strip()


def _weight(given: Any) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"weight: {given!r} is not a whole number")
    return given
