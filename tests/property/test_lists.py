"""A list has each object once, whatever its pages are like and whatever happens between them."""

import json
import random
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from spotwright.adapters.kubernetes import page_limit
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.media_types import JSON
from spotwright.adapters.kubernetes.codecs.protobuf_pods import ProtobufPods
from spotwright.adapters.kubernetes.connection import Connection
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import ApiError, Conflict, Throttled, Unavailable
from tests.property.protobuf_pods import page_of

_BROKEN = "broken"
_FAULTS = (Throttled("busy"), Unavailable("away"), Unavailable("cut short"))


class Pods:
    """An API server with a few pods, whose answers may fail. Pods that are _BROKEN can be read in JSON alone."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._faults, self._expires = chance.choice((0, 0, 0.1, 0.4)), chance.choice((0, 0, 0, 0.05))
        self._writes_json = chance.choice((0, 0, 0.3, 1))
        broken = chance.choice((0, 0.01, 0.1))
        self.pods: list[dict[str, Any]] = [
            {"metadata": {"name": f"{_BROKEN if chance.random() < broken else 'p'}{number}", "namespace": "a",
                          "labels": {"size": "x" * chance.choice((1, 1, 1, 50, 500))}},
             "spec": {}, "status": {}}
            for number in range(chance.randrange(200))
        ]  # fmt: skip

    def read_at_most(self, path: str, most_bytes: int | None, accept: str) -> bytes | None:
        query = parse_qs(urlsplit(path).query)
        if self._chance.random() < self._faults:
            raise self._chance.choice(_FAULTS)
        if "continue" in query and self._chance.random() < self._expires:
            raise Conflict("too old", code="Expired")
        first = int(query.get("continue", ["0"])[0])
        end = first + int(query["limit"][0])
        content = self._page(self.pods[first:end], str(end) if end < len(self.pods) else "", accept)
        return None if most_bytes is not None and len(content) > most_bytes else content

    def _page(self, pods: list[dict[str, Any]], following: str, accept: str) -> bytes:
        if accept == JSON or self._chance.random() < self._writes_json:
            # JSON is longer than Protobuf.
            metadata = {"continue": following, "managedFields": "x" * 20 * len(pods)}
            return json.dumps({"metadata": metadata, "items": pods}).encode()
        return page_of(pods, following=following).replace(_BROKEN.encode(), b"\xff" * len(_BROKEN))


@pytest.mark.parametrize("seed", range(60))
def test_a_list_has_each_object_once_or_fails(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for name, value in {"PAGE_SIZE": 40, "PAGE_BYTES": 4_000, "_SHORT_BYTES": 1_000}.items():
        monkeypatch.setattr(page_limit, name, value)
    server, api = Pods(random.Random(f"lists {seed}")), Transport.__new__(Transport)
    api._connection = cast("Connection", server)
    try:
        listed = [pod.metadata.name for pod in api.items("/api/v1/pods", pod_decoder(), protobuf=ProtobufPods)]
    except ApiError:
        assert server._faults or server._expires
    else:
        assert listed == [pod["metadata"]["name"] for pod in server.pods]
