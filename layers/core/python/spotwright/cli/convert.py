"""``spotwright convert``: manifests of Karpenter before v1 as v1 NodePools and EC2NodeClasses."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spotwright.cli import InputError

if TYPE_CHECKING:
    from spotwright.cli.documents import Document, Documents
    from spotwright.conversion.convert import ConversionResult
    from spotwright.conversion.remarks import Remark

    type Made = tuple[dict[str, Any], ...]


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "convert",
        help="write manifests of Karpenter before v1 as v1 NodePools and EC2NodeClasses",
        description="Convert Provisioners and AWSNodeTemplates (v1alpha5), NodePools and EC2NodeClasses of v1beta1 to"
        " v1, as YAML on stdout; say on stderr what is lost, left to do, and written out because it was implied."
        " Objects that are v1 already, and all other kinds, pass with the same fields and values, so that the whole can"
        " be piped: spotwright convert old.yaml | kubectl apply -f -. Comments in the files are not kept.",
        epilog="Exit code: 0, or 1 when the result does not work before what is left to do is done, or 2 when a file"
        " cannot be read or converted; then nothing is written.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests, or folders of them; - is stdin")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the objects; 1 when something is left to do by hand."""
    from spotwright.cli import documents, yaml_text
    from spotwright.conversion.remarks import Level

    read = documents.read(options.files).objects
    result = converted(read)
    yaml_text.write((content for made in result.objects for content in made), sys.stdout)
    for document, made, remarks in zip(read, result.objects, result.remarks, strict=True):
        for line in _report(document, made, remarks):
            print(line, file=sys.stderr)
    return 1 if any(one.level == Level.TO_DO for remarks in result.remarks for one in remarks) else 0


def converted(given: "tuple[Document, ...]") -> "ConversionResult":
    """The objects as v1 has them; raises InputError naming file, object, field and value."""
    from spotwright.conversion.convert import convert as convert
    from spotwright.conversion.remarks import ConversionError

    try:
        return convert([one.content for one in given])
    except ConversionError as error:
        raise InputError(f"{_title(given[error.origin])}: {error}") from None


def current(read: "Documents") -> "tuple[Documents, tuple[str, ...]]":
    """The objects as ``convert`` would write them, for who reads them now, and notes about those that it changes.

    A NodeClaim of v1beta1, which ``convert`` leaves out, stays: whoever plans wants to know of it. Raises InputError.
    """
    from spotwright.conversion import needs_conversion

    if not any(needs_conversion(one.content) for one in read.objects):
        return read, ()
    import msgspec

    from spotwright.cli.documents import Document

    result = converted(read.objects)
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
        yield f"{_title(document)} is read as {', '.join(map(_name, made))}: `spotwright convert` writes that"
    for one in remarks:
        if (same or one.level != "note") and not one.path.startswith(("metadata.", "status")):
            yield f"{_title(document)}: {one}"


def _report(document: "Document", made: "Made", remarks: "tuple[Remark, ...]") -> Iterator[str]:
    """Remarks under the object they are about; those that say the same of several fields are one line."""
    about: dict[tuple[str, str], list[str]] = {}
    for one in remarks:
        about.setdefault((one.level, one.text), []).append(one.path)
    if about:
        became = "" if made == (document.content,) else f" → {', '.join(map(_name, made)) or 'nothing'}"
        yield f"{_title(document)}{became}"
    for (level, text), paths in about.items():
        where = ", ".join(filter(None, paths))
        yield f"  {level:<5}  {where}: {text}" if where else f"  {level:<5}  {text}"


def _title(document: "Document") -> str:
    return f"{document.source}: {_name(document.content)}"


def _name(content: dict[str, Any]) -> str:
    return f"{content['kind']} {content['metadata'].get('name') or '(no name)'}"
