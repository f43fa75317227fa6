"""Manifests and case files, read from files, folders or stdin."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from spotwright.cli import InputError
from spotwright.cli.inputs.documents import Document, Documents, bounded_text, parse_text, read_text
from spotwright.cli.inputs.folders import read_folder, rendering_command

STDIN: Final = "-"


def read_documents(paths: Sequence[str]) -> Documents:
    """All objects in files, folders (with subfolders) or stdin (``-``); raises InputError with file and line of
    everything that cannot be read."""
    read: list[Documents] = []
    errors: list[str] = []
    for path in paths:
        try:
            read.append(_read(path))
        except InputError as error:
            errors.append(str(error))
    if errors:
        raise InputError("\n".join(errors))
    merged = _merge(read)
    if not merged.objects:
        raise InputError("\n".join((f"{', '.join(paths)}: there is no Kubernetes object in it", *merged.notes)))
    return merged


def _read(path: str) -> Documents:
    if path == STDIN:
        return parse_text("stdin", _read_stdin())
    # An empty path is the current folder for pathlib, and a variable without a value for whoever typed it.
    if not path:
        raise InputError("the name of a file is empty: name a manifest, a folder of them, or - for stdin")
    if path.startswith(("https://", "http://")):
        raise InputError(f"{path}: addresses are not read: pipe it in, with - for the file: curl -fsSL {path} | …")
    if not Path(path).exists():
        raise InputError(f"{path}: no such file or folder")
    if Path(path).is_dir():
        return read_folder(Path(path))
    if command := rendering_command(Path(path)):
        raise InputError(f"{path}: not a manifest, but what manifests are rendered from: {command}")
    return parse_text(path, read_text(Path(path)))


def _read_stdin() -> str:
    # Python has no stdin where it is closed.
    if sys.stdin is None:
        raise InputError("stdin: cannot be read: it is closed")
    return bounded_text("stdin", sys.stdin)


def _merge(several: Iterable[Documents]) -> Documents:
    now, settings, objects, notes = None, dict[str, Any](), list[Document](), list[str]()
    for documents in several:
        now = documents.now or now
        settings |= documents.settings
        objects += documents.objects
        notes += documents.notes
    return Documents(tuple(objects), now, settings, tuple(notes))
