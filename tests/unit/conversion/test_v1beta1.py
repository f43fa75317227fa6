"""NodePools and EC2NodeClasses of v1beta1, field by field."""

from typing import Any

import pytest

from spotwright.conversion.remarks import Level
from tests.unit.conversion.objects import REFERENCE, Object, beta_class, beta_pool, refused, said, spec_of

ENABLED = {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled"}
BUDGETS = [{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}, {"nodes": "20%"}]


def test_the_least_pool_says_what_its_defaults_said() -> None:
    assert spec_of(beta_pool()) == {
        "template": {"spec": {"requirements": [], "nodeClassRef": REFERENCE, "expireAfter": "720h"}},
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"},
    }


@pytest.mark.parametrize(
    ("disruption", "expected", "expire_after"),
    [
        ({}, ("WhenEmptyOrUnderutilized", "0s"), "720h"),
        ({"consolidationPolicy": "WhenUnderutilized"}, ("WhenEmptyOrUnderutilized", "0s"), "720h"),
        ({"consolidateAfter": "Never"}, ("WhenEmptyOrUnderutilized", "Never"), "720h"),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1m30s"}, ("WhenEmpty", "1m30s"), "720h"),
        ({"expireAfter": "Never"}, ("WhenEmptyOrUnderutilized", "0s"), "Never"),
    ],
)
def test_when_nodes_go(disruption: Object, expected: tuple[str, str], expire_after: str) -> None:
    converted = spec_of(beta_pool(disruption=disruption))
    assert tuple(converted["disruption"].values()) == expected
    assert converted["template"]["spec"]["expireAfter"] == expire_after


@pytest.mark.parametrize("budgets", [BUDGETS, []])
def test_budgets_stay(budgets: list[Object]) -> None:
    assert spec_of(beta_pool(disruption={"budgets": budgets}))["disruption"]["budgets"] == budgets


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "c"}, REFERENCE),
        ({"name": "c", "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass"}, REFERENCE),
        ({"name": "c", "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"},
         {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"}),
    ],
)  # fmt: skip
def test_a_reference_names_the_group(given: Object, expected: Object) -> None:
    assert spec_of(beta_pool(claim={"nodeClassRef": given}))["template"]["spec"]["nodeClassRef"] == expected


def test_what_a_pool_keeps() -> None:
    need = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"], "minValues": 2}
    taint = {"key": "a", "effect": "NoExecute"}
    about = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    old = beta_pool(claim={"requirements": [need], "taints": [taint], "startupTaints": [taint]}, weight=3)
    old["spec"]["template"]["metadata"] = about
    old["spec"]["limits"] = {"cpu": "1"}
    converted = spec_of(old)
    assert converted["template"]["metadata"] == about
    inner = converted["template"]["spec"]
    assert (inner["requirements"], inner["taints"], inner["startupTaints"]) == ([need], [taint], [taint])
    assert (converted["limits"], converted["weight"]) == ({"cpu": "1"}, 3)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"amiFamily": "AL2023"}, {"amiSelectorTerms": [{"alias": "al2023@latest"}]}),
        ({"amiFamily": "Bottlerocket"}, {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}),
        ({"amiSelectorTerms": [{"id": "ami-1"}]}, {"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-1"}]}),
        (
            {"amiFamily": "Custom", "amiSelectorTerms": [{"name": "a", "owner": "self"}]},
            {"amiFamily": "Custom", "amiSelectorTerms": [{"name": "a", "owner": "self"}]},
        ),
        ({"amiFamily": "Ubuntu", "amiSelectorTerms": [{"id": "ami-1"}]},
         {"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}]}),
    ],
)  # fmt: skip
def test_images(spec: Object, expected: Object) -> None:
    converted = spec_of(beta_class(**spec))
    assert {key: converted[key] for key in ("amiFamily", "amiSelectorTerms") if key in converted} == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {**ENABLED, "httpPutResponseHopLimit": 2, "httpTokens": "required"}),
        ({"httpTokens": "optional"}, {**ENABLED, "httpPutResponseHopLimit": 2, "httpTokens": "optional"}),
        ({"httpPutResponseHopLimit": 1}, {**ENABLED, "httpPutResponseHopLimit": 1, "httpTokens": "required"}),
    ],
)
def test_two_hops_stay_two_hops(given: Object | None, expected: Object) -> None:
    assert spec_of(beta_class(metadataOptions=given))["metadataOptions"] == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [("role", "mine"), ("userData", "x"), ("associatePublicIPAddress", False), ("detailedMonitoring", True),
     ("context", "c"), ("instanceStorePolicy", "RAID0"), ("tags", {"a": "b"}),
     ("blockDeviceMappings", [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "20Gi"}}]),
     ("subnetSelectorTerms", [{"tags": {"a": "*"}}, {"id": "subnet-2"}]),
     ("securityGroupSelectorTerms", [{"name": "a"}, {"tags": {"a": "b"}}])],
)  # fmt: skip
def test_fields_that_stay(field: str, value: Any) -> None:
    assert spec_of(beta_class(**{field: value}))[field] == value


def test_what_stood_beside_an_id_was_never_asked_for() -> None:
    old = beta_class(
        amiSelectorTerms=[{"id": "ami-1", "owner": "self"}],
        subnetSelectorTerms=[{"id": "subnet-1", "tags": {"a": "b"}}],
        securityGroupSelectorTerms=[{"name": "x", "tags": {"a": "b"}}],
    )
    converted = spec_of(old)
    assert converted["amiSelectorTerms"] == [{"id": "ami-1"}]
    assert converted["subnetSelectorTerms"] == [{"id": "subnet-1"}]
    assert converted["securityGroupSelectorTerms"] == [{"name": "x"}]
    assert "stands beside id" in said(old, Level.LOST)["spec.subnetSelectorTerms[0].tags"]


def test_a_field_of_v1_in_v1beta1_is_named() -> None:
    old = beta_pool(claim={"expireAfter": "1h"})
    assert "has no such field" in said(old, Level.LOST)["spec.template.spec.expireAfter"]


@pytest.mark.parametrize(
    ("old", "message"),
    [
        (beta_pool(disruption={"consolidationPolicy": "WhenEmpty"}), "consolidateAfter is missing"),
        (beta_pool(disruption={"consolidateAfter": "30s"}), "'30s' goes with consolidationPolicy WhenEmpty alone"),
        (beta_pool(disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized"}), "is not one of WhenEmpty, "),
        (beta_pool(disruption={"expireAfter": "30 days"}), "expireAfter: '30 days' does not match the pattern"),
        (beta_pool(disruption={"budgets": [{"nodes": "1", "schedule": "@daily"}]}), "schedule and duration"),
        (beta_pool(disruption={"budgets": [{"nodes": 1}]}), "spec.disruption.budgets[0].nodes: 1 is not text"),
        (beta_pool(disruption={"budgets": [{"nodes": "all"}]}), "budgets[0].nodes: 'all' does not match the pattern"),
        (beta_pool(claim={"nodeClassRef": {}}), "spec.template.spec.nodeClassRef.name is missing"),
        (beta_pool(claim={"resources": {"requests": {"cpu": "1"}}}), "resources.requests"),
        (beta_pool(template=None), "spec.template is missing"),
        (beta_class(amiFamily=None), "spec.amiFamily is missing"),
        (beta_class(amiFamily="Custom"), "'Custom' needs images"),
        (beta_class(role=None), "spec: set exactly one of role and instanceProfile"),
        (beta_class(instanceProfile="p"), "spec: set exactly one of role and instanceProfile"),
        (beta_class(subnetSelectorTerms=[]), "as v1 EC2NodeClass: spec.subnetSelectorTerms: 0 entries: at least 1"),
        (beta_class(subnetSelectorTerms=[{}]), "spec.subnetSelectorTerms[0]: {} selects nothing"),
        (beta_class(amiSelectorTerms=[{"owner": "self"}]), 'amiSelectorTerms[0]: {"owner":"self"} selects nothing'),
        (beta_class(subnetSelectorTerms=[{"tags": {"a": ""}}]), "tags[a]: 0 characters: at least 1 is asked for"),
        (beta_class(blockDeviceMappings=[{"rootVolume": True}] * 2), "only one of them may be the rootVolume"),
        (beta_class(blockDeviceMappings=[{"ebs": {"volumeSize": "20"}}]), "'20' is not between 1G and 64T"),
    ],
)  # fmt: skip
def test_what_v1beta1_never_allowed_is_refused_by_field_and_value(old: Object, message: str) -> None:
    assert message in refused(old)
