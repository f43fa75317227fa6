"""Answers of the EC2 API as XML, straight from the service model.

moto's general serializer needs about 3 ms for one instance; a DescribeInstances of a few hundred would take
longer than a Lambda function may run.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import escape

from botocore.model import OperationModel, Shape

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"

type Writer = Callable[[Any], str]


def response_document(operation: OperationModel, result: Mapping[str, Any], request_id: str) -> bytes:
    """The whole response document; members of `result` that the model does not know are left out."""
    name = f"{operation.name}Response"
    shape = operation.output_shape
    body = _writer(shape)(result) if shape is not None else "<return>true</return>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{name} xmlns="{NAMESPACE}"><requestId>{request_id}</requestId>{body}</{name}>'
    ).encode()


def _writer(shape: Shape) -> Writer:
    """A function from a value to the XML inside its element."""
    match shape.type_name:
        case "structure":
            return _structure(shape)
        case "list":
            return _list(shape)
        case "boolean":
            return lambda value: "true" if value else "false"
        case "timestamp":
            return _timestamp
        case "blob":
            return lambda value: base64.b64encode(value).decode()
        case _:
            return lambda value: escape(str(value))


def _structure(shape: Any) -> Writer:
    members = _members(_Known(shape))

    def write(value: Any) -> str:
        parts = []
        for name, element, lookup in members:
            member = value.get(name)
            if member is not None:
                parts.append(f"<{element}>{lookup()(member)}</{element}>")
        return "".join(parts)

    return write


def _list(shape: Any) -> Writer:
    member = shape.member
    element = member.serialization.get("name", "item")
    item = _writer(member)
    return lambda values: "".join(f"<{element}>{item(value)}</{element}>" for value in values)


class _Known:
    """A structure shape, hashable by its name in EC2's model: botocore makes new objects on each access."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape

    def __hash__(self) -> int:
        return hash(self.shape.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and other.shape.name == self.shape.name


@lru_cache(maxsize=4096)
def _members(known: _Known) -> list[tuple[str, str, Callable[[], Writer]]]:
    """(member, element name, its writer on demand: shapes may contain themselves)."""
    return [
        (name, member.serialization.get("name", name), lru_cache(maxsize=1)(lambda member=member: _writer(member)))
        for name, member in known.shape.members.items()
    ]


def _timestamp(value: datetime | str) -> str:
    if isinstance(value, str):
        return escape(value)
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return aware.strftime("%Y-%m-%dT%H:%M:%S.000Z")
