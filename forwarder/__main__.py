"""`python -m forwarder`: reads the environment, makes the clients, and runs until SIGTERM."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import msgspec
from prometheus_client import CollectorRegistry, Metric

from forwarder.batching import BatchWindow
from forwarder.kinds import WATCHED_KINDS, WatchedKind
from forwarder.loop import Loop
from forwarder.metrics import ClusterCollector, families
from forwarder.object_cache import ObjectCache
from forwarder.scalable_watchers import ScalableWatchers
from forwarder.sender import DoorbellSender, write_heartbeat
from forwarder.settings import ForwarderSettings, settings
from forwarder.watcher import WatchUpdate, list_and_watch
from forwarder.web import Checks, serve
from spotwright.adapters.aws import clients
from spotwright.adapters.kubernetes.connection import Connection, pod_configuration
from spotwright.errors import InvalidRequest
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

# A loop without a turn for this long is stuck: longer than any send with all its attempts.
STUCK_SECONDS = 120.0

logger = logging.getLogger("forwarder")


class JsonLines(logging.Formatter):
    """One JSON object per line, with whatever a record carries as ``extra``."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in self._STANDARD | {"message"}}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line = {"level": record.levelname, "time": at, "message": record.getMessage(), **extra}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def main() -> int:
    _log_to_stdout()
    try:
        forwarder_settings = settings(os.environ)
        connection = Connection(pod_configuration(forwarder_settings.server, Path(forwarder_settings.service_account)))
    except InvalidRequest as error:
        log_line(logger, log_lines.FORWARDER_MISCONFIGURED, error=str(error))
        return 2
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    _run(forwarder_settings, connection, stopping)
    return 0


def _run(forwarder_settings: ForwarderSettings, connection: Connection, stopping: threading.Event) -> None:
    updates: SimpleQueue[WatchUpdate] = SimpleQueue()

    def start_watcher(kind: WatchedKind, kind_stopping: threading.Event) -> None:
        arguments = (connection, kind, updates.put, kind_stopping)
        threading.Thread(target=_watch_or_exit, args=arguments, name=kind.name, daemon=True).start()

    loop = _loop(forwarder_settings, updates, ScalableWatchers(start_watcher))
    server = serve(_registry(loop), _checks(loop), forwarder_settings.address, forwarder_settings.metrics_port)
    for kind in WATCHED_KINDS:
        start_watcher(kind, stopping)
    host, port = server.server_address[:2]
    log_line(logger, log_lines.FORWARDER_STARTED, cluster=forwarder_settings.cluster, metrics=f"{host!s}:{port}")
    loop.run(stopping)
    server.shutdown()
    log_line(logger, log_lines.FORWARDER_STOPPED)


def _loop(
    forwarder_settings: ForwarderSettings, updates: "SimpleQueue[WatchUpdate]", scalables: ScalableWatchers
) -> Loop:
    started = time.time()
    sender = DoorbellSender(clients.client("sqs"), cluster=forwarder_settings.cluster, urls=forwarder_settings.queues)
    dynamodb = clients.client("dynamodb")

    def beat(leaving: bool) -> None:
        epoch, now = int(started * 1000), 0.0 if leaving else time.time()
        write_heartbeat(
            dynamodb, table=forwarder_settings.table, cluster=forwarder_settings.cluster, now=now, epoch=epoch
        )

    window = BatchWindow(forwarder_settings.batch_idle_seconds, forwarder_settings.batch_max_seconds)
    return Loop(
        updates=updates,
        cache=ObjectCache(),
        window=window,
        send=sender.send,
        beat=beat,
        watch_scalables=scalables.watch,
    )


def _registry(loop: Loop) -> CollectorRegistry:
    def current_families() -> Iterator[Metric]:
        now, cache = time.monotonic(), loop.cache
        silent = {kind: now - contact.at for kind, contact in cache.contacts().items()}
        return families(cache.nodes(), cache.pods(), loop.counters, fresh=cache.is_synced(now), silent_seconds=silent)

    registry = CollectorRegistry()
    registry.register(ClusterCollector(current_families))
    return registry


def _checks(loop: Loop) -> Checks:
    started = time.monotonic()
    return {
        "/healthz": lambda: time.monotonic() - max(started, loop.counters.last_turn_at) < STUCK_SECONDS,
        "/readyz": lambda: loop.cache.is_synced(time.monotonic()),
    }


def _watch_or_exit(
    connection: Connection, kind: WatchedKind, report: Callable[[WatchUpdate], None], stopping: threading.Event
) -> None:
    """A watcher that an unforeseen error ends takes the process with it: the pod restarts and watches again."""
    try:
        list_and_watch(connection, kind, report, stopping)
    except BaseException:  # noqa: BLE001 whatever it is, a forwarder that is blind must not go on
        log_line(logger, log_lines.WATCHER_ENDED, kind=kind.name)
        os._exit(1)


def _log_to_stdout() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "INFO").upper(), handlers=[handler])
    logging.getLogger("botocore").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
