"""MaxResults and NextToken: the token is the position, in base64, as opaque as a client may assume."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from local.aws.calls.request import AwsError


def page[T](items: Sequence[T], params: Mapping[str, Any], *, default: int) -> tuple[list[T], dict[str, str]]:
    """One page of `items` and `{"NextToken": ...}`, which is empty on the last page."""
    start = _position(params.get("NextToken"))
    size = int(params.get("MaxResults") or default)
    end = start + size
    token = {"NextToken": base64.b64encode(f"at:{end}".encode()).decode()} if end < len(items) else {}
    return list(items[start:end]), token


def _position(token: str | None) -> int:
    if not token:
        return 0
    try:
        return int(base64.b64decode(token, validate=True).decode().removeprefix("at:"))
    except (binascii.Error, ValueError) as error:
        raise AwsError("InvalidNextToken", "The specified NextToken is not valid") from error
