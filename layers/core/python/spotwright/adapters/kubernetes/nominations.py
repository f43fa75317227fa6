"""Nominating pods: ``status.nominatedNodeName``, by which kube-scheduler tries a node first."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from spotwright.adapters.kubernetes.object_path import object_path
from spotwright.adapters.kubernetes.transport import JSON_PATCH, JsonObject, Transport
from spotwright.errors import InvalidRequest, NotFound

# Nominations are written in parallel: until all are written, kube-scheduler may bind other pods to the nodes.
PODS_AT_ONCE: Final = 8
_IS_UNBOUND: Final[JsonObject] = {"op": "test", "path": "/spec/nodeName", "value": None}
_FIELD: Final = "/status/nominatedNodeName"


class _Nomination(NamedTuple):
    """For which node a pod is nominated; ``is_open``: it is neither nominated nor bound."""

    node: str = ""
    is_open: bool = False


def nominate(api: Transport, node: str, pods: Mapping[str, str], *, again: bool) -> frozenset[str]:
    """Nominate unbound pods (key → uid) without another nomination; the keys of those nominated for ``node`` now.

    ``again``: most are expected to be nominated or bound, and are read first.
    """

    def read(key: str) -> _Nomination:
        return _read_nomination(api, key, pods[key])

    before = dict(_of_pods(read, pods)) if again else {}
    # Without ``again`` every pod is patched, and read only where its tests do not hold: another process may have
    # nominated it for the same node.
    open_pods = {key: uid for key, uid in pods.items() if not again or before[key].is_open}
    changes: list[JsonObject] = [
        _IS_UNBOUND,
        {"op": "test", "path": _FIELD, "value": None},
        {"op": "add", "path": _FIELD, "value": node},
    ]
    patched = _patch_pods(api, open_pods, changes)
    nominated = {key for key, nomination in before.items() if nomination.node == node}
    return frozenset(nominated | {key for key, is_set in patched if is_set or read(key).node == node})


def clear_nominations(api: Transport, node: str, pods: Mapping[str, str]) -> None:
    """Remove the nomination for ``node`` from those pods (key → uid) that are unbound and have it."""
    changes: list[JsonObject] = [
        _IS_UNBOUND,
        {"op": "test", "path": _FIELD, "value": node},
        {"op": "remove", "path": _FIELD},
    ]
    _patch_pods(api, pods, changes)


def _patch_pods(api: Transport, pods: Mapping[str, str], changes: list[JsonObject]) -> list[tuple[str, bool]]:
    """Patch the status of every pod (key → uid) in parallel; whether the tests of its patch held."""
    return _of_pods(lambda key: _patch_pod(api, key, pods[key], changes), pods)


def _of_pods[T](call: Callable[[str], T], pods: Mapping[str, str]) -> list[tuple[str, T]]:
    """What ``call`` answers for every pod (key → uid), in parallel."""
    if not pods:
        return []
    with ThreadPoolExecutor(min(len(pods), PODS_AT_ONCE)) as threads:
        return list(threads.map(lambda key: (key, call(key)), sorted(pods)))


def _patch_pod(api: Transport, key: str, uid: str, changes: list[JsonObject]) -> bool:
    """False when a test of the patch does not hold (422), or the pod does not exist."""
    same_uid: JsonObject = {"op": "test", "path": "/metadata/uid", "value": uid}
    try:
        api.call("PATCH", f"{_pod_path(key)}/status", body=[same_uid, *changes], content_type=JSON_PATCH)
    except (NotFound, InvalidRequest):
        return False
    return True


def _read_nomination(api: Transport, key: str, uid: str) -> _Nomination:
    """That of a pod with this uid which is not bound."""
    try:
        pod = api.call("GET", _pod_path(key))
    except NotFound:
        return _Nomination()
    if pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
        return _Nomination()
    node = (pod.get("status") or {}).get("nominatedNodeName") or ""
    return _Nomination(node=node, is_open=not node)


def _pod_path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return object_path("/api/v1/pods", name, namespace)
