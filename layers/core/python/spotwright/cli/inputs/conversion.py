"""Manifests of Karpenter before v1, converted to v1."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spotwright.cli import InputError
from spotwright.model.quoting import quote

if TYPE_CHECKING:
    from spotwright.cli.inputs.documents import Document, Documents
    from spotwright.conversion.convert import ConversionResult
    from spotwright.conversion.remarks import ConversionError, Remark

    type Contents = tuple[dict[str, Any], ...]


def convert_documents(documents: "tuple[Document, ...]") -> "ConversionResult":
    """The objects converted to v1; raises InputError with file, line, object, field and value, for every object."""
    from spotwright.conversion.convert import convert
    from spotwright.conversion.remarks import ConversionError

    try:
        return convert([document.content for document in documents])
    except ConversionError as error:
        first = _refusal(documents[error.origin], error)
        others = [text for document in documents[error.origin + 1 :] if (text := _refusal_of(document))]
        raise InputError("\n".join((first, *others))) from None


def _refusal_of(document: "Document") -> str:
    """Why an object, taken by itself, cannot be converted; "" = it can."""
    from spotwright.conversion.convert import convert
    from spotwright.conversion.remarks import ConversionError

    try:
        convert([document.content])
    except ConversionError as error:
        return _refusal(document, error)
    return ""


def _refusal(document: "Document", error: "ConversionError") -> str:
    return f"{document.where(_field_path(str(error)))}: {object_name(document.content)}: {error}"


def _field_path(message: str) -> tuple[str | int, ...]:
    """The field that a message begins with, such as ``spec.taints[0].key``; () if it does not begin with any."""
    field = re.match(r"\w+(?:\.\w+|\[[^\]]+\])+", message)
    parts = re.findall(r"[^.\[\]]+", field[0]) if field else []
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def upgrade_documents(read: "Documents") -> "tuple[Documents, tuple[str, ...]]":
    """The objects as ``spotwright convert`` would write them, and notes about the objects that it changes.

    NodeClaims of v1beta1, which ``convert`` leaves out, stay, since a plan counts them. Raises InputError.
    """
    from spotwright.conversion import needs_conversion

    if not any(needs_conversion(document.content) for document in read.objects):
        return read, ()
    import msgspec

    from spotwright.cli.inputs.documents import Document

    result = convert_documents(read.objects)
    objects: list[Document] = []
    notes: list[str] = []
    for document, contents, remarks in zip(read.objects, result.objects, result.remarks, strict=True):
        if not contents and document.content["kind"] == "NodeClaim":
            objects.append(document)
            continue
        objects += (Document(document.source, content, document.place) for content in contents)
        notes += _notes(document, contents, remarks)
    return msgspec.structs.replace(read, objects=tuple(objects)), tuple(notes)


def _notes(document: "Document", contents: "Contents", remarks: "tuple[Remark, ...]") -> Iterator[str]:
    """Notes for a plan of the converted objects, without remarks that matter only when they are applied."""
    is_unchanged = contents == (document.content,)
    if contents and not is_unchanged:
        version = str(document.content.get("apiVersion")).rpartition("/")[2]
        title, names = object_name(document.content), ", ".join(map(object_name, contents))
        yield f"{title}: {version}, read as {'v1' if names == title else names}; see spotwright convert"
    for remark in remarks:
        if (is_unchanged or remark.level != "note") and not remark.path.startswith(("metadata.", "status")):
            yield f"{document_title(document)}: {remark}"


def document_title(document: "Document") -> str:
    return f"{document.source}: {object_name(document.content)}"


def object_name(content: dict[str, Any]) -> str:
    metadata = content["metadata"]
    name = metadata.get("name") or metadata.get("generateName") or "(no name)"
    return f"{content['kind']} {name if isinstance(name, str) else quote(name)}"
