"""Manifests and case files, read from files, folders or stdin."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from spotwright.cli import InputError

type Json = dict[str, Any]

_ENDINGS: Final = (".yaml", ".yml", ".json")


class Document(msgspec.Struct, frozen=True):
    """A Kubernetes object and the file it was read from."""

    source: str
    content: Json


class Documents(msgspec.Struct, frozen=True):
    """All objects, in their order. ``now`` and ``settings``: from a case file, empty without one (``has_case``)."""

    objects: tuple[Document, ...]
    now: Any = None
    settings: Json = {}
    has_case: bool = False


def read_documents(paths: Sequence[str]) -> Documents:
    """All objects in files, folders (with subfolders) or stdin (``-``); raises InputError with file and line."""
    now, settings, objects, has_case = None, dict[str, Any](), list[Document](), False
    for source, text in _texts(paths):
        for content in _parse_objects(source, text):
            if "objects" in content and "kind" not in content:
                has_case = True
                now, settings = content.get("now") or now, settings | (content.get("settings") or {})
                objects += _objects(source, content["objects"] or [])
            else:
                objects += _objects(source, [content])
    if not objects:
        raise InputError(f"{', '.join(paths)}: there is no Kubernetes object in it")
    return Documents(tuple(objects), now, settings, has_case)


def deduplicate(documents: Documents) -> tuple[Documents, tuple[str, ...]]:
    """The objects without duplicates, of which the last counts as with ``kubectl apply``, and notes about them."""
    by_key: dict[object, Document] = {}
    notes: list[str] = []
    for number, document in enumerate(documents.objects):
        kind, metadata = document.content["kind"], document.content["metadata"]
        name, namespace = metadata.get("name"), metadata.get("namespace")
        key = (kind, str(namespace or "default"), name) if name and isinstance(name, str) else number
        if key in by_key:
            notes.append(f"{kind} {name} of {by_key[key].source} is not read: {document.source} has it again")
        by_key[key] = document
    return msgspec.structs.replace(documents, objects=tuple(by_key.values())), tuple(notes)


def _texts(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == "-":
            yield "stdin", sys.stdin.read()
            continue
        file_or_folder = Path(path)
        if not file_or_folder.exists():
            raise InputError(f"{path}: no such file or folder")
        for file in _files(file_or_folder):
            try:
                yield str(file), file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"{file}: cannot be read: {error}") from None


def _files(file_or_folder: Path) -> Iterable[Path]:
    if not file_or_folder.is_dir():
        return (file_or_folder,)
    return sorted(path for path in file_or_folder.rglob("*") if path.suffix in _ENDINGS and path.is_file())


def _parse_objects(source: str, text: str) -> Iterator[Json]:
    for content in _contents(source, text):
        if isinstance(content, dict):
            yield content
        elif content is not None:
            raise InputError(f"{source}: expected Kubernetes objects, found {_kind(content)}")


def _contents(source: str, text: str) -> Iterator[object]:
    """The documents of a text, parsed as JSON if it is a JSON file."""
    if source.endswith(".json"):
        try:
            yield msgspec.json.decode(text)
            return
        except msgspec.DecodeError:
            # YAML's error names the line.
            pass
    import yaml

    try:
        yield from yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        raise InputError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from None


def _kind(content: object) -> str:
    if isinstance(content, list):
        return "a list"
    return "text" if isinstance(content, str) else type(content).__name__


def _objects(source: str, contents: object) -> Iterator[Document]:
    if not isinstance(contents, list):
        raise InputError(f"{source}: objects is a list of Kubernetes objects, found {_kind(contents)}")
    for content in contents:
        if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
            raise InputError(f"{source}: an object without kind: {str(content)[:80]}")
        if content["kind"].endswith("List") and isinstance(content.get("items"), list):
            yield from _objects(source, [_with_item_kind(content, item) for item in content["items"]])
        elif not isinstance(content.get("metadata"), dict):
            raise InputError(f"{source}: {content['kind']} without metadata")
        else:
            yield Document(source, content)


def _with_item_kind(list_object: Json, item: Any) -> Any:
    """An item of a list such as a NodePoolList, whose items need not state their kind."""
    kind = list_object["kind"].removesuffix("List")
    if not isinstance(item, dict) or not kind:
        return item
    return {
        key: value for key, value in (("apiVersion", list_object.get("apiVersion")), ("kind", kind)) if value
    } | item
