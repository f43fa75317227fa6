"""`python -m forwarder`: reads the environment, makes the clients, and runs until SIGTERM."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

import msgspec
from botocore.exceptions import BotoCoreError
from prometheus_client import CollectorRegistry, Metric

from forwarder.batching import BatchWindow
from forwarder.epoch import Epoch
from forwarder.kinds import WATCHED_KINDS, WatchedKind
from forwarder.loop import Loop, Update
from forwarder.metrics import ClusterCollector, families, state_figures
from forwarder.object_cache import ObjectCache
from forwarder.outgoing import SendJobs
from forwarder.scalable_watchers import ScalableWatchers
from forwarder.sender import DoorbellSender, write_heartbeat
from forwarder.settings import ForwarderSettings, settings
from forwarder.state_jobs import StateJobs
from forwarder.state_shipping import StateShipping
from forwarder.watcher import WatchUpdate, list_and_watch
from forwarder.web import Checks, serve
from spotwright.adapters.aws import clients
from spotwright.adapters.aws.cluster_states import ClusterStateWriter
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.kubernetes.connection import Connection, pod_configuration
from spotwright.errors import InvalidRequest
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

# A loop without a turn for this long is stuck; what takes long is done in threads of its own.
STUCK_SECONDS = 120.0

_NO_HEARTBEAT = "no heartbeat was written: without AWS credentials none can be; the log says more"

logger = logging.getLogger("forwarder")


class JsonLines(logging.Formatter):
    """One JSON object per line, with the cluster's name and whatever a record carries as ``extra``."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({})))

    def __init__(self, cluster: str = "") -> None:
        super().__init__()
        self._always = {"cluster": cluster} if cluster else {}

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in self._STANDARD | {"message"}}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line = {"level": record.levelname, "time": at, "message": record.getMessage(), **self._always, **extra}
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
    try:
        has_credentials = clients.has_own_credentials()
    except BotoCoreError as error:
        # The agent may come up later: the kubelet starts the container again.
        log_line(logger, log_lines.FORWARDER_MISCONFIGURED, error=f"no AWS credentials: {error}")
        return 2
    if not has_credentials:
        log_line(logger, log_lines.FORWARDER_WITHOUT_CREDENTIALS, cluster=forwarder_settings.cluster)
    if not forwarder_settings.bucket:
        log_line(logger, log_lines.FORWARDER_OUTDATED, cluster=forwarder_settings.cluster, missing="SPOTWRIGHT_BUCKET")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    _run(forwarder_settings, connection, stopping)
    return 0


def _run(forwarder_settings: ForwarderSettings, connection: Connection, stopping: threading.Event) -> None:
    updates: SimpleQueue[Update] = SimpleQueue()

    def start_watcher(kind: WatchedKind, kind_stopping: threading.Event) -> None:
        arguments = (connection, kind, updates.put, kind_stopping)
        threading.Thread(target=_watch_or_exit, args=arguments, name=kind.name, daemon=True).start()

    loop = _loop(forwarder_settings, updates, ScalableWatchers(start_watcher))
    server = serve(
        _registry(loop), _checks(loop, time.monotonic), forwarder_settings.address, forwarder_settings.metrics_port
    )
    for kind in WATCHED_KINDS:
        start_watcher(kind, stopping)
    host, port = server.server_address[:2]
    log_line(logger, log_lines.FORWARDER_STARTED, cluster=forwarder_settings.cluster, metrics=f"{host!s}:{port}")
    loop.run(stopping)
    server.shutdown()
    log_line(logger, log_lines.FORWARDER_STOPPED)


def _loop(forwarder_settings: ForwarderSettings, updates: SimpleQueue[Update], scalables: ScalableWatchers) -> Loop:
    cluster, epoch = forwarder_settings.cluster, Epoch(int(time.time() * 1000))
    sender = DoorbellSender(clients.client("sqs"), cluster=cluster, urls=forwarder_settings.queues)
    dynamodb, cache = clients.client("dynamodb"), ObjectCache()
    table = Table(dynamodb, forwarder_settings.table)
    jobs = None
    if bucket := forwarder_settings.bucket:
        writer = ClusterStateWriter(clients.client("s3"), table, bucket=bucket, cluster=cluster)
        jobs = StateJobs(writer, cluster=cluster, epoch=epoch, report=updates.put)

    def beat(leaving: bool, sequence: int) -> None:
        write_heartbeat(
            dynamodb,
            table=table.name,
            cluster=cluster,
            now=time.time(),
            epoch=epoch,
            sequence=sequence,
            leaving=leaving,
        )

    shipping = StateShipping(cache, jobs, cluster=cluster, epoch=epoch.number, wall=lambda: datetime.now(UTC))
    return Loop(
        updates=updates,
        cache=cache,
        shipping=shipping,
        window=BatchWindow(forwarder_settings.batch_idle_seconds, forwarder_settings.batch_max_seconds),
        jobs=SendJobs(send=sender.send, beat=beat, sequence=lambda: shipping.sequence, report=updates.put),
        watch_scalables=scalables.watch,
    )


def _registry(loop: Loop) -> CollectorRegistry:
    def current_families() -> Iterator[Metric]:
        now, cache = time.monotonic(), loop.cache
        silent = {kind: now - contact.at for kind, contact in cache.contacts().items()}
        state = state_figures(loop, datetime.now(UTC))
        fresh = cache.is_synced(now)
        return families(cache.nodes(), cache.pods(), loop.counters, state, fresh=fresh, silent_seconds=silent)

    registry = CollectorRegistry()
    registry.register(ClusterCollector(current_families))
    return registry


def _checks(loop: Loop, clock: Callable[[], float]) -> Checks:
    started = clock()

    def unhealthy() -> str:
        is_stuck = clock() - max(started, loop.counters.last_turn_at) >= STUCK_SECONDS
        return f"the loop has not turned for {STUCK_SECONDS:.0f} s" if is_stuck else ""

    def unready() -> str:
        if not loop.cache.is_synced(clock()):
            return "not every watch is up to date"
        return "" if loop.counters.heartbeats else _NO_HEARTBEAT

    return {"/healthz": unhealthy, "/readyz": unready}


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
    handler.setFormatter(JsonLines(os.environ.get("SPOTWRIGHT_CLUSTER", "")))
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "INFO").upper(), handlers=[handler])
    logging.getLogger("botocore").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
