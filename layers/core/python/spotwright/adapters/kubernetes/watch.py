"""Listing the objects of a kind page by page, and watching their changes. No object is decoded here.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import random
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import msgspec
import urllib3

from spotwright.adapters.kubernetes.connection import Connection, status_error
from spotwright.adapters.kubernetes.page_limit import PageReader
from spotwright.errors import Conflict, Unavailable

# The API server ends a watch after this long; jittered, so that watches do not end together.
WATCH_SECONDS = 240
# Bookmarks come about once a minute: after this time without any event the connection may be dead.
SILENCE_SECONDS = 100.0


class Expired(Conflict):
    """The API server no longer has the changes since that version: list again."""


class Silent(Unavailable):
    """A watch said nothing for so long that it may be dead."""


class Page(msgspec.Struct, frozen=True):
    """A page of a list. ``items``: the JSON of each object; ``resource_version``: to watch from after the last page."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


class WatchEvent(msgspec.Struct, frozen=True):
    """A watch event. ``type``: ADDED, MODIFIED, DELETED or BOOKMARK; ``object``: its JSON, of a bookmark a version."""

    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = ()


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _ListMeta


class _Status(msgspec.Struct, frozen=True):
    code: int = 500
    reason: str = ""
    message: str = ""


def list_pages(connection: Connection, path: str) -> Iterator[Page]:
    """All objects of a collection. Raises ApiError, and Expired between two pages.

    Without ``resourceVersion``, so that a list is never older than what was seen before it. "0" would spare etcd, but
    many API servers then ignore ``limit``, and 50,000 pods come in one answer.
    """
    reader, token = PageReader(connection, path, {}), ""
    while True:
        page = _read_page(reader, path, token)
        yield Page(page.items or (), page.metadata.resource_version)
        token = page.metadata.continue_token
        if not token:
            return


def watch_objects(
    connection: Connection, path: str, version: str, *, opened: Callable[[], object]
) -> Iterator[WatchEvent]:
    """Changes after ``version``, until the API server ends the watch. Raises Expired, Silent, and Unavailable.

    Silent: no event for SILENCE_SECONDS. The API server sends bookmarks about once a minute, but none of a kind of
    which it has seen no change since it started. A watch that ends sooner without any event has failed: it lasts for
    minutes.

    ``opened``: called when the API server has accepted the watch, before any change.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(round(WATCH_SECONDS * random.uniform(0.8, 1.2))),
    }
    path = f"{path}?{urlencode(query)}"
    try:
        response = connection.stream("GET", path, read_seconds=SILENCE_SECONDS)
        try:
            opened()
            is_silent = True
            for line in _lines(response):
                is_silent = False
                yield _decode_event(path, line)
            if is_silent:
                raise Unavailable(f"watch {path}: it ended without an event")
        finally:
            response.close()
    except urllib3.exceptions.ReadTimeoutError as error:
        raise Silent(f"watch {path}: no event for {SILENCE_SECONDS:.0f} s") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"watch {path}: {error}", code=type(error).__name__) from error
    except Conflict as error:
        raise Expired(str(error), code=error.code) from error


def resource_version(obj: msgspec.Raw) -> str:
    """The version of a bookmark, from which a watch can go on. Raises Unavailable where it states none."""
    try:
        version = msgspec.json.decode(obj, type=_Versioned).metadata.resource_version
    except msgspec.DecodeError:
        version = ""
    if not version:
        raise Unavailable("a bookmark states no resourceVersion")
    return version


def _read_page(reader: PageReader, path: str, token: str) -> _List:
    try:
        return msgspec.json.decode(reader.read(token), type=_List)
    except msgspec.DecodeError as error:
        raise Unavailable(f"GET {path}: the answer is not a list of objects: {error}") from error
    except Conflict as error:
        raise Expired(str(error), code=error.code) from error


def _decode_event(path: str, line: bytes) -> WatchEvent:
    try:
        change = msgspec.json.decode(line, type=WatchEvent)
        if change.type == "ERROR":
            status = msgspec.json.decode(change.object, type=_Status)
            raise status_error(path, status.code or 500, msgspec.structs.asdict(status))
    except msgspec.DecodeError as error:
        raise Unavailable(f"watch {path}: a line is not an event: {error}") from error
    return change


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Lines of a stream. Parts of a line that is longer than a chunk are joined once."""
    parts: list[bytes] = []
    for chunk in response.stream(65536, decode_content=True):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for following in others:
            line = b"".join(parts)
            if line.strip():
                yield line
            parts = [following]
