"""What others wrote on a Node stays as it is, also in fields that are not modelled."""

from copy import deepcopy
from typing import Any, Final, cast

import pytest

from spotwright.adapters.kubernetes import node_patch
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import InvalidRequest, NotFound
from spotwright.lifecycle.registration import register, unregister
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node

RACK: Final = {
    "apiVersion": "example.com/v1", "kind": "Rack", "name": "r1", "uid": "uid-r1",
    "controller": True, "blockOwnerDeletion": False,
}  # fmt: skip
SHELF: Final = RACK | {"kind": "Shelf", "name": "s1", "uid": "uid-s1", "controller": False}
OURS: Final = {
    "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "web-1", "uid": "uid-web-1",
    "blockOwnerDeletion": True,
}  # fmt: skip
CLAIM: Final = NodeClaim(
    ObjectMeta("web-1", uid="uid-web-1"), NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
)


class PatchedNode:
    """An API server with one Node, which JSON patches change."""

    def __init__(self, *owners: dict[str, Any]) -> None:
        about = {"name": "n1", "uid": "uid-n1", "resourceVersion": "1"}
        # An API server leaves out what is empty.
        given = {"ownerReferences": deepcopy(list(owners))} if owners else {}
        self.document: dict[str, Any] = {"metadata": about | given, "spec": {}, "status": {}}

    def call(self, method: str, path: str, *, body: list[dict[str, Any]], content_type: str) -> dict[str, Any]:
        assert (method, path, content_type) == ("PATCH", "/api/v1/nodes/n1", "application/json-patch+json")
        for change in body:
            *parents, last = change["path"].removeprefix("/").split("/")
            target: Any = self.document
            for part in parents:
                target = target[int(part)] if isinstance(target, list) else target[part]
            if change["op"] == "test":
                assert (target[int(last)] if isinstance(target, list) else target.get(last)) == change["value"]
            elif change["op"] == "remove":
                del target[int(last)]
            elif isinstance(target, list):
                assert (change["op"], last) == ("add", "-")
                target.append(change["value"])
            else:
                target[last] = change["value"]
        return deepcopy(self.document)

    def patch(self, metadata: dict[str, Any]) -> None:
        node = self.node
        KubernetesCluster("c1", cast("Transport", self)).set_taints(node, node.taints, metadata=metadata)

    @property
    def node(self) -> Node:
        return decode_node(self.document)

    @property
    def owners(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self.document["metadata"].get("ownerReferences", []))


@pytest.mark.parametrize(
    ("before", "after"),
    [([], [OURS]), ([RACK], [RACK, OURS]), ([RACK, OURS, SHELF], [RACK, OURS, SHELF])],
)
def test_registration_leaves_references_to_other_owners_as_they_are(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    api = PatchedNode(*before)
    update = register(CLAIM, (api.node,)).node_update
    assert update is not None
    api.patch(update.metadata)
    assert api.owners == after


@pytest.mark.parametrize("before", [[OURS], [OURS, RACK], [RACK, OURS, SHELF]])
def test_what_is_taken_back_leaves_references_to_other_owners_as_they_are(before: list[dict[str, Any]]) -> None:
    api = PatchedNode(*before)
    api.patch(unregister(CLAIM, api.node))
    assert api.owners == [owner for owner in before if owner is not OURS]


@pytest.mark.parametrize("change", [{}, {"a": None}])
def test_annotations_that_do_not_change_are_no_conflict_with_the_first_ones_of_others(change: dict[str, None]) -> None:
    """A NodeClaim without annotations registers a Node that had none when it was read."""
    assert list(node_patch.metadata(PatchedNode().node, {"annotations": change})) == []


def test_a_node_that_is_gone_after_it_changed_is_not_found() -> None:
    """It had lost a taint, which refuses the patch, and is gone when it is read again."""

    class GoneNode(PatchedNode):
        def call(self, method: str, path: str, **_: Any) -> dict[str, Any]:
            if method == "GET":
                raise NotFound("gone", code="NotFound")
            raise InvalidRequest("a test failed", code="422")

    with pytest.raises(NotFound):
        GoneNode().patch({})
