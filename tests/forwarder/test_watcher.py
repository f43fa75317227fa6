"""Following a kind through lost connections, expired history and an API server that is away."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from kubernetes.client.configuration import Configuration

from forwarder import watcher
from forwarder.kinds import WATCHED_KINDS, WatchedKind
from forwarder.watcher import Bookmark, ListedPage, ListEnd, ObjectChange, WatchUpdate, list_and_watch
from spotwright.adapters.kubernetes import attempts, watch
from spotwright.adapters.kubernetes.attempts import ATTEMPTS
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.telemetry import log_lines
from tests.forwarder import objects

NODES = next(kind for kind in WATCHED_KINDS if kind.name == "Node")

SILENCE_SECONDS = 2.0

type Serve = Callable[..., list[WatchUpdate]]
type Step = list[dict[str, Any] | None] | list[dict[str, Any]] | int


@dataclass
class ApiServer:
    """Answers lists from ``nodes`` and each watch with the next of ``watches``: events, or a status. After the event
    None nothing comes any more, and the connection stays open.

    When the script is over, ``done`` is set and watches stay open without a word until ``close`` is.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 10
    watches: list[Step] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    page_size: int = 500
    pages_refused: Counter[str] = field(default_factory=Counter)
    retry_after: str = ""
    lists_refused: int = 0
    lists_not_found: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    close: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str) -> tuple[int, Sequence[dict[str, Any] | None]]:
        query = {key: values[0] for key, values in parse_qs(urlsplit(path).query).items()}
        if "watch" in query:
            self.asked.append(f"watch {query['resourceVersion']}")
            return self._watch()
        if self.lists_refused:
            self.lists_refused -= 1
            return 503, [{"message": "away"}]
        if self.lists_not_found:
            self.lists_not_found -= 1
            return 404, [{"message": "the server could not find the requested resource", "reason": "NotFound"}]
        self.asked.append(f"list {query.get('continue', '')}".strip())
        if self.pages_refused[query.get("continue", "")]:
            self.pages_refused[query.get("continue", "")] -= 1
            return 429, [{"message": "too many requests", "reason": "TooManyRequests"}]
        return 200, [self._page(int(query.get("continue", "0")))]

    def _watch(self) -> tuple[int, Sequence[dict[str, Any] | None]]:
        if not self.watches:
            self.done.set()
            self.close.wait(300)
            return 200, [bookmark(self.version)]
        step = self.watches.pop(0)
        return (step, [{"message": "no", "reason": "Expired"}]) if isinstance(step, int) else (200, step)

    def _page(self, start: int) -> dict[str, Any]:
        found = list(self.nodes.values())[start : start + self.page_size]
        metadata = {"resourceVersion": str(self.version)}
        if start + self.page_size < len(self.nodes):
            metadata["continue"] = str(start + self.page_size)
        return {"items": found, "metadata": metadata}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Runs the script to its end and returns everything that was told."""
    monkeypatch.setattr(watcher, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(watcher, "MISSING_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(watch, "SILENCE_SECONDS", SILENCE_SECONDS)
    servers: list[tuple[ThreadingHTTPServer, ApiServer]] = []

    def run(api: ApiServer, kind: WatchedKind = NODES, *, stopping: threading.Event | None = None) -> list[WatchUpdate]:
        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, lines = api.answer(self.path)
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", api.retry_after)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for line in lines:
                    if line is None:
                        api.close.wait(10 * SILENCE_SECONDS)
                        return
                    self._write_chunk(json.dumps(line).encode() + b"\n")
                self._write_chunk(b"")

            def _write_chunk(self, content: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
        servers.append((server, api))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        watch_updates: list[WatchUpdate] = []
        stopping = stopping or threading.Event()
        connection = Connection(Configuration(host=f"http://127.0.0.1:{server.server_address[1]}"))
        thread = threading.Thread(target=list_and_watch, args=(connection, kind, watch_updates.append, stopping))
        thread.start()
        assert api.done.wait(300), api.asked
        stopping.set()
        api.close.set()
        thread.join(300)
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
        (watch_news.uid, watch_news.object is not None)
        for watch_news in watch_updates
        if isinstance(watch_news, ObjectChange)
    ]


def test_a_watch_goes_on_where_it_ended(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    api = ApiServer(
        watches=[[event("ADDED", objects.node("a"), 11), bookmark(15)], [event("DELETED", objects.node("a"), 16)]]
    )
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10", "watch 15", "watch 16"]
    assert seen(watch_updates) == [("uid-a", True), ("uid-a", False)]
    assert caplog.records == [], "each watch ends every few minutes"


def test_pages_are_read_to_the_end(serve: Serve) -> None:
    api = ApiServer(nodes={name: objects.node(name) for name in "abcde"}, page_size=2)
    watch_updates = serve(api)
    pages = [[node.metadata.name for node in told.objects] for told in watch_updates if isinstance(told, ListedPage)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert ListEnd("Node", frozenset(f"uid-{name}" for name in "abcde"), "10") in watch_updates
    assert api.asked[:3] == ["list", "list 2", "list 4"]


def test_a_page_that_is_throttled_is_asked_for_again_and_not_the_whole_list(serve: Serve) -> None:
    """Of a hundred pages one fails soon while the API server has much to do: the list would never be at its end."""
    api = ApiServer(nodes={name: objects.node(name) for name in "abcde"}, page_size=2, pages_refused=Counter("24"))
    watch_updates = serve(api)
    assert api.asked[:5] == ["list", "list 2", "list 2", "list 4", "list 4"]
    pages = [[node.metadata.name for node in told.objects] for told in watch_updates if isinstance(told, ListedPage)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


def test_expired_history_is_listed_anew(serve: Serve) -> None:
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    api = ApiServer(watches=[[event("ADDED", objects.node("a"), 11), gone], 410])
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10", "list", "watch 10", "list", "watch 10"]
    assert sum(isinstance(watch_news, ListEnd) for watch_news in watch_updates) == 3


def test_an_api_server_that_is_away_is_asked_again(serve: Serve) -> None:
    api = ApiServer(lists_refused=ATTEMPTS + 1, watches=[503, [bookmark(12)]])
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10", "watch 10", "watch 12"]
    assert any(isinstance(watch_news, Bookmark) for watch_news in watch_updates)


def test_an_attempt_that_fails_is_no_contact(serve: Serve) -> None:
    """Otherwise a forwarder that the API server does not answer would call an old cluster state the newest."""
    watch_updates = serve(ApiServer(watches=[503, 503, 503]))
    assert [told for told in watch_updates if isinstance(told, Bookmark)] == [Bookmark("Node", "10")] * 2
    assert isinstance(watch_updates[-3], ListEnd)


SILENT: list[dict[str, Any] | None] = [None]
ENDED: list[dict[str, Any] | None] = []
ERROR: list[dict[str, Any] | None] = [
    {"type": "ERROR", "object": {"code": 500, "reason": "InternalError", "message": "etcd"}}
]


NO_VERSIONS: list[dict[str, Any] | None] = [{"type": "BOOKMARK", "object": {"metadata": {}}}]
NO_METADATA: list[dict[str, Any] | None] = [{"type": "BOOKMARK", "object": {}}]


@pytest.mark.parametrize(
    "opened_in_vain",
    [SILENT, ERROR, ENDED, NO_VERSIONS, NO_METADATA],
    ids=["silent", "error", "ended", "no-version", "no-metadata"],
)
def test_after_a_watch_that_says_nothing_the_kind_is_listed(serve: Serve, opened_in_vain: Step) -> None:
    """A watch that opens is a contact: where each says nothing, the kind would be in contact and never change."""
    api = ApiServer(nodes={"a": objects.node("a")}, watches=[opened_in_vain, opened_in_vain])
    watch_updates = serve(api)
    assert api.asked == ["list", "watch 10"] * 3
    assert sum(isinstance(told, ListEnd) for told in watch_updates) == 3


FAILED = [log_lines.WATCH_FAILED.message]


@pytest.mark.parametrize(("opened", "told"), [(SILENT, []), (ENDED, FAILED * 2), (ERROR, FAILED * 2)])
def test_that_nothing_happens_to_a_kind_is_no_failure(
    serve: Serve, caplog: pytest.LogCaptureFixture, opened: Step, told: list[str]
) -> None:
    """Of a kind that has not changed since the API server started there are no bookmarks. But a watch that ends before
    one could come says that something ends watches, after each of which the kind is listed.
    """
    serve(ApiServer(nodes={"a": objects.node("a")}, watches=[opened, opened]))
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == told


def test_a_kind_of_which_nothing_changes_is_not_left_alone_for_longer_and_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its watches lasted, so that there is nothing to spare the API server; and a change would be seen late."""
    monkeypatch.setattr("random.uniform", lambda _least, most: most)
    monkeypatch.setattr(watch, "SILENCE_SECONDS", 0.05)
    waits: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return super().wait(timeout)

    serve(ApiServer(watches=[SILENT] * 5), stopping=Stopping())
    assert waits[:5] == [0.01] * 5


def test_watches_that_end_at_once_are_asked_for_less_and_less_often(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda _least, most: most)
    api = ApiServer(watches=[ENDED] * 6)
    begun = time.monotonic()
    serve(api)
    assert time.monotonic() - begun >= 0.01 * (2**6 - 1)


@pytest.mark.parametrize("refused", ["watch", "list"])
def test_a_kind_is_not_asked_for_before_the_api_server_takes_requests_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """All forwarders of an API server in trouble would be in its queues again within half a second."""
    monkeypatch.setattr(attempts, "LONGEST_RETRY_AFTER_SECONDS", 0)
    api = ApiServer(retry_after="1")
    if refused == "watch":
        api.watches = [429]
    else:
        api.pages_refused[""] = ATTEMPTS
    begun = time.monotonic()
    serve(api)
    assert time.monotonic() - begun >= 1


def test_no_answer_makes_a_forwarder_wait_for_hours(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "LONGEST_PAUSE_SECONDS", 0.1)
    begun = time.monotonic()
    serve(ApiServer(retry_after="9999", watches=[429]))
    assert time.monotonic() - begun < 100


def test_a_watch_that_fails_after_an_event_goes_on_where_it_ended(serve: Serve) -> None:
    api = ApiServer(watches=[[bookmark(12), None], [bookmark(13), *ERROR]])
    serve(api)
    assert api.asked == ["list", "watch 10", "watch 12", "watch 13"]


def test_a_kind_without_definition_is_asked_for_again(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    optional = msgspec.structs.replace(NODES, optional=True)
    watch_updates = serve(ApiServer(nodes={"a": objects.node("a")}, lists_not_found=2), optional)
    ends = [told.uids for told in watch_updates if isinstance(told, ListEnd)]
    assert ends == [frozenset(), frozenset(), {"uid-a"}]
    assert caplog.records == []


def test_the_definition_of_another_kind_must_be_there(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    watch_updates = serve(ApiServer(lists_not_found=1))
    assert [told.uids for told in watch_updates if isinstance(told, ListEnd)] == [frozenset()]
    assert [record.message for record in caplog.records] == [log_lines.WATCH_FAILED.message]


def test_a_line_longer_than_what_is_read_at_once_is_one_event(serve: Serve) -> None:
    large = objects.node("a")
    large["metadata"]["annotations"] = {"large": "x" * 300_000}
    watch_updates = serve(ApiServer(watches=[[event("ADDED", large, 11), event("DELETED", large, 12)]]))
    assert seen(watch_updates) == [("uid-a", True), ("uid-a", False)]
