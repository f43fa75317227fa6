"""What the environment tells the forwarder, read once and frozen."""

from collections.abc import Mapping

import msgspec

from spotwright.adapters.kubernetes.connection import SERVICE_ACCOUNT
from spotwright.errors import InvalidRequest
from spotwright.model.quoting import quote

QUEUES = ("provision", "lifecycle", "catalog")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


class ForwarderSettings(msgspec.Struct, frozen=True):
    """``table`` and ``bucket``: where heartbeat and cluster state are written, bucket "" = no state is. ``queues``: URL
    by name.

    ``batch_idle_seconds``/``batch_max_seconds``: Karpenter's batching window of pods.
    ``server``: URL of the API server; ``service_account``: the folder of the pod's token and the cluster's CA.
    ``address`` and ``metrics_port``: where metrics are served; port 0 = any free one.
    """

    cluster: str
    table: str
    bucket: str
    queues: dict[str, str]
    server: str
    service_account: str = str(SERVICE_ACCOUNT)
    address: str = "127.0.0.1"
    metrics_port: int = 8080
    batch_idle_seconds: float = 1.0
    batch_max_seconds: float = 10.0


def settings(variables: Mapping[str, str]) -> ForwarderSettings:
    """Read the variables that the Deployment sets; raises InvalidRequest naming the one that is wrong.

    An image may be newer than its Deployment, until that is installed again: what came later has a default.
    """
    try:
        return ForwarderSettings(
            cluster=variables.get("CLUSTER_NAME") or variables["SPOTWRIGHT_CLUSTER"],
            table=variables["SPOTWRIGHT_TABLE"],
            bucket=variables.get("SPOTWRIGHT_BUCKET", ""),
            queues={name: variables[f"SPOTWRIGHT_{name.upper()}_QUEUE_URL"] for name in QUEUES},
            server=_server(variables["KUBERNETES_SERVICE_HOST"], variables["KUBERNETES_SERVICE_PORT"]),
            service_account=variables.get("KUBERNETES_SERVICEACCOUNT_DIRECTORY") or str(SERVICE_ACCOUNT),
            address=variables.get("POD_IP") or "127.0.0.1",
            metrics_port=_port(variables.get("METRICS_PORT", "8080")),
            batch_idle_seconds=_seconds("BATCH_IDLE_DURATION", variables.get("BATCH_IDLE_DURATION", "1s")),
            batch_max_seconds=_seconds("BATCH_MAX_DURATION", variables.get("BATCH_MAX_DURATION", "10s")),
        )
    except KeyError as missing:
        raise InvalidRequest(f"environment variable {missing} is not set") from None


def _server(host: str, port: str) -> str:
    """The kubelet gives an IPv6 cluster's host without brackets."""
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise InvalidRequest(f"environment variable METRICS_PORT: {quote(text)} is not a port (0 to 65535)")
    return int(text)


def _seconds(name: str, text: str) -> float:
    """A Go duration of one unit, such as 1s or 500ms."""
    for unit in sorted(_UNITS, key=len, reverse=True):
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdecimal():
            return float(number) * _UNITS[unit]
    raise InvalidRequest(f"environment variable {name}: {quote(text)} is not a duration such as 1s or 500ms")
