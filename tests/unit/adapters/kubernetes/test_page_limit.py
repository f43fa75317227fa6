"""The pages of a list fit into memory, however large the objects are; and are few where they are small."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client.configuration import Configuration

from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.adapters.kubernetes.page_limit import FEWER, PAGE_BYTES, PAGE_SIZE
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.adapters.kubernetes.watch import list_pages

ORDINARY, LARGEST = 6_500, 1_400_000


class Pods:
    """An API server's pods of these sizes; ``pages``: (limit, pods) of what was asked for."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.pages: list[tuple[int, int]] = []

    def answer(self, query: dict[str, list[str]]) -> Iterator[bytes]:
        limit, first = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        end = min(first + limit, len(self.sizes))
        self.pages.append((limit, end - first))
        metadata = {"resourceVersion": "1", "continue": str(end) if end < len(self.sizes) else ""}
        yield b'{"metadata":' + json.dumps(metadata).encode() + b',"items":['
        for number in range(first, end):
            value = {"name": "A", "value": "x" * self.sizes[number]}
            pod = {"metadata": {"name": f"p{number}", "namespace": "a", "uid": f"u{number}"},
                   "spec": {"containers": [{"name": "c", "env": [value]}]}}  # fmt: skip
            yield (b"," if number > first else b"") + json.dumps(pod).encode()
        yield b"]}"


@contextmanager
def served(pods: Pods) -> Iterator[Configuration]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                for part in pods.answer(parse_qs(urlsplit(self.path).query)):
                    self.wfile.write(part)
            except OSError:
                pass  # the client has read enough

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield configuration
    finally:
        server.shutdown()
        server.server_close()


def test_ordinary_pods_come_five_hundred_a_page() -> None:
    pods = Pods([ORDINARY] * 1_200)
    with served(pods) as configuration:
        pages = list(list_pages(Connection(configuration), "/api/v1/pods"))
    assert [len(page.items) for page in pages] == [PAGE_SIZE, PAGE_SIZE, 200]
    assert pods.pages == [(PAGE_SIZE, PAGE_SIZE), (PAGE_SIZE, PAGE_SIZE), (PAGE_SIZE, 200)]


@pytest.mark.parametrize("before", [0, 600], ids=["at once", "after ordinary ones"])
def test_no_page_of_large_pods_is_longer_than_fits(before: int) -> None:
    pods = Pods([ORDINARY] * before + [LARGEST] * 60 + [ORDINARY] * 1_500)
    with served(pods) as configuration:
        pages = list(list_pages(Connection(configuration), "/api/v1/pods"))
    assert sum(len(page.items) for page in pages) == len(pods.sizes)
    assert max(sum(len(bytes(item)) for item in page.items) for page in pages) <= PAGE_BYTES
    assert max(len(page.items) for page in pages[-3:]) == PAGE_SIZE, "small ones come many a page again"
    assert len(pods.pages) < 40
    assert len(pods.pages) - len(pages) < 5, "few pages are asked for in vain"


def test_functions_list_so_too_and_keep_their_query() -> None:
    pods = Pods([LARGEST] * 20 + [ORDINARY] * 10)
    with served(pods) as configuration:
        names = [
            pod.metadata.name
            for pod in Transport.from_configuration(configuration).items("/api/v1/pods", pod_decoder())
        ]
    assert names == [f"p{number}" for number in range(30)]
    assert (PAGE_SIZE // FEWER // FEWER) in [limit for limit, _ in pods.pages]


def test_an_object_that_is_longer_than_a_page_is_read_all_the_same() -> None:
    pods = Pods([PAGE_BYTES + 1, ORDINARY])
    with served(pods) as configuration:
        pages = list(list_pages(Connection(configuration), "/api/v1/pods"))
    assert [len(page.items) for page in pages] == [1, 1]
