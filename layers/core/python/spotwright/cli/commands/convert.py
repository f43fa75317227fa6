"""``spotwright convert``: manifests of Karpenter before v1 as v1 NodePools and EC2NodeClasses."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spotwright.cli import completes_files
from spotwright.cli.inputs.conversion import convert_documents, document_title, object_name

if TYPE_CHECKING:
    from spotwright.cli.inputs.documents import Document
    from spotwright.conversion.remarks import Remark

    type Contents = tuple[dict[str, Any], ...]


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
    completes_files(
        parser.add_argument("files", nargs="+", metavar="FILE", help="manifests, or folders of them; - is stdin")
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the objects; 1 when something is left to do by hand."""
    from spotwright.cli.inputs.sources import read_documents
    from spotwright.cli.inputs.validation.check import refuse_duplicates
    from spotwright.cli.text.yaml_documents import write_yaml
    from spotwright.conversion.remarks import Level

    documents = read_documents(options.files)
    refuse_duplicates(documents)
    read = documents.objects
    result = convert_documents(read)
    write_yaml((content for contents in result.objects for content in contents), sys.stdout)
    for document, contents, remarks in zip(read, result.objects, result.remarks, strict=True):
        for line in _report(document, contents, remarks):
            print(line, file=sys.stderr)
    for note in documents.notes:
        print(note, file=sys.stderr)
    return 1 if any(remark.level == Level.TO_DO for remarks in result.remarks for remark in remarks) else 0


def _report(document: "Document", contents: "Contents", remarks: "tuple[Remark, ...]") -> Iterator[str]:
    """The remarks about an object; a remark about several fields is a single line."""
    paths_by_remark: dict[tuple[str, str], list[str]] = {}
    for remark in remarks:
        paths_by_remark.setdefault((remark.level, remark.text), []).append(remark.path)
    if paths_by_remark:
        result = "" if contents == (document.content,) else f" → {', '.join(map(object_name, contents)) or 'nothing'}"
        yield f"{document_title(document)}{result}"
    for (level, text), paths in paths_by_remark.items():
        where = ", ".join(filter(None, paths))
        yield f"  {level:<5}  {where}: {text}" if where else f"  {level:<5}  {text}"
