"""How messages show a value that a user wrote."""

from math import isfinite, isnan

import msgspec

_LONGEST = 80


def quote(value: object) -> str:
    """Text in single quotes, everything else as JSON; at most 80 characters."""
    text = _quote_text(value) if isinstance(value, str) else _json(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _quote_text(value: str) -> str:
    shown = value[:_LONGEST].encode("unicode_escape").decode() if not value.isprintable() else value
    return f"'{shown}'"


def _json(value: object) -> str:
    if isinstance(value, float) and not isfinite(value):
        # YAML's words for what JSON does not have.
        return ".nan" if isnan(value) else ".inf" if value > 0 else "-.inf"
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        # Keys that are no text, numbers beyond 64 bits: what JSON does not have.
        return str(value) if isinstance(value, int | float) else "this value"
