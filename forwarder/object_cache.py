"""The forwarder's view of the cluster, and the doorbells that its changes ring. Times are seconds."""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from forwarder.doorbells import QueuedDoorbell, doorbells_at_start, doorbells_for_change, is_claimed, pod_event_node
from forwarder.views import NodeView, PodView, View
from forwarder.watcher import WATCHED_KINDS, Bookmark, ListResult, ObjectChange, WatchUpdate

# A kind without any update for this long, more than two missed bookmarks, is not synced.
STALE_SECONDS = 150.0


class CacheUpdate(msgspec.Struct, frozen=True):
    """What an update rings. ``pod_event_nodes``: nodes that a pod came to or left, or on which it was terminated."""

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

    def apply(self, update: WatchUpdate, now: float) -> CacheUpdate:
        """Apply an update; what it rings. Nothing rings before every kind was listed once."""
        self._contact[update.kind] = now
        match update:
            case Bookmark():
                return CacheUpdate()
            case ObjectChange():
                cache_update = self._update(update.kind, update.uid, update.view)
            case ListResult():
                cache_update = self._replace(update)
            case _:
                assert_never(update)
        if self._started:
            return cache_update
        self._started = all(kind.name in self._views for kind in WATCHED_KINDS)
        return CacheUpdate(doorbells_at_start(self._views)) if self._started else CacheUpdate()

    def has_pending_pods(self) -> bool:
        """Whether a pod is unschedulable; False before every kind was listed once."""
        return self._started and bool(self._waiting)

    def is_synced(self, now: float) -> bool:
        """Whether every kind was listed and its watch is up to date."""
        return self._started and all(now - at <= STALE_SECONDS for at in self._contact.values())

    def last_contact(self) -> Mapping[str, float]:
        """When each kind was last updated."""
        return dict(self._contact)

    def pods(self) -> tuple[PodView, ...]:
        return tuple(view for view in list(self._views.get("Pod", {}).values()) if isinstance(view, PodView))

    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(view for view in list(self._views.get("Node", {}).values()) if isinstance(view, NodeView))

    def _replace(self, update: ListResult) -> CacheUpdate:
        """Apply a new list: its differences to the present views are the changes."""
        views = self._views.setdefault(update.kind, {})
        updates = [self._update(update.kind, uid, view) for uid, view in update.views.items()]
        updates += [self._update(update.kind, uid, None) for uid in views.keys() - update.views.keys()]
        return CacheUpdate(
            frozenset().union(*(cache_update.doorbells for cache_update in updates)),
            frozenset().union(*(cache_update.pod_event_nodes for cache_update in updates)),
        )

    def _update(self, kind: str, uid: str, after: View | None) -> CacheUpdate:
        views = self._views.setdefault(kind, {})
        before = views.get(uid)
        if after is None:
            views.pop(uid, None)
        else:
            views[uid] = after
        self._index(uid, before, after)
        return CacheUpdate(
            doorbells_for_change(before, after), frozenset({pod_event_node(before, after)} & self._claimed)
        )

    def _index(self, uid: str, before: View | None, after: View | None) -> None:
        """Keep the sets of unschedulable pods and of nodes with a claim up to date."""
        if isinstance(after, PodView) and after.unschedulable:
            self._waiting.add(uid)
        else:
            self._waiting.discard(uid)
        if isinstance(before, NodeView):
            self._claimed.discard(before.name)
        if isinstance(after, NodeView) and is_claimed(after):
            self._claimed.add(after.name)
