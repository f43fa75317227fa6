"""Objects keep what they say when parts of them are shared, and equal parts are kept once."""

from forwarder import sharing
from forwarder.kinds import ClusterObject
from forwarder.sharing import PartPool, share_equal_parts
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.labels import POD_DELETION_COST
from tests.forwarder import objects
from tests.forwarder.objects import decoded


def pod(name: str) -> Pod:
    labels = {"app": "web"}
    value = objects.pod(name, node="n")
    value["metadata"] |= {"labels": labels, "annotations": {POD_DELETION_COST: name}}
    found = decoded("Pod", value)
    assert isinstance(found, Pod)
    return found


def every_kind() -> list[ClusterObject]:
    return [
        pod("a"),
        decoded("Node", objects.node(taints=("x",))),
        decoded("NodeClaim", objects.claim(node_name="n")),
        decoded("NodePool", objects.wish(ready="True")),
        decoded("Namespace", {"metadata": {"name": "a", "uid": "u", "labels": {"team": "b"}}}),
    ]


def test_an_object_says_what_it_said() -> None:
    pool = PartPool()
    assert [share_equal_parts(found, pool) for found in every_kind()] == every_kind()


def test_replicas_have_all_but_what_is_their_own_in_common() -> None:
    pool = PartPool()
    first, second = share_equal_parts(pod("a"), pool), share_equal_parts(pod("b"), pool)
    assert first.requests is second.requests
    assert first.tolerations is second.tolerations
    assert first.metadata.labels is second.metadata.labels
    assert first.metadata.owner_references is second.metadata.owner_references
    assert first.node_name is second.node_name
    assert (first.metadata.name, second.metadata.name) == ("a", "b")
    assert first.metadata.annotations != second.metadata.annotations


def test_conditions_of_nodes_share_their_texts() -> None:
    first, second = (share_equal_parts(decoded("Node", objects.node(name))) for name in ("a", "b"))
    assert isinstance(first, Node)
    assert isinstance(second, Node)
    assert first.conditions[0].type is second.conditions[0].type


def test_parts_that_nobody_asks_for_are_forgotten() -> None:
    pool = PartPool()
    often = pool.share("labels", {"app": "web"})
    for number in range(3 * sharing.GENERATION_SIZE):
        pool.share("labels", {"job": str(number)})
        assert pool.share("labels", {"app": "web"}) is often
    assert len(pool) <= 2 * sharing.GENERATION_SIZE


def test_large_parts_are_not_remembered() -> None:
    pool = PartPool()
    for number in range(10):
        huge = {f"label-{index}": f"{number}" for index in range(1000)}
        assert pool.share("labels", huge) is huge
    assert not len(pool)
