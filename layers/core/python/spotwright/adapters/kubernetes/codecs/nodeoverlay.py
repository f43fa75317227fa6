"""NodeOverlays into the model. One that cannot be read says so in ``unreadable`` and stops nothing else."""

from typing import Any

from spotwright.adapters.kubernetes.codecs.objects import (
    DECODE_ERRORS,
    Json,
    decode_conditions,
    decode_metadata,
    decode_node_selector_requirements,
    validate,
)
from spotwright.model import quantity, resources
from spotwright.model.karpenter.nodeoverlay import NodeOverlay


def decode_nodeoverlay(obj: Json) -> NodeOverlay:
    about, spec = decode_metadata(obj), obj.get("spec") or {}
    try:
        overlay = NodeOverlay(
            metadata=about,
            requirements=decode_node_selector_requirements(spec.get("requirements")),
            price=_text(spec.get("price")),
            price_adjustment=_text(spec.get("priceAdjustment")),
            capacity=resources.parse(spec.get("capacity") or {}),
            weight=_weight(spec.get("weight")),
            conditions=decode_conditions(obj),
        )
        return validate(overlay)
    except quantity.QuantityError as error:
        return NodeOverlay(about, read_error=f"spec.capacity: {error}")
    except DECODE_ERRORS as error:
        return NodeOverlay(about, read_error=f"spec: {error}")


def _text(given: Any) -> str:
    return "" if given is None else str(given).strip()


def _weight(given: Any) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"weight: {given!r} is not a whole number")
    return given
