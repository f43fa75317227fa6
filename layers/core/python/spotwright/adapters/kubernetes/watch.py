"""Listing the objects of a kind, and watching their changes.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

from spotwright.adapters.kubernetes.connection import Connection, JsonObject, status_error
from spotwright.adapters.kubernetes.dynamic_client import PAGE_SIZE, collection_path
from spotwright.errors import Conflict, Unavailable

# The API server ends a watch after this long; jittered, so that watches do not end together.
WATCH_SECONDS = 240
# Bookmarks come about once a minute: after this time without any event the connection counts as dead.
SILENCE_SECONDS = 100.0


class Expired(Conflict):
    """The API server no longer has the changes since that version: list again."""


class WatchEvent(msgspec.Struct, frozen=True):
    """A watch event. ``type``: ADDED, MODIFIED, DELETED or BOOKMARK (then ``object`` has only a version)."""

    type: str
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


def list_objects(connection: Connection, api_version: str, kind: str) -> tuple[list[JsonObject], str]:
    """All objects of a kind, and the version to watch from. Raises ApiError, and Expired between two pages."""
    documents: list[JsonObject] = []
    query = {"limit": str(PAGE_SIZE)}
    while True:
        try:
            page = connection.call("GET", f"{collection_path(api_version, kind)}?{urlencode(query)}")
        except Conflict as error:
            raise Expired(str(error), code=error.code) from error
        documents.extend(page.get("items") or ())
        metadata = page.get("metadata") or {}
        if not metadata.get("continue"):
            return documents, str(metadata["resourceVersion"])
        query["continue"] = metadata["continue"]


def watch_objects(connection: Connection, api_version: str, kind: str, version: str) -> Iterator[WatchEvent]:
    """Changes after ``version``, until the API server ends the watch. Raises Expired, and Unavailable on silence."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(round(WATCH_SECONDS * random.uniform(0.8, 1.2))),
    }
    path = f"{collection_path(api_version, kind)}?{urlencode(query)}"
    try:
        response = connection.stream("GET", path, read_seconds=SILENCE_SECONDS)
        try:
            for line in _lines(response):
                yield _decode_event(path, line)
        finally:
            response.close()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"watch {kind}: {error}", code=type(error).__name__) from error
    except Conflict as error:
        raise Expired(str(error), code=error.code) from error


def _decode_event(path: str, line: bytes) -> WatchEvent:
    change = msgspec.json.decode(line, type=WatchEvent)
    if change.type == "ERROR":
        raise status_error(path, int(change.object.get("code") or 500), change.object)
    return change


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(65536, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
