"""`python -m forwarder`: reads the environment, makes the clients, and runs until SIGTERM."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Metric

from forwarder.batching import BatchWindow
from forwarder.loop import Loop
from forwarder.metrics import ClusterCollector, families
from forwarder.object_cache import ObjectCache
from forwarder.sender import DoorbellSender, write_heartbeat
from forwarder.settings import ForwarderSettings, settings
from forwarder.watcher import WATCHED_KINDS, WatchedKind, WatchNews, list_and_watch
from forwarder.web import Checks, serve
from spotwright.adapters.aws import clients
from spotwright.adapters.kubernetes.connection import Connection, pod_configuration
from spotwright.errors import InvalidRequest
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

# A loop that has not gone round for this long is stuck: longer than any send with all its attempts.
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
        wanted = settings(os.environ)
        connection = Connection(pod_configuration(wanted.server, Path(wanted.service_account)))
    except InvalidRequest as error:
        log_line(logger, log_lines.FORWARDER_MISCONFIGURED, error=str(error))
        return 2
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    _run(wanted, connection, stopping)
    return 0


def _run(wanted: ForwarderSettings, connection: Connection, stopping: threading.Event) -> None:
    loop = _loop(wanted)
    server = serve(_registry(loop), _checks(loop), wanted.address, wanted.metrics_port)
    for kind in WATCHED_KINDS:
        arguments = (connection, kind, loop.news.put, stopping)
        threading.Thread(target=_watch_or_exit, args=arguments, name=kind.name, daemon=True).start()
    host, port = server.server_address[:2]
    log_line(logger, log_lines.FORWARDER_STARTED, cluster=wanted.cluster, metrics=f"{host!s}:{port}")
    loop.run(stopping)
    server.shutdown()
    log_line(logger, log_lines.FORWARDER_STOPPED)


def _loop(wanted: ForwarderSettings) -> Loop:
    started = time.time()
    sender = DoorbellSender(clients.client("sqs"), cluster=wanted.cluster, urls=wanted.queues)
    dynamodb = clients.client("dynamodb")

    def beat(leaving: bool) -> None:
        epoch, now = int(started * 1000), 0.0 if leaving else time.time()
        write_heartbeat(dynamodb, table=wanted.table, cluster=wanted.cluster, now=now, epoch=epoch)

    window = BatchWindow(wanted.batch_idle_seconds, wanted.batch_max_seconds)
    return Loop(cache=ObjectCache(), window=window, send=sender.send, beat=beat)


def _registry(loop: Loop) -> CollectorRegistry:
    def now_known() -> Iterator[Metric]:
        now, memory = time.monotonic(), loop.cache
        silent = {kind: now - at for kind, at in memory.last_contact().items()}
        return families(
            memory.nodes(), memory.pods(), loop.counters, fresh=memory.is_synced(now), silent_seconds=silent
        )

    registry = CollectorRegistry()
    registry.register(ClusterCollector(now_known))
    return registry


def _checks(loop: Loop) -> Checks:
    started = time.monotonic()
    return {
        "/healthz": lambda: time.monotonic() - max(started, loop.counters.last_turn_at) < STUCK_SECONDS,
        "/readyz": lambda: loop.cache.is_synced(time.monotonic()),
    }


def _watch_or_exit(
    connection: Connection, kind: WatchedKind, report: Callable[[WatchNews], None], stopping: threading.Event
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
