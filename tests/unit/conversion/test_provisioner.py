"""A v1alpha5 Provisioner, field by field."""

from typing import Any

import pytest

from spotwright.conversion.convert import convert
from spotwright.conversion.remarks import Level
from tests.unit.conversion.objects import REFERENCE, Object, provisioner, refused, said, spec_of, template

OS = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
ARCH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
TYPES = [
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
]
TAINT = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}


def need(key: str, operator: str = "Exists", *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


def test_the_least_provisioner_says_all_that_its_defaults_said() -> None:
    assert spec_of(provisioner()) == {
        "template": {
            "spec": {
                "requirements": [OS, ARCH, ON_DEMAND, *TYPES],
                "nodeClassRef": REFERENCE,
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    }
    assert "karpenter.k8s.aws/instance-category In [c, m, r]" in said(provisioner(), Level.NOTE)["spec.requirements"]


@pytest.mark.parametrize(
    ("stated", "implied"),
    [
        (need("kubernetes.io/os"), [ARCH, ON_DEMAND, *TYPES]),
        (need("beta.kubernetes.io/os", "In", "linux"), [ARCH, ON_DEMAND, *TYPES]),
        (need("kubernetes.io/arch", "NotIn", "arm64"), [OS, ON_DEMAND, *TYPES]),
        (need("karpenter.sh/capacity-type", "In", "spot"), [OS, ARCH, *TYPES]),
        (need("node.kubernetes.io/instance-type", "In", "m5.large"), [OS, ARCH, ON_DEMAND]),
        (need("beta.kubernetes.io/instance-type", "In", "m5.large"), [OS, ARCH, ON_DEMAND]),
        (need("karpenter.k8s.aws/instance-family", "In", "m5"), [OS, ARCH, ON_DEMAND]),
        (need("karpenter.k8s.aws/instance-category", "In", "t"), [OS, ARCH, ON_DEMAND]),
        (need("karpenter.k8s.aws/instance-generation", "Gt", "1"), [OS, ARCH, ON_DEMAND]),
        (need("karpenter.k8s.aws/instance-cpu", "Lt", "9"), [OS, ARCH, ON_DEMAND, *TYPES]),
    ],
)
def test_what_a_requirement_says_is_not_implied(stated: Object, implied: list[Object]) -> None:
    assert spec_of(provisioner(requirements=[stated]))["template"]["spec"]["requirements"] == [stated, *implied]


@pytest.mark.parametrize(
    ("spec", "disruption", "expire_after"),
    [
        ({"ttlSecondsAfterEmpty": 30}, ("WhenEmpty", "30s"), "Never"),
        ({"ttlSecondsAfterEmpty": 0}, ("WhenEmpty", "0s"), "Never"),
        ({"ttlSecondsAfterEmpty": 600, "consolidation": {"enabled": False}}, ("WhenEmpty", "10m"), "Never"),
        ({"consolidation": {"enabled": True}}, ("WhenEmptyOrUnderutilized", "0s"), "Never"),
        ({"consolidation": {}}, ("WhenEmpty", "Never"), "Never"),
        ({"ttlSecondsUntilExpired": 2592000}, ("WhenEmpty", "Never"), "720h"),
        ({"ttlSecondsUntilExpired": 90}, ("WhenEmpty", "Never"), "90s"),
    ],
)
def test_when_nodes_go(spec: Object, disruption: tuple[str, str], expire_after: str) -> None:
    converted = spec_of(provisioner(**spec))
    assert tuple(converted["disruption"].values()) == disruption
    assert converted["template"]["spec"]["expireAfter"] == expire_after


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("labels", {"team": "a"}, ("template", "metadata", "labels")),
        ("annotations", {"a": "b"}, ("template", "metadata", "annotations")),
        ("taints", [TAINT], ("template", "spec", "taints")),
        ("startupTaints", [TAINT], ("template", "spec", "startupTaints")),
        ("weight", 100, ("weight",)),
    ],
)
def test_fields_that_moved(field: str, value: Any, path: tuple[str, ...]) -> None:
    converted: Any = spec_of(provisioner(**{field: value}))
    for step in path:
        converted = converted[step]
    assert converted == value


def test_limits_are_the_resources() -> None:
    assert spec_of(provisioner(limits={"resources": {"cpu": 1000, "memory": "1Ti"}}))["limits"] == {
        "cpu": 1000,
        "memory": "1Ti",
    }
    assert "limits" not in spec_of(provisioner(limits={}))


def test_its_own_provider_becomes_a_class_of_its_name() -> None:
    old = provisioner(provider={"subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}, "kind": "AWS"})
    ((pool, nodeclass),) = convert([old]).objects
    assert pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "a"
    assert (nodeclass["kind"], nodeclass["metadata"]) == ("EC2NodeClass", {"name": "a"})


def test_its_class_takes_nobodys_name() -> None:
    provider = template()["spec"]
    result = convert([provisioner("c", provider=provider), template("c"), provisioner("c-2", provider=provider)])
    classes = [
        content["metadata"]["name"]
        for contents in result.objects
        for content in contents
        if content["kind"] == "EC2NodeClass"
    ]
    assert classes == ["c-2", "c", "c-2-2"]


def test_a_missing_template_is_named_and_the_pool_is_converted_all_the_same() -> None:
    assert "EC2NodeClass c, which is not among these files" in said(provisioner())[""]
    assert "" not in said(convert([provisioner(), template("c")]))


def test_labels_that_v1_has_no_more_are_lost_in_words() -> None:
    keys = ["karpenter.sh/provisioner-name", "karpenter.k8s.aws/instance-pods", "karpenter.k8s.aws/instance-ami-id"]
    old = provisioner(labels=dict.fromkeys(keys, "x"), requirements=[need(key) for key in keys])
    converted, lost = spec_of(old), said(old, Level.LOST)
    assert "metadata" not in converted["template"]
    assert converted["template"]["spec"]["requirements"] == [OS, ARCH, ON_DEMAND, *TYPES]
    assert {f"spec.labels[{key}]" for key in keys} | {f"spec.requirements[{at}]" for at in range(3)} == set(lost)
    assert "karpenter.k8s.aws/instance-pods Exists excluded" in lost["spec.requirements[1]"]


def test_do_not_consolidate_has_a_new_name() -> None:
    old = provisioner(annotations={"karpenter.sh/do-not-consolidate": "true"})
    assert spec_of(old)["template"]["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


@pytest.mark.parametrize("runtime", ["dockerd", "containerd"])
def test_a_container_runtime_cannot_be_chosen(runtime: str) -> None:
    result = convert([provisioner(kubeletConfiguration={"containerRuntime": runtime, "maxPods": 5}), template()])
    assert result.objects[1][0]["spec"]["kubelet"] == {"maxPods": 5}
    assert runtime in said(result, Level.LOST)["spec.kubeletConfiguration.containerRuntime"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ttlSecondsAfterEmpty": "30"}, "spec.ttlSecondsAfterEmpty: '30' is not a whole number"),
        ({"ttlSecondsAfterEmpty": -1}, "spec.ttlSecondsAfterEmpty: -1 is not between 0 and"),
        ({"weight": 101}, "spec.weight: 101 is not between 1 and 100"),
        ({"weight": True}, "spec.weight: true is not a whole number"),
        ({"labels": {"a": 1}}, "spec.labels[a]: 1 is not text: quote it"),
        ({"labels": {"a": ["b"]}}, 'spec.labels[a]: ["b"] is not text'),
        ({"labels": {1: "a"}}, "spec.labels: 1 is not a name: quote it"),
        ({"labels": {"a": "b c"}}, "spec.template.metadata.labels[a]: 'b c' does not match the pattern"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, "'Never' is not one of NoSchedule, PreferNoSchedule,"),
        ({"taints": [{"key": "a"}]}, "spec.taints[0].effect is missing: it is required"),
        ({"taints": {}}, "spec.taints: {} is not a list"),
        ({"requirements": [{"key": "a", "operator": "Is"}]}, "'Is' is not one of In, NotIn, Exists"),
        ({"requirements": [need("a", "In")]}, "spec.requirements[0].values: [] is empty"),
        ({"requirements": [need("a", "Gt", "x")]}, '["x"] is not one whole number of at least 0, as operator Gt needs'),
        ({"requirements": [{"key": "a", "operator": "In", "values": [4]}]}, "values[0]: 4 is not text: quote it"),
        ({"limits": {"resources": {"cpu": 1.5}}}, "spec.limits.resources[cpu]: 1.5 is not a quantity"),
        ({"limits": {"resources": {"cpu": "1e9999"}}}, "'1e9999' is not a Kubernetes quantity"),
        ({"consolidation": {"enabled": True}, "ttlSecondsAfterEmpty": 1}, "cannot be combined with consolidation"),
        ({"provider": template()["spec"], "providerRef": {"name": "c"}}, "cannot be combined with provider"),
        ({"providerRef": {"name": "c", "kind": "EC2NodeClass"}}, "'EC2NodeClass' is not AWSNodeTemplate"),
        ({"providerRef": {"name": "c", "apiVersion": "v1"}}, "spec.providerRef.apiVersion: 'v1' is not karpenter.k8s"),
        ({"providerRef": {}}, "spec.providerRef.name is missing"),
        ({"providerRef": None}, "spec.providerRef is missing: a Provisioner needs a provider or a providerRef"),
    ],
)  # fmt: skip
def test_what_no_provisioner_may_hold_is_refused_by_field_and_value(spec: Object, message: str) -> None:
    assert message in refused(template(), provisioner(**spec))


@pytest.mark.parametrize("version", ["karpenter.sh/v1alpha4", "karpenter.sh/v1beta1", None])
def test_another_version_is_refused(version: str | None) -> None:
    assert "is not karpenter.sh/v1alpha5" in refused(provisioner() | {"apiVersion": version})
