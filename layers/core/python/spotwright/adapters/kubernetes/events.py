"""Recording Events: an equal event is counted instead of created again, and not more often than its row allows."""

import hashlib
from datetime import datetime
from typing import Final

from spotwright.adapters.kubernetes.codecs.objects import decode_time, encode_time
from spotwright.adapters.kubernetes.object_path import object_path
from spotwright.adapters.kubernetes.transport import MERGE_PATCH, JsonObject, Transport
from spotwright.errors import ApiError, Conflict
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.telemetry.events import place_in_life
from spotwright.telemetry.rows import Event

_KINDS: Final = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "nodeclaims": ("karpenter.sh/v1", "NodeClaim"),
    "nodepools": ("karpenter.sh/v1", "NodePool"),
    "nodeoverlays": ("karpenter.sh/v1alpha1", "NodeOverlay"),
    "ec2nodeclasses": ("karpenter.k8s.aws/v1", "EC2NodeClass"),
}


# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
NAME_LENGTH: Final = 253
# How many Events are remembered before those that may be recorded again are looked for.
FORGET_AT: Final = 1000


class EventRecorder:
    """Records Events of the cluster's objects. A failure to record an Event is ignored."""

    def __init__(self, api: Transport) -> None:
        self._api = api
        # Digest of an event that this process recorded → when an equal event may be recorded: most need no request.
        self._silent_until: dict[str, datetime] = {}
        self._forget_at = FORGET_AT

    def record(self, kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        """``kind``: plural of the object's kind. Does nothing for an equal event within ``repeat_after``."""
        digest = hashlib.sha256(f"{metadata.uid}/{event.reason}/{event.message}".encode()).hexdigest()[:16]
        if now < self._silent_until.get(digest, now):
            return
        try:
            name = _event_name(metadata.name, f"{place_in_life(event.reason):02}{digest}")
            self._create_or_count(_encode_event(name, kind, metadata, event, now), event, now)
        except ApiError:
            return
        if len(self._silent_until) >= self._forget_at:
            self._silent_until = {key: until for key, until in tuple(self._silent_until.items()) if now < until}
            self._forget_at = max(FORGET_AT, 2 * len(self._silent_until))
        self._silent_until[digest] = now + event.row.repeat_after

    def _create_or_count(self, body: JsonObject, event: Event, now: datetime) -> None:
        path = object_path("/api/v1/events", body["metadata"]["name"], body["metadata"]["namespace"])
        try:
            self._api.call("POST", path.rpartition("/")[0], body=body)
        except Conflict:
            self._count(path, event, now)

    def _count(self, path: str, event: Event, now: datetime) -> None:
        """Increase the count of an existing event, unless another process did so within ``repeat_after``."""
        before = self._api.call("GET", path)
        last = decode_time(before.get("lastTimestamp"))
        if last is None or now - last >= event.row.repeat_after:
            change = {"count": (before.get("count") or 1) + 1, "lastTimestamp": encode_time(now)}
            self._api.call("PATCH", path, body=change, content_type=MERGE_PATCH)


def _event_name(about: str, suffix: str) -> str:
    """``about``: the name of the object, which may be as long as a name may be, and is cut short then."""
    return f"{about[: NAME_LENGTH - 1 - len(suffix)].rstrip('-.')}.{suffix}"


def _encode_event(name: str, kind: str, metadata: ObjectMeta, event: Event, now: datetime) -> JsonObject:
    version, kind_name = _KINDS[kind]
    stamp = encode_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata.namespace or "default"},
        "involvedObject": {
            "apiVersion": version, "kind": kind_name, "name": metadata.name, "namespace": metadata.namespace,
            "uid": metadata.uid,
        },
        "type": event.type, "reason": event.reason, "message": event.message[:1024], "count": 1,
        "firstTimestamp": stamp, "lastTimestamp": stamp,
        "source": {"component": "spotwright"}, "reportingComponent": "spotwright",
    }  # fmt: skip
