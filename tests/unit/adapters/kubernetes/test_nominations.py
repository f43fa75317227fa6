"""Nominating pods again: what a read shows to be settled is not written."""

from typing import Any, cast

import pytest

from spotwright.adapters.kubernetes.nominations import nominate
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import InvalidRequest, NotFound

NODE = "planned"


class FakeTransport:
    """Pods by name, as the API server shows them; keeps what was called."""

    def __init__(self, pods: dict[str, dict[str, Any]]) -> None:
        self._pods = pods
        self.calls: list[str] = []

    def call(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        name = path.removesuffix("/status").rpartition("/")[2]
        self.calls.append(f"{method} {name}")
        if name not in self._pods:
            raise NotFound(f"pods {name} not found", code="NotFound")
        return self._pods[name]


def shown(uid: str, *, node: str = "", nominated: str = "") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid},
        "spec": {"nodeName": node} if node else {},
        "status": {"nominatedNodeName": nominated} if nominated else {},
    }


def test_only_pods_that_are_neither_nominated_nor_bound_are_written_again() -> None:
    pods = {
        "bound": shown("1", node=NODE),
        "nominated": shown("2", nominated=NODE),
        "elsewhere": shown("3", nominated="other"),
        "made-anew": shown("another"),
        "cleared": shown("5"),
    }
    transport = FakeTransport(pods)
    names = ("bound", "nominated", "elsewhere", "made-anew", "cleared", "gone")
    wanted = {f"default/{name}": str(number) for number, name in enumerate(names, start=1)}
    found = nominate(cast("Transport", transport), NODE, wanted, again=True)
    assert found == {"default/nominated", "default/cleared"}
    assert [call for call in transport.calls if call.startswith("PATCH")] == ["PATCH cleared"]
    assert sorted(call for call in transport.calls if call.startswith("GET")) == sorted(f"GET {name}" for name in names)


class Overtaken(FakeTransport):
    """Before a pod is written, somebody else has changed it."""

    def __init__(self, pods: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> None:
        super().__init__(pods)
        self._after = after

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        if method == "PATCH":
            self._pods = self._after
            super().call(method, path, **more)
            raise InvalidRequest("the test of the patch does not hold")
        return super().call(method, path, **more)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(
    ("after", "is_nominated"),
    [
        ({"pod": shown("1", nominated=NODE)}, True),
        ({"pod": shown("1", nominated="other")}, False),
        ({"pod": shown("1", node=NODE)}, False),
        ({"pod": shown("2", nominated=NODE)}, False),
        ({}, False),
    ],
)
def test_a_pod_that_another_process_nominated_in_between_is_nominated(
    after: dict[str, dict[str, Any]], is_nominated: bool, again: bool
) -> None:
    transport = Overtaken({"pod": shown("1")}, after)
    found = nominate(cast("Transport", transport), NODE, {"default/pod": "1"}, again=again)
    assert found == ({"default/pod"} if is_nominated else set())


class PatchedTransport(FakeTransport):
    """Holds the tests of a patch against the pod, as the API server does."""

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        pod = super().call(method, path, **more)
        for change in more.get("body", ()):
            *places, field = change["path"].strip("/").split("/")
            part: dict[str, Any] = pod
            for place in places:
                part = part.setdefault(place, {})
            if change["op"] == "test" and part.get(field) != change["value"]:
                raise InvalidRequest("the test of the patch does not hold")
            if change["op"] == "add":
                part[field] = change["value"]
        return pod


def test_a_pod_that_is_bound_meanwhile_is_neither_written_nor_counted() -> None:
    bound, waiting = shown("1", node="other"), shown("2")
    transport = PatchedTransport({"bound": bound, "waiting": waiting})
    found = nominate(cast("Transport", transport), NODE, {"default/bound": "1", "default/waiting": "2"}, again=False)
    assert found == {"default/waiting"}
    assert bound["status"] == {}
    assert waiting["status"] == {"nominatedNodeName": NODE}
