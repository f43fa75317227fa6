"""Manifests of Karpenter before v1, read as the v1 ones that they mean."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spotwright.cli import InputError

if TYPE_CHECKING:
    from spotwright.cli.inputs.documents import Document, Documents
    from spotwright.conversion.convert import ConversionResult
    from spotwright.conversion.remarks import Remark

    type Made = tuple[dict[str, Any], ...]


def convert_documents(given: "tuple[Document, ...]") -> "ConversionResult":
    """The objects as v1 has them; raises InputError naming file, object, field and value."""
    from spotwright.conversion.convert import convert as convert
    from spotwright.conversion.remarks import ConversionError

    try:
        return convert([one.content for one in given])
    except ConversionError as error:
        raise InputError(f"{document_title(given[error.origin])}: {error}") from None


def upgrade_documents(read: "Documents") -> "tuple[Documents, tuple[str, ...]]":
    """The objects as ``convert`` would write them, for who reads them now, and notes about those that it changes.

    A NodeClaim of v1beta1, which ``convert`` leaves out, stays: whoever plans wants to know of it. Raises InputError.
    """
    from spotwright.conversion import needs_conversion

    if not any(needs_conversion(one.content) for one in read.objects):
        return read, ()
    import msgspec

    from spotwright.cli.inputs.documents import Document

    result = convert_documents(read.objects)
    objects: list[Document] = []
    notes: list[str] = []
    for document, made, remarks in zip(read.objects, result.objects, result.remarks, strict=True):
        if not made and document.content["kind"] == "NodeClaim":
            objects.append(document)
            continue
        objects += (Document(document.source, content) for content in made)
        notes += _notes(document, made, remarks)
    return msgspec.structs.replace(read, objects=tuple(objects)), tuple(notes)


def _notes(document: "Document", made: "Made", remarks: "tuple[Remark, ...]") -> Iterator[str]:
    """What a reader of the converted objects should know: not what matters only to who applies them."""
    same = made == (document.content,)
    if made and not same:
        names = ", ".join(map(object_name, made))
        yield f"{document_title(document)} is read as {names}: `spotwright convert` writes that"
    for remark in remarks:
        if (same or remark.level != "note") and not remark.path.startswith(("metadata.", "status")):
            yield f"{document_title(document)}: {remark}"


def document_title(document: "Document") -> str:
    return f"{document.source}: {object_name(document.content)}"


def object_name(content: dict[str, Any]) -> str:
    return f"{content['kind']} {content['metadata'].get('name') or '(no name)'}"
