"""The objects of the cluster, and the doorbells that their changes ring. Times are seconds."""

from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

import msgspec

from forwarder.capacity_buffers import CAPACITY_BUFFER, CapacityBuffers
from forwarder.change_log import ChangeLog
from forwarder.doorbells import (
    PODS,
    QueuedDoorbell,
    changes_room,
    doorbells_at_start,
    doorbells_for_change,
    drain_event_node,
    is_bound_now,
    is_claimed,
    is_closed,
    is_to_be_initialized,
    is_waiting,
    missing_step,
    pod_event_node,
)
from forwarder.kinds import WATCHED_KINDS, ClusterObject, Manifest, scalable_name
from forwarder.watcher import Bookmark, ListedPage, ListEnd, ObjectChange, WatchUpdate
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod

# A kind without any update for this long, more than two missed bookmarks, is not synced.
STALE_SECONDS = 150.0


class CacheUpdate(msgspec.Struct, frozen=True):
    """What an update rings. ``pod_event_nodes``: nodes that a pod left, or on which it was terminated; ``bound_nodes``:
    nodes to which one was bound.
    ``closed_nodes``: those that are drained from now on; ``drain_event_nodes``: on which the drain may go on.
    ``open_nodes``: those that pods may come to from now on, before they are initialized.
    ``unready_nodes``: those that are open from now on, and not registered yet, or held.

    ``buffers_have_other_room``: there are CapacityBuffers, and nodes have more or less room for them than before.
    """

    doorbells: frozenset[QueuedDoorbell] = frozenset()
    pod_event_nodes: frozenset[str] = frozenset()
    buffers_have_other_room: bool = False
    closed_nodes: frozenset[str] = frozenset()
    drain_event_nodes: frozenset[str] = frozenset()
    bound_nodes: frozenset[str] = frozenset()
    open_nodes: frozenset[str] = frozenset()
    unready_nodes: frozenset[str] = frozenset()


NEVER_CONTACTED = -float("inf")


class KindContact(msgspec.Struct, frozen=True):
    """The last list, event or bookmark of a kind. ``at``: when it came, once the first list was at its end."""

    resource_version: str = "0"
    at: float = NEVER_CONTACTED


class ObjectCache:
    """Objects by kind and uid. One thread writes; others read copies."""

    def __init__(self) -> None:
        self.buffers = CapacityBuffers()
        self.changes = ChangeLog()
        self._objects: dict[str, dict[str, ClusterObject]] = {}
        self._contacts: dict[str, KindContact] = {kind.name: KindContact() for kind in WATCHED_KINDS}
        self._waiting: set[str] = set()
        self._claimed: set[str] = set()
        self._closed: set[str] = set()
        self._node_uids: dict[str, str] = {}
        self._started = False

    def apply(self, update: WatchUpdate, now: float) -> CacheUpdate:
        """Apply an update; what it rings. Nothing rings before every kind was listed once."""
        if update.kind not in self._contacts:
            return CacheUpdate()
        rung = self._rung(update)
        self._contacts[update.kind] = KindContact(update.resource_version, self._contact_at(update, now))
        if update.kind == CAPACITY_BUFFER:
            self._expect_scalables()
        if self._started:
            return rung
        self._started = all(contact.at > NEVER_CONTACTED for contact in self._contacts.values())
        return CacheUpdate(self.doorbells_of_all()) if self._started else CacheUpdate()

    def has_pending_pods(self) -> bool:
        """Whether a pod is unschedulable; False before every kind was listed once."""
        return self._started and bool(self._waiting)

    def unready(self, names: Collection[str]) -> frozenset[str]:
        """Those of the nodes that are open, and not registered yet, or held."""
        nodes = self._objects.get("Node", {})
        return frozenset(name for name in names if missing_step(nodes.get(self._node_uids.get(name, ""))))

    def is_synced(self, now: float) -> bool:
        """Whether every kind was listed and its watch is up to date."""
        return self._started and all(now - contact.at <= STALE_SECONDS for contact in self._contacts.values())

    def contacts(self) -> Mapping[str, KindContact]:
        """The last contact of each kind that has been listed."""
        return {kind: contact for kind, contact in list(self._contacts.items()) if contact.at > NEVER_CONTACTED}

    def pods(self) -> tuple[Pod, ...]:
        return tuple(found for found in self.of_kind("Pod") if isinstance(found, Pod))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(found for found in self.of_kind("Node") if isinstance(found, Node))

    def of_kind(self, kind: str) -> list[ClusterObject]:
        return list(self._objects.get(kind, {}).values())

    def get(self, kind: str, uid: str) -> ClusterObject | None:
        return self._objects.get(kind, {}).get(uid)

    def _contact_at(self, update: WatchUpdate, now: float) -> float:
        """A kind is known from the end of its first list on; until the end of a later one it is as old as it was."""
        before = self._contacts[update.kind].at
        known = before > NEVER_CONTACTED and not isinstance(update, ListedPage)
        return now if known or isinstance(update, ListEnd) else before

    def doorbells_of_all(self) -> frozenset[QueuedDoorbell]:
        """For all objects whose changes may have been missed."""
        return doorbells_at_start(self._objects) | frozenset({PODS} if self.buffers.uids() else ())

    def _rung(self, update: WatchUpdate) -> CacheUpdate:
        match update:
            case Bookmark():
                return CacheUpdate()
            case ObjectChange():
                return self._set(update.kind, update.uid, update.object)
            case ListedPage():
                return _together(self._set(update.kind, found.metadata.uid, found) for found in update.objects)
            case ListEnd():
                gone = self._objects.setdefault(update.kind, {}).keys() - update.uids
                return _together([self._set(update.kind, uid, None) for uid in gone])
            case _:
                assert_never(update)

    def _set(self, kind: str, uid: str, after: ClusterObject | None) -> CacheUpdate:
        objects = self._objects.setdefault(kind, {})
        before = objects.get(uid)
        if after is None:
            objects.pop(uid, None)
        elif before is None or not _is_same(before, after):
            objects[uid] = after
        else:
            return CacheUpdate()
        self._index(uid, before, after)
        buffers = self._set_buffers(kind, uid, before, after)
        self.changes.add(kind, uid)
        doorbells = doorbells_for_change(before, after) | frozenset({PODS} if buffers else ())
        if after is None:
            doorbells |= self._doorbells_of_released_class(before)
        nodes = frozenset({pod_event_node(before, after)} & self._claimed)
        has_other_room = bool(self.buffers.uids()) and (bool(nodes) or changes_room(before, after))
        drains = frozenset({drain_event_node(before, after)} & self._closed)
        closes = is_closed(after) and not is_closed(before)
        closed = frozenset({after.metadata.name} if closes and after is not None else ())
        bound = frozenset(nodes if is_bound_now(before, after) else ()) - self._closed
        opens = is_to_be_initialized(after) and not is_to_be_initialized(before)
        opened = frozenset({after.metadata.name} if opens and after is not None else ())
        is_unready = missing_step(after) not in ("", missing_step(before))
        unready = frozenset({after.metadata.name} if is_unready and after is not None else ())
        return CacheUpdate(
            doorbells, nodes - self._closed - bound, has_other_room, closed, drains, bound, opened, unready
        )

    def _doorbells_of_released_class(self, gone: ClusterObject | None) -> frozenset[QueuedDoorbell]:
        """For the EC2NodeClass that only waited for the NodeClaim that is gone, its last one, to be deleted itself."""
        if not isinstance(gone, NodeClaim) or not gone.is_managed:
            return frozenset()
        name = gone.node_class_ref.name
        classes = (found for found in self.of_kind("EC2NodeClass") if found.metadata.name == name)
        if not any(found.metadata.deletion_timestamp for found in classes):
            return frozenset()
        claims = (found for found in self.of_kind("NodeClaim") if isinstance(found, NodeClaim))
        is_used = any(claim.is_managed and claim.node_class_ref.name == name for claim in claims)
        return frozenset() if is_used else frozenset({QueuedDoorbell("catalog", "nodeclasses", name)})

    def _index(self, uid: str, before: ClusterObject | None, after: ClusterObject | None) -> None:
        """Keep the sets of unschedulable pods, of nodes with a claim and of those that are drained up to date."""
        if is_waiting(after):
            self._waiting.add(uid)
        else:
            self._waiting.discard(uid)
        if isinstance(after, Node):
            self._node_uids[after.name] = uid
            _keep(self._claimed, after.name, is_in=is_claimed(after))
            _keep(self._closed, after.name, is_in=is_closed(after))
        # A list shows the next Node of a name before its end shows that the one before is gone.
        elif isinstance(before, Node) and self._node_uids.get(before.name) == uid:
            del self._node_uids[before.name]
            self._claimed.discard(before.name)
            self._closed.discard(before.name)

    def _set_buffers(
        self, kind: str, uid: str, before: ClusterObject | None, after: ClusterObject | None
    ) -> frozenset[str]:
        """The uids of CapacityBuffers that ask for something else than before."""
        manifest = after if isinstance(after, Manifest) else None
        if kind == CAPACITY_BUFFER:
            return self.buffers.set_buffer(uid, manifest)
        known = manifest or before
        if not isinstance(known, Manifest):
            return frozenset()
        changed = self.buffers.set_scalable(kind, known.metadata, manifest)
        for buffer in changed:
            self.changes.add(CAPACITY_BUFFER, buffer)
        return changed

    def _expect_scalables(self) -> None:
        """Kinds that no CapacityBuffer refers to any more are forgotten; those that one does are not synced yet."""
        wanted = {scalable_name(kind, namespace) for kind, namespace in self.buffers.scalable_kinds()}
        for kind in wanted - self._contacts.keys():
            self._contacts[kind] = KindContact()
        for kind in self._contacts.keys() - wanted - _ALWAYS:
            del self._contacts[kind]
            self._objects.pop(kind, None)
            self.buffers.forget_scalables(kind)


_ALWAYS = frozenset(kind.name for kind in WATCHED_KINDS)


def _together(updates: Iterable[CacheUpdate]) -> CacheUpdate:
    doorbells: set[QueuedDoorbell] = set()
    nodes: set[str] = set()
    closed: set[str] = set()
    drains: set[str] = set()
    bound: set[str] = set()
    opened: set[str] = set()
    unready: set[str] = set()
    has_other_room = False
    for update in updates:
        doorbells |= update.doorbells
        nodes |= update.pod_event_nodes
        has_other_room |= update.buffers_have_other_room
        closed |= update.closed_nodes
        drains |= update.drain_event_nodes
        bound |= update.bound_nodes
        opened |= update.open_nodes
        unready |= update.unready_nodes
    return CacheUpdate(
        frozenset(doorbells), frozenset(nodes), has_other_room, frozenset(closed), frozenset(drains),
        frozenset(bound), frozenset(opened), frozenset(unready),
    )  # fmt: skip


def _keep(names: set[str], name: str, *, is_in: bool) -> None:
    if is_in:
        names.add(name)
    else:
        names.discard(name)


def _is_same(before: ClusterObject, after: ClusterObject) -> bool:
    """Whether nothing has changed that is kept; the resourceVersion of a Node grows with each of its heartbeats.

    Where etcd was restored they begin lower again, and no planner reads a state with an object of a later version than
    its kind has.
    """
    if _version(after) < _version(before):
        return False
    metadata = msgspec.structs.replace(before.metadata, resource_version=after.metadata.resource_version)
    return msgspec.structs.replace(before, metadata=metadata) == after


def _version(found: ClusterObject) -> int:
    version = found.metadata.resource_version
    return int(version) if version.isdecimal() else 0
