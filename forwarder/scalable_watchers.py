"""Watches what CapacityBuffers refer to, each kind and namespace while a buffer refers to it."""

import threading
from collections.abc import Callable

from forwarder.kinds import WatchedKind, scalable_kind


class ScalableWatchers:
    """``start`` begins to watch a kind until the event is set."""

    def __init__(self, start: Callable[[WatchedKind, threading.Event], None]) -> None:
        self._start = start
        self._running: dict[tuple[str, str], threading.Event] = {}

    def watch(self, wanted: frozenset[tuple[str, str]]) -> None:
        """Watch these kinds and namespaces, and no others."""
        for key in self._running.keys() - wanted:
            self._running.pop(key).set()
        for kind, namespace in sorted(wanted - self._running.keys()):
            stopping = threading.Event()
            self._running[kind, namespace] = stopping
            self._start(scalable_kind(kind, namespace), stopping)
