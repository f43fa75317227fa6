"""A real API server's pods are the same in Protobuf as in JSON, and so is its refusal."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from google.protobuf.message import Message

from local.stack import Stack
from spotwright.adapters.kubernetes import page_limit
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.codecs import protobuf_messages
from spotwright.adapters.kubernetes.codecs.media_types import JSON, PROTOBUF
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.adapters.kubernetes.codecs.protobuf_messages import read_answer
from spotwright.adapters.kubernetes.codecs.protobuf_pods import ProtobufPods
from spotwright.adapters.kubernetes.connection import Connection, kubeconfig_configuration
from spotwright.adapters.kubernetes.transport import MERGE_PATCH, Transport
from spotwright.errors import Denied, InvalidRequest
from spotwright.model.kubernetes.pod import Pod
from tests.property.changed_objects import of_kind

PATH = "/api/v1/namespaces/protobuf/pods"
_NEAR = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    "namespaceSelector": {},
    "mismatchLabelKeys": ["version"],
}
# What the other pods of the tests do not have, or not where an API server takes it.
_REST: Final = {
    "metadata": {"labels": {"app": "web", "version": "2"}, "finalizers": ["example.com/backup"]},
    "spec": {
        "containers": [{"name": "web", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]}],
        "nodeName": "nowhere",
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 0,
        "runtimeClassName": "virtual-machine",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": _NEAR}]},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [_NEAR | {"namespaces": ["b", "a"]}]},
        },
    },
}  # fmt: skip
_WAITING: Final = {
    "spec": {"containers": [{"name": "web"}], "initContainers": [{"name": "setup", "image": "pause"}]},
    "status": {
        "initContainerStatuses": [{"name": "setup"}],
        "nominatedNodeName": "ip-10-0-0-1",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
}


@pytest.fixture(scope="module")
def api(stack: Stack) -> Transport:
    stack.kubectl("create", "namespace", "protobuf")
    api = Transport.from_configuration(kubeconfig_configuration(str(stack.kubeconfig)))
    runtime = {"metadata": {"name": "virtual-machine"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "10m"}}}
    api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body=runtime)
    return api


def pods_with_every_field(api: Transport) -> list[str]:
    """Those of the tests' pods, with their status, that the API server takes; no scheduler cares about them."""
    numbers, created = itertools.count(1), list[str]()
    for pod in (*of_kind("Pod"), _REST, _WAITING):
        name, stated = f"pod-{next(numbers)}", pod.get("metadata", {})
        metadata = {key: stated[key] for key in ("labels", "annotations", "finalizers") if key in stated}
        spec = {**pod["spec"], "schedulerName": "nobody", "containers": [
            {"image": "pause", **container} for container in pod["spec"]["containers"]]}  # fmt: skip
        for field in ("serviceAccountName", "serviceAccount"):
            spec.pop(field, None)
        with suppress(InvalidRequest, Denied):
            api.call("POST", PATH, body={"metadata": {**metadata, "name": name}, "spec": spec})
            created.append(name)
            if status := pod.get("status"):
                api.call("PATCH", f"{PATH}/{name}/status", body={"status": status}, content_type=MERGE_PATCH)
            if metadata.get("finalizers"):
                api.call("DELETE", f"{PATH}/{name}")
    return created


def stated_fields(message: Message) -> Iterator[str]:
    """Fields that are not empty, of a message and of those in it."""
    for field, value in message.ListFields():
        if value:
            yield f"{message.DESCRIPTOR.name}.{field.name}"
        entries = field.message_type is not None and field.message_type.GetOptions().map_entry
        for inner in value.values() if entries else value if field.is_repeated else (value,):
            if isinstance(inner, Message):
                yield from stated_fields(inner)


def schema_of_pods() -> set[str]:
    """All fields that are read of a page of pods."""
    others = ("ListHead", "Status")
    return {
        f"{kind}.{field}"
        for kind, fields in protobuf_messages._MESSAGES.items()
        for field in fields
        if not kind.endswith("Answer") and kind not in others
    }


def test_pods_are_read_alike_in_protobuf_and_in_json(api: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    names, pages, stated = pods_with_every_field(api), list[int](), set[str]()

    class Counted(ProtobufPods):
        def page(self, content: bytes) -> Any:
            stated.update(stated_fields(read_answer("PodList", content)))
            page = super().page(content)
            pages.append(len(page.items))
            return page

    monkeypatch.setattr("spotwright.adapters.kubernetes.codecs.protobuf_pods.ProtobufPods", Counted)
    monkeypatch.setattr(page_limit, "PAGE_SIZE", 1)
    listed = {pod.key: pod for pod in KubernetesCluster("contract", api).pods()}
    for name in names:
        assert listed[f"protobuf/{name}"] == decode_pod(api.call("GET", f"{PATH}/{name}"))
    assert len(pages) == sum(pages) == len(listed) - 1
    read = [listed[f"protobuf/{name}"] for name in names]
    empty = Pod(read[0].metadata)
    tried = {
        field for field in Pod.__struct_fields__ if any(getattr(pod, field) != getattr(empty, field) for pod in read)
    }
    assert set(Pod.__struct_fields__) - tried == {"read_error"}
    assert sorted(schema_of_pods() - stated) == []


def test_a_refusal_in_protobuf_is_told_as_in_json(stack: Stack) -> None:
    connection = Connection(kubeconfig_configuration(str(stack.kubeconfig)))
    said = list[str]()
    for accept in (JSON, PROTOBUF):
        with pytest.raises(InvalidRequest) as raised:
            connection.read("GET", "/api/v1/pods?limit=1&continue=nonsense", accept=accept)
        said.append(f"{raised.value.code} {raised.value}")
    assert said[0] == said[1]
    assert "continue key is not valid" in said[0]
