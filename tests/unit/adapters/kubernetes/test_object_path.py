"""What cannot be a name leads to no other object: nothing is asked of the API server, and no object is found."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.nominations import nominate
from spotwright.adapters.kubernetes.object_path import object_path
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Denied, NotFound
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.telemetry import events

NO_NAMES = [
    "", ".", "..", "../secrets/token", "a/status", "a?dryRun=All", "a#b", "a%2fb", "A", "a b", "a\n", "ä", "-a",
    "a" * 254,
]  # fmt: skip


class Forbidding:
    """An API server that denies whatever it is asked: so it answers for kinds that are not in a function's role."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        self.asked.append(f"{method} {path}")
        raise Denied(f"{method} {path}: forbidden", code="Forbidden")


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_cannot_be_a_name_is_the_name_of_nothing(name: str) -> None:
    """The claim of a pod's volume may have any text, and so may what a CapacityBuffer refers to."""
    api = Forbidding()
    cluster = KubernetesCluster("dev", cast("Transport", api))
    assert cluster.persistent_volume_claim("shop", name) is None
    assert cluster.pod("shop", name) is None
    assert cluster.node(name) is None
    assert cluster.nodeclaim(name) is None
    assert nominate(cast("Transport", api), "node", {f"shop/{name}": "uid"}, again=True) == frozenset()
    assert cluster.evict(Pod(ObjectMeta(name, "shop", "uid")))
    cluster.delete("pods", ObjectMeta(name, "shop", "uid"))
    with pytest.raises(NotFound):
        cluster.patch_status("capacitybuffers", ObjectMeta(name, "shop", "uid"), {"replicas": 1})
    with pytest.raises(NotFound):
        cluster.set_conditions("nodes", ObjectMeta(name, uid="uid"), [Condition("Ready", "True")])
    with pytest.raises(NotFound):
        cluster.patch_metadata("nodeclaims", ObjectMeta(name, uid="uid"), {"labels": {"a": "b"}})
    assert api.asked == []


@pytest.mark.parametrize("name", [*NO_NAMES[1:], "a,spec.nodeName=b", "a=b"])
def test_no_pods_run_on_a_node_of_no_name(name: str) -> None:
    """By a cluster state that lies pods may be planned for such a Node: the API server refuses the selector, which
    ended the plan of the cluster."""
    assert KubernetesCluster("dev", cast("Transport", Forbidding())).pods(node=name) == ()


@pytest.mark.parametrize("instance", ["i-a) x", "i-a,i-b", "i-a!", "i-", f"i-{'a' * 62}", "i-a\n"])
def test_no_nodeclaim_has_an_instance_whose_id_cannot_be_a_label(instance: str) -> None:
    """A kubelet states the provider id of its Node itself."""
    cluster = KubernetesCluster("dev", cast("Transport", Forbidding()))
    assert cluster.nodeclaims_of_instances([instance], cached=True) == ()


@pytest.mark.parametrize("namespace", NO_NAMES[1:])
def test_nor_is_it_that_of_a_namespace(namespace: str) -> None:
    with pytest.raises(NotFound, match="no object has the name"):
        object_path("/api/v1/pods", "web", namespace)


@pytest.mark.parametrize("text", NO_NAMES[1:-1])
def test_no_event_is_recorded_of_what_cannot_be_an_object(text: str) -> None:
    """A cluster state that lies shows such pods, and events say where pods go."""
    api = Forbidding()
    cluster = KubernetesCluster("dev", cast("Transport", api))
    for metadata in (ObjectMeta("web", text, "uid"), ObjectMeta(text, "shop", "uid")):
        cluster.record_event("pods", metadata, events.NOMINATED(target="node"), now=datetime(2026, 1, 1, tzinfo=UTC))
    assert api.asked == []


@pytest.mark.parametrize("name", ["a", "0", "ip-10-0-0-1.ec2.internal", "data-web-0", "a" * 253])
def test_names_are_those_of_kubernetes(name: str) -> None:
    assert object_path("/api/v1/nodes", name) == f"/api/v1/nodes/{name}"
    assert object_path("/apis/apps/v1/deployments", name, "shop") == f"/apis/apps/v1/namespaces/shop/deployments/{name}"
