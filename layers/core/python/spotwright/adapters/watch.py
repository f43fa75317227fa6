"""Listing a kind and following it from there.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

from spotwright.adapters.apply import PAGE, collection
from spotwright.adapters.connection import Connection, Document, failure
from spotwright.errors import Conflict, Unavailable

# The API server ends a watch after this long; jittered, so that watches do not end together.
WATCH_SECONDS = 240
# Bookmarks come about once a minute: longer silence means that the connection is dead.
SILENCE_SECONDS = 100.0


class Expired(Conflict):
    """The API server no longer has the history that was asked for: list again."""


class Change(msgspec.Struct, frozen=True):
    """One watch event. ``type``: ADDED, MODIFIED, DELETED or BOOKMARK (then ``object`` has only a version)."""

    type: str
    object: dict[str, Any]

    @property
    def version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


def listed(connection: Connection, api_version: str, kind: str) -> tuple[list[Document], str]:
    """Every object of a kind, and the version to watch from. Raises ApiError, Expired between two pages."""
    found: list[Document] = []
    query = {"limit": str(PAGE)}
    while True:
        try:
            page = connection.call("GET", f"{collection(api_version, kind)}?{urlencode(query)}")
        except Conflict as error:
            raise Expired(str(error), code=error.code) from error
        found.extend(page.get("items") or ())
        metadata = page.get("metadata") or {}
        if not metadata.get("continue"):
            return found, str(metadata["resourceVersion"])
        query["continue"] = metadata["continue"]


def changes(connection: Connection, api_version: str, kind: str, version: str) -> Iterator[Change]:
    """Changes after ``version``, until the API server ends the watch. Raises Expired, and Unavailable on silence."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(round(WATCH_SECONDS * random.uniform(0.8, 1.2))),
    }
    path = f"{collection(api_version, kind)}?{urlencode(query)}"
    try:
        response = connection.stream("GET", path, read_seconds=SILENCE_SECONDS)
        try:
            for line in _lines(response):
                yield _change(path, line)
        finally:
            response.close()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"watch {kind}: {error}", code=type(error).__name__) from error
    except Conflict as error:
        raise Expired(str(error), code=error.code) from error


def _change(path: str, line: bytes) -> Change:
    change = msgspec.json.decode(line, type=Change)
    if change.type == "ERROR":
        raise failure(path, int(change.object.get("code") or 500), change.object)
    return change


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(65536, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
