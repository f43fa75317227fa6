"""What others wrote on a Node stays as it is, also in fields that are not modelled."""

from copy import deepcopy
from typing import Any, Final, cast

import pytest

from spotwright.adapters.kubernetes import node_patch
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.objects import encode_taint
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Conflict, InvalidRequest, NotFound
from spotwright.lifecycle.registration import register, unregister
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint, TaintEffect

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


def apply(document: dict[str, Any], change: dict[str, Any]) -> None:
    """RFC 6902, as far as it is used."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:])
    target: Any = document
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if change["op"] == "test":
        if (target[int(last)] if isinstance(target, list) else target.get(last)) != change["value"]:
            raise InvalidRequest(f"testing value {change['path']} failed", code="Invalid")
    elif change["op"] == "remove":
        del target[int(last) if isinstance(target, list) else last]
    elif isinstance(target, list):
        assert (change["op"], last) == ("add", "-")
        target.append(change["value"])
    else:
        target[last] = change["value"]


class PatchedNode:
    """An API server with one Node, which JSON patches change."""

    def __init__(self, *owners: dict[str, Any]) -> None:
        about = {"name": "n1", "uid": "uid-n1", "resourceVersion": "1"}
        # An API server leaves out what is empty.
        given = {"ownerReferences": deepcopy(list(owners))} if owners else {}
        self.document: dict[str, Any] = {"metadata": about | given, "spec": {}, "status": {}}

    def call(
        self, method: str, path: str, *, body: list[dict[str, Any]] | None = None, content_type: str = "", **_: object
    ) -> dict[str, Any]:
        assert path == "/api/v1/nodes/n1"
        if method == "PATCH":
            assert content_type == "application/json-patch+json"
            after = deepcopy(self.document)
            for change in body or ():
                apply(after, change)
            self.document = after
        return deepcopy(self.document)

    def changed(self, **spec_or_metadata: Any) -> None:
        """Somebody else writes the Node."""
        for field, value in spec_or_metadata.items():
            self.document["spec" if field == "taints" else "metadata"][field] = value
        self.document["metadata"]["resourceVersion"] += "1"

    def taint(self, node: Node, *taints: Taint) -> None:
        KubernetesCluster("c1", cast("Transport", self)).set_taints(node, taints)

    def patch(self, metadata: dict[str, Any], node: Node | None = None) -> None:
        node = node or self.node
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


LABELS: Final = {"example.com/a~b": "1", "example.com/c~1d": "2"}


def test_keys_with_the_signs_of_a_path_are_written_and_removed() -> None:
    api = PatchedNode()
    api.changed(labels={"kept": "0"})
    api.patch({"labels": LABELS})
    assert api.document["metadata"]["labels"] == {"kept": "0", **LABELS}
    api.patch({"labels": dict.fromkeys(LABELS, None)})
    assert api.document["metadata"]["labels"] == {"kept": "0"}


def test_labels_that_the_node_has_or_lacks_already_are_not_written() -> None:
    """What others did to them meanwhile is no conflict."""
    api = PatchedNode()
    api.changed(labels={"a": "1"})
    assert list(node_patch.metadata(api.node, {"labels": {"a": "1", "b": None}})) == []


def test_the_first_labels_of_a_node_do_not_replace_those_of_others() -> None:
    api = PatchedNode()
    node = api.node
    api.changed(labels={"theirs": "1"})
    with pytest.raises(Conflict):
        api.patch({"labels": {"ours": "1"}}, node)


HELD, BUSY, SICK = (Taint(f"example.com/{name}", TaintEffect.NO_SCHEDULE) for name in ("held", "busy", "sick"))


def stated(*taints: Taint) -> list[dict[str, Any]]:
    return [encode_taint(taint) for taint in taints]


def test_several_taints_are_removed_and_others_keep_what_is_not_modelled() -> None:
    api = PatchedNode()
    busy, added = stated(BUSY)[0] | {"timeAdded": "2026-01-01T00:00:00Z"}, stated(SICK)
    api.changed(taints=[*stated(HELD), busy, *stated(Taint("gone", TaintEffect.NO_EXECUTE))])
    api.taint(api.node, BUSY, SICK)
    assert api.document["spec"]["taints"] == [busy, *added]


def test_where_no_taint_changes_those_of_others_are_no_conflict() -> None:
    api = PatchedNode()
    api.changed(taints=stated(HELD))
    node = api.node
    api.changed(taints=stated(BUSY))
    api.taint(node, HELD)
    assert api.document["spec"]["taints"] == stated(BUSY)


@pytest.mark.parametrize("before", [(), (HELD,), (BUSY, HELD)])
def test_taints_that_others_have_set_or_taken_off_meanwhile_are_a_conflict(before: tuple[Taint, ...]) -> None:
    api = PatchedNode()
    api.changed(taints=stated(*before) or None)
    node = api.node
    api.changed(taints=stated(SICK, *before[1:]))
    with pytest.raises(Conflict):
        api.taint(node, *(taint for taint in before if taint != HELD), BUSY)
