"""Following a kind through lost connections, expired history and an API server that is away."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client.configuration import Configuration

from forwarder import watcher
from forwarder.views import NodeView
from forwarder.watcher import WATCHED_KINDS, Bookmark, ListResult, ObjectChange, WatchUpdate, list_and_watch
from spotwright.adapters.kubernetes.connection import Connection
from tests.forwarder import objects

NODES = WATCHED_KINDS[0]

type Step = list[dict[str, Any]] | int


@dataclass
class ApiServer:
    """Answers lists from ``nodes`` and each watch with the next of ``watches``: events, or a status.

    When the script is over, ``done`` is set and watches stay open without a word.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 10
    watches: list[Step] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    page_size: int = 500
    lists_refused: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    close: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str) -> tuple[int, list[dict[str, Any]]]:
        query = {key: values[0] for key, values in parse_qs(urlsplit(path).query).items()}
        if "watch" in query:
            self.asked.append(f"watch {query['resourceVersion']}")
            return self._watch()
        if self.lists_refused:
            self.lists_refused -= 1
            return 503, [{"message": "away"}]
        self.asked.append(f"list {query.get('continue', '')}".strip())
        return 200, [self._page(int(query.get("continue", "0")))]

    def _watch(self) -> tuple[int, list[dict[str, Any]]]:
        if not self.watches:
            self.done.set()
            self.close.wait(10)
            return 200, []
        step = self.watches.pop(0)
        return (step, [{"message": "no", "reason": "Expired"}]) if isinstance(step, int) else (200, step)

    def _page(self, start: int) -> dict[str, Any]:
        found = list(self.nodes.values())[start : start + self.page_size]
        metadata = {"resourceVersion": str(self.version)}
        if start + self.page_size < len(self.nodes):
            metadata["continue"] = str(start + self.page_size)
        return {"items": found, "metadata": metadata}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ApiServer], list[WatchUpdate]]]:
    """Runs the script to its end and returns everything that was told."""
    monkeypatch.setattr(watcher, "FIRST_PAUSE_SECONDS", 0.01)
    servers: list[tuple[ThreadingHTTPServer, ApiServer]] = []

    def run(api: ApiServer) -> list[WatchUpdate]:
        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, lines = api.answer(self.path)
                self.send_response(status)
                self.end_headers()
                for line in lines:
                    self.wfile.write(json.dumps(line).encode() + b"\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
        servers.append((server, api))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        watch_updates: list[WatchUpdate] = []
        stopping = threading.Event()
        connection = Connection(Configuration(host=f"http://127.0.0.1:{server.server_address[1]}"))
        thread = threading.Thread(target=list_and_watch, args=(connection, NODES, watch_updates.append, stopping))
        thread.start()
        assert api.done.wait(10), api.asked
        stopping.set()
        api.close.set()
        thread.join(10)
        assert not thread.is_alive()
        return watch_updates

    yield run
    for server, _ in servers:
        server.shutdown()
        server.server_close()


def event(kind: str, value: dict[str, Any], version: int) -> dict[str, Any]:
    return {"type": kind, "object": value | {"metadata": value["metadata"] | {"resourceVersion": str(version)}}}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def seen(watch_updates: list[WatchUpdate]) -> list[tuple[str, bool]]:
    return [
        (watch_news.uid, watch_news.view is not None)
        for watch_news in watch_updates
        if isinstance(watch_news, ObjectChange)
    ]


def test_a_watch_goes_on_where_it_ended(serve: Callable[[ApiServer], list[WatchUpdate]]) -> None:
    api = ApiServer(
        watches=[[event("ADDED", objects.node("a"), 11), bookmark(15)], [event("DELETED", objects.node("a"), 16)]]
    )
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10", "watch 15", "watch 16"]
    assert seen(watch_updates) == [("uid-a", True), ("uid-a", False)]


def test_pages_are_read_to_the_end(serve: Callable[[ApiServer], list[WatchUpdate]]) -> None:
    api = ApiServer(nodes={name: objects.node(name) for name in "abcde"}, page_size=2)
    watch_updates = serve(api)
    (listed,) = (watch_news for watch_news in watch_updates if isinstance(watch_news, ListResult))
    assert set(listed.views) == {f"uid-{name}" for name in "abcde"}
    assert api.asked[:3] == ["list", "list 2", "list 4"]


def test_expired_history_is_listed_anew(serve: Callable[[ApiServer], list[WatchUpdate]]) -> None:
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    api = ApiServer(watches=[[event("ADDED", objects.node("a"), 11), gone], 410])
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10", "list", "watch 10", "list", "watch 10"]
    assert sum(isinstance(watch_news, ListResult) for watch_news in watch_updates) == 3


def test_an_api_server_that_is_away_is_asked_again(serve: Callable[[ApiServer], list[WatchUpdate]]) -> None:
    api = ApiServer(lists_refused=3, watches=[503, [bookmark(12)]])
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10", "watch 10", "watch 12"]
    assert any(isinstance(watch_news, Bookmark) for watch_news in watch_updates)


def test_views_keep_what_matters(serve: Callable[[ApiServer], list[WatchUpdate]]) -> None:
    watch_updates = serve(ApiServer(watches=[[event("MODIFIED", objects.node("a", taints=("x",)), 11)]]))
    (change,) = (watch_news for watch_news in watch_updates if isinstance(watch_news, ObjectChange))
    assert isinstance(change.view, NodeView)
    assert change.view.taints == (("x", "", "NoSchedule"),)
    assert change.view.allocatable["cpu"] == 1930
