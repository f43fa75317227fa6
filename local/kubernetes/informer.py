"""Keeps a copy of all objects of one kind up to date, by list and watch."""

import sys
import threading
from collections.abc import Mapping
from typing import Any

import urllib3

from local.kubernetes.api import ApiError, ApiUnavailable, KubernetesApi

RETRY_SECONDS = 0.5


class Informer:
    """The objects under a list path, keyed by uid. `changed` is set whenever they change."""

    def __init__(self, api: KubernetesApi, path: str, changed: threading.Event) -> None:
        self._api = api
        self._path = path
        self._changed = changed
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._synced = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name=f"follow {path}", daemon=True).start()

    def objects(self) -> list[Mapping[str, Any]]:
        """What is known now; the first call waits for the first list."""
        self._synced.wait()
        with self._lock:
            return list(self._objects.values())

    def close(self) -> None:
        """Stop following; the thread ends with its watch."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow(self._list())
            except (ApiError, ApiUnavailable, urllib3.exceptions.HTTPError, ValueError) as error:
                if not self._closed.wait(RETRY_SECONDS):
                    print(f"{self._path}: listed again after {error}", file=sys.stderr, flush=True)

    def _list(self) -> str:
        answer = self._api.get(self._path)
        with self._lock:
            self._objects = {item["metadata"]["uid"]: item for item in answer["items"]}
        self._synced.set()
        self._changed.set()
        return str(answer["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        """Watch until the server ends it, again and again; returns when only a new list helps."""
        while not self._closed.is_set():
            for event in self._api.watch(self._path, version):
                value = event["object"]
                if event["type"] == "ERROR":
                    return
                version = value["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(event["type"], value)

    def _take(self, kind: str, value: Mapping[str, Any]) -> None:
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(value["metadata"]["uid"], None)
            else:
                self._objects[value["metadata"]["uid"]] = value
        self._changed.set()
