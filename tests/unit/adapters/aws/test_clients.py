"""Clients are made for whoever asks first, in whatever thread, and keep to the end of an invocation."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from botocore.hooks import HierarchicalEmitter

from spotwright.adapters import time_limit
from spotwright.adapters.aws import clients
from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import OutOfTime

SERVICES = ("s3", "sqs", "dynamodb", "ec2")


class Session:
    """Takes its time to make a client, and counts the threads that it does so for."""

    def __init__(self) -> None:
        self.at_once, self.most, self._lock = 0, 0, threading.Lock()

    def create_client(self, service: str, **_: object) -> Any:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.01)
        with self._lock:
            self.at_once -= 1
        return SimpleNamespace(
            service=service,
            meta=SimpleNamespace(events=HierarchicalEmitter(), service_model=SimpleNamespace(service_name=service)),
        )


def test_a_session_makes_one_client_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(clients, "own_session", lambda: session)
    clients.client.cache_clear()
    try:
        with ThreadPoolExecutor(len(SERVICES)) as threads:
            assert tuple(made.service for made in threads.map(clients.client, SERVICES)) == SERVICES
    finally:
        clients.client.cache_clear()
    assert session.most == 1


@pytest.mark.parametrize("role", ["", "arn:aws:iam::123456789012:role/act"])
@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_a_client_is_of_the_region_of_the_environment_whatever_its_role(
    monkeypatch: pytest.MonkeyPatch, role: str, variable: str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {variable: "eu-north-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    kept = (clients.own_session, clients.role_session, clients.client)
    for function in kept:
        function.cache_clear()
    try:
        assert clients.client("sqs", role).meta.region_name == "eu-north-1"
    finally:
        for function in kept:
            function.cache_clear()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    values = {"AWS_REGION": "eu-north-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    kept = (clients.own_session, clients.role_session, clients.client)
    for function in kept:
        function.cache_clear()
    yield monkeypatch
    for function in kept:
        function.cache_clear()


@pytest.fixture
def silent(environment: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """AWS takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield listening


@pytest.mark.parametrize(("role", "attempts"), [("", 1), ("arn:aws:iam::123456789012:role/act", 3)])
def test_no_answer_of_aws_is_waited_for_beyond_the_end_of_the_invocation(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch, role: str, attempts: int
) -> None:
    """Ten seconds a try, three tries, are more than most functions have. Who acts as a role asks STS first. Of the time
    that is left, some is kept for a connection that is made slowly.
    """
    monkeypatch.setattr(clients, "CONNECT_SECONDS", 0.5)
    client, began = clients.client("dynamodb", role, attempts=attempts), time.monotonic()
    ends_in = time_limit.invocation_ends_in(4)
    with ends_in, pytest.raises(OutOfTime, match="the invocation ends soon"), translate_errors("GetItem"):
        client.list_tables()
    assert time.monotonic() - began < 1.9


@pytest.mark.parametrize(("service", "seconds"), [("sqs", 0.4), ("iam", 1.9)])
def test_at_the_end_of_the_invocation_nothing_is_sent_to_aws(
    silent: socket.socket, service: str, seconds: float
) -> None:
    silent.settimeout(0.05)
    client = clients.client(service)
    with time_limit.invocation_ends_in(seconds), pytest.raises(OutOfTime):
        client.list_queues() if service == "sqs" else client.list_roles()
    with pytest.raises(TimeoutError):
        silent.accept()


@pytest.mark.parametrize("seconds", [None, 60])
def test_while_there_is_time_an_answer_is_waited_for_as_long_as_the_client_says(
    silent: socket.socket, seconds: float | None
) -> None:
    client = clients.client("sqs", attempts=1, read_seconds=0.2)
    if seconds is None:
        with pytest.raises(ReadTimeoutError):
            client.list_queues()
        return
    with time_limit.invocation_ends_in(seconds), pytest.raises(ReadTimeoutError):
        client.list_queues()


@pytest.mark.parametrize(("service", "seconds"), [("sqs", 1.0), ("dynamodb", 2.8)])
def test_an_answer_that_aws_gives_while_the_invocation_closes_is_read(
    environment: pytest.MonkeyPatch, service: str, seconds: float
) -> None:
    """Rows are written when the API server is not asked any more, and doorbells rung when rows are not."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        client = clients.client(service)
        with time_limit.invocation_ends_in(seconds):
            assert time_limit.seconds_left() < 0
            answer = client.list_queues() if service == "sqs" else client.list_tables()
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        thread.join()


def test_a_failure_before_the_end_is_told_as_it_is(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with time_limit.invocation_ends_in(30), pytest.raises(EndpointConnectionError):
        clients.client("sqs", attempts=1).list_queues()
