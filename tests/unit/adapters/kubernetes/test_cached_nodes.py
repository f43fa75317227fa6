"""A Node from the API server's cache, in which it may be missing for a moment."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import NotFound, Unavailable

NODE = {"metadata": {"name": "node", "uid": "u"}}


class Server:
    """An API server. ``cached``, ``stored``: whether the Node is in its cache, and there at all."""

    def __init__(self, *, cached: bool, stored: bool = True) -> None:
        self._cached, self._stored = cached, stored
        self.versions: list[str | None] = []

    def call(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        assert (method, path) == ("GET", "/api/v1/nodes/node")
        version = (query or {}).get("resourceVersion")
        self.versions.append(version)
        if self._cached if version == "0" else self._stored:
            return NODE
        raise NotFound("no such node", code="NotFound")


@pytest.mark.parametrize(
    ("server", "cached", "versions", "is_there"),
    [
        (Server(cached=True), True, ["0"], True),
        (Server(cached=True), False, [None], True),
        (Server(cached=False), True, ["0", None], True),
        (Server(cached=False, stored=False), True, ["0", None], False),
    ],
)
def test_what_the_cache_does_not_have_is_read(
    server: Server, cached: bool, versions: list[str | None], is_there: bool
) -> None:
    found = KubernetesCluster("dev", cast("Transport", server)).node_with_volumes("node", cached=cached)
    assert (found is not None) == is_there
    assert server.versions == versions


def test_a_cache_that_does_not_answer_is_no_absence() -> None:
    class Silent(Server):
        def call(self, *_: object, **__: object) -> dict[str, Any]:
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        KubernetesCluster("dev", cast("Transport", Silent(cached=True))).node_with_volumes("node", cached=True)
