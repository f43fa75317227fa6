"""Watches one kind: list, watch from there, watch again, and list again when the version has expired."""

import logging
import random
import threading
from collections.abc import Callable, Iterator

import msgspec

from forwarder.kinds import ClusterObject, WatchedKind
from forwarder.sharing import share_equal_parts
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.adapters.kubernetes.watch import Expired, Silent, list_pages, resource_version, watch_objects
from spotwright.errors import ApiError, NotFound, Throttled
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# How often the API server is asked for a kind whose definition is missing.
MISSING_PAUSE_SECONDS = 60.0
# One list is read at a time: a page of each kind at once would be most of the memory that the forwarder has.
_LISTING = threading.Lock()

logger = logging.getLogger("forwarder")


class ListedPage(msgspec.Struct, frozen=True):
    """Some of the objects of a kind."""

    kind: str
    objects: tuple[ClusterObject, ...]
    resource_version: str


class ListEnd(msgspec.Struct, frozen=True):
    """All pages of a list have been reported. ``uids``: of all objects of the kind."""

    kind: str
    uids: frozenset[str]
    resource_version: str


class ObjectChange(msgspec.Struct, frozen=True):
    """An object as it is now; ``object`` None = it is deleted."""

    kind: str
    uid: str
    object: ClusterObject | None
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True):
    """The kind is up to date: a bookmark of the API server, or a new watch."""

    kind: str
    resource_version: str


type WatchUpdate = ListedPage | ListEnd | ObjectChange | Bookmark


def list_and_watch(
    connection: Connection, kind: WatchedKind, report: Callable[[WatchUpdate], None], stopping: threading.Event
) -> None:
    """Report every change of ``kind`` until ``stopping``. Errors are logged and tried again with growing pauses.

    After a watch that opened and said nothing before it failed, the kind is listed: where no watch says anything any
    more, each that opens would be a contact.
    """
    version, pause, is_silent = "", FIRST_PAUSE_SECONDS, False

    def opened() -> None:
        # Not before: an attempt that fails is no contact with the API server.
        nonlocal is_silent
        is_silent = True
        report(Bookmark(kind.name, version))

    while not stopping.is_set():
        is_silent, stated_seconds = False, 0
        try:
            version = version or _list(connection, kind, report)
            for reported_version in _watch(connection, kind, version, report, opened):
                version, pause, is_silent = reported_version, FIRST_PAUSE_SECONDS, False
                if stopping.is_set():
                    return
            pause = FIRST_PAUSE_SECONDS
        except Expired:
            version = ""
        except Silent as silence:
            log_line(logger, log_lines.WATCH_SILENT, kind=kind.name, details=str(silence))
            # It lasted, so that another one at once asks for little.
            version, pause = "" if is_silent else version, FIRST_PAUSE_SECONDS
        except ApiError as failure:
            if isinstance(failure, NotFound) and kind.optional:
                report(ListEnd(kind.name, frozenset(), "0"))
                version, pause = "", MISSING_PAUSE_SECONDS
            else:
                log_line(logger, log_lines.WATCH_FAILED, kind=kind.name, error=str(failure))
                version = "" if is_silent else version
                stated_seconds = failure.retry_after_seconds if isinstance(failure, Throttled) else 0
        stopping.wait(min(stated_seconds, LONGEST_PAUSE_SECONDS) + random.uniform(pause / 2, pause))
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)


def _list(connection: Connection, kind: WatchedKind, report: Callable[[WatchUpdate], None]) -> str:
    """Report all objects, a page at a time; returns the resourceVersion to watch from."""
    uids: set[str] = set()
    version = ""
    with _LISTING:
        for page in list_pages(connection, kind.path):
            objects = tuple(share_equal_parts(kind.decode(content)) for content in page.items)
            uids.update(found.metadata.uid for found in objects)
            version = page.resource_version
            report(ListedPage(kind.name, objects, version))
    report(ListEnd(kind.name, frozenset(uids), version))
    return version


def _watch(
    connection: Connection,
    kind: WatchedKind,
    version: str,
    report: Callable[[WatchUpdate], None],
    opened: Callable[[], None],
) -> Iterator[str]:
    """Report changes; yields the resourceVersion up to which all are reported."""
    for event in watch_objects(connection, kind.path, version, opened=opened):
        if event.type == "BOOKMARK":
            version = resource_version(event.object)
            report(Bookmark(kind.name, version))
        else:
            changed = share_equal_parts(kind.decode(event.object))
            version = changed.metadata.resource_version
            current = None if event.type == "DELETED" else changed
            report(ObjectChange(kind.name, changed.metadata.uid, current, version))
        yield version
    report(Bookmark(kind.name, version))
