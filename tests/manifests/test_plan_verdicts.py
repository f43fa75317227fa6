"""``spotwright plan`` refuses what the API server refuses, and nothing else.

Objects are changed in one place after the other; both are asked what they think of the result.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local.kubernetes.api import ApiError
from spotwright.cli import InputError
from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.validation.check import check_documents
from tests.manifests.cluster import Cluster
from tests.manifests.refusals import BOUNDS, RULES
from tests.manifests.samples import SAMPLES, changed
from tools import kubernetes_schema

type Object = dict[str, Any]
type Place = tuple[str | int, ...]

OBJECTS: Final[list[Object]] = list(yaml.safe_load_all(Path(__file__).with_name("whole_objects.yaml").read_text()))
PLURALS: Final = {
    "PriorityClass": "priorityclasses",
    "StorageClass": "storageclasses",
    "EC2NodeClass": "ec2nodeclasses",
}
ABSENT: Final = object()
WRONG: Final[tuple[Any, ...]] = (
    ABSENT, None, True, -1, 0, 2**33, 1.5, "", "x y", "UPPER_x", "-1", "101%", [], {}, {"zz": 1}, ["x"], [None],
)  # fmt: skip
# Every place gets one of these, so that all are tried with every kind of field.
STEP: Final = 4
# What is refused here alone: a CronJob whose Jobs the API server would refuse.
HARSHER: Final = {("CronJob", ("spec", "jobTemplate", "metadata", "labels", "a"))}
# Of a hundred changes, how many the API server may refuse that are not refused here.
KINDER_PERCENT: Final = 1


def refusal(cluster: Cluster, content: Object) -> str:
    """What the API server says of an object, strictly; "" = it takes it."""
    version, kind = content["apiVersion"], content["kind"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespaced = "/namespaces/default" if content["metadata"].get("namespace") else ""
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    try:
        cluster.plane.api.create(f"{prefix}{namespaced}/{plural}?dryRun=All&fieldValidation=Strict", content)
    except ApiError as error:
        return str(error)
    return ""


def own_refusal(content: Object) -> str:
    try:
        check_documents(Documents((Document("m.yaml", content),)))
    except InputError as error:
        return str(error)
    return ""


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        here = (*path, key)
        if here not in {("kind",), ("apiVersion",), ("metadata",), ("metadata", "namespace")}:
            yield here
            yield from places(below, here)


def put(content: Object, path: Place, value: Any) -> Object:
    content = copy.deepcopy(content)
    inner: Any = content
    for key in path[:-1]:
        inner = inner[key]
    if value is ABSENT:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


def with_unknown_fields(content: Object) -> Iterator[Object]:
    for path in places(content):
        inner: Any = content
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict):
            yield put(content, (*path, "unknownField"), {})


@pytest.mark.parametrize("content", OBJECTS, ids=lambda content: content["kind"])
def test_whole_objects_are_taken(cluster: Cluster, content: Object) -> None:
    assert (refusal(cluster, content), own_refusal(content)) == ("", "")


@pytest.mark.parametrize("content", OBJECTS, ids=lambda content: content["kind"])
def test_unknown_fields_are_refused_where_the_api_server_refuses_them(cluster: Cluster, content: Object) -> None:
    for extended in with_unknown_fields(content):
        assert bool(refusal(cluster, extended)) == bool(own_refusal(extended)), extended


def test_wrong_values_are_refused_where_the_api_server_refuses_them(cluster: Cluster) -> None:
    tried, kinder, harsher = 0, [], []
    for content in OBJECTS:
        for number, path in enumerate(places(content)):
            for value in WRONG[number % STEP :: STEP]:
                wrong = put(content, path, value)
                theirs, ours = refusal(cluster, wrong), own_refusal(wrong)
                tried += 1
                if theirs and not ours:
                    kinder.append((content["kind"], path, value, theirs))
                if ours and not theirs and (content["kind"], path) not in HARSHER:
                    harsher.append((content["kind"], path, value, ours))
    assert not harsher
    assert len(kinder) * 100 < tried * KINDER_PERCENT, kinder


@pytest.mark.parametrize(("kind", "where", "value", "words"), RULES)
def test_rules_of_our_definitions_are_told_in_the_same_words(kind: str, where: str, value: Any, words: str) -> None:
    assert words in own_refusal(changed(SAMPLES[kind](), where, value))


@pytest.mark.parametrize(("kind", "where", "value", "words"), BOUNDS)
def test_bounds_of_our_definitions_hold(kind: str, where: str, value: Any, words: str) -> None:
    assert own_refusal(changed(SAMPLES[kind](), where, value)), words


def test_the_schema_that_is_shipped_is_that_of_the_api_server(cluster: Cluster) -> None:
    shipped = kubernetes_schema.decode(kubernetes_schema.FILE.read_bytes())
    served = kubernetes_schema.decode(kubernetes_schema.encode(kubernetes_schema.schema_of(cluster.plane.api)))
    assert shipped == served
