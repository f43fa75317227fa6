"""NodeOverlays, from JSON into the model; ``read_error`` says why an overlay cannot be read."""

from typing import Any

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, DecodeError, describe_error
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    decode_conditions,
    decode_metadata,
    decode_node_selector_requirements,
    validate,
)
from spotwright.model import quantity, resources
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.quoting import quote


def decode_nodeoverlay(obj: Json) -> NodeOverlay:
    metadata, spec = decode_metadata(obj), obj.get("spec") or {}
    try:
        overlay = NodeOverlay(
            metadata=metadata,
            requirements=decode_node_selector_requirements(spec.get("requirements")),
            price=_text(spec.get("price")),
            price_adjustment=_text(spec.get("priceAdjustment")),
            capacity=resources.parse(spec.get("capacity") or {}),
            weight=_weight(spec.get("weight")),
            conditions=decode_conditions(obj),
        )
        return validate(overlay)
    except quantity.QuantityError as error:
        return NodeOverlay(metadata, read_error=f"spec.capacity: {error}")
    except DECODE_ERRORS as error:
        return NodeOverlay(metadata, read_error=f"spec: {describe_error(error)}")


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _weight(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise DecodeError(f"weight: {quote(value)} is not a whole number")
    return value
