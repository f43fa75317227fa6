"""Installation into a real API server, and into none."""

import copy
import time
from collections.abc import Callable

import msgspec
import pytest

from spotwright import manifests
from spotwright.adapters.kubernetes.connection import token_configuration
from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
from spotwright.errors import NotFound, Unavailable
from spotwright.workflows.install.forwarder_pods import await_credentials
from spotwright.workflows.install.workflow import install, remove
from tests.functions.install.fakes import Access, Nodes, Waiting
from tests.manifests.cluster import Cluster, running_cluster, wanted
from tests.manifests.samples import SAMPLES, Object, changed


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return running_cluster()


def test_a_real_api_server_takes_everything_and_loses_no_claim_by_any_delete(cluster: Cluster) -> None:
    install(Access(cluster.objects), Nodes(), wanted("old"), Waiting())
    claims = [changed(SAMPLES["NodeClaim"](), "metadata.name", f"alive-{n}") for n in range(3)]
    others = [changed(SAMPLES[kind](), "metadata.name", "alive") for kind in ("NodePool", "EC2NodeClass")]
    for one in [*claims, *others]:
        cluster.objects.apply(one)
    install(Access(cluster.objects), Nodes(), wanted("new", "forwarder:next"), Waiting())
    remove(Access(cluster.objects), Nodes(), wanted("old"), Waiting())
    deployment = wanted().parts[-1]
    live = cluster.objects.read(dict(deployment))
    assert live is not None
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "forwarder:next"
    removal = remove(Access(cluster.objects), Nodes(), wanted("new"), Waiting())
    assert removal.gave_up == ""
    assert all(cluster.objects.read(dict(part)) is None for part in wanted().parts)
    for one in [*claims, *others]:
        kept = cluster.objects.read(one)
        assert kept is not None
        assert "deletionTimestamp" not in kept["metadata"]
    assert all(cluster.objects.read(dict(definition)) is not None for definition in manifests.definitions())


def test_a_definition_of_karpenters_chart_is_taken_over(cluster: Cluster) -> None:
    """A chart's definition: another field manager, an older stored version, labels of its own."""
    cluster.objects.delete(manifests.definitions()[0])
    ours = copy.deepcopy(manifests.definitions()[0])
    version = ours["spec"]["versions"][0]
    bare = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    old = {**version, "name": "v1beta1", "schema": {"openAPIV3Schema": bare}}
    ours["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    ours["spec"]["versions"] = [{**version, "storage": False}, old]
    _apply_when_gone(cluster.objects, ours)
    pool = changed(changed(SAMPLES["NodePool"](), "apiVersion", "karpenter.sh/v1beta1"), "metadata.name", "chart")
    _eventually(lambda: cluster.objects.apply(pool))
    install(Access(cluster.objects), Nodes(), wanted(), Waiting())
    live = cluster.objects.read(manifests.definitions()[0])
    assert live is not None
    assert [(one["name"], one["served"], one["storage"]) for one in live["spec"]["versions"]] == [
        ("v1", True, True),
        ("v1beta1", True, False),
    ]
    kept = cluster.objects.read(changed(SAMPLES["NodePool"](), "metadata.name", "chart"))
    assert kept is not None
    assert kept["apiVersion"] == "karpenter.sh/v1"
    cluster.objects.delete(manifests.definitions()[0])
    _apply_when_gone(cluster.objects, manifests.definitions()[0])


def _apply_when_gone(objects: DynamicClient, document: Object) -> None:
    def gone() -> None:
        assert objects.read(document) is None

    _eventually(gone)
    objects.apply(document, manager="helm")


def _eventually(act: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            act()
        except (AssertionError, NotFound):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


def test_pods_of_a_real_deployment_make_room_until_one_has_credentials(cluster: Cluster) -> None:
    without, given = wanted("pods"), wanted("pods", "forwarder:given")
    environment = {"CLUSTER_NAME": "test"}
    bare = msgspec.structs.replace(
        without, parts=[*without.parts[:-1], *manifests.forwarder("forwarder:test", environment)[-1:]]
    )

    def uids() -> set[str]:
        selector = "app.kubernetes.io/name=spotwright-forwarder"
        return {pod["metadata"]["uid"] for pod in cluster.objects.list("v1", "Pod", "kube-system", selector)}

    # Pods of an earlier installation have credentials, and go when the controllers come to it.
    remove(Access(cluster.objects), Nodes(), wanted(), Waiting())
    _eventually(lambda: _check(not uids()))
    install(Access(cluster.objects), Nodes(), bare, Waiting(15))
    _eventually(lambda: _check(len(uids()) == 1))
    early = uids()
    assert not await_credentials(cluster.objects, "test", Waiting(5))
    _eventually(lambda: _check(len(uids()) == 1 and not uids() & early))
    install(Access(cluster.objects), Nodes(), given, Waiting())
    assert await_credentials(cluster.objects, "test", Waiting())
    kept = uids()
    assert await_credentials(cluster.objects, "test", Waiting())
    assert uids() == kept
    remove(Access(cluster.objects), Nodes(), given, Waiting())


def _check(holds: bool) -> None:
    assert holds


def test_an_api_server_that_is_not_there_is_unavailable_after_bounded_attempts() -> None:
    waited: list[float] = []
    configuration = token_configuration("https://127.0.0.1:9", "", lambda: "token")
    objects = DynamicClient(configuration, attempts=3, pause=waited.append)
    with pytest.raises(Unavailable):
        objects.read(SAMPLES["NodePool"]())
    assert len(waited) == 2
