"""Lists page by page, with retries."""

import json
from collections.abc import Callable
from threading import Event
from typing import cast

import pytest

from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.media_types import JSON, PROTOBUF
from spotwright.adapters.kubernetes.codecs.pages import ListDecoder
from spotwright.adapters.kubernetes.codecs.protobuf_pods import ProtobufPods
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Conflict, Throttled, Unavailable
from spotwright.model.kubernetes.pod import Pod
from tests.property.protobuf_pods import page_of

# None: the page is too long.
type Answer = bytes | Exception | None


class FakeConnection:
    """Gives the answers one after the other; ``paths``: what was asked for, ``accepted``: in which media types."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.paths: list[str] = []
        self.accepted: list[str] = []
        self.asked_twice = Event()

    def read_at_most(self, path: str, most_bytes: int | None, accept: str) -> bytes | None:
        self.paths.append(f"GET {path}")
        self.accepted.append(accept)
        if len(self.paths) == 2:
            self.asked_twice.set()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def names(connection: FakeConnection, protobuf: Callable[[], ListDecoder[Pod]] | None = None) -> list[str]:
    api, query = Transport.__new__(Transport), {"fieldSelector": "spec.nodeName="}
    api._connection = cast("Connection", connection)
    return [pod.metadata.name for pod in api.items("/api/v1/pods", pod_decoder(), query, protobuf=protobuf)]


def page(*pods: str, following: str = "") -> bytes:
    items = [{"metadata": {"name": pod}} for pod in pods]
    return json.dumps({"metadata": {"continue": following}, "items": items}).encode()


def protobuf_page(*pods: str, following: str = "") -> bytes:
    return page_of([{"metadata": {"name": pod}, "spec": {}, "status": {}} for pod in pods], following=following)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def test_a_list_is_read_to_its_last_page() -> None:
    connection = FakeConnection(page("a", "b", following="t1"), page(following="t2"), page("c"))
    assert names(connection) == ["a", "b", "c"]
    first = "GET /api/v1/pods?fieldSelector=spec.nodeName%3D&limit=500"
    assert connection.paths == [first, f"{first}&continue=t1", f"{first}&continue=t2"]
    assert connection.accepted == [JSON] * 3


def test_the_next_page_is_asked_for_before_one_is_decoded() -> None:
    connection = FakeConnection(page("a", following="t1"), page("b", following="t2"), page("c"))
    api = Transport.__new__(Transport)
    api._connection = cast("Connection", connection)
    pods = api.items("/api/v1/pods", pod_decoder())
    assert next(pods).metadata.name == "a"
    assert connection.asked_twice.wait(10)
    assert [pod.metadata.name for pod in pods] == ["b", "c"]


def test_no_more_objects_are_read_than_are_wanted() -> None:
    connection = FakeConnection(page("a", "b", following="t1"), page("c"))
    api = Transport.__new__(Transport)
    api._connection = cast("Connection", connection)
    assert len(tuple(api.items("/api/v1/pods", pod_decoder(), limit=2))) == 2
    assert connection.paths == ["GET /api/v1/pods?limit=2"]


def test_pages_of_which_only_pythons_decoder_reads_the_text_are_read_to_the_last_one() -> None:
    half_a_pair = page("a", following="t1").replace(b'"items"', b'"note": "\\ud800", "items"')
    assert names(FakeConnection(half_a_pair, page("b"))) == ["a", "b"]


def test_a_page_that_is_throttled_is_asked_for_again() -> None:
    connection = FakeConnection(Throttled("busy"), page("a", following="t"), Unavailable("away"), page("b"))
    assert names(connection) == ["a", "b"]
    with pytest.raises(Throttled):
        names(FakeConnection(*[Throttled("busy")] * 4))


def test_a_list_that_expires_between_two_pages_is_no_list() -> None:
    connection = FakeConnection(page("a", following="t"), Conflict("gone", code="Expired"))
    with pytest.raises(Unavailable, match="expired between two pages"):
        names(connection)


def test_an_answer_that_is_no_list_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(Unavailable, match="list /api/v1/pods: the answer is not a list of objects: <html>"):
        names(FakeConnection(b"<html>"))


def test_pages_after_the_first_one_are_asked_for_in_protobuf() -> None:
    connection = FakeConnection(page("a", following="t1"), protobuf_page("b", following="t2"), protobuf_page("c"))
    assert names(connection, ProtobufPods) == ["a", "b", "c"]
    assert connection.accepted == [JSON, PROTOBUF, PROTOBUF]
    assert [path.partition("limit=500")[2] for path in connection.paths] == ["", "&continue=t1", "&continue=t2"]


def test_the_decoder_of_protobuf_is_made_for_the_first_such_page() -> None:
    made = list[ProtobufPods]()

    def make() -> ProtobufPods:
        made.append(ProtobufPods())
        return made[-1]

    assert names(FakeConnection(page("a")), make) == ["a"]
    assert made == []
    names(FakeConnection(page("a", following="1"), protobuf_page("b", following="2"), protobuf_page("c")), make)
    assert len(made) == 1


def test_an_api_server_may_answer_in_json_all_the_same() -> None:
    connection = FakeConnection(page("a", following="t1"), page("b", following="t2"), protobuf_page("c"))
    assert names(connection, ProtobufPods) == ["a", "b", "c"]


def test_a_page_that_cannot_be_read_in_protobuf_is_asked_for_again_in_json() -> None:
    unread = protobuf_page("bbb", following="t2").replace(b"bbb", b"b\xffb")
    # The page after it is under way by then.
    in_json = (page("b", following="t2"), page("d"))
    connection = FakeConnection(page("a", following="t1"), unread, protobuf_page("c", following="t3"), *in_json)
    assert names(connection, ProtobufPods) == ["a", "b", "c", "d"]
    assert connection.accepted == [JSON, PROTOBUF, PROTOBUF, JSON, JSON]
    assert [path.partition("&continue=")[2] for path in connection.paths] == ["", "t1", "t2", "t1", "t3"]
    unread = protobuf_page("bbb").replace(b"bbb", b"b\xffb")
    with pytest.raises(Unavailable, match="the answer is not a list of objects"):
        names(FakeConnection(page("a", following="t1"), unread, b"<html>"), ProtobufPods)


def test_a_page_that_ends_elsewhere_in_json_loses_and_doubles_no_object() -> None:
    """500 pods in Protobuf may be too long a page in JSON, and the one after them is read by then."""
    unread = protobuf_page("bbb", "c", following="t3").replace(b"bbb", b"b\xffb")
    fewer = (None, page("b", following="t2"), page("c", following="t3"), page("d"))
    connection = FakeConnection(page("a", following="t1"), unread, protobuf_page("d"), *fewer)
    assert names(connection, ProtobufPods) == ["a", "b", "c", "d"]
    asked = [path.partition("&limit=")[2] for path in connection.paths[3:]]
    assert asked == ["500&continue=t1", "62&continue=t1", "124&continue=t2", "248&continue=t3"]
    unread = protobuf_page("bbb", following="t2").replace(b"bbb", b"b\xffb")
    more = (page("b", "c", following="t3"), page("d"))
    assert names(FakeConnection(page("a", following="t1"), unread, protobuf_page("c"), *more), ProtobufPods) == [
        "a", "b", "c", "d"]  # fmt: skip
