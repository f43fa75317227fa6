"""Kubernetes objects and where each stands: of a text in YAML or JSON, a manifest or a case file."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from spotwright.cli import InputError
from spotwright.cli.inputs.nesting import MOST_NESTED, deepest_brackets
from spotwright.model.quoting import quote

type Json = dict[str, Any]
type FieldPath = tuple[str | int, ...]

# More takes longer to read than anybody waits, or has no end, as /dev/zero.
_MOST_CHARACTERS: Final = 64 * 2**20


class Place(msgspec.Struct, frozen=True):
    """Where an object stands. ``text``: of its file; ``number``: of the document there, from 0; ``path``: of the
    object in the document, if that holds several. ``duplicates``: the paths of keys that a map of the object has twice.
    ``is_case``: in a case file, which says what a cluster holds.
    """

    text: str
    number: int = 0
    path: FieldPath = ()
    duplicates: tuple[FieldPath, ...] = ()
    is_case: bool = False


class Document(msgspec.Struct, frozen=True):
    """A Kubernetes object and the file it was read from. ``place``: None for an object that was made from another."""

    source: str
    content: Json
    place: Place | None = None

    def where(self, path: FieldPath = ()) -> str:
        """File, line and, where a file has several, the number of the document, of a field of the object."""
        if self.place is None:
            return self.source
        from spotwright.cli.inputs.yaml_text import line_of, syntax_trees

        trees = syntax_trees(self.place.text)
        if self.place.number >= len(trees):
            return self.source
        line = line_of(trees[self.place.number], (*self.place.path, *path))
        document = f" (document {self.place.number + 1})" if len(trees) > 1 else ""
        return f"{self.source}:{line}{document}"


class Documents(msgspec.Struct, frozen=True):
    """All objects, in their order. ``now`` and ``settings``: from a case file, empty without one. ``notes``: about
    files that were not read.
    """

    objects: tuple[Document, ...]
    now: Any = None
    settings: Json = {}
    notes: tuple[str, ...] = ()

    @property
    def has_case(self) -> bool:
        """Whether any object is from a case file."""
        return any(document.place is not None and document.place.is_case for document in self.objects)


def deduplicate(documents: Documents) -> tuple[Documents, tuple[str, ...]]:
    """The objects without duplicates, of which the last counts as with ``kubectl apply``, and notes about them."""
    by_key: dict[object, Document] = {}
    notes: list[str] = []
    for number, document in enumerate(_named(documents.objects)):
        kind, metadata = document.content["kind"], document.content["metadata"]
        name, namespace = metadata.get("name"), metadata.get("namespace")
        key = (kind, str(namespace or "default"), name) if name and isinstance(name, str) else number
        if key in by_key:
            notes.append(f"{kind} {name} of {by_key[key].source} is not read: {document.source} has it again")
        by_key[key] = document
    return msgspec.structs.replace(documents, objects=tuple(by_key.values())), tuple(notes)


def _named(documents: Iterable[Document]) -> Iterator[Document]:
    """The objects, with a name of their own where only ``generateName`` is stated: the API server chooses one then."""
    numbers: dict[str, int] = {}
    for document in documents:
        metadata = document.content["metadata"]
        prefix = metadata.get("generateName")
        if metadata.get("name") or not prefix or not isinstance(prefix, str):
            yield document
            continue
        numbers[prefix] = numbers.get(prefix, 0) + 1
        named = {"metadata": metadata | {"name": f"{prefix}{numbers[prefix]}"}}
        yield msgspec.structs.replace(document, content=document.content | named)


def parse_text(source: str, text: str) -> Documents:
    """The objects of a file; raises InputError with line."""
    now, settings, objects = None, dict[str, Any](), list[Document]()
    for number, (content, duplicates) in enumerate(_contents(source, text)):
        place = Place(text, number, duplicates=duplicates)
        if content is None:
            continue
        if not isinstance(content, dict):
            where = Document(source, {}, place).where()
            raise InputError(f"{where}: expected Kubernetes objects, found {_type_name(content)}")
        if "objects" in content and "kind" not in content:
            case = msgspec.structs.replace(place, path=("objects",), is_case=True)
            now = content.get("now") or now
            settings |= _case_settings(source, content.get("settings"))
            objects += _objects(source, content["objects"] or [], case)
        else:
            objects += _object(source, content, place)
    return Documents(tuple(objects), now, settings)


def read_text(file: Path) -> str:
    """The text of a file; raises InputError."""
    try:
        with file.open(encoding="utf-8") as stream:
            return bounded_text(str(file), stream)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: cannot be read: byte {error.start} is not UTF-8") from None


def bounded_text(source: str, stream: TextIO) -> str:
    """What a stream holds; raises InputError where that is too much for manifests."""
    text = stream.read(_MOST_CHARACTERS + 1)
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"{source}: cannot be read: it has more than 64 MiB, which is too much for manifests")
    return text


def _contents(source: str, text: str) -> Iterator[tuple[object, tuple[FieldPath, ...]]]:
    """The documents of a text, parsed as JSON if it is a JSON file, and the paths of duplicate keys."""
    if source.endswith(".json") and deepest_brackets(text) <= MOST_NESTED:
        try:
            yield msgspec.json.decode(text), ()
            return
        except (msgspec.DecodeError, RecursionError):
            # The YAML reader names the line.
            pass
    from spotwright.cli.inputs.yaml_text import YamlError, read_yaml

    try:
        yield from read_yaml(text)
    except YamlError as error:
        where = f"{source}:{error.line}" if error.line else source
        raise InputError(f"{where}: not YAML: {error}") from None


def _type_name(content: object) -> str:
    if isinstance(content, list):
        return "a list"
    if isinstance(content, dict):
        return "a map"
    return "text" if isinstance(content, str) else f"the value {quote(content)}"


def _case_settings(source: str, settings: object) -> Json:
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise InputError(f"{source}: settings: {quote(settings)} is not a map of settings")
    return settings


def _objects(source: str, contents: object, place: Place) -> Iterator[Document]:
    if not isinstance(contents, list):
        where = Document(source, {}, place).where()
        raise InputError(f"{where}: {place.path[-1]} is a list of Kubernetes objects, found {_type_name(contents)}")
    for index, content in enumerate(contents):
        yield from _object(source, content, msgspec.structs.replace(place, path=(*place.path, index)))


def _object(source: str, content: object, place: Place) -> Iterator[Document]:
    where = Document(source, {}, place).where
    if not isinstance(content, dict):
        raise InputError(f"{where()}: expected a Kubernetes object, found {_type_name(content)}")
    kind = content.get("kind")
    if not isinstance(kind, str) or not kind:
        found = f"kind is {quote(kind)}" if kind is not None else "an object without kind"
        raise InputError(f"{where()}: not a Kubernetes object: {found}: {quote(content)}")
    if kind.endswith("List") and isinstance(content.get("items"), list):
        items = [_with_item_kind(content, item) for item in content["items"]]
        yield from _objects(source, items, msgspec.structs.replace(place, path=(*place.path, "items")))
    elif kind == "List" and content.get("items") is not None:
        found = _type_name(content["items"])
        raise InputError(f"{where(('items',))}: List: items is a list of Kubernetes objects, found {found}")
    elif not isinstance(content.get("metadata"), dict):
        found = f", found {quote(content['metadata'])}" if content.get("metadata") is not None else ""
        raise InputError(f"{where()}: {kind} without metadata: metadata.name is required{found}")
    else:
        yield Document(source, content, place)


def _with_item_kind(list_object: Json, item: Any) -> Any:
    """An item of a list such as a NodePoolList, whose items need not state their kind."""
    kind = list_object["kind"].removesuffix("List")
    if not isinstance(item, dict) or not kind:
        return item
    return {
        key: value for key, value in (("apiVersion", list_object.get("apiVersion")), ("kind", kind)) if value
    } | item
