"""One field of one object holds what it must not: it is named, or it does no harm, and the others are planned."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotwright.cli import InputError
from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.planner import plan
from tests.unit.scheduling.builders import TYPES

OBJECTS: Final[list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("every_field.yaml").read_text())
FINE: Final = {"kind": "Pod", "metadata": {"name": "fine"}, "spec": {"containers": [{"name": "app"}]}}
type Place = tuple[str | int, ...]


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Every path into an object, but those by which it is known at all."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        here = (*path, key)
        if here not in {("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace")}:
            yield here
            yield from places(below, here)


PLACES: Final = [(number, path) for number, one in enumerate(OBJECTS) for path in places(one)]
WRONG: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "-1", "9E", "1e9999", "é漢字\x00\U0001f600",
    [], ["x"], [None], [[]], [{}], {}, {"x": "y"}, {"x": {}}, {1: 2}, "2026-99-99T00:00:00Z", "x" * 70_000,
)  # fmt: skip


def with_wrong(place: tuple[int, Place], wrong: Any) -> list[dict[str, Any]]:
    number, path = place
    objects = copy.deepcopy(OBJECTS)
    inner: Any = objects[number]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = wrong
    return objects


def planned(objects: list[dict[str, Any]]) -> Plan:
    documents = Documents(tuple(Document("m.yaml", one) for one in objects))
    snapshot = decode_snapshot(documents, "StaticCapacity=true")
    return plan(snapshot, Catalog({"": TYPES}))


def test_the_whole_of_it_is_planned() -> None:
    found = planned([*OBJECTS, FINE])
    assert not found.ignored_pods
    assert not found.unschedulable_pods
    assert sum(new_node.nodepool == "static" for new_node in found.new_nodes) == 2
    assert {provisioning.name: provisioning.pod_count for provisioning in found.buffers} == {"share": 2, "spare": 3}


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), st.sampled_from(WRONG))
def test_a_wrong_value_is_named_or_does_no_harm(place: tuple[int, Place], wrong: Any) -> None:
    objects = with_wrong(place, wrong)
    with contextlib.suppress(InputError):
        found = planned([*objects, FINE])
        seen = [key for new_node in found.new_nodes for key in new_node.pods]
        seen += [key for assignment in found.existing_nodes for key in assignment.pods]
        seen += [unplaced_pod.pod for unplaced_pod in (*found.unschedulable_pods, *found.ignored_pods)]
        assert len(seen) == len(set(seen))
        assert "default/fine" in seen
