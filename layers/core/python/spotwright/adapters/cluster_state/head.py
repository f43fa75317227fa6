"""The head of a cluster state: which bodies it consists of, and how current it is."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import describe_error
from spotwright.model.cluster_state import SCHEMA, ClusterStateError, ClusterStateHead
from spotwright.model.quoting import quote

# The clocks of the forwarder and of a function may differ by so much.
CLOCK_SKEW: Final = timedelta(seconds=10)


class _Schema(msgspec.Struct, frozen=True):
    schema: int


def encode_head(head: ClusterStateHead) -> str:
    """The head as JSON."""
    return msgspec.json.encode(head, order="deterministic").decode()


def decode_head(text: str, *, cluster: str, now: datetime) -> ClusterStateHead:
    """The head of a cluster's state. Raises ClusterStateError for what cannot be true, such as a time after ``now``."""
    try:
        schema = msgspec.json.decode(text, type=_Schema).schema
        if schema != SCHEMA:
            raise ClusterStateError(
                f"the state of {cluster} has schema {schema}; this version reads schema {SCHEMA}", code="OtherSchema"
            )
        head = msgspec.json.decode(text, type=ClusterStateHead)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ClusterStateError(
            f"the head of the state of {cluster} cannot be read: {describe_error(error)}", code="Malformed"
        ) from None
    _check(head, cluster, now)
    return head


def read_resource_version(kind: str, text: str) -> int:
    """A resourceVersion as a number, by which versions are compared. Raises ClusterStateError.

    Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise ClusterStateError(
            f"the resourceVersion of {kind} is {quote(text)}, which is not a whole number", code="BadResourceVersion"
        )
    return int(text)


def _check(head: ClusterStateHead, cluster: str, now: datetime) -> None:
    if head.cluster != cluster:
        raise ClusterStateError(f"the state of {cluster} is of the cluster {head.cluster}", code="OtherCluster")
    for key in filter(None, (head.full, head.changes)):
        if not key.startswith(f"clusters/{cluster}/state/"):
            raise ClusterStateError(f"the state of {cluster} has a body at {quote(key)}", code="OtherCluster")
    for kind, state in head.kinds.items():
        read_resource_version(kind, state.resource_version)
    times = {"taken": head.taken} | {f"contacted of {kind}": state.contacted for kind, state in head.kinds.items()}
    for field, at in times.items():
        if at.tzinfo is None:
            raise ClusterStateError(f"the state of {cluster}: {field} has no time zone", code="Malformed")
        if at > now + CLOCK_SKEW:
            raise ClusterStateError(
                f"the state of {cluster}: {field} is {at.isoformat()}, after the present, {now.isoformat()}",
                code="InTheFuture",
            )
