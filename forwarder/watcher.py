"""Follows one kind for ever: list, watch from there, watch again, list again when history is gone."""

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
    """A kind that is followed, and how its objects are seen."""

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
    """One object as it is now; None = it is gone."""

    kind: str
    uid: str
    view: View | None


class Bookmark(msgspec.Struct, frozen=True):
    """The API server said that nothing else happened (a bookmark), or renewed a watch."""

    kind: str


type WatchNews = ListResult | ObjectChange | Bookmark


def list_and_watch(
    connection: Connection, kind: WatchedKind, report: Callable[[WatchNews], None], stopping: threading.Event
) -> None:
    """Tell everything about ``kind`` until ``stopping``. Trouble is logged and tried again, ever more slowly."""
    version, pause = "", FIRST_PAUSE_SECONDS
    while not stopping.is_set():
        try:
            version = version or _list(connection, kind, report)
            for told_up_to in _watch(connection, kind, version, report):
                version, pause = told_up_to, FIRST_PAUSE_SECONDS
                if stopping.is_set():
                    return
            pause = FIRST_PAUSE_SECONDS
        except Expired:
            version = ""
        except ApiError as failure:
            log_line(logger, log_lines.WATCH_FAILED, kind=kind.name, error=str(failure))
        stopping.wait(random.uniform(pause / 2, pause))
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)


def _list(connection: Connection, kind: WatchedKind, tell: Callable[[WatchNews], None]) -> str:
    objects, version = list_objects(connection, kind.api_version, kind.name)
    tell(ListResult(kind.name, {object_["metadata"]["uid"]: kind.view(object_) for object_ in objects}))
    return version


def _watch(connection: Connection, kind: WatchedKind, version: str, tell: Callable[[WatchNews], None]) -> Iterator[str]:
    """Tell changes; yields the version up to which everything was told."""
    tell(Bookmark(kind.name))
    for change in watch_objects(connection, kind.api_version, kind.name, version):
        if change.type == "BOOKMARK":
            tell(Bookmark(kind.name))
        else:
            gone = change.type == "DELETED"
            tell(ObjectChange(kind.name, change.object["metadata"]["uid"], None if gone else kind.view(change.object)))
        yield change.resource_version
    tell(Bookmark(kind.name))
