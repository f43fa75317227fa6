"""Laws of converting manifests before v1: nothing is lost in silence, twice is once, whatever they hold."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotwright.conversion import CONVERTED_KINDS
from spotwright.conversion.convert import ConversionResult, convert
from spotwright.conversion.remarks import ConversionError

OBJECTS: Final[list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("before_v1.yaml").read_text())
type Place = tuple[str | int, ...]


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Every path into an object, leaves and what holds them."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


def at(value: Any, path: Place) -> Any:
    for step in path:
        value = value[step]
    return value


def changed(objects: list[dict[str, Any]], number: int, path: Place, to: Any) -> list[dict[str, Any]]:
    """The objects with one place set; ``to`` None takes it away."""
    copied = copy.deepcopy(objects)
    inner = at(copied[number], path[:-1])
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return copied


def outcome(objects: list[dict[str, Any]]) -> ConversionResult | str:
    try:
        return convert(objects)
    except ConversionError as error:
        return str(error)


def flat(result: ConversionResult) -> list[dict[str, Any]]:
    return [content for made in result.objects for content in made]


# ``metadata`` is an object where documents are read.
INSIDE: Final = [
    (number, path)
    for number, one in enumerate(OBJECTS)
    for path in places(one)
    if path[0] in ("metadata", "spec") and path != ("metadata",)
]
# These say what an AWSNodeTemplate and its class are in both versions.
SAME_WITHOUT: Final = {"apiVersion", "kind"}
LEAVES: Final = [
    (number, path)
    for number, path in INSIDE
    if not isinstance(at(OBJECTS[number], path), dict | list) and path[-1] not in SAME_WITHOUT
]


@pytest.mark.parametrize(("number", "path"), LEAVES, ids=str)
def test_no_field_could_be_taken_away_unnoticed(number: int, path: Place) -> None:
    """What leaves no trace, neither in the result nor in a remark, would be lost in silence."""
    assert outcome(changed(OBJECTS, number, path, None)) != convert(OBJECTS)


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_a_field_that_never_was_is_named_wherever_it_stands(number: int) -> None:
    maps = {"labels", "annotations", "tags", "subnetSelector", "securityGroupSelector", "amiSelector", "limits"}
    maps |= {"resources", "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "kubeReserved", "systemReserved"}
    found = [path for path in [("spec",), *places(OBJECTS[number])] if isinstance(at(OBJECTS[number], path), dict)]
    tried = [path for path in found if path[0] == "spec" and not maps.intersection(map(str, path))]
    assert tried
    for path in tried:
        result = convert(changed(OBJECTS, number, (*path, "neverWas"), "x"))
        (said,) = (remark for remark in result.remarks[number] if remark.path.endswith(".neverWas"))
        assert "has no such field" in said.text


def test_limits_resources_is_an_object_with_one_field() -> None:
    result = convert(changed(OBJECTS, 0, ("spec", "limits", "cpu"), "10"))
    assert any(remark.path == "spec.limits.cpu" for remark in result.remarks[0])


def test_twice_is_once() -> None:
    made = flat(convert(OBJECTS))
    assert {one["kind"] for one in made} == {"NodePool", "EC2NodeClass"}
    assert flat(convert(made)) == made
    assert not any(convert(made).remarks)


WRONG: Final[tuple[Any, ...]] = (
    True, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "-1", "9E", "1e9999", ",", "*", "é漢字\x00\U0001f600",
    [], ["x"], [None], [[]], [{}], {}, {"x": "y"}, {"x": {}}, {1: 2}, "2026-99-99T00:00:00Z", "x" * 70_000,
    "a," * 40 + "a", {"x": None},
)  # fmt: skip
JUNK: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(INSIDE), st.sampled_from(WRONG) | JUNK)
def test_a_wrong_value_is_refused_by_its_field_or_converts_to_what_stays_the_same(
    place: tuple[int, Place], wrong: Any
) -> None:
    number, path = place
    objects = changed(OBJECTS, number, path, [] if wrong is None else wrong)
    found = outcome(objects)
    if isinstance(found, str):
        assert found.startswith(("spec", "metadata", "as v1 "))
    else:
        made = flat(found)
        assert repr(flat(convert(made))) == repr(made)


KINDS: Final = ("Provisioner", "AWSNodeTemplate", "NodePool", "EC2NodeClass", "Pod", "Service")
VERSIONS: Final = (*CONVERTED_KINDS.values(), "karpenter.sh/v1", "karpenter.k8s.aws/v1", "v1", None, 1)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS), st.sampled_from(VERSIONS), JUNK, JUNK)
def test_any_object_is_converted_or_refused_or_stays_as_it_is(kind: str, version: Any, extra: Any, spec: Any) -> None:
    metadata = {"name": "odd", "labels": extra, "annotations": extra, "finalizers": extra}
    odd = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    found = outcome([*copy.deepcopy(OBJECTS), odd])
    if not isinstance(found, str) and CONVERTED_KINDS.get(kind) != version:
        assert repr(found.objects[-1]) == repr((odd,))


OTHERS: Final[list[dict[str, Any]]] = [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "uid": "u"}, "spec": {"ports": [{"port": 1}]}},
    {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "b"}, "spec": {"limit": 1}},
    {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": {"x": [None]}},
    {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "d"}, "spec": None},
    {"apiVersion": "ceph.rook.io/v1", "kind": "Provisioner", "metadata": {"name": "e"}},
    {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": {"name": "f"}},
]


def test_what_is_not_old_is_the_same_afterwards_in_its_place() -> None:
    given_objects = [OTHERS[0], OBJECTS[1], *OTHERS[1:], OBJECTS[2]]
    result = convert(copy.deepcopy(given_objects))
    assert [made for made in result.objects if made[0] in OTHERS] == [(one,) for one in OTHERS]
    assert [made[0]["kind"] for made in result.objects[:2]] == ["Service", "NodePool"]
    assert result.objects[-1][0]["kind"] == "EC2NodeClass"
