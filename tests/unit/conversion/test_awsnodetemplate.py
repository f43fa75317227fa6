"""A v1alpha1 AWSNodeTemplate, field by field; a Provisioner's own provider has the same fields."""

from typing import Any

import pytest

from spotwright.conversion.remarks import Level
from tests.unit.conversion.objects import Object, provisioner, refused, said, spec_of, template

ENABLED = {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled"}


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ({"a": "b"}, [{"tags": {"a": "b"}}]),
        ({"a": "*"}, [{"tags": {"a": "*"}}]),
        ({"a": "b", "c": "*"}, [{"tags": {"a": "b", "c": "*"}}]),
        ({"Name": "x, y"}, [{"tags": {"Name": "x"}}, {"tags": {"Name": "y"}}]),
        ({"a": "1,2", "b": "3,4"}, [{"tags": {"a": a, "b": b}} for a in "12" for b in "34"]),
    ],
)
def test_selectors_become_terms(selector: Object, terms: list[Object]) -> None:
    converted = spec_of(template(subnetSelector=selector, securityGroupSelector=selector))
    assert converted["subnetSelectorTerms"] == terms
    assert converted["securityGroupSelectorTerms"] == terms


@pytest.mark.parametrize("key", ["aws-ids", "aws::ids"])
def test_ids_become_a_term_each(key: str) -> None:
    converted = spec_of(
        template(
            subnetSelector={key: "subnet-1"},
            securityGroupSelector={key: "sg-1, sg-2"},
            amiSelector={key: "ami-1,ami-2"},
        )
    )
    assert converted["subnetSelectorTerms"] == [{"id": "subnet-1"}]
    assert converted["securityGroupSelectorTerms"] == [{"id": "sg-1"}, {"id": "sg-2"}]
    assert converted["amiSelectorTerms"] == [{"id": "ami-1"}, {"id": "ami-2"}]


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ({"team": "a"}, [{"tags": {"team": "a"}}]),
        ({"aws::name": "x,y"}, [{"name": "x"}, {"name": "y"}]),
        ({"aws::name": "x", "team": "a"}, [{"name": "x", "tags": {"team": "a"}}]),
        (
            {"aws::name": "x,y", "aws::owners": "self,123456789012"},
            [{"owner": owner, "name": name} for owner in ("self", "123456789012") for name in "xy"],
        ),
    ],
)
def test_images_are_selected_by_name_owner_and_tags(selector: Object, terms: list[Object]) -> None:
    converted = spec_of(template(amiSelector=selector))
    assert (converted["amiFamily"], converted["amiSelectorTerms"]) == ("AL2", terms)


@pytest.mark.parametrize(
    ("family", "alias"),
    [(None, "al2@latest"), ("AL2", "al2@latest"), ("Bottlerocket", "bottlerocket@latest"),
     ("Windows2019", "windows2019@latest"), ("Windows2022", "windows2022@latest")],
)  # fmt: skip
def test_a_family_alone_is_an_alias(family: str | None, alias: str) -> None:
    converted = spec_of(template(amiFamily=family))
    assert converted["amiSelectorTerms"] == [{"alias": alias}]
    assert "amiFamily" not in converted


def test_that_al2_ends_is_said() -> None:
    assert "1.33" in said(template())["spec.amiFamily"]


@pytest.mark.parametrize("family", ["AL2", "Bottlerocket", "Windows2022", "Custom"])
def test_a_family_with_images_of_ones_own_stays(family: str) -> None:
    converted = spec_of(template(amiFamily=family, amiSelector={"a": "b"}))
    assert (converted["amiFamily"], converted["amiSelectorTerms"]) == (family, [{"tags": {"a": "b"}}])


def test_custom_images_must_register_with_a_taint() -> None:
    old = template(amiFamily="Custom", amiSelector={"a": "b"}, userData="x")
    assert "karpenter.sh/unregistered:NoExecute" in said(old, Level.TO_DO)["spec.userData"]


def test_ubuntu_boots_as_al2_from_its_own_disk() -> None:
    own = spec_of(template(amiFamily="Ubuntu", amiSelector={"aws::ids": "ami-1"}))
    assert (own["amiFamily"], own["amiSelectorTerms"]) == ("AL2", [{"id": "ami-1"}])
    assert own["blockDeviceMappings"][0]["deviceName"] == "/dev/sda1"
    disk = {"deviceName": "/dev/sda1", "ebs": {"volumeSize": "50Gi"}}
    assert spec_of(template(amiFamily="Ubuntu", blockDeviceMappings=[disk]))["blockDeviceMappings"] == [disk]
    newest = template(amiFamily="Ubuntu")
    assert "${KUBERNETES_VERSION}/stable/current/arm64" in spec_of(newest)["amiSelectorTerms"][1]["ssmParameter"]
    assert "no alias for Ubuntu" in said(newest, Level.TO_DO)["spec.amiFamily"]


@pytest.mark.parametrize(
    ("given", "converted"),
    [
        (None, {**ENABLED, "httpPutResponseHopLimit": 2, "httpTokens": "required"}),
        ({}, {**ENABLED, "httpPutResponseHopLimit": 1, "httpTokens": "optional"}),
        ({"httpTokens": "required"}, {**ENABLED, "httpPutResponseHopLimit": 1, "httpTokens": "required"}),
        ({"httpPutResponseHopLimit": 2}, {**ENABLED, "httpPutResponseHopLimit": 2, "httpTokens": "optional"}),
    ],
)
def test_the_metadata_service_is_written_out_as_it_was(given: Object | None, converted: Object) -> None:
    assert spec_of(template(metadataOptions=given))["metadataOptions"] == converted


@pytest.mark.parametrize(
    ("field", "value"),
    [("userData", "#!/bin/sh\n"), ("instanceProfile", "mine"), ("detailedMonitoring", False), ("context", "c")],
)
def test_fields_that_stay(field: str, value: Any) -> None:
    assert spec_of(template(**{field: value}))[field] == value


@pytest.mark.parametrize(
    ("given", "converted"),
    [("20Gi", "20Gi"), ("100G", "100G"), ("2Ti", "2Ti"), ("20480Mi", "20Gi"), ("1.5Gi", "2Gi"), ("1000000000", "1Gi"),
     (1073741825, "2Gi"), ("64T", "64T"), ("020Gi", "20Gi"), ("1e10", "10Gi")],
)  # fmt: skip
def test_volume_sizes_are_spelled_as_v1_asks(given: str | int, converted: str) -> None:
    disks = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": given, "encrypted": True}}]
    (disk,) = spec_of(template(blockDeviceMappings=disks))["blockDeviceMappings"]
    assert disk == {"deviceName": "/dev/xvda", "ebs": {"volumeSize": converted, "encrypted": True}}


def test_tags_that_are_not_the_users_to_set_are_lost_in_words() -> None:
    reserved = [
        "kubernetes.io/cluster/a",
        "karpenter.sh/provisioner-name",
        "karpenter.sh/nodepool",
        "eks:eks-cluster-name",
    ]
    old = template(tags={"env": "dev"} | dict.fromkeys(reserved, "x"))
    assert spec_of(old)["tags"] == {"env": "dev"}
    assert set(said(old, Level.LOST)) == {f"spec.tags[{key}]" for key in reserved}


def test_without_a_profile_the_role_is_left_to_write() -> None:
    old = template(instanceProfile=None)
    assert spec_of(old)["role"] == "${KARPENTER_NODE_ROLE}"
    assert "KARPENTER_NODE_ROLE" in said(old, Level.TO_DO)["spec.instanceProfile"]


def test_a_misspelt_profile_is_named_with_what_was_meant() -> None:
    old = template(instanceProfile=None, instanceprofile="mine")
    assert "did you mean instanceProfile?" in said(old, Level.LOST)["spec.instanceprofile"]


def test_a_launch_template_is_lost_and_what_it_knew_is_left_to_write() -> None:
    old = provisioner(provider={"launchTemplate": "old", "subnetSelector": {"a": "b"}})
    remark = said(old, Level.LOST)["spec.provider.launchTemplate"]
    assert "no equal in v1" in remark
    assert "--launch-template-name old" in remark
    assert "SECURITY_GROUP_NAME" in said(old, Level.TO_DO)["spec.provider.launchTemplate"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"subnetSelector": None}, "spec.subnetSelector is missing: it is required"),
        ({"securityGroupSelector": None}, "spec.securityGroupSelector is missing"),
        ({"subnetSelector": {}}, "spec.subnetSelector: {} selects nothing"),
        ({"subnetSelector": {"a": ""}}, "spec.subnetSelector[a]: '' is empty"),
        ({"subnetSelector": {"a": "b,,c"}}, "spec.subnetSelector[a]: 'b,,c' is empty, in part"),
        ({"subnetSelector": {"aws-ids": "subnet-1", "a": "b"}}, "cannot be combined: aws-ids stands alone"),
        ({"subnetSelector": {"aws-ids": "sg-1"}}, "'sg-1' does not match the pattern ^subnet-[0-9a-z]+$"),
        ({"subnetSelector": dict.fromkeys("abcde", "1,2")}, "would be 32 terms: v1 takes 30"),
        ({"amiSelector": {"aws::owners": "self"}}, "says only who owns the images"),
        ({"amiFamily": "Custom"}, "spec.amiFamily: 'Custom' needs images: select them"),
        ({"amiFamily": "AL2023"}, "'AL2023' is not one of AL2, Bottlerocket, Ubuntu"),
        ({"metadataOptions": {"httpTokens": "never"}}, "'never' is not one of required, optional"),
        ({"metadataOptions": {"httpPutResponseHopLimit": 65}}, "65 is not between 1 and 64"),
        ({"blockDeviceMappings": [{"ebs": {}}]}, "blockDeviceMappings[0].ebs.volumeSize is missing"),
        ({"blockDeviceMappings": [{"ebs": {"volumeSize": 100}}]}, "volumeSize: 100 is not between 1G and 64T"),
        ({"launchTemplate": "x"}, "cannot be combined with launchTemplate x"),
        ({"instanceProfile": ""}, "spec.instanceProfile: 0 characters: at least 1 is asked for"),
    ],
)
def test_what_no_template_may_hold_is_refused_by_field_and_value(spec: Object, message: str) -> None:
    assert message in refused(template(**spec))
