"""ClusterPort: taints, labels, finalizers and owners of a Node change from those that were read."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict, InvalidRequest, NotFound
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.workflows.ports.cluster import ClusterPort
from tests.contract.cluster_world import NUMBERS, World


def test_taints_change_from_those_that_were_read(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    ours, theirs = Taint("example.com/ours", "NoSchedule"), Taint("example.com/theirs", "NoSchedule", "a")
    # The real node controller taints a new node too; what it changes in between is a Conflict as it should be.
    before = set_taints(world.port, name, lambda node: (*node.taints, theirs))
    set_taints(world.port, name, lambda node: (*(taint for taint in node.taints if taint != theirs), ours))
    with pytest.raises(Conflict):
        world.port.set_taints(before, [taint for taint in before.taints if taint != theirs])
    with pytest.raises(Conflict):
        world.port.set_taints(before, [*before.taints, Taint("example.com/another", "NoSchedule")])
    after = world.port.node(name)
    assert after is not None
    assert ours in after.taints
    assert not {"example.com/theirs", "example.com/another"} & {taint.key for taint in after.taints}


def test_what_others_wrote_of_a_node_meanwhile_stays(world: World) -> None:
    """A kubelet and three controllers write it while it joins: nothing of that is a Conflict, nor is it undone."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    first, second, third = (Taint(f"example.com/{number}", "NoSchedule") for number in range(3))
    before = set_taints(world.port, name, lambda node: (*node.taints, first), labels={"a": "1"}, annotations={"a": "1"})
    set_taints(world.port, name, lambda node: (*node.taints, second), labels={"b": "2"}, annotations={"b": "2"})
    change = {"labels": {"c": "3"}, "annotations": {"a": None}}
    while True:
        try:
            after = world.port.set_taints(before, [*before.taints, third], metadata=change)
            break
        except Conflict:
            # The node controller has taken back a taint of its own.
            before = set_taints(world.port, name, lambda node: node.taints)
    ours = [taint for taint in after.taints if taint.key.startswith("example.com/")]
    assert ours == [first, second, third]
    assert {"a": "1", "b": "2", "c": "3"}.items() <= after.metadata.labels.items()
    assert after.metadata.annotations.get("b") == "2"
    assert "a" not in after.metadata.annotations


@pytest.mark.parametrize("field", ["taints", "finalizers"])
def test_what_a_node_did_not_have_when_it_was_read_is_not_replaced(world: World, field: str) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    taint, kept = Taint("example.com/ours", "NoSchedule"), {"finalizers": ["example.com/kept"]}
    before = set_taints(world.port, name, lambda node: node.taints)
    bare = msgspec.structs.replace(before, taints=())
    set_taints(world.port, name, lambda node: (*node.taints, taint), finalizers=["example.com/theirs"])
    change = kept if field == "finalizers" else {}
    taints = [Taint("example.com/another", "NoSchedule")] if field == "taints" else bare.taints
    with pytest.raises(Conflict):
        world.port.set_taints(bare, taints, metadata=change)
    after = world.port.node(name)
    assert after is not None
    assert taint in after.taints
    assert after.metadata.finalizers == ("example.com/theirs",)
    set_taints(world.port, name, lambda node: node.taints, finalizers=[])


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_a_node_has_by_now_is_not_replaced_where_it_had_none(world: World, field: str) -> None:
    """A patch that adds the first label makes the map of labels: it would take away those of others."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = world.port.node(name)
    assert before is not None
    none = dict.fromkeys(getattr(before.metadata, field))
    bare = set_taints(world.port, name, lambda node: node.taints, **{field: none})
    assert getattr(bare.metadata, field) == {}
    set_taints(world.port, name, lambda node: node.taints, **{field: {"theirs": "1"}})
    with pytest.raises(Conflict):
        world.port.set_taints(bare, bare.taints, metadata={field: {"ours": "1"}})
    after = world.port.node(name)
    assert after is not None
    assert getattr(after.metadata, field).get("theirs") == "1"
    assert "ours" not in getattr(after.metadata, field)
    world.port.set_taints(bare, bare.taints, metadata={field: {"ours": None}})


def test_a_first_label_is_no_conflict_with_none(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = set_taints(world.port, name, lambda node: node.taints, labels={"gone": "1"})
    bare = set_taints(world.port, name, lambda node: node.taints, labels=dict.fromkeys(before.metadata.labels))
    assert bare.metadata.labels == {}
    after = world.port.set_taints(bare, bare.taints, metadata={"labels": {"ours": "1"}})
    assert after.metadata.labels == {"ours": "1"}


@pytest.mark.parametrize("change", [{"gone": None}, {"ours": "1"}], ids=["removed", "added"])
def test_a_label_that_is_gone_by_now_is_a_conflict(world: World, change: dict[str, str | None]) -> None:
    """Whoever adds one finds no map to add it to where the only other one is gone."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = set_taints(world.port, name, lambda node: node.taints, labels={"gone": "1"})
    set_taints(world.port, name, lambda node: node.taints, labels=dict.fromkeys(before.metadata.labels))
    with pytest.raises(Conflict):
        world.port.set_taints(before, before.taints, metadata={"labels": change})


@pytest.mark.parametrize(
    "another",
    [
        Taint("example.com/another", "NoSchedule", "ours"),
        Taint("example.com/one", "PreferNoSchedule", "ours"),
        Taint("example.com/one", "NoSchedule", "another"),
        Taint("example.com/one", "NoSchedule"),
    ],
    ids=["key", "effect", "value", "no value"],
)
def test_what_is_another_taint_by_now_is_not_removed(world: World, another: Taint) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    ours = Taint("example.com/one", "NoSchedule", "ours")
    before = set_taints(world.port, name, lambda node: (*node.taints, ours))
    set_taints(world.port, name, lambda node: tuple(another if taint == ours else taint for taint in node.taints))
    set_taints(world.port, name, lambda node: (another, *(taint for taint in node.taints if taint != another)))
    with pytest.raises(Conflict):
        world.port.set_taints(before, [taint for taint in before.taints if taint != ours])
    after = world.port.node(name)
    assert after is not None
    assert another in after.taints


def test_a_taint_that_others_have_set_with_another_value_is_a_conflict(world: World) -> None:
    """A Node has one taint of a key and an effect."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    ours, theirs = (Taint("example.com/one", "NoSchedule", value) for value in ("", "theirs"))
    before = set_taints(world.port, name, lambda node: node.taints)
    set_taints(world.port, name, lambda node: (*node.taints, theirs))
    with pytest.raises(Conflict):
        world.port.set_taints(before, (*before.taints, ours))
    after = world.port.node(name)
    assert after is not None
    assert [taint for taint in after.taints if taint.key == ours.key] == [theirs]


def test_two_taints_of_one_key_and_effect_are_refused(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    taints = [Taint("example.com/one", "NoSchedule", value) for value in ("", "another")]
    with pytest.raises(InvalidRequest):
        set_taints(world.port, name, lambda node: (*node.taints, *taints))


def test_another_node_of_the_name_is_a_conflict_and_none_is_not_found(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = world.port.node(name)
    assert before is not None
    taints = (*before.taints, Taint("example.com/one", "NoSchedule"))
    world.remove_node(name)
    with pytest.raises(NotFound):
        world.port.set_taints(before, taints)
    world.add_node(name)
    with pytest.raises(Conflict):
        world.port.set_taints(before, taints)
    after = world.port.node(name)
    assert after is not None
    assert taints[-1] not in after.taints


def test_a_node_on_its_way_out_gets_no_further_finalizer_and_goes_without_one(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = set_taints(world.port, name, lambda node: node.taints, finalizers=["example.com/theirs"])
    world.remove_node(name)
    after = world.port.node(name)
    assert after is not None
    assert after.metadata.deletion_timestamp is not None
    with pytest.raises(Conflict):
        world.port.set_taints(
            before, before.taints, metadata={"finalizers": ["example.com/theirs", "example.com/more"]}
        )
    with pytest.raises(InvalidRequest):
        set_taints(world.port, name, lambda node: node.taints, finalizers=["example.com/theirs", "example.com/more"])
    set_taints(world.port, name, lambda node: node.taints, finalizers=[])
    assert world.port.node(name) is None


@pytest.mark.parametrize("stays", [True, False])
def test_owners_of_a_node_change_from_those_that_were_read(world: World, stays: bool) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    # The garbage collector takes away what is owned by nothing that exists.
    ours, theirs, more = (owner(world, f"{name}-{owner_name}") for owner_name in ("ours", "theirs", "more"))
    before = set_taints(world.port, name, lambda node: node.taints, ownerReferences=[ours, theirs])
    if stays:
        set_taints(world.port, name, lambda node: node.taints, ownerReferences=[ours, theirs, more])
        after = world.port.set_taints(before, before.taints, metadata={"ownerReferences": [ours]})
        assert [owner.uid for owner in after.metadata.owner_references] == [ours["uid"], more["uid"]]
    else:
        set_taints(world.port, name, lambda node: node.taints, ownerReferences=[theirs, more])
        with pytest.raises(Conflict):
            world.port.set_taints(before, before.taints, metadata={"ownerReferences": [ours]})


def owner(world: World, name: str) -> dict[str, str]:
    """Another Node as an owner."""
    world.add_node(name)
    node = world.port.node(name)
    assert node is not None
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}


def set_taints(port: ClusterPort, name: str, change: Callable[[Node], tuple[Taint, ...]], **metadata: Any) -> Node:
    """The node controller taints a new node too; what it changes in between is a Conflict, and read again."""
    for _ in range(20):
        node = port.node(name)
        assert node is not None
        with suppress(Conflict):
            return port.set_taints(node, change(node), metadata=metadata)
    raise AssertionError(f"node {name} is always changed in between")


def test_taints_and_metadata_of_a_node_are_written_together(world: World) -> None:
    name, taints = f"node-{next(NUMBERS)}", [Taint(f"taint-{number}", "NoSchedule", "a") for number in range(4)]
    world.add_node(name)
    set_taints(world.port, name, lambda node: (*node.taints, *taints))
    kept = (taints[1], taints[3], Taint("taint-2", "NoExecute"))
    after = set_taints(
        world.port,
        name,
        lambda node: (*(taint for taint in node.taints if taint not in taints), *kept),
        labels={"example.com/team": "b", "gone": "soon"},
        annotations={"example.com/note": "1"},
        finalizers=["example.com/kept"],
    )
    assert tuple(taint for taint in after.taints if taint.key.startswith("taint-")) == kept
    assert after.metadata.labels["example.com/team"] == "b"
    assert after.metadata.annotations["example.com/note"] == "1"
    assert after.metadata.finalizers == ("example.com/kept",)
    again = set_taints(world.port, name, lambda node: (), labels={"gone": None, "other": "c"}, finalizers=[])
    assert not [taint for taint in again.taints if taint.key.startswith("taint-")]
    assert "gone" not in again.metadata.labels
    assert (again.metadata.labels["other"], again.metadata.labels["example.com/team"]) == ("c", "b")
    assert again.metadata.resource_version != after.metadata.resource_version
