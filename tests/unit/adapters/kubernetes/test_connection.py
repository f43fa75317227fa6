"""What is said of an API server that does not answer."""

import gzip
import math
import random
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
import urllib3
from kubernetes.client.configuration import Configuration

from local.kubernetes.certificates import CertificateAuthority
from spotwright.adapters import time_limit
from spotwright.adapters.kubernetes import attempts, connection
from spotwright.adapters.kubernetes.codecs.media_types import PROTOBUF, PROTOBUF_PREFIX
from spotwright.adapters.kubernetes.connection import CONNECT_SECONDS, READ_SECONDS, Connection, pod_configuration
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.adapters.kubernetes.watch import list_pages
from spotwright.errors import ApiError, Conflict, Denied, InvalidRequest, NotFound, OutOfTime, Throttled, Unavailable
from tests.property.protobuf_pods import status_of


def requests_end_in(seconds: float) -> AbstractContextManager[None]:
    return time_limit.invocation_ends_in(seconds + time_limit.CLOSING_SECONDS)


def said_of(host: str) -> str:
    with pytest.raises(Unavailable) as raised:
        Connection(Configuration(host=host)).call("GET", "/version")
    return str(raised.value)


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"https://127.0.0.1:{closed.getsockname()[1]}"
        assert said_of(host) == f"{host} does not answer: connection refused"


def test_a_host_that_is_not_known_is_named() -> None:
    host = "https://nowhere.invalid:443"
    assert said_of(host) == f"{host} does not answer: its name is not known"


@contextmanager
def unaccepting() -> Iterator[str]:
    """As behind a firewall: where nobody accepts connections, a full queue of them answers no further one."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.2)
    with unaccepting() as host:
        assert said_of(host) == f"{host} does not answer: no connection within 0.2 seconds"


def test_a_certificate_that_is_not_trusted_is_told_in_a_line(tmp_path: Path) -> None:
    pair = CertificateAuthority(tmp_path).issue_server_certificate("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                context.wrap_socket(listening.accept()[0], server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        host = f"https://127.0.0.1:{listening.getsockname()[1]}"
        said = said_of(host)
        thread.join(10)
    assert said.startswith(f"{host} does not answer: its certificate is not trusted: ")
    assert "SSL" not in said
    assert "\n" not in said


def test_a_token_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    """The kubelet replaces it; a watcher that met another exception would end the forwarder."""
    for file in ("token", "ca.crt"):
        (tmp_path / file).write_text("text")
    refused = Connection(pod_configuration("https://127.0.0.1:9", tmp_path))
    (tmp_path / "token").unlink()
    with pytest.raises(Unavailable, match=r"GET /api: .*No such file"):
        refused.call("GET", "/api")
    with pytest.raises(Unavailable, match=r"GET /api/v1/pods\?limit=500: .*No such file"):
        next(list_pages(refused, "/api/v1/pods"))


def in_chunks(body: bytes, size: int) -> bytes:
    """As HTTP/1.1 transfers it."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


@contextmanager
def answering(
    status: int, content: bytes, *, compress: bool = False, chunk: int = 0, retry_after: str = ""
) -> Iterator[Connection]:
    """A connection to a server that answers one GET so; with ``compress`` as gzip, and only to whoever accepts it, in
    chunks of so many bytes, 0 = as a whole.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if chunk else "HTTP/1.0"

        def do_GET(self) -> None:
            is_refused = compress and self.headers["Accept-Encoding"] != "gzip"
            self.send_response(406 if is_refused else status)
            if compress:
                self.send_header("Content-Encoding", "gzip")
            if retry_after:
                self.send_header("Retry-After", retry_after)
            if chunk:
                self.send_header("Transfer-Encoding", "chunked")
                self.send_header("Connection", "close")
            self.end_headers()
            body = gzip.compress(content) if compress else content
            with suppress(OSError):  # the client may have read enough
                self.wfile.write(in_chunks(body, chunk) if chunk else body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield Connection(Configuration(host=f"http://127.0.0.1:{server.server_port}"))
        thread.join(10)


def refusal(status: int, content: bytes) -> ApiError:
    """What a list in Protobuf raises that an API server refuses so."""
    with answering(status, content) as connection, pytest.raises(ApiError) as raised:
        connection.read_at_most("/api/v1/pods", 1_000, PROTOBUF)
    return raised.value


@pytest.mark.parametrize("chunk", [0, 17, 4_096])
@pytest.mark.parametrize(("most", "is_read"), [(None, True), (5_000_000, True), (4_999_999, False)])
def test_long_answers_come_compressed_and_are_measured_as_they_are_read(
    most: int | None, is_read: bool, chunk: int
) -> None:
    content = b"x" * 4_000_000 + random.Random(1).randbytes(1_000_000)
    with answering(200, content, compress=True, chunk=chunk) as connection:
        assert connection.read_at_most("/api/v1/pods", most) == (content if is_read else None)


@pytest.mark.parametrize("chunk", [0, 4_096, 2**20])
def test_what_compresses_very_well_is_not_held_in_memory_beyond_its_limit(chunk: int) -> None:
    """A thousand times smaller, as objects may be that somebody made for it."""
    with answering(200, bytes(2**26), compress=True, chunk=chunk) as connection:
        tracemalloc.start()
        try:
            assert connection.read_at_most("/api/v1/pods", 2**20) is None
            assert tracemalloc.get_traced_memory()[1] < 2**25
        finally:
            tracemalloc.stop()


def test_a_compressed_answer_that_is_broken_is_none() -> None:
    with answering(200, b"", compress=True) as connection:
        assert connection.read_at_most("/api/v1/pods", 100) == b""
    broken = gzip.compress(b"x" * 100_000)[:50] + b"?" * 50

    class Broken(Connection):
        def stream(self, *arguments: object, **options: object) -> urllib3.BaseHTTPResponse:
            return urllib3.HTTPResponse(BytesIO(broken), {"Content-Encoding": "gzip"}, 200, preload_content=False)

    with pytest.raises(Unavailable, match="GET /api/v1/pods"):
        Broken(Configuration()).read_at_most("/api/v1/pods", None)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, InvalidRequest), (401, Denied), (403, Denied), (404, NotFound), (410, Conflict), (429, Throttled),
     (500, Unavailable), (504, Unavailable)],
)  # fmt: skip
def test_a_refusal_in_protobuf_is_told_as_one_in_json(status: int, kind: type[ApiError]) -> None:
    error = refusal(status, status_of("Expired", "the list is too old"))
    assert (type(error), error.code, str(error)) == (kind, "Expired", f"GET /api/v1/pods: {status} the list is too old")


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [("1", 1), ("30", 30), ("", 0), ("-1", 0), ("1.5", 0), ("9" * 5000, 0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0)],
)
def test_a_refusal_says_when_requests_are_taken_again(stated: str, seconds: int) -> None:
    with answering(429, b"{}", retry_after=stated) as connection, pytest.raises(Throttled) as raised:
        connection.read_at_most("/api/v1/pods", None)
    assert raised.value.retry_after_seconds == seconds


@pytest.mark.parametrize(("stated", "shortest", "longest"), [(0, 0, 0.1), (1, 1, 1.1), (30, 1, 1.1)])
def test_no_attempt_is_made_while_the_api_server_says_that_it_takes_none(
    stated: int, shortest: float, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All attempts would be over before: of a list of a hundred pages one that fails costs all the others again."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    refusals: list[ApiError] = [Unavailable("away"), Throttled("full", retry_after_seconds=stated)]

    def send() -> str:
        if refusals:
            raise refusals.pop()
        return "a page"

    assert attempts.with_attempts(send) == "a page"
    assert shortest <= slept[0] <= longest
    assert slept[1] <= 0.2


_WHOLE: Final = status_of("Expired", "too old")


@pytest.mark.parametrize("content", [_WHOLE.replace(b"too", b"\xff" * 3), _WHOLE[:-1], _WHOLE[:5], PROTOBUF_PREFIX])
def test_a_refusal_that_cannot_be_read_is_of_its_status(content: bytes) -> None:
    """Whoever asked waits and asks again."""
    error = refusal(429, content)
    assert (type(error), error.code) == (Throttled, "429")
    assert "GET /api/v1/pods: 429 the answer is not a Status in Protobuf" in str(error)


def test_no_request_is_waited_for_beyond_the_end_of_the_invocation() -> None:
    """A server that takes connections and answers nothing: Lambda would end the process while it waits. An eviction is
    sent once: its step was given up as if the server had failed, and nobody rang for it again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        transport = Transport.from_configuration(Configuration(host=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        began = time.monotonic()
        with requests_end_in(0.3), pytest.raises(OutOfTime, match="GET /version: the invocation ends soon"):
            transport.call("GET", "/version", attempts=1)
        assert time.monotonic() - began < READ_SECONDS / 2


def test_no_connection_is_waited_for_beyond_the_end_of_the_invocation() -> None:
    with unaccepting() as host:
        began = time.monotonic()
        with requests_end_in(0.2), pytest.raises(OutOfTime):
            Connection(Configuration(host=host)).call("GET", "/version")
        assert time.monotonic() - began < CONNECT_SECONDS / 2


def test_no_rest_of_an_answer_is_waited_for_beyond_the_end_of_the_invocation() -> None:
    """A list of which the head comes, and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as accepted:

        def begin_to_answer() -> None:
            client = accepted.enter_context(listening.accept()[0])
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

        thread = threading.Thread(target=begin_to_answer)
        thread.start()
        about = Connection(Configuration(host=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        with requests_end_in(0.3), pytest.raises(OutOfTime, match="GET /api/v1/pods: the invocation ends"):
            about.read_at_most("/api/v1/pods", None)
        thread.join()


@contextmanager
def trickling(head: bytes) -> Iterator[Connection]:
    """A connection to a server that answers with this head, and a body byte by byte, for three seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            with suppress(OSError), listening.accept()[0] as client:
                client.recv(65536)
                client.sendall(head + b"\r\n")
                for _ in range(150):
                    client.sendall(b"1\r\n{\r\n" if b"chunked" in head else b" ")
                    time.sleep(0.02)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        about = Connection(Configuration(host=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        yield about
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("read", [Connection.call, Connection.read, Connection.read_at_most])
def test_no_body_that_comes_byte_by_byte_is_waited_for_beyond_the_end_of_the_invocation(
    head: bytes, read: Callable[..., object]
) -> None:
    arguments = ("/version", None) if read is Connection.read_at_most else ("GET", "/version")
    with trickling(head) as about:
        began = time.monotonic()
        with requests_end_in(0.3), pytest.raises(OutOfTime, match="GET /version: the invocation ends soon"):
            read(about, *arguments)
        assert time.monotonic() - began < 1


def test_a_slow_handshake_takes_of_the_time_for_the_answer(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pair = authority.issue_server_certificate("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted = listening.accept()[0]
            time.sleep(0.7)
            with suppress(OSError), context.wrap_socket(accepted, server_side=True):
                is_over.wait(10)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, began = f"https://127.0.0.1:{listening.getsockname()[1]}", time.monotonic()
        about = Connection(Configuration(host=host, ssl_ca_cert=str(authority.pair.certificate)))
        with requests_end_in(1), pytest.raises(OutOfTime):
            about.call("GET", "/version")
        taken = time.monotonic() - began
        is_over.set()
        thread.join(10)
    assert 0.7 < taken < 1.5


def test_at_the_end_of_the_invocation_nothing_is_sent_and_nothing_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)
        transport = Transport.from_configuration(Configuration(host=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        with requests_end_in(0), pytest.raises(OutOfTime, match="GET /version: the invocation ends soon"):
            transport.call("GET", "/version")
        with pytest.raises(TimeoutError):
            listening.accept()


def test_the_time_of_an_invocation_ends_with_it() -> None:
    with suppress(ZeroDivisionError), requests_end_in(0):
        raise ZeroDivisionError
    assert time_limit.seconds_left() == math.inf
