"""What the forwarder knows of the cluster, and what rings when that changes. Time comes in as seconds."""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from forwarder.doorbells import QueuedDoorbell, doorbells_at_start, doorbells_for_change, is_claimed, pod_event_node
from forwarder.views import NodeView, PodView, View
from forwarder.watcher import WATCHED_KINDS, Bookmark, ListResult, ObjectChange, WatchNews

# A kind of which nothing was heard for this long is unknown: two bookmarks missed, and some.
STALE_SECONDS = 150.0


class CacheUpdate(msgspec.Struct, frozen=True):
    """What a piece of news rings. ``pod_event_nodes``: nodes that a pod came to, left or ended on."""

    doorbells: frozenset[QueuedDoorbell] = frozenset()
    pod_event_nodes: frozenset[str] = frozenset()


class ObjectCache:
    """Views by kind and uid. One thread writes; others read ``views`` copies by ``snapshot``."""

    def __init__(self) -> None:
        self._views: dict[str, dict[str, View]] = {}
        self._contact: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._claimed: set[str] = set()
        self._started = False

    def apply(self, news: WatchNews, now: float) -> CacheUpdate:
        """Take in a piece of news; what it rings. Nothing rings before every kind was listed once."""
        self._contact[news.kind] = now
        match news:
            case Bookmark():
                return CacheUpdate()
            case ObjectChange():
                heard = self._update(news.kind, news.uid, news.view)
            case ListResult():
                heard = self._replace(news)
            case _:
                assert_never(news)
        if self._started:
            return heard
        self._started = all(kind.name in self._views for kind in WATCHED_KINDS)
        return CacheUpdate(doorbells_at_start(self._views)) if self._started else CacheUpdate()

    def has_pending_pods(self) -> bool:
        """Does any pod wait for a node? Nobody knows before every kind was listed once."""
        return self._started and bool(self._waiting)

    def is_synced(self, now: float) -> bool:
        """Has every kind been listed, and been heard of lately?"""
        return self._started and all(now - at <= STALE_SECONDS for at in self._contact.values())

    def last_contact(self) -> Mapping[str, float]:
        """When each kind was last heard of."""
        return dict(self._contact)

    def pods(self) -> tuple[PodView, ...]:
        return tuple(view for view in list(self._views.get("Pod", {}).values()) if isinstance(view, PodView))

    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(view for view in list(self._views.get("Node", {}).values()) if isinstance(view, NodeView))

    def _replace(self, news: ListResult) -> CacheUpdate:
        """A new list: only what differs from what was known has happened."""
        known = self._views.setdefault(news.kind, {})
        heard = [self._update(news.kind, uid, view) for uid, view in news.views.items()]
        heard += [self._update(news.kind, uid, None) for uid in known.keys() - news.views.keys()]
        return CacheUpdate(
            frozenset().union(*(cache_update.doorbells for cache_update in heard)),
            frozenset().union(*(cache_update.pod_event_nodes for cache_update in heard)),
        )

    def _update(self, kind: str, uid: str, after: View | None) -> CacheUpdate:
        known = self._views.setdefault(kind, {})
        before = known.get(uid)
        if after is None:
            known.pop(uid, None)
        else:
            known[uid] = after
        self._index(uid, before, after)
        return CacheUpdate(
            doorbells_for_change(before, after), frozenset({pod_event_node(before, after)} & self._claimed)
        )

    def _index(self, uid: str, before: View | None, after: View | None) -> None:
        """Keep up which pods wait and which nodes belong to claims, so that nobody has to search."""
        if isinstance(after, PodView) and after.unschedulable:
            self._waiting.add(uid)
        else:
            self._waiting.discard(uid)
        if isinstance(before, NodeView):
            self._claimed.discard(before.name)
        if isinstance(after, NodeView) and is_claimed(after):
            self._claimed.add(after.name)
