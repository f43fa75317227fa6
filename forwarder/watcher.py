"""Watches one kind: list, watch from there, watch again, and list again when the version has expired."""

import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping

import msgspec

from forwarder.views import View, node_view, nodeclaim_view, nodeclass_view, nodepool_view, pod_view
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.adapters.kubernetes.watch import Expired, list_objects, watch_objects
from spotwright.errors import ApiError
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0

logger = logging.getLogger("forwarder")


class WatchedKind(msgspec.Struct, frozen=True):
    """A kind that is watched, and the function that makes views of its objects."""

    api_version: str
    name: str
    view: Callable[[Mapping[str, object]], View]


WATCHED_KINDS = (
    WatchedKind("v1", "Node", node_view),
    WatchedKind("karpenter.sh/v1", "NodeClaim", nodeclaim_view),
    WatchedKind("karpenter.sh/v1", "NodePool", nodepool_view),
    WatchedKind("karpenter.k8s.aws/v1", "EC2NodeClass", nodeclass_view),
    WatchedKind("v1", "Pod", pod_view),
)


class ListResult(msgspec.Struct, frozen=True):
    """All objects of a kind, keyed by uid."""

    kind: str
    views: dict[str, View]


class ObjectChange(msgspec.Struct, frozen=True):
    """One object as it is now; ``view`` None = it is deleted."""

    kind: str
    uid: str
    view: View | None


class Bookmark(msgspec.Struct, frozen=True):
    """The kind is up to date: a bookmark of the API server, or a new watch."""

    kind: str


type WatchUpdate = ListResult | ObjectChange | Bookmark


def list_and_watch(
    connection: Connection, kind: WatchedKind, report: Callable[[WatchUpdate], None], stopping: threading.Event
) -> None:
    """Report every change of ``kind`` until ``stopping``. Errors are logged and tried again with growing pauses."""
    version, pause = "", FIRST_PAUSE_SECONDS
    while not stopping.is_set():
        try:
            version = version or _list(connection, kind, report)
            for reported_version in _watch(connection, kind, version, report):
                version, pause = reported_version, FIRST_PAUSE_SECONDS
                if stopping.is_set():
                    return
            pause = FIRST_PAUSE_SECONDS
        except Expired:
            version = ""
        except ApiError as failure:
            log_line(logger, log_lines.WATCH_FAILED, kind=kind.name, error=str(failure))
        stopping.wait(random.uniform(pause / 2, pause))
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)


def _list(connection: Connection, kind: WatchedKind, report: Callable[[WatchUpdate], None]) -> str:
    objects, version = list_objects(connection, kind.api_version, kind.name)
    report(ListResult(kind.name, {object_["metadata"]["uid"]: kind.view(object_) for object_ in objects}))
    return version


def _watch(
    connection: Connection, kind: WatchedKind, version: str, report: Callable[[WatchUpdate], None]
) -> Iterator[str]:
    """Report changes; yields the resourceVersion up to which all are reported."""
    report(Bookmark(kind.name))
    for change in watch_objects(connection, kind.api_version, kind.name, version):
        if change.type == "BOOKMARK":
            report(Bookmark(kind.name))
        else:
            is_deleted = change.type == "DELETED"
            report(
                ObjectChange(
                    kind.name, change.object["metadata"]["uid"], None if is_deleted else kind.view(change.object)
                )
            )
        yield change.resource_version
    report(Bookmark(kind.name))
