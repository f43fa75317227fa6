"""Kubelet settings move from pools into classes; pools that differ get a class each."""

import json
from typing import Any

import pytest

from spotwright.conversion import KUBELET_ANNOTATION
from spotwright.conversion.convert import convert
from tests.unit.conversion.objects import (
    REFERENCE,
    Object,
    beta_class,
    beta_pool,
    provisioner,
    refused,
    said,
    template,
)


def placement(*objects: Object) -> tuple[dict[str, str], dict[str, Any]]:
    """Pool → class, and class → kubelet settings."""
    converted = [content for contents in convert(objects).objects for content in contents]
    return (
        {
            content["metadata"]["name"]: content["spec"]["template"]["spec"]["nodeClassRef"]["name"]
            for content in converted
            if content["kind"] == "NodePool"
        },
        {
            content["metadata"]["name"]: content["spec"].get("kubelet")
            for content in converted
            if content["kind"] == "EC2NodeClass"
        },
    )


def pool(name: str, most: int | None = None) -> Object:
    return beta_pool(name, claim={"kubelet": {"maxPods": most}} if most else {})


def v1_pool(name: str, kubelet: str = "") -> Object:
    annotations = {KUBELET_ANNOTATION: kubelet} if kubelet else {}
    inner = {"nodeClassRef": REFERENCE, "requirements": []}
    return {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": {"spec": inner}},
    }  # fmt: skip


def v1_class(**spec: Any) -> Object:
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize("before", [True, False])
def test_a_class_gets_its_pools_settings_wherever_it_stands(before: bool) -> None:
    objects = [pool("a", 10), beta_class()]
    assert placement(*(reversed(objects) if before else objects)) == ({"a": "c"}, {"c": {"maxPods": 10}})


def test_pools_that_agree_share_a_class() -> None:
    assert placement(pool("a", 10), pool("b", 10), beta_class()) == ({"a": "c", "b": "c"}, {"c": {"maxPods": 10}})


def test_pools_that_differ_get_a_class_each() -> None:
    objects = [pool("a", 10), pool("b", 20), pool("d", 20), beta_class()]
    assert placement(*objects) == (
        {"a": "c", "b": "c-b", "d": "c-b"},
        {"c": {"maxPods": 10}, "c-b": {"maxPods": 20}},
    )
    remarks = [remark.text for remark in convert(objects).remarks[1]]
    assert any("refers to EC2NodeClass c-b, a copy of c" in remark for remark in remarks)


def test_who_has_no_settings_keeps_the_class_as_it_is() -> None:
    assert placement(pool("a", 10), pool("b"), beta_class()) == (
        {"a": "c-a", "b": "c"},
        {"c": None, "c-a": {"maxPods": 10}},
    )


def test_a_copy_takes_nobodys_name_and_nothing_that_the_server_set() -> None:
    own = beta_class("c-b")
    old = beta_class()
    old["metadata"] |= {"labels": {"x": "y"}, "ownerReferences": [{"uid": "u"}]}
    objects = [pool("a", 10), pool("b", 20), old, own]
    _, classes = placement(*objects)
    assert set(classes) == {"c", "c-b", "c-b-2"}
    assert convert(objects).objects[2][1]["metadata"] == {"name": "c-b-2", "labels": {"x": "y"}}


def test_provisioners_and_templates_alike() -> None:
    placed = placement(
        provisioner("a", kubeletConfiguration={"clusterDNS": ["10.0.0.1"], "kubeReserved": {"cpu": 1}}), template()
    )
    assert placed == ({"a": "c"}, {"c": {"clusterDNS": ["10.0.0.1"], "kubeReserved": {"cpu": "1"}}})


def test_settings_whose_class_is_elsewhere_are_handed_over_in_words() -> None:
    remarks = said(pool("a", 10))
    assert remarks[""] == 'its kubelet configuration belongs into EC2NodeClass c, as spec.kubelet: {"maxPods":10}'


def test_a_v1_pool_with_the_annotation_of_v1_0_gives_its_settings_to_its_class() -> None:
    old = v1_pool("a", json.dumps({"maxPods": 10}))
    (pool,), (nodeclass,) = convert([old, v1_class(role="r", kubelet={"maxPods": 5})]).objects
    assert pool == old | {"metadata": {"name": "a"}}
    assert nodeclass["spec"] == {"role": "r", "kubelet": {"maxPods": 10}}


def test_a_v1_pool_without_it_keeps_the_classs_own() -> None:
    pools, classes = placement(v1_pool("a"), pool("b", 20), v1_class(kubelet={"maxPods": 5}))
    assert pools == {"a": "c", "b": "c-b"}
    assert classes == {"c": {"maxPods": 5}, "c-b": {"maxPods": 20}}


def test_the_annotation_stays_where_the_class_is_not_there() -> None:
    old = v1_pool("a", '{"maxPods":10}')
    result = convert([old])
    assert result.objects == ((old,),)
    assert "belongs into EC2NodeClass c" in said(result)[""]


@pytest.mark.parametrize("text", ["[1]", "{", '{"maxPods":' + "[" * 100_000])
def test_an_annotation_that_is_no_json_is_refused(text: str) -> None:
    said = refused(v1_class(), v1_pool("a", text))
    assert KUBELET_ANNOTATION in said
    assert "is not a kubelet configuration as JSON" in said
