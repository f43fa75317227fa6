"""How the forwarder's process starts, stops, and ends when it can no longer see."""

import importlib
import json
import logging
import os
import threading
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from forwarder.batching import NEVER
from forwarder.kinds import WATCHED_KINDS
from forwarder.settings import QUEUES, ForwarderSettings
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.telemetry import log_lines

NOWHERE = cast("Connection", None)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("forwarder.__main__")
    silent = SimpleNamespace(put_item=lambda **_: {}, send_message_batch=lambda **_: {})
    monkeypatch.setattr(module.clients, "client", lambda _: silent)
    return module


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_without_its_environment_it_does_not_start(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "environ", {})
    assert main.main() == 2
    assert messages(caplog) == [log_lines.FORWARDER_MISCONFIGURED.message]
    assert "SPOTWRIGHT_CLUSTER" in vars(caplog.records[0])["error"]


def test_it_says_where_its_metrics_are_and_that_it_stopped(main: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    wanted = ForwarderSettings("c", "t", "b", dict.fromkeys(QUEUES, ""), "https://127.0.0.1:1", metrics_port=0)
    stopping = threading.Event()
    stopping.set()
    with caplog.at_level(logging.INFO, logger="forwarder"):
        main._run(wanted, NOWHERE, stopping)
    assert messages(caplog)[:: len(caplog.records) - 1] == [
        log_lines.FORWARDER_STARTED.message, log_lines.FORWARDER_STOPPED.message,
    ]  # fmt: skip
    assert vars(caplog.records[0])["metrics"].startswith("127.0.0.1:")


def test_a_watcher_that_ends_by_an_error_ends_the_process(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("unforeseen")

    codes: list[int] = []
    monkeypatch.setattr(main, "list_and_watch", fail)
    monkeypatch.setattr(main.os, "_exit", codes.append)
    main._watch_or_exit(NOWHERE, WATCHED_KINDS[0], print, threading.Event())
    assert codes == [1]
    assert messages(caplog) == [log_lines.WATCHER_ENDED.message]
    assert "unforeseen" in caplog.text


def test_where_its_address_is_taken_metrics_are_served_on_a_free_port(
    main: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with main.serve(main.CollectorRegistry(), {}, "127.0.0.1", 0) as taken:
        port = taken.server_address[1]
        with main.serve(main.CollectorRegistry(), {}, "127.0.0.1", port) as other:
            assert other.server_address[1] != port
            other.shutdown()
        taken.shutdown()
    assert messages(caplog) == [log_lines.METRICS_ADDRESS_UNAVAILABLE.message]


def test_a_pod_without_credentials_says_so_and_goes_on(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = ForwarderSettings("blue", "t", "b", dict.fromkeys(QUEUES, ""), "https://127.0.0.1:1", metrics_port=0)
    monkeypatch.setattr(main, "settings", lambda _: wanted)
    monkeypatch.setattr(main, "pod_configuration", lambda *_: None)
    monkeypatch.setattr(main, "Connection", lambda _: NOWHERE)
    monkeypatch.setattr(main.clients, "has_own_credentials", lambda: False)
    monkeypatch.setattr(main, "_run", lambda *_: None)
    monkeypatch.setattr(main, "_log_to_stdout", lambda: None)
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    assert main.main() == 0
    assert messages(caplog) == [log_lines.FORWARDER_WITHOUT_CREDENTIALS.message]
    assert vars(caplog.records[0])["cluster"] == "blue"


def test_a_newer_image_runs_under_an_older_deployment(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it is installed again no state is shipped; doorbells and heartbeats are sent."""
    older = {
        "SPOTWRIGHT_CLUSTER": "blue", "SPOTWRIGHT_TABLE": "t", "KUBERNETES_SERVICE_HOST": "::1",
        "KUBERNETES_SERVICE_PORT": "1", **{f"SPOTWRIGHT_{name.upper()}_QUEUE_URL": "u" for name in QUEUES},
    }  # fmt: skip
    monkeypatch.setattr(os, "environ", older)
    monkeypatch.setattr(main, "pod_configuration", lambda *_: None)
    monkeypatch.setattr(main, "Connection", lambda _: NOWHERE)
    monkeypatch.setattr(main.clients, "has_own_credentials", lambda: True)
    monkeypatch.setattr(main, "_log_to_stdout", lambda: None)
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    loops = []
    monkeypatch.setattr(
        main, "_run", lambda given, *_: loops.append(main._loop(given, SimpleQueue(), SimpleNamespace(watch=None)))
    )
    assert main.main() == 0
    assert messages(caplog) == [log_lines.FORWARDER_OUTDATED.message]
    assert vars(caplog.records[0])["missing"] == "SPOTWRIGHT_BUCKET"
    (loop,) = loops
    loop.cache.is_synced = lambda _: True
    loop.shipping.write_what_is_due(0.0)
    assert not loop.shipping.ask(0.0)
    assert loop.shipping.next_at() == NEVER


def test_every_line_names_the_cluster(main: ModuleType) -> None:
    record = logging.makeLogRecord({"msg": "sent doorbells", "levelname": "INFO", "doorbells": 2})
    line = json.loads(main.JsonLines("blue").format(record))
    assert (line["cluster"], line["message"], line["doorbells"]) == ("blue", "sent doorbells", 2)
