"""Clients are made for whoever asks first, in whatever thread."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spotwright.adapters.aws import clients

SERVICES = ("s3", "sqs", "dynamodb", "ec2")


class Session:
    """Takes its time to make a client, and counts the threads that it does so for."""

    def __init__(self) -> None:
        self.at_once, self.most, self._lock = 0, 0, threading.Lock()

    def create_client(self, service: str, **_: object) -> str:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.01)
        with self._lock:
            self.at_once -= 1
        return service


def test_a_session_makes_one_client_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(clients, "own_session", lambda: session)
    clients.client.cache_clear()
    try:
        with ThreadPoolExecutor(len(SERVICES)) as threads:
            assert tuple(threads.map(clients.client, SERVICES)) == SERVICES
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
