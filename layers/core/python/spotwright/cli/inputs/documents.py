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
    """One Kubernetes object and the file it came from."""

    source: str
    content: Json


class Documents(msgspec.Struct, frozen=True):
    """All objects, in the order given. ``now`` and ``settings`` come from a case file; empty without one."""

    objects: tuple[Document, ...]
    now: Any = None
    settings: Json = {}


def read_documents(paths: Sequence[str]) -> Documents:
    """Everything in the files, folders (searched) or ``-``; raises InputError naming file and place."""
    now, settings, found = None, dict[str, Any](), list[Document]()
    for source, text in _texts(paths):
        for content in _parsed(source, text):
            if "objects" in content and "kind" not in content:
                now, settings = content.get("now") or now, settings | (content.get("settings") or {})
                found += _objects(source, content["objects"] or [])
            else:
                found += _objects(source, [content])
    if not found:
        raise InputError(f"{', '.join(paths)}: there is no Kubernetes object in it")
    return Documents(tuple(found), now, settings)


def deduplicate(documents: Documents) -> tuple[Documents, tuple[str, ...]]:
    """Each object once, as if the files were applied in their order, and notes about those that others replace."""
    found: dict[object, Document] = {}
    notes: list[str] = []
    for number, one in enumerate(documents.objects):
        kind, metadata = one.content["kind"], one.content["metadata"]
        name, namespace = metadata.get("name"), metadata.get("namespace")
        key = (kind, str(namespace or "default"), name) if name and isinstance(name, str) else number
        if key in found:
            notes.append(f"{kind} {name} of {found[key].source} is not read: {one.source} has it again")
        found[key] = one
    return msgspec.structs.replace(documents, objects=tuple(found.values())), tuple(notes)


def _texts(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == "-":
            yield "stdin", sys.stdin.read()
            continue
        place = Path(path)
        if not place.exists():
            raise InputError(f"{path}: no such file or folder")
        for file in _files(place):
            try:
                yield str(file), file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"{file}: cannot be read: {error}") from None


def _files(place: Path) -> Iterable[Path]:
    if not place.is_dir():
        return (place,)
    return sorted(path for path in place.rglob("*") if path.suffix in _ENDINGS and path.is_file())


def _parsed(source: str, text: str) -> Iterator[Json]:
    for content in _contents(source, text):
        if isinstance(content, dict):
            yield content
        elif content is not None:
            raise InputError(f"{source}: expected Kubernetes objects, found {_kind(content)}")


def _contents(source: str, text: str) -> Iterator[object]:
    """What is in a text, as JSON if it is that."""
    if source.endswith(".json"):
        try:
            yield msgspec.json.decode(text)
            return
        except msgspec.DecodeError:
            # YAML says where it goes wrong.
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
            yield from _objects(source, [_typed(content, one) for one in content["items"]])
        elif not isinstance(content.get("metadata"), dict):
            raise InputError(f"{source}: {content['kind']} without metadata")
        else:
            yield Document(source, content)


def _typed(listed: Json, item: Any) -> Any:
    """An item of a list; one of a ProvisionerList, say, need not state what it is."""
    kind = listed["kind"].removesuffix("List")
    if not isinstance(item, dict) or not kind:
        return item
    return {key: value for key, value in (("apiVersion", listed.get("apiVersion")), ("kind", kind)) if value} | item
