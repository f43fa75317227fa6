"""Durations and resource lists of an object that a user wrote, with errors that name object and field."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, DecodeError, describe_error
from spotwright.adapters.kubernetes.codecs.objects import Json, validate
from spotwright.model import quantity, resources
from spotwright.model.kubernetes.meta import LONGEST_DURATION_SECONDS
from spotwright.model.quoting import quote

_DURATION: Final = re.compile(r"([0-9]+)(h|m|s)")
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


class FieldReader:
    """Reads fields of an object and names the object in errors."""

    def __init__(self, obj: Json) -> None:
        name = (obj.get("metadata") or {}).get("name") or "(no name)"
        self._object_name = f"{obj.get('kind') or 'object'} {name if isinstance(name, str) else quote(name)}"

    def validate[Value](self, value: Value) -> Value:
        """The value, if every field is of its type. Raises DecodeError."""
        try:
            return validate(value)
        except DECODE_ERRORS as error:
            raise DecodeError(f"{self._object_name}: {describe_error(error)}") from None

    def duration(self, field: str, text: str) -> int | None:
        try:
            return parse_duration(str(text))
        except ValueError as error:
            raise DecodeError(f"{self._object_name}: {field}: {error}") from None

    def optional_duration(self, field: str, text: str | None) -> int | None:
        return None if text is None else self.duration(field, text)

    def resource_list(self, field: str, amounts: Mapping[str, Any]) -> dict[str, int]:
        try:
            return resources.parse(amounts)
        except quantity.QuantityError as error:
            raise DecodeError(f"{self._object_name}: {field}.{error}") from None


def parse_duration(text: str) -> int | None:
    """``1h30m`` in seconds, LONGEST_DURATION_SECONDS at most; None for Never. Raises ValueError."""
    if text == "Never":
        return None
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise DecodeError(f"{quote(text)} is not a duration such as 30s, 10m, 1h30m or Never")
    # A Decimal is read from any number of digits, an int is not.
    return int(min(LONGEST_DURATION_SECONDS, sum(Decimal(number) * _SECONDS[unit] for number, unit in parts)))
